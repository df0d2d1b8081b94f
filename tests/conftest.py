"""What every test shares."""

import ctypes
import gc
import os
import shutil
import sys
from contextlib import suppress
from functools import cache, partial
from types import SimpleNamespace

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers

from fakes.closing import check_every_profile
from fakes.once import made_once
from fakes.tables import remembering
from inferometer.cli.run import run
from inferometer.core.settings import data_folder
from inferometer.known.machine.health import host_calls
from inferometer.known.machine.local import local_device
from inferometer.predict.basis import roof
from inferometer.serving.load import loops
from inferometer.store import schema
from unit.store import postgres

pytest_plugins = ("passed_before", "suite_plugin")

# No deadline: a busy machine is not a bug. In CI the same examples each time: a change fails for what it changed.
# Elsewhere other ones each time, so far fewer than hypothesis's hundred find as much over a few runs.
settings.register_profile("here", deadline=None, max_examples=12)
settings.register_profile("ci", deadline=None, max_examples=40, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "here")  # noqa: TID251 - the test run's own environment
if not os.environ.get("CI"):  # noqa: TID251 - as above
    # Hypothesis would read every module of ours for its constants in each worker, and try all of them against every
    # range and alphabet that is drawn from: a twentieth of the property tests' time, for a fortieth of what is drawn.
    providers._get_local_constants = lambda: providers._local_constants

check_every_profile()
with suppress(AttributeError, TypeError):  # glibc alone has it, and Windows no such library
    # What a test frees stays for the next one: to be given the same pages anew and to clear them was half of the time
    # that tests spent in the kernel. Processes that they start have the system's own settings.
    for _setting, _bytes in ((-3, 2**26), (-1, 2**28), (-2, 2**24)):  # M_MMAP_THRESHOLD, M_TRIM_THRESHOLD, M_TOP_PAD
        ctypes.CDLL(None).mallopt(_setting, _bytes)
gc.disable()  # while thousands of tests are collected, none of which is garbage


def pytest_collection_finish():
    """Set the tests and the libraries aside: whatever collects garbage later would walk through them, for seconds."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)  # from 700 on, looking for garbage took a twentieth of the tests' time
    gc.enable()


@pytest.fixture(autouse=True, scope="session")
def _folders_of_our_own(tmp_path_factory):
    """Commands that keep runs, models or calibrations keep them here, not among the user's.

    What is made anew where it is missing (models, parsed tables, compiled graphs, scripts of charts) is made once for
    all workers of a test run: it takes seconds, and many tests ask for the same.
    """
    folder, shared = tmp_path_factory.mktemp("user"), tmp_path_factory.getbasetemp()
    if os.environ.get("PYTEST_XDIST_WORKER"):  # noqa: TID251 - the test run's own environment
        shared = shared.parent
    chosen = {
        "INFEROMETER_DATA": str(folder / "data"),
        "INFEROMETER_CACHE": str(shared / "cache"),
        "INFEROMETER_CONFIG": str(folder / "config.toml"),
        "INFEROMETER_REMEMBER": "0",  # what one test patched another one would be told
        "INFEROMETER_LEARN": "0",  # one test's profile would move another's predictions
    }
    patch = pytest.MonkeyPatch()
    for name, value in chosen.items():
        patch.setenv(name, value)
    yield
    patch.undo()


def _measured_once(measure, machine):
    """The roof, of all workers: where programs share the machine, measuring it is tried again and again."""

    def kept_in(folder):
        roof._store_roof(folder / "roof.json", measure(machine, load=lambda: 0.0))

    return roof._stored_roof(made_once("roof", kept_in) / "roof.json")


@pytest.fixture(autouse=True, scope="session")
def _shortcuts():
    """The tables of stores are made and the machine's roof is measured once, and a few calls tell how fast it is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(roof, "measured_roof", cache(partial(_measured_once, roof.measured_roof)))
        patch.setattr(schema, "run_alembic", remembering(schema.run_alembic))
        patch.setattr(host_calls, "_CALLS", 20)
        # Before a load test begins garbage is collected: half a second where a thousand tests left what they know.
        patch.setattr(
            loops,
            "gc",
            SimpleNamespace(isenabled=gc.isenabled, enable=gc.enable, disable=gc.disable, collect=lambda: 0),
        )
        yield


@pytest.fixture(scope="session")
def roofs(_folders_of_our_own, _shortcuts):
    """The folder with the roof of this machine, for what is asked here and by processes that a test starts."""
    roof.machine_roof(local_device("local:cpu"))
    return data_folder() / "roofs"


@pytest.fixture(autouse=True, scope="session")
def _roofs_for_all(request):
    """Where workers run all tests, no process that one of them starts measures it anew."""
    if os.environ.get("PYTEST_XDIST_WORKER"):  # noqa: TID251 - the test run's own environment
        request.getfixturevalue("roofs")


@pytest.fixture(scope="session")
def postgres_server(_folders_of_our_own):
    """One for all tests that do not stop it: starting one takes a second."""
    with postgres.server() as found:
        yield found


@pytest.fixture
def own_data(tmp_path, roofs, monkeypatch):
    """A data folder of the test's own, in which nothing but the machine's roof is known."""
    shutil.copytree(roofs, tmp_path / "data" / "roofs")
    monkeypatch.setenv("INFEROMETER_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


@pytest.fixture
def answered(capsys, monkeypatch):
    """A command in this process, as `python -m inferometer` calls it: its exit code and what it wrote.

    For tests of what is said. Those of a process, its signals, pipes and environment, start one.
    """

    def answered(*arguments):
        monkeypatch.setattr(sys, "argv", ["inferometer", *arguments])  # what is kept with a result
        code = run(arguments)
        written = capsys.readouterr()
        return SimpleNamespace(returncode=code, stdout=written.out, stderr=written.err)

    return answered
