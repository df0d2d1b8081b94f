"""Why it is as slow as it is, and what to do: attribution, roofline, findings, what-ifs.

`judging.judge` chooses what a profile is held against, once; `explanation.explain` reads it out.
"""
