"""Read by every Python that has this folder on its path: a mutant in place of its module, lines told by test.

Processes that a test starts inherit the path, so that a mutant reaches them and their lines count for that test.
"""

import importlib.machinery
import os

settings = os.environ  # noqa: TID251 - how the driver reaches the processes that tests start


def mutate(path):
    """The module's source is another wherever it is read, by an import or by its path, as migrations are."""
    loader = importlib.machinery.SourceFileLoader
    original = loader.get_code

    def get_code(self, fullname):
        if os.path.basename(self.path) != os.path.basename(path) or os.path.realpath(self.path) != path:  # noqa: PTH119 - pathlib costs each start
            return original(self, fullname)
        with open(settings["MUTANT_SOURCE"], encoding="utf-8") as file:  # noqa: PTH123 - as above
            return compile(file.read(), self.path, "exec")

    loader.get_code = get_code


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


if settings.get("MUTANT_FILE"):
    mutate(settings["MUTANT_FILE"])
if settings.get("MUTATION_LINES") and settings.get("PYTEST_CURRENT_TEST"):
    tell_lines()
