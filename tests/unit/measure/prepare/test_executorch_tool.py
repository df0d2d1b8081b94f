"""ExecuTorch's own tools: a program with an open size at the one asked for, in i8, and what they refuse."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

for package in ("torch", "executorch", "torchao", "ruamel"):
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed", allow_module_level=True)

import torch  # noqa: E402, TID251 - what is lowered is its program

from fakes.xnnpack import without_patterns  # noqa: E402
from inferometer.core.errors import FormatError  # noqa: E402
from inferometer.engines.base import Target  # noqa: E402
from inferometer.engines.executorch import runtime  # noqa: E402
from inferometer.engines.executorch.convert import lower, quantise  # noqa: E402
from inferometer.engines.order import ToolOrder  # noqa: E402
from inferometer.formats.executorch import reader  # noqa: E402

SOURCE = Path(__file__).parents[3] / "data" / "torch" / "mlp.pt2"  # dense layers of 8, and the batch is open
SHAPE = (3, 8)
INPUT = np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)


@pytest.fixture(scope="module")
def program():
    return torch.export.load(str(SOURCE))


@pytest.fixture(autouse=True)
def _no_patterns(monkeypatch):
    without_patterns(monkeypatch)


def ordered(program, folder, source=SOURCE, **more):
    (name,) = program.graph_signature.user_inputs
    target = folder / "model.pte"
    return ToolOrder(source=source, target=target, format="pte", shapes={name: SHAPE}, dtypes={name: "float32"}, **more)


def ran(path):
    session = runtime.open(Target(path=path, format="pte", threads=1))
    session.feed({"input_0": INPUT})
    session.step()
    (found,) = session.outputs().values()
    session.close()
    return found


def test_a_quantised_program_has_bytes_for_weights_at_the_size_asked_for_and_is_near(program, tmp_path):
    (name,) = program.graph_signature.user_inputs
    np.savez(tmp_path / "set.npz", **{name: INPUT})
    order = ordered(program, tmp_path, calibration=(tmp_path / "set.npz",))
    assert "lowered to XNNPACK: 1" in list(quantise(order))[-1]
    assert reader.read(order.target).inputs[0].shape == SHAPE
    dense = [op for _, op in reader.read(order.target).ops() if op.kind == "linear"]
    assert dense
    assert {op.weights[0].dtype for op in dense} == {"i8"}
    expected = program.module()(torch.from_numpy(INPUT)).detach().numpy()
    assert np.abs(ran(order.target) - expected).max() < 0.1 * np.abs(expected).max()


def test_an_operator_that_it_has_no_form_of_is_named_and_nothing_is_written(program, tmp_path):
    class Strange(torch.nn.Module):
        def forward(self, x):
            return torch.special.bessel_j0(x)

    path = tmp_path / "strange.pt2"
    torch.export.save(torch.export.export(Strange(), (torch.ones(SHAPE),)), path)
    order = ordered(program, tmp_path, source=path)
    with pytest.raises(FormatError, match=r"aten\.special_bessel_j0"):
        list(lower(order))
    assert not order.target.exists()
