import re

import numpy as np
import pytest

from inferometer.core.errors import DomainError, FormatError, UnknownNameError
from inferometer.engines.base import Port
from inferometer.formats.resolve import read
from inferometer.measure.run.inputs import index_limits, make_inputs


def made(port, **given):
    given.setdefault("sizes", {})
    return make_inputs([port], **given)[port.name]


def test_floats_are_normal_numbers_of_the_right_shape_and_type():
    array = made(Port(name="x", dtype="float16", shape=("n", 3)), sizes={"n": 5})
    assert array.shape == (5, 3)
    assert array.dtype == np.float16
    assert 0.1 < array.std() < 3


def test_the_same_seed_gives_the_same_inputs_and_another_gives_others():
    port = Port(name="x", dtype="float32", shape=(4,))
    assert (made(port, seed=1) == made(port, seed=1)).all()
    assert (made(port, seed=1) != made(port, seed=2)).any()


def test_masks_let_everything_through_and_positions_count():
    assert (made(Port(name="attention_mask", dtype="int64", shape=(1, 4))) == 1).all()
    assert made(Port(name="position_ids", dtype="int64", shape=(2, 3))).tolist() == [[0, 1, 2], [0, 1, 2]]


@pytest.mark.parametrize(
    ("name", "shape", "length"),
    [("x_lengths", (2,), 40), ("length", (), 40), ("mel_lens", (2,), 99), ("other_len", (1,), 40)],
)
def test_a_length_is_that_of_what_it_describes(name, shape, length):
    ports = [
        Port(name="x", dtype="int64", shape=("n", "t")), Port(name="mels", dtype="float32", shape=("n", 80, "frames")),
        Port(name=name, dtype="int64", shape=shape),
    ]  # fmt: skip
    found = make_inputs(ports, sizes={"n": 2, "t": 40, "frames": 99})[name]
    assert (found == length).all()
    assert found.shape == shape
    assert make_inputs(ports, sizes={"n": 2, "t": 40, "frames": 99}, given={name: "7"})[name].max() == 7


def test_a_length_of_nothing_and_a_table_called_so_are_made_up_as_before():
    assert made(Port(name="length", dtype="int64", shape=(1,))).max() <= 1
    assert made(Port(name="lengths", dtype="float32", shape=(3,))).dtype == np.float32


def test_a_rate_is_that_of_speech_and_a_factor_is_one():
    assert made(Port(name="sr", dtype="int64", shape=())) == 16_000
    assert made(Port(name="scales", dtype="float32", shape=(3,))).tolist() == [1, 1, 1]


def test_indices_stay_inside_their_table():
    port = Port(name="input_ids", dtype="int64", shape=(1, 1000))
    assert made(port, limits={"input_ids": 7}).max() == 6
    assert made(port).max() == 1


def test_a_graph_tells_how_many_rows_its_tables_have():
    assert index_limits(read("llama-3.2-1b")) == {"input_ids": 128256}


def test_shapes_of_the_workload_fill_open_dims_only():
    port = Port(name="x", dtype="float32", shape=("batch", 3, None, None))
    assert made(port, shapes={"x": (2, 99, 8, 8)}).shape == (2, 3, 8, 8)


def test_an_open_size_is_asked_for_by_name():
    with pytest.raises(DomainError, match=r"\[steps, \?\].*--size steps=N"):
        made(Port(name="x", dtype="float32", shape=("steps", None)))


def test_a_number_or_a_file_may_be_given(tmp_path):
    port = Port(name="sr", dtype="int64", shape=())
    assert made(port, given={"sr": "16000"}) == 16000
    np.save(tmp_path / "x.npy", np.arange(3))
    open_port = Port(name="sr", dtype="int64", shape=("n",))
    assert made(open_port, given={"sr": str(tmp_path / "x.npy")}).tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("array", "found"),
    [(np.zeros((2, 4), np.float64), "float64 [2, 4]"), (np.zeros((2, 5), np.float32), "float32 [2, 5]"),
     (np.zeros(4, np.float32), "float32 [4]")],
)  # fmt: skip
def test_a_file_of_another_type_or_shape_is_an_error_that_names_both(tmp_path, array, found):
    np.save(tmp_path / "x.npy", array)
    with pytest.raises(DomainError, match=re.escape("'x' takes float32 [batch, 4]")) as caught:
        made(Port(name="x", dtype="float32", shape=("batch", 4)), given={"x": str(tmp_path / "x.npy")})
    assert found in caught.value.message
    assert "--size" in caught.value.remedy


def test_a_given_input_the_model_does_not_have_is_named():
    with pytest.raises(UnknownNameError, match="no input named 'y'"):
        made(Port(name="x", dtype="float32", shape=()), given={"y": "1"})


@pytest.mark.parametrize("content", [b"", b"no numbers", b"\x93NUMPY\x01\x00"])
def test_a_file_that_is_no_array_is_an_error(tmp_path, content):
    path = tmp_path / "x.npy"
    path.write_bytes(content)
    with pytest.raises(FormatError, match=r"x\.npy"):
        made(Port(name="x", dtype="float32", shape=()), given={"x": str(path)})


def test_strings_cannot_be_made_up():
    with pytest.raises(DomainError, match="--input words=FILE"):
        made(Port(name="words", dtype="str", shape=(1,)))
