"""What every engine's descriptor holds, and that no module decides by an engine's name instead."""

import ast
import tomllib
from pathlib import Path
from typing import get_args

import pytest

from fakes.every import every
from inferometer.core.dtypes import dtype
from inferometer.core.engine import Use
from inferometer.core.plugins import listed, load_listed
from inferometer.known.engines import engine, engines
from inferometer.known.files import rows_of

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
OURS = sorted(rows_of("engines").by_name)
RUN = sorted(PROJECT["entry-points"]["inferometer.runtimes"])
# Who may write an engine's name: those that are an engine, read its files, meet it as a word of a model's name, list
# it among packages, show an example of it, or are the table of tools that make files for engines.
NAMING = (
    "engines/", "known/atlas/sources/", "known/atlas/reading.py", "known/atlas/names.py", "known/zoo.py",
    "known/machine/health/readings.py", "formats/openvino/", "formats/networks/", "formats/mnn/", "formats/ncnn/",
    "formats/ctranslate2/", "formats/onnxruntime_genai/", "formats/executorch/", "formats/trust/",
    "predict/basis/engine_tables/reading.py", "measure/prepare/steps.py", "understand/view/accuracy.py",
    "understand/accuracy/atlas_file.py", "serving/load/server.py", "serving/plans/launch.py",
    "hub/places/benchmarks.py", "hub/places/qai_hub.py", "cli/commands/demo.py",
)  # fmt: skip


def test_every_runtime_of_ours_has_a_descriptor_and_every_other_row_runs_nothing():
    assert [name for name in OURS if engine(name).opens] == RUN
    for plugin in listed("inferometer.runtimes"):
        if plugin.package == "inferometer":
            assert load_listed(plugin).engine == engine(plugin.name)


@pytest.mark.parametrize("name", RUN)
def test_a_descriptor_is_complete(name):
    described = engine(name)
    needed = PROJECT["optional-dependencies"][described.extra]
    assert needed[0].startswith(described.packages[0])
    assert described.module == described.packages[0].replace("-", "_")
    assert described.title
    assert described.calibrated, "it has probes: see test_probes.py"
    assert described.calibrated_in is None or dtype(described.calibrated_in)
    assert all(dtype(each) for each in (described.small.narrow, described.small.byte, described.small.kv))
    assert described.compiled_by is None or engine(described.compiled_by).effects.execution == "compiled"


@every(OURS)
def test_every_number_says_where_it_comes_from(name):
    effects = engine(name).effects
    numbers = [effects.cache_moves, effects.repeat_moves, effects.first_run]
    for overheads in effects.overheads.values():
        numbers += [overheads.kernel_s, overheads.host_s, overheads.step_s, overheads.reserve_bytes]
    assert all(number.source and number.date for number in numbers if number is not None)


def test_one_engine_is_first_for_each_use():
    claimed = [use for described in engines().values() for use in described.first_for]
    assert sorted(claimed) == sorted(get_args(Use))


def test_no_module_decides_by_an_engines_name():
    names, source = set(OURS) - {"ideal"}, ROOT / "src" / "inferometer"
    named = {
        f"{path.relative_to(source).as_posix()}: {node.value}"
        for path in source.rglob("*.py")
        if not path.relative_to(source).as_posix().startswith(NAMING)
        for text in [path.read_text(encoding="utf-8")]
        if any(f'"{name}"' in text for name in names)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Constant) and node.value in names
    }
    assert not named, "ask the descriptor instead (core/engine.py)"
