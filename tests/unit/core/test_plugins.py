"""Plug-ins come as installed packages: these tests install fake ones beside ours, as a user's would be."""

import sys
import textwrap

import pytest

from inferometer.core import plugins
from inferometer.core.errors import PluginError, UnknownNameError
from inferometer.engines.base import Missing, Ready
from inferometer.engines.listing import runtime_records
from inferometer.known.files import rows_of


def install(folder, package, code, entries):
    """A package as pip leaves it: a module and its metadata."""
    module = package.replace("-", "_")
    (folder / f"{module}.py").write_text(textwrap.dedent(code))
    info = folder / f"{module}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[inferometer.runtimes]\n" + entries.format(module=module) + "\n")


GOOD = """
    from inferometer.engines.base import Ready
    class Runtime:
        name, title, formats = "abacus", "Abacus", frozenset({"onnx"})
        def probe(self):
            return Ready(version="3")
    runtime = Runtime()
"""


@pytest.fixture
def site(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_a_third_partys_runtime_is_listed_after_ours(site):
    assert "abacus" not in {plugin.name for plugin in plugins.listed("inferometer.runtimes")}  # kept until it is there
    install(site, "abacus-runtime", GOOD, "abacus = {module}:runtime")
    names = [plugin.name for plugin in plugins.listed("inferometer.runtimes")]
    assert names[-1] == "abacus"
    assert {*names[:-1]} < set(rows_of("engines").by_name)  # some are predicted only
    assert plugins.load("inferometer.runtimes", "abacus").probe() == Ready(version="3")


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("raise RuntimeError('no such board')", "RuntimeError: no such board"),
        ("import a_module_that_is_not_there", "ModuleNotFoundError"),
        ("def broken(:", "SyntaxError"),
        ("pass", "AttributeError"),
    ],
)
def test_a_broken_plug_in_is_named_and_the_others_still_come(site, code, why):
    install(site, "abacus-runtime", code, "abacus = {module}:runtime")
    loaded, broken = plugins.load_all("inferometer.runtimes")
    assert "onnxruntime" in loaded
    assert "abacus" not in loaded
    (error,) = broken
    assert why in str(error)
    assert "'abacus' of package abacus-runtime" in str(error)
    records, errors = runtime_records(plugins.listed("inferometer.runtimes"))
    assert {record["name"]: record["state"] for record in records}["abacus"] == "broken"
    assert len(errors) == 1


def test_a_plug_in_whose_probe_fails_is_reported_too(site):
    code = GOOD.replace('return Ready(version="3")', "raise OSError('driver gone')")
    install(site, "abacus-runtime", code, "abacus = {module}:runtime")
    _, errors = runtime_records(plugins.listed("inferometer.runtimes"))
    assert "driver gone" in str(errors[0])


def test_a_name_that_two_packages_claim_is_an_error(site):
    install(site, "abacus-runtime", GOOD, "onnxruntime = {module}:runtime")
    with pytest.raises(PluginError, match="Two packages offer"):
        plugins.listed("inferometer.runtimes")


def test_an_unknown_runtime_suggests_the_nearest():
    with pytest.raises(UnknownNameError, match="Did you mean onnxruntime"):
        plugins.load("inferometer.runtimes", "onnx-runtime")


def test_an_unknown_group_is_an_error():
    with pytest.raises(UnknownNameError):
        plugins.listed("inferometer.runtime")


def test_a_missing_engine_says_how_to_get_it(monkeypatch):
    runtime = plugins.load("inferometer.runtimes", "onnxruntime")
    monkeypatch.setattr("inferometer.engines.base.find_spec", lambda _: None)
    assert runtime.probe() == Missing(
        reason="onnxruntime is not installed", remedy="pip install 'inferometer[onnxruntime]'"
    )
