"""A model that grades what rules cannot, held against people before anything rests on it.

`judging` asks the judge about the replies of a finished run, `rubrics` says what it is asked, `stress` gives it answers
that are known to be wrong, `labels` reads what people say, and `standing` says what the judge is worth. The command
line and notebooks may import `judging` and `labels`.
"""
