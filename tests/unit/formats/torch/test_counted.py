"""Pickles of PyTorch: their tensors are counted, and nothing in them is run."""

import pickle
from io import BytesIO

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


@pytest.mark.parametrize(
    ("content", "names"),
    [
        ({"ema": {"e": tensor("0", 2, 2)}, "model": {"m": tensor("1", 2, 2)}, "state_dict": {"s": tensor("2", 2, 2)}},
         ["s"]),
        ({"params": {"p": tensor("0", 2, 2)}, "net": {"n": tensor("1", 2, 2)}, "optimizer": {}}, ["n"]),
        ({"model": {"epoch": 3}, "ema": {"e": tensor("0", 2, 2)}}, ["e"]),  # the first that has tensors
        ({"encoder": {"w": tensor("0", 2, 2)}, "optimizer": {"m": tensor("1", 9)}, "scaler": {"s": tensor("2", 1)}},
         ["encoder.w"]),
    ],
)  # fmt: skip
def test_of_the_parts_of_a_checkpoint_the_one_with_the_models_name_is_the_model(tmp_path, content, names):
    assert [weight.name for weight, _ in read_graph(saved(tmp_path, content)).weights()] == names


def test_views_of_one_storage_are_one_weight_only_where_they_begin_alike_and_have_one_shape(tmp_path):
    views = {
        "a": tensor("0", 2, 3), "same": tensor("0", 2, 3), "later": tensor("0", 2, 3, offset=6),
        "turned": tensor("0", 3, 2),
    }  # fmt: skip
    assert [weight.name for weight, _ in read_graph(saved(tmp_path, views)).weights()] == ["a", "later", "turned"]


@pytest.mark.parametrize("missing", [0, 1])
def test_a_file_of_the_old_form_holds_a_length_and_the_numbers_that_each_storage_reaches(tmp_path, missing):
    """A magic number, a version, the writer, the object and the keys of its storages: five pickles, then numbers."""
    data = BytesIO()
    state = {"w": tensor("0", 2, 3, offset=4), "v": tensor("0", 3), "h": tensor("1", 5, kind=HalfStorage)}
    for content in (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}, state, ["0", "1"]):
        Pickler(data, protocol=2).dump(content)
    numbers = 8 + 4 * (4 + 6) + 8 + 2 * 5
    path = tmp_path / "old.pt"
    path.write_bytes(data.getvalue() + bytes(numbers - missing))
    if missing:
        with pytest.raises(FormatError, match=f"cut short: {numbers - 1} bytes are left for tensors of {numbers}"):
            read_graph(path)
    else:
        assert read_graph(path).parameters == 6 + 3 + 5


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
