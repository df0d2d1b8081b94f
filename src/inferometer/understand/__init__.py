"""Why it is as slow as it is, what to do about it, and how all of it is shown.

`judging.judge_profile` chooses once what a profile is compared with; `explanation.explain` only reads the result.
"""
