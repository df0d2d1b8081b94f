"""How the tests run: each one ends, signals are Python's own, and the order may be any.

A test has `TEST_LIMIT_S` (300 s) for each of its setup, call and teardown, or what its marker says: `limit(seconds)`.
After that an alarm fails it, with the stacks of all threads. Where Python does not react, because C code holds the
interpreter, the process prints its stacks and ends a little later, and pytest-xdist goes on with a new worker.

The whole run has `SUITE_LIMIT_S` (an hour). After that it says what still runs, prints the stacks of every worker, and
ends with the summary of what was done until then.

Workers share the work of rewriting assertions, which pytest would do in each of them: 18 s of a fresh checkout. Of what
passed they report what somebody reads.

`--shuffle SEED` runs the modules in another order, and the tests of each.
"""

import faulthandler
import os
import random
import signal
import sys
import threading
import traceback
from contextlib import contextmanager, suppress
from itertools import islice
from time import monotonic  # itself: a test may put another into the module

import psutil
import pytest
from _pytest.assertion import rewrite

TEST_LIMIT_S = float(os.environ.get("TEST_LIMIT_S", "300"))  # noqa: TID251 - the test run's own environment
SUITE_LIMIT_S = float(os.environ.get("SUITE_LIMIT_S", "3600"))  # noqa: TID251 - as above
WAITING = ("tests/contract/", "tests/docs/", "tests/e2e/")
GRACE_S = 20.0  # between asking and ending: for cleaning up, on a machine that may be busy


class TookTooLong(BaseException):
    """No `Exception`: neither the code under test nor hypothesis shall catch it and go on."""


def pytest_addoption(parser):
    parser.addoption("--shuffle", type=int, metavar="SEED", help="run modules, and the tests of each, in another order")


def pytest_configure(config):
    config.addinivalue_line("markers", "limit(seconds): how long each of its setup, call and teardown may take")
    _signals_as_python_has_them()
    stderr = os.dup(2)  # the terminal's: nothing is captured yet
    config.pluginmanager.register(_TestLimit(stderr), "test_limit")
    if not hasattr(config, "workerinput"):  # the process that the user started, and no worker of pytest-xdist
        config.pluginmanager.register(_SuiteLimit(config, stderr), "suite_limit")
        return
    _report_less(config)
    if not sys.dont_write_bytecode:
        with suppress(AttributeError, TypeError, OSError):  # inside another pytest, or on a disk that cannot be written
            _rewrite_a_share(config, int(config.workerinput["workerid"][2:]), config.workerinput["workercount"])


def pytest_report_header(config):
    seed = config.getoption("shuffle")
    return None if seed is None else f"shuffled by --shuffle {seed}"


@pytest.hookimpl(trylast=True)  # after pytest has put together what shares a fixture
def pytest_collection_modifyitems(config, items):
    modules = {}
    for item in items:
        modules.setdefault(item.nodeid.partition("::")[0], []).append(item)
    seed = config.getoption("shuffle")
    if seed is None:
        ordered = _spread(modules)
    else:
        chance = random.Random(seed)  # noqa: S311 - every worker must have the same order
        ordered = [*modules.values()]
        chance.shuffle(ordered)
        for module in ordered:
            chance.shuffle(module)
    items[:] = [item for module in ordered for item in module]


def _spread(modules):
    """Those that wait for processes, servers and browsers evenly among those that compute: neither is left for last."""
    kinds = {}
    for name in modules:
        kinds.setdefault(name.startswith(WAITING), []).append(name)
    place = {name: (number + 0.5) / len(names) for names in kinds.values() for number, name in enumerate(names)}
    return [modules[name] for name in sorted(modules, key=place.__getitem__)]


def _rewrite_a_share(config, worker, workers):
    """Every `workers`-th of the tests that no run has rewritten yet; what the others have not done is done when met."""
    named = [config.invocation_params.dir / argument.partition("::")[0] for argument in config.args]
    files = sorted({file for path in named for file in (path.rglob("test_*.py") if path.is_dir() else [path])})
    for file in islice(files, worker, None, workers):
        kept = rewrite.get_cache_dir(file) / f"{file.stem}{rewrite.PYC_TAIL}"
        if not kept.exists() or kept.stat().st_mtime < file.stat().st_mtime:
            rewrite.try_makedirs(kept.parent)
            digest, code = rewrite._rewrite_test(file, config)
            rewrite._write_pyc(config.stash[rewrite.assertstate_key], code, digest, kept)


def _report_less(config):
    """Of a test that passed the process that prints needs its call, and set-up and teardown if they were slow.

    A report costs both processes half a millisecond, and most tests take less than that.
    """
    slow_s = 0.0 if config.getoption("xmlpath", None) else config.getoption("durations_min") or 0.005  # pytest's own
    for plugin in config.pluginmanager.get_plugins():
        if hasattr(plugin, "sendevent"):  # pytest-xdist's
            plugin.sendevent = _sending_less(plugin.sendevent, slow_s)


def _sending_less(send, slow_s):
    def sendevent(name, **about):
        report = about.get("data", {})
        if name == "testreport" and report["outcome"] == "passed":
            if report["when"] != "call" and report["duration"] < slow_s and not report["sections"]:
                return
            # The names of the test and of all above it: nobody asks for them but `--note-passed`, for one mark.
            report["keywords"] = {key: 1 for key in report["keywords"] if key == "installed"}
        send(name, **about)

    return sendevent


