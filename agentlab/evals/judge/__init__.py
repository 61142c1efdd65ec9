"""A judge: a model that grades what rules cannot, and the comparison of its grades with human labels.

`judging` grades the replies of a finished run. `rubrics` defines the questions. `known_answers` adds answers with a
known verdict. `verdicts` reads the verdict out of a judge's reply, and `scores` adds verdicts to the scores of the run.
`labels` reads human labels, and `judge_report` estimates how far the judge can be trusted. The command line and
notebooks may import `judging` and `labels`.
"""
