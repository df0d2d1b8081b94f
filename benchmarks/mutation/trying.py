"""Whether the tests that touch a mutant notice it: those tests, fastest first, in a fork that sees the mutant.

Tests are collected once. Where a mutant changes the body of a function, a fork puts the changed code into the function
that is there and runs the tests: a tenth of a second before the first of them. Where it changes what runs on import,
or nobody noticed, a new process imports the mutant in the module's place.
"""

import functools
import gc
import math
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
import types
from pathlib import Path

import pytest
from sites import SOURCE
from touching import OVERLAY, ROOT, environment

MOST_S = (20.0, 10.0)  # of tests tried on one mutant: those of its line, those of its file; the fastest come first
# A mutant may make tests slower; a loop without an end is stopped. Their seconds were recorded with coverage, which
# takes twice as long; what forgets its caches first takes some more.
SLOWER, LEAST_S = 4.0, 5.0
OPTIONS = ("-q", "-x", "-s", "-p", "no:xdist", "-p", "no:cacheprovider", "--assert=plain")
# Plain asserts: the import hook that rewrites them would come before ours.


def prepare():
    """Before pytest starts: our source and tests on the path, here and in every process that a test starts."""
    sys.path[:0] = [str(OVERLAY), str(ROOT / "src"), str(ROOT / "tests")]
    os.environ.update(environment())  # noqa: TID251 - inherited by the processes that tests start
    os.chdir(ROOT)


def tests_for(mutant, lines, seconds):
    """Those that run the line; then, for what an earlier test left in a cache, those of the file.

    No test runs a line that runs on import, or in processes that tests start: those of the file, then of the package.
    """
    by_line = lines.get(str(SOURCE / mutant.file), {})
    near = by_line.get(mutant.line, set())
    others = set().union(*by_line.values()) - near if by_line else set()
    if not near:
        own = f"tests/unit/{Path(mutant.file).parts[0]}/"
        near, others = others, {test for test in seconds if test.startswith(own)} - others
    chosen = []
    for group, most_s in zip((near, others), MOST_S, strict=True):
        left_s = most_s
        for test in sorted(group, key=seconds.__getitem__):
            left_s -= seconds[test]
            if left_s < 0:
                break
            chosen.append(test)
    return chosen


# In a fork: the changed code, in the functions that are there.


def codes_in(code, outer=()):
    """Every code object inside another, by its path."""
    path = (*outer, code.co_name, code.co_firstlineno)
    yield path, code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from codes_in(constant, path)


def body(code):
    """What a code object does, without what is nested in it."""
    constants = tuple(c.co_name if isinstance(c, types.CodeType) else (type(c), c) for c in code.co_consts)
    return code.co_code, repr(constants), code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars


def changed_functions(mutant):
    """{qualified name: code} of the functions that hold the change, or None where it runs on import.

    Of one inside another both are there: the inner may have been made on import, by a decorator or a table.
    """
    path = SOURCE / mutant.file
    before, after = (compile(source, str(path), "exec") for source in (path.read_text(encoding="utf-8"), mutant.source))
    old, new = [*codes_in(before)], [*codes_in(after)]
    if len(old) != len(new):
        return None
    found = {}
    for (_, was), (_, now) in zip(old, new, strict=True):
        if body(was) != body(now):
            if not was.co_flags & 2:  # a module's or a class's body, not a function's
                return None
            found[was.co_qualname.partition(".<locals>")[0].partition(".<lambda>")[0]] = None
            if sum(code.co_qualname == was.co_qualname for _, code in old) == 1:
                found[was.co_qualname] = None
    for _, now in new:
        if now.co_qualname in found:
            found[now.co_qualname] = now
    return found if found and all(found.values()) else None


def alive():
    """Every function of ours by its file, and every cache of one."""
    functions, caches = {}, []
    for thing in gc.get_objects():
        if type(thing) is types.FunctionType and thing.__code__.co_filename.startswith(str(SOURCE)):
            functions.setdefault(thing.__code__.co_filename, []).append(thing)
        elif type(thing) is functools._lru_cache_wrapper and str(thing.__module__).startswith("inferometer"):  # noqa: SLF001 - its only name
            caches.append(thing)
    return functions, caches


def put_in_place(codes, functions, caches):
    """Whether each that is in no other was found alive and took its new code. Whatever of ours is kept is forgotten."""
    placed = set()
    for function in functions:
        code = codes.get(function.__code__.co_qualname)
        if code is not None and code.co_freevars == function.__code__.co_freevars:
            function.__code__ = code
            placed.add(code.co_qualname)
    for cache in caches:
        cache.cache_clear()
    return {name for name in codes if ".<locals>" not in name} <= placed


def run_items(items):
    """The first item that fails, or None."""
    for place, item in enumerate(items):
        following = items[place + 1] if place + 1 < len(items) else None
        reports = pytest_reports(item, following)
        if any(report.failed for report in reports):
            return item.nodeid
    return None


def pytest_reports(item, following):
    from _pytest.runner import runtestprotocol  # noqa: PLC0415 - pytest has no public way to run one item

    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    return runtestprotocol(item, nextitem=following, log=False)


