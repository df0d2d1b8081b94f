"""Encoders, vision models and exported programs in the engine itself."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed: PyTorch's sessions are not tested")
pytest.importorskip("transformers", reason="transformers is not installed: PyTorch's sessions are not tested")

import torch  # noqa: TID251 - the bare engine is what sessions are compared with

from inferometer.core.errors import DomainError, EngineError, FormatError
from inferometer.engines.base import Target
from inferometer.engines.torch import eager
from unit.engines.torch.configs import ARRAYS, written

pytestmark = pytest.mark.filterwarnings("ignore")  # the libraries' own remarks

RANDOM = np.random.default_rng(0)
IMAGE = {"pixel_values": RANDOM.standard_normal((2, 3, 32, 32)).astype(np.float32)}
INPUTS = {"bert": {"input_ids": RANDOM.integers(0, 160, (2, 7))}, "vit": IMAGE, "resnet": IMAGE, "swin": IMAGE}
EXPORTED = Path(__file__).parents[3] / "data" / "torch"


@pytest.fixture
def opened(tmp_path):
    sessions = []

    def open_(kind, **changes):
        path = written(tmp_path / kind, ARRAYS[kind])
        sessions.append(eager.open(Target(path=path, format="config", threads=1, unit="cpu", **changes)))
        return sessions[-1]

    yield open_
    for session in sessions:
        session.close()


@pytest.mark.parametrize("kind", ARRAYS)
def test_a_step_gives_what_a_model_built_with_memory_gives(opened, kind):
    session = opened(kind)
    session.feed(INPUTS[kind])
    session.step()
    model = session._host.module.model
    built = type(model)(model.config).eval()
    built.load_state_dict(model.state_dict())
    with torch.inference_mode():
        expected = built(**{name: torch.from_numpy(array) for name, array in INPUTS[kind].items()})
    first = next(iter(expected.keys()))
    np.testing.assert_allclose(session.outputs()[first], expected[first].numpy(), rtol=1e-4, atol=1e-5)
    assert np.isfinite(session.outputs()[first]).all()


@pytest.mark.parametrize("kind", ["bert", "vit", "resnet"])
def test_kernels_are_at_their_layers_and_add_up(opened, kind):
    session = opened(kind, instrument=True)
    session.feed(INPUTS[kind])
    session.step()
    session.kernels()
    for _ in range(3):
        session.step()
    kernels = session.kernels()["forward"]
    names = {name for name, _ in session._host.module.model.named_modules()}
    leaves = {layer for kernel in kernels for layer in kernel.layers}
    assert leaves <= names
    working = [kernel for kernel in kernels if kernel.kind not in {"host", "wait"}]
    heavy = {layer for kernel in working for layer in kernel.layers}
    linear = {
        name for name, module in session._host.module.model.named_modules()
        if isinstance(module, torch.nn.Linear | torch.nn.Conv2d)
    }  # fmt: skip
    assert linear <= heavy
    assert all(len(kernel.samples_s) == 3 for kernel in kernels)
    assert not [kernel for kernel in working if kernel.kind in {"aten::view", "aten::linear", "aten::conv2d"}]


@pytest.mark.parametrize("file", ["mlp", "cnn", "encoder", "gpt"])
def test_an_exported_program_gives_what_it_gives_bare(file):
    path = EXPORTED / f"{file}.pt2"
    program = torch.export.load(str(path))
    for instrument in (False, True):
        session = eager.open(Target(path=path, format="pt2", threads=1, unit="cpu", instrument=instrument))
        draw = np.random.default_rng(1)
        inputs = {}
        for port in session.opened.inputs:
            sizes = [size if isinstance(size, int) else 3 for size in port.shape]
            whole = port.dtype.startswith("int")
            inputs[port.name] = draw.integers(0, 8, sizes) if whole else draw.standard_normal(sizes).astype(port.dtype)
        session.feed(inputs)
        session.step()
        with torch.inference_mode():
            expected = program.module()(*(torch.from_numpy(array) for array in inputs.values()))
        found = next(iter(session.outputs().values()))
        np.testing.assert_allclose(found, expected.numpy(), rtol=1e-4, atol=1e-5)
        if instrument:
            assert any(kernel.layers for kernel in session.kernels()["forward"])
        session.close()


def test_an_exported_program_does_not_generate():
    with pytest.raises(EngineError, match="does not generate"):
        eager.open(Target(path=EXPORTED / "gpt.pt2", format="pt2", text=True))


def test_a_file_that_is_no_program_is_refused(tmp_path):
    (tmp_path / "x.pt2").write_bytes(b"nothing")
    with pytest.raises(FormatError, match=r"x\.pt2"):
        eager.open(Target(path=tmp_path / "x.pt2", format="pt2"))


def test_a_token_outside_the_vocabulary_is_refused_before_the_device_sees_it(opened):
    with pytest.raises(DomainError, match="160"):
        opened("bert").feed({"input_ids": np.full((1, 4), 160)})


def test_a_wrong_image_is_refused_with_both_shapes(opened):
    with pytest.raises(DomainError, match=r"\[batch, 3, 32, 32\], and is float32 \[2, 3, 16, 16\]"):
        opened("vit").feed({"pixel_values": np.zeros((2, 3, 16, 16), np.float32)})


def test_narrow_arithmetic_takes_and_gives_float32(opened):
    session = opened("bert", precision="bf16")
    session.feed(INPUTS["bert"])
    session.step()
    assert session.opened.precision == "bf16"
    assert {array.dtype.name for array in session.outputs().values()} == {"float32"}


def test_a_step_before_any_input_is_refused(opened):
    with pytest.raises(DomainError, match="feed"):
        opened("bert").step()
