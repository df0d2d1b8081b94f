"""What `make test-torch` runs again, and what it leaves out: a small suite, noted and run beyond."""

import json

import pytest

pytest_plugins = ["pytester"]

SUITE = {
    "test_plain": "def test_one(): pass\ndef test_two(): pass",
    "test_needing": "import pytest\ndef test_here(): pass\ndef test_there(): pytest.importorskip('no_such_package')",
    "test_installed": "import pytest\n@pytest.mark.installed\ndef test_what_is_here(): pass",
    "test_missing": "import pytest\npytest.importorskip('no_such_package')\ndef test_it(): pass",
    "test_broken": "def test_that_fails(): assert False",
}


@pytest.fixture
def suite(pytester, request):
    pytester.makeini("[pytest]\nmarkers = installed: as here")
    pytester.makepyfile(**SUITE)
    pytester.syspathinsert(request.config.rootpath / "tests")
    return pytester


def run(suite, *arguments):
    plain = ("--disable-plugin-autoload", "-p", "no:cacheprovider", "-p", "passed_before")  # others' take a second each
    return suite.runpytest_inprocess(*plain, "-v", *arguments)


def ran(result):
    return {line.split()[0] for line in result.outlines if "::" in line and " PASSED" in line}


def test_only_what_was_skipped_failed_or_is_about_what_is_installed_runs_beyond(suite):
    run(suite, "--note-passed", "noted.json")
    suite.mkpydir("no_such_package")
    assert ran(run(suite, "--beyond", "noted.json")) == {
        "test_needing.py::test_there", "test_installed.py::test_what_is_here", "test_missing.py::test_it",
    }  # fmt: skip
    kept = json.loads((suite.path / "noted.json").read_text(encoding="utf-8"))
    assert {file: row["whole"] for file, row in kept.items()} == {"test_plain.py": True, "test_needing.py": False}


def test_a_test_added_later_runs_and_those_beside_it_do_not(suite):
    run(suite, "--note-passed", "noted.json")
    with (suite.path / "test_plain.py").open("a", encoding="utf-8") as file:
        file.write("\ndef test_three(): pass\n")
    assert ran(run(suite, "--beyond", "noted.json", "test_plain.py")) == {"test_plain.py::test_three"}


def test_where_everything_has_passed_that_is_a_success(suite):
    run(suite, "--note-passed", "noted.json", "test_plain.py")
    assert run(suite, "--beyond", "noted.json", "test_plain.py").ret == pytest.ExitCode.OK
    assert run(suite, "no_such_folder").ret != pytest.ExitCode.OK


def test_where_nothing_was_noted_everything_runs(suite):
    assert "test_plain.py::test_one" in ran(run(suite, "--beyond", "noted.json"))
