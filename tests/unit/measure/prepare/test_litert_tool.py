"""TFLite files quantised by ai-edge-quantizer: each format opens, is smaller, and gives nearly what it gave."""

from __future__ import annotations

from contextlib import closing
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from inferometer.core.errors import FormatError
from inferometer.engines.base import Target
from inferometer.engines.order import ToolOrder
from inferometer.formats.resolve import read
from inferometer.measure.calibrate.probes.models import ProbeRun, file_of, read_probes
from inferometer.measure.prepare.chain import chain_for, formats_for
from inferometer.measure.prepare.steps import step_named
from inferometer.measure.run.child import runtime_named

if TYPE_CHECKING:
    from pathlib import Path

for package in ("ai_edge_quantizer", "ai_edge_litert"):  # not imported yet: that takes every worker a second
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed", allow_module_level=True)
FORMATS = ("i8", "i8-dynamic", "i8-weights", "f16")
SHAPE = (1, 32, 32, 3)
RANDOM = np.random.default_rng(0)


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    probe = next(probe for probe in read_probes() if probe.name == "probe-basic-narrow")
    folder = tmp_path_factory.mktemp("network")
    return file_of(probe, ProbeRun(image=32), format="tflite", weights="f32", folder=folder)


def outputs(path: Path, given: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    with closing(runtime_named("litert").open(Target(path=path, format="tflite", threads=1))) as session:
        (port,) = session.opened.inputs
        session.feed({port.name: given})
        session.step()
        return np.array(next(iter(session.outputs().values())), copy=True)


@pytest.mark.filterwarnings("ignore:Warning. Enabling:UserWarning")  # the tool keeps every tensor to see its range
@pytest.mark.parametrize("asked", FORMATS)
def test_a_format_opens_and_stays_near(asked: str, network: Path, tmp_path: Path):
    from inferometer.engines.litert.convert import quantise

    step, inside = step_named(f"litert-{asked}"), tmp_path / "out"
    inside.mkdir()
    sets = []
    for number in range(4 if step.calibrated else 0):
        sets.append(tmp_path / f"{number}.npz")
        np.savez(sets[-1], pixel_values=RANDOM.standard_normal(SHAPE, np.float32))
    order = ToolOrder(
        source=network, target=inside / "model.tflite", format="tflite", options=step.options, calibration=tuple(sets)
    )
    list(quantise(order))
    assert order.target.stat().st_size < 0.6 * network.stat().st_size
    stored = {tensor.dtype for tensor, _ in read(str(order.target)).weights() if len(tensor.shape) > 1}
    assert stored == {"f16" if asked == "f16" else "i8"}
    given = RANDOM.standard_normal(SHAPE, np.float32)
    before, after = outputs(network, given), outputs(order.target, given)
    assert after.dtype == np.float32, "what goes in and out stays as callers have it"
    assert np.linalg.norm(after - before) < 0.1 * np.linalg.norm(before)


def test_a_damaged_file_is_refused_by_name(tmp_path: Path):
    from inferometer.engines.litert.convert import quantise

    damaged = tmp_path / "damaged.tflite"
    damaged.write_bytes(b"\x1c\0\0\0TFL3" + bytes(8))
    with pytest.raises(FormatError, match=r"damaged\.tflite cannot be read as TFLite"):
        list(quantise(ToolOrder(source=damaged, target=tmp_path / "x", format="tflite", options={"recipe": "i8"})))


def test_the_steps_are_for_its_own_engine_alone():
    litert, openvino = (runtime_named(name).engine for name in ("litert", "openvino"))
    assert set(formats_for("tflite", litert)) == set(FORMATS)
    assert [step.name for step in chain_for("tflite", litert, quantise="i8-dynamic")] == ["litert-i8-dynamic"]
    assert "litert-i8" not in [step.name for step in chain_for("tflite", openvino, quantise="i8")]
