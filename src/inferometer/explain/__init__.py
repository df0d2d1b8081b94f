"""Why it is as slow as it is, and what to do: attribution, roofline, findings, what-ifs.

`judging.judge_profile` chooses once what a profile is compared with; `explanation.explain` only reads the result.
The package is a verb too: `inferometer.explain("last")`.
"""

from inferometer.lazy import callable_package

callable_package(__name__, "inferometer.verbs.explanations")
