"""Many near-equal cases as one test: it goes through all of them, and a failure names those that do not hold.

A test of its own costs a hundredth of a second and a line of the report, whatever it does: hundreds of rows that are
read by the same code are better checked in one go.
"""


def every(cases, name=str):
    """Instead of `pytest.mark.parametrize`, for a test whose only argument is the case."""

    def decorate(test):
        def over_all():
            wrong = {}
            for case in cases:
                try:
                    test(case)
                except Exception as error:  # noqa: BLE001 - whatever went wrong is told with the case
                    wrong[name(case)] = error
            if wrong:
                first = next(iter(wrong.values()))
                raise AssertionError(f"{len(wrong)} of {len(cases)} cases: {', '.join(wrong)}") from first

        over_all.__name__, over_all.__qualname__, over_all.__doc__ = test.__name__, test.__qualname__, test.__doc__
        over_all.__module__ = test.__module__
        return over_all

    return decorate
