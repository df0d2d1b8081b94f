"""Every runtime over hostile files of every format that it opens: each is refused, and nothing in it has run."""

import pytest

from fakes.hostile import FORMATS, pickle_in_place_of_it
from inferometer.core.errors import FormatError, InferometerError, TrustError
from inferometer.core.plugins import load_all
from inferometer.engines.base import Missing, Target
from inferometer.formats.trust.door import FORMATS as KNOWN

RUNTIMES = load_all("inferometer.runtimes")[0]
OPENED = [(name, form) for name, runtime in sorted(RUNTIMES.items()) for form in sorted(runtime.formats)]
ROWS = [(name, form, make) for name, form in OPENED for make in FORMATS.get(form, ())]


def opened(name, form, path):
    runtime = RUNTIMES[name]
    if isinstance(missing := runtime.probe(), Missing):
        pytest.skip(f"SKIPPED LOUDLY: {missing.reason}; {missing.remedy}")
    return runtime.open(Target(path=path, format=form, text=not runtime.capabilities.arrays, unit="cpu"))


@pytest.mark.parametrize(("name", "form", "make"), ROWS, ids=lambda value: getattr(value, "__name__", value))
def test_a_hostile_file_is_refused_with_what_it_would_do(name, form, make, tmp_path):
    mark = tmp_path / "mark"
    with pytest.raises((TrustError, FormatError)) as refused:
        opened(name, form, make(tmp_path, mark))
    assert not mark.exists()
    assert "could run code of its own" in refused.value.message or "member" in refused.value.message


@pytest.mark.parametrize(("name", "form"), OPENED)
def test_a_pickle_in_place_of_a_model_is_not_unpickled(name, form, tmp_path):
    mark = tmp_path / "mark"
    with pytest.raises(InferometerError):
        opened(name, form, pickle_in_place_of_it(tmp_path, mark))
    assert not mark.exists()


def test_of_every_format_that_a_runtime_opens_it_is_said_what_could_be_in_it():
    assert {form for _, form in OPENED} <= {row.format for row in KNOWN}
