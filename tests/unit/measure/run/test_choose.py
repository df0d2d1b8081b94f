"""Which runtime measures a model where none is named: `predict`'s order, of those that are here and can open it."""

from functools import partial
from types import SimpleNamespace

import pytest

from fakes.onnx_files import one_layer
from inferometer.core.errors import MissingDependencyError, UnknownNameError
from inferometer.engines.base import Capabilities, Missing, Ready
from inferometer.known.engines import engines
from inferometer.measure.run import model_file
from inferometer.measure.run.model_file import choose_runtime


@pytest.fixture
def here(monkeypatch):
    """Called with the names of the engines that are installed; the others are there to be installed."""

    def install(*names):
        def state(name):
            return Ready(version="1") if name in names else Missing(reason="not here", remedy=f"get {name}")

        loaded = {
            name: SimpleNamespace(
                name=name,
                formats=frozenset(described.opens),
                capabilities=Capabilities(arrays=name != "llamacpp"),
                probe=partial(state, name),
            )
            for name, described in engines().items()
            if described.opens
        }  # fmt: skip
        monkeypatch.setattr(model_file, "load_all", lambda _: (loaded, ()))

    return install


@pytest.mark.parametrize(
    ("model", "installed", "chosen"),
    [
        ("llama-3.2-1b", ("onnxruntime", "llamacpp", "torch-eager"), "llamacpp"),
        ("llama-3.2-1b", ("openvino", "torch-eager", "onnxruntime"), "onnxruntime"),
        ("llama-3.2-1b", ("openvino", "torch-eager"), "torch-eager"),
        ("resnet50", ("llamacpp", "openvino", "torch-eager"), "torch-eager"),  # llama.cpp takes no arrays
        ("resnet50", ("torch-compile", "onnxruntime"), "onnxruntime"),
    ],
)
def test_a_name_is_measured_by_the_first_that_is_here(here, model, installed, chosen):
    here(*installed)
    assert choose_runtime(model).name == chosen


def test_a_gpu_that_is_asked_for_is_measured_as_a_gpu_is_predicted(here):
    here("onnxruntime", "llamacpp", "torch-compile")
    assert choose_runtime("llama-3.2-1b", "gpu:0").name == "torch-compile"


def test_a_file_is_measured_by_an_engine_that_opens_it(here, tmp_path):
    onnx = pytest.importorskip("onnx")
    path = tmp_path / "m.onnx"
    path.write_bytes(one_layer(onnx))
    here("torch-eager", "openvino", "litert")
    assert choose_runtime(str(path)).name == "openvino"
    here("torch-eager")
    with pytest.raises(MissingDependencyError, match="Install one: get onnxruntime or get openvino"):
        choose_runtime(str(path))


def test_a_name_that_is_not_known_is_told_as_such(here):
    here()
    with pytest.raises(UnknownNameError, match=r"resnet50"):
        choose_runtime("resnet51")
