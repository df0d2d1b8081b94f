"""Pickles of PyTorch: their tensors are counted, and nothing in them is run."""

import pickle

import pytest

from inferometer.core.errors import FormatError
from inferometer.formats.detect import read_graph
from unit.formats.torch.archives import packed


class Storage:
    """What torch writes in place of a tensor's numbers."""

    def __init__(self, kind, key, count):
        self.reference = ("storage", kind, key, "cpu", count)


class Rebuilt:
    def __init__(self, call, *arguments):
        self.call, self.arguments = call, arguments

    def __reduce__(self):
        return self.call, self.arguments


def _rebuild_tensor_v2(*_):
    pytest.fail("a pickle was run")


def _rebuild_parameter(*_):
    pytest.fail("a pickle was run")


class FloatStorage:
    pass


class HalfStorage:
    pass


class Pickler(pickle.Pickler):
    def persistent_id(self, found):
        return found.reference if isinstance(found, Storage) else None


def tensor(key, *shape, kind=FloatStorage, offset=0):
    return Rebuilt(_rebuild_tensor_v2, Storage(kind, key, 1), offset, shape, (1,) * len(shape), 0, {})


def saved(folder, content, **members):
    from io import BytesIO

    data = BytesIO()
    Pickler(data, protocol=2).dump(content)
    return packed(folder / "model.pt", {"data.pkl": data.getvalue(), "data/0": bytes(8), "version": b"3", **members})


def test_a_state_dict_is_counted_without_what_layers_remember(tmp_path):
    state = {
        "fc.weight": tensor("0", 5, 4, kind=HalfStorage), "fc.bias": tensor("1", 5), "tied": tensor("0", 5, 4),
        "bn.running_mean": tensor("2", 5),
    }  # fmt: skip
    graph = read_graph(saved(tmp_path, state))
    assert (graph.parameters, graph.metadata["format"]) == (25, "torch.save")
    assert [(weight.name, weight.dtype) for weight, _ in graph.weights()] == [("fc.weight", "f16"), ("fc.bias", "f32")]
    assert "is not run" in graph.metadata["notes"][0]


def test_of_a_checkpoint_the_model_is_counted(tmp_path):
    inner = Rebuilt(_rebuild_parameter, tensor("0", 3, 3), 1, {})
    content = {
        "epoch": 3,
        "optimizer": {"m": tensor("9", 100)},
        "model": {"_modules": {"a": {"_parameters": {"w": inner}}}},
    }
    graph = read_graph(saved(tmp_path, content))
    assert [(weight.name, weight.shape) for weight, _ in graph.weights()] == [("a.w", (3, 3))]


def test_a_script_is_told_by_its_code(tmp_path):
    graph = read_graph(saved(tmp_path, {"w": tensor("0", 2, 2)}, **{"code/__torch__.py": b""}))
    assert graph.metadata["format"] == "torchscript"


@pytest.mark.parametrize(
    "content",
    [{"w": tensor("0", -1)}, {"w": tensor("0", 2**40, 2**40)}, {"w": Rebuilt(_rebuild_tensor_v2, 1, 2, 3)}],
)
def test_a_tensor_that_cannot_be_is_an_error(tmp_path, content):
    with pytest.raises(FormatError, match="cannot be followed"):
        read_graph(saved(tmp_path, content))
