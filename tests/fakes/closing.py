"""Every profile that a test makes adds up: the functions that make profiles, with that check behind them."""

import functools
import sys
from contextlib import contextmanager

import inferometer.engines.results.assemble
import inferometer.measure.run.assemble
import inferometer.measure.run.beside
import inferometer.predict.answer
from fakes.closed_sums import unclosed

_MAKERS = (
    (inferometer.predict.answer, "predict_graph"),
    (inferometer.measure.run.assemble, "assemble_profile"),
    (inferometer.measure.run.beside, "with_prediction"),
    (inferometer.engines.results.assemble, "finish"),
)
_checking = [True]


def check_every_profile():
    """From now on. A module that imported one of them before has it under the same name: it is replaced there too."""
    for home, name in _MAKERS:
        make = getattr(home, name)
        checked = _checked(make)
        for module in [*sys.modules.values()]:
            if vars(module).get(name) is make:
                setattr(module, name, checked)


def _checked(make):
    @functools.wraps(make)
    def made(*args, **kwargs):
        profile = make(*args, **kwargs)
        wrong = unclosed(profile) if _checking[-1] else ()
        assert not wrong, "\n".join(("The profile does not add up:", *wrong))
        return profile

    return made


@contextmanager
def contradictions_allowed():
    """For files that were made to contradict themselves."""
    _checking.append(False)
    yield
    _checking.pop()