def _signals_as_python_has_them():
    """A shell ignores SIGINT in what it starts in the background, nohup SIGHUP, and every child inherits it.

    What is set here to a handler or to the default is the default in processes that tests start.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for name, kept in (("SIGTERM", "SIG_DFL"), ("SIGHUP", "SIG_DFL"), ("SIGCHLD", "SIG_DFL"), ("SIGPIPE", "SIG_IGN")):
        if hasattr(signal, name):  # Windows has not all
            signal.signal(getattr(signal, name), getattr(signal, kept))
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_SETMASK, ())


class _TestLimit:
    def __init__(self, stderr):
        self._stderr, self._ends = stderr, 0.0  # when the process would end

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item):
        with self._limited(item, "setup"):
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item):
        with self._limited(item, "call"):
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item):
        with self._limited(item, "teardown"):
            return (yield)

    def pytest_enter_pdb(self):
        self._disarm()

    def pytest_sessionfinish(self):
        self._disarm()

    @contextmanager
    def _limited(self, item, phase):
        marker = item.get_closest_marker("limit")
        seconds = marker.args[0] if marker else TEST_LIMIT_S

        def fail(_number, _frame):
            raise TookTooLong(f"The {phase} of {item.nodeid} was not over after {seconds:g} s.\n{_stacks()}")

        if hasattr(signal, "setitimer"):  # Windows has none: there the process ends
            signal.signal(signal.SIGALRM, fail)
            signal.setitimer(signal.ITIMER_REAL, seconds)
        # The thread that ends the process takes a millisecond to start and to stop: one serves tests of like limits.
        soonest = monotonic() + seconds + GRACE_S
        if not soonest <= self._ends <= soonest + 2 * GRACE_S:
            faulthandler.dump_traceback_later(seconds + 2 * GRACE_S, exit=True, file=self._stderr)
            self._ends = soonest + GRACE_S
        try:
            yield
        finally:
            if hasattr(signal, "setitimer"):
                signal.setitimer(signal.ITIMER_REAL, 0)

    def _disarm(self):
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_REAL, 0)
        faulthandler.cancel_dump_traceback_later()
        self._ends = 0.0


def _stacks():
    """Of all threads, and which processes this one has started: it may wait for one of them."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    told = [
        f"Thread {names.get(ident, ident)}:\n{''.join(traceback.format_stack(frame))}"
        for ident, frame in sys._current_frames().items()
    ]
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):  # it has ended by now
            told.append(f"Process {child.pid} ({child.status()}): {' '.join(child.cmdline())}")
    return "\n".join(told)


class _SuiteLimit:
    """In the process that the user started, which knows what each worker is at."""

    def __init__(self, config, stderr):
        self._config, self._stderr = config, stderr
        self._running, self._over = {}, threading.Event()
        self._left = ()

    def pytest_sessionstart(self, session):
        if hasattr(signal, "SIGUSR1"):
            signal.signal(signal.SIGUSR1, lambda *_: self._end(session))
        threading.Thread(target=self._watch, name="limit of the suite", daemon=True).start()

    def pytest_keyboard_interrupt(self):
        """Workers are killed then, before they could end what their tests have started."""
        self._left = psutil.Process().children(recursive=True)

    def pytest_unconfigure(self):
        for process in self._left:
            with suppress(psutil.Error):
                process.terminate()

    def pytest_sessionfinish(self):
        self._over.set()

    def pytest_runtest_logstart(self, nodeid):
        self._running[nodeid] = monotonic()

    def pytest_runtest_logfinish(self, nodeid):
        self._running.pop(nodeid, None)

    def _end(self, session):
        """In the main thread: among workers' answers pytest ends at once, in a test that code may catch it after it."""
        why = f"the tests were not over after {SUITE_LIMIT_S:g} s"
        if self._has_workers():
            pytest.exit(why, returncode=1)
        session.shouldfail = why
        raise TookTooLong(why)

    def _has_workers(self):
        return self._config.pluginmanager.hasplugin("dsession")

    def _is_reached(self):
        """After the limit, or before it where the run has ended."""
        return not self._over.wait(SUITE_LIMIT_S)

    def _watch(self):
        if not self._is_reached():
            return
        now = monotonic()
        running = [f"  {nodeid}, for {now - since:.0f} s" for nodeid, since in [*self._running.items()]]
        said = (f"The tests were not over after {SUITE_LIMIT_S:g} s (SUITE_LIMIT_S). Still running:", *running)
        os.write(self._stderr, "\n".join(("", *said, "")).encode())
        self._end_workers()
        if hasattr(signal, "SIGUSR1"):
            signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)
            if self._over.wait(GRACE_S):
                return
        os._exit(1)

    def _end_workers(self):
        """With their stacks, and with what their tests have started."""
        started = psutil.Process().children(recursive=True)
        if self._has_workers():
            for worker in psutil.Process().children():  # in turn: two would write their stacks into each other's
                with suppress(psutil.Error):
                    worker.send_signal(signal.SIGABRT)  # pytest has set faulthandler to print the stacks then
                    worker.wait(GRACE_S)
        else:
            faulthandler.dump_traceback(self._stderr)
        for process in started:
            with suppress(psutil.Error):
                process.kill()
