"""Read by every Python that has this folder on its path: a mutant in place of its module, lines told by test.

Processes that a test starts inherit the path, so that a mutant reaches them and their lines count for that test.
"""

import importlib.abc
import importlib.machinery
import os
import sys

settings = os.environ  # noqa: TID251 - how the driver reaches the processes that tests start


class MutantLoader(importlib.machinery.SourceFileLoader):
    """The module as it is, but for its source: its path stays, since modules find their data beside them."""

    def get_code(self, fullname):  # noqa: ARG002 - the loader's own signature
        with open(settings["MUTANT_SOURCE"], encoding="utf-8") as file:  # noqa: PTH123 - pathlib costs each start
            return compile(file.read(), self.path, "exec")


class MutantFinder(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname, path, target=None):
        if fullname != settings.get("MUTANT_MODULE"):
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        spec.loader = MutantLoader(spec.loader.name, spec.loader.path)
        return spec


def tell_lines():
    """Coverage of a process that a test started, in that test's name."""
    import atexit  # noqa: PLC0415 - only where lines are told

    import coverage  # noqa: PLC0415

    context = settings["PYTEST_CURRENT_TEST"].rpartition(" (")[0]
    telling = coverage.Coverage(
        data_file=settings["MUTATION_LINES"],
        data_suffix=True,
        source_pkgs=[settings["MUTATION_PACKAGE"]],
        context=context,
    )
    telling.start()

    def keep():
        telling.stop()
        telling.save()

    atexit.register(keep)


if settings.get("MUTANT_MODULE"):
    sys.meta_path.insert(0, MutantFinder())
if settings.get("MUTATION_LINES") and settings.get("PYTEST_CURRENT_TEST"):
    tell_lines()