def in_fork(work, limit_s, cpu_s=None):
    """What `work` returns in a fork, "too slow", or "the process ended".

    After `cpu_s` of a processor the system ends it, however busy the machine is: a loop without an end takes no longer.
    """
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder, "answer")
        process = os.fork()
        if process == 0:
            try:
                os.setsid()
                if cpu_s is not None:
                    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(cpu_s), math.ceil(cpu_s) + 1))
                with open(os.devnull, "w") as nowhere:  # noqa: PTH123
                    os.dup2(nowhere.fileno(), 1)
                    os.dup2(nowhere.fileno(), 2)
                answer.write_text(work(Path(folder)) or "", encoding="utf-8")
            finally:  # the fork ends here, whatever a mutant raised
                os._exit(0)
        limit = time.monotonic() + limit_s
        while os.waitpid(process, os.WNOHANG) == (0, 0):
            if time.monotonic() > limit:
                os.killpg(process, signal.SIGKILL)
                os.waitpid(process, 0)
                return TOO_SLOW
            time.sleep(0.01)
        return (answer.read_text(encoding="utf-8") or None) if answer.exists() else "the process ended"


NOT_PLACED, TOO_SLOW = "not placed", "too slow"


class Trying:
    """A pytest plug-in: instead of running the tests, try each mutant with those it touches."""

    def __init__(self, lines, seconds, *, sure):
        self.lines, self.seconds, self.sure = lines, seconds, sure
        self.items, self.functions, self.caches = {}, {}, []
        self.passes = {}  # whether a test passes here without a mutant

    def pytest_collection_modifyitems(self, items):
        self.items = {item.nodeid: item for item in items}
        self.functions, self.caches = alive()

    def caught_by(self, mutant):
        """The test that fails for the mutant alone: one that fails without it too has not noticed anything."""
        tests = [test for test in tests_for(mutant, self.lines, self.seconds) if self.passes.get(test, True)]
        while (found := self.tried_by(mutant, tests)) in self.items and not self.passes_without(found):
            tests.remove(found)
        return found, len(tests)

    def tried_by(self, mutant, tests):
        items = [self.items[test] for test in tests if test in self.items]
        cpu_s = LEAST_S + SLOWER * sum(self.seconds[test] for test in tests)
        limit_s = 30 + cpu_s
        codes = changed_functions(mutant) if items else None
        found = NOT_PLACED
        if codes:
            found = self.in_time(lambda folder: self.swapped(mutant, codes, items, folder), items, limit_s, cpu_s)
        if (found == NOT_PLACED or (found is None and self.sure)) and tests:
            found = self.in_time(lambda folder: afresh(mutant, tests, folder), items, limit_s + 30, cpu_s + 30)
        return None if found == NOT_PLACED else found

    def in_time(self, work, items, limit_s, cpu_s):
        """As `in_fork`; too slow is only what is slow beside the same tests, run now without a mutant."""
        found = in_fork(work, limit_s, cpu_s)
        if found == TOO_SLOW:
            start = time.monotonic()
            in_fork(lambda _: run_items(items), 10 * limit_s)
            found = in_fork(work, limit_s + SLOWER * (time.monotonic() - start), cpu_s)
        return found

    def passes_without(self, test):
        if test not in self.passes:
            limit_s = 60 + 10 * SLOWER * self.seconds[test]
            self.passes[test] = in_fork(lambda _: run_items([self.items[test]]), limit_s) is None
        return self.passes[test]

    def swapped(self, mutant, codes, items, folder):
        if not put_in_place(codes, self.functions.get(str(SOURCE / mutant.file), []), self.caches):
            return NOT_PLACED
        export(mutant, folder)
        return run_items(items)


def export(mutant, folder):
    """The mutant for the processes that tests start."""
    written = folder / "mutant.py"
    written.write_text(mutant.source, encoding="utf-8")
    os.environ.update(MUTANT_FILE=str((SOURCE / mutant.file).resolve()), MUTANT_SOURCE=str(written))  # noqa: TID251 - as above


class Chosen:
    """A pytest plug-in: only the tests named, in their order."""

    def __init__(self, tests):
        self.place = {test: place for place, test in enumerate(tests)}
        self.failed = None

    def pytest_collection_modifyitems(self, items):
        items[:] = sorted(
            (item for item in items if item.nodeid in self.place), key=lambda item: self.place[item.nodeid]
        )

    def pytest_runtest_logreport(self, report):
        if report.failed and self.failed is None:
            self.failed = report.nodeid


def afresh(mutant, tests, folder):
    """In a process that has imported nothing of ours yet."""
    export(mutant, folder)
    (folder / "tests").write_text("\n".join(tests), encoding="utf-8")
    subprocess.run([sys.executable, __file__, str(folder)], check=False)
    return (folder / "failed").read_text(encoding="utf-8")


def main(folder):
    tests = (folder / "tests").read_text(encoding="utf-8").splitlines()
    chosen = Chosen(tests)
    code = pytest.main([*sorted({test.partition("::")[0] for test in tests}), *OPTIONS], plugins=[chosen])
    failed = chosen.failed or ("" if code in {0, 5} else f"exit {int(code)}")
    (folder / "failed").write_text(failed, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
