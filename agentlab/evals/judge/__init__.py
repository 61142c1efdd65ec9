"""A judge: a model that grades what rules cannot, and the comparison of its grades with human labels.

`judging` grades the replies of a finished run and adds verdicts to its scores. `rubrics` defines the questions, makes
answers with a known verdict, and reads the verdict out of a reply. `labels` reads human labels, and `judge_report`
estimates how far the judge can be trusted. The command line and notebooks may import `judging` and `labels`.
"""
