"""The cross product as data: what is in it, in which order, and in which pieces."""

from itertools import product
from math import prod

import numpy as np
import pytest

from inferometer.core.dims import Symbol
from inferometer.core.errors import DomainError, UnknownNameError
from inferometer.core.graph import Block, Graph, Op, Tensor
from inferometer.predict.options import Options
from inferometer.predict.sweep import AXES, run_study, study_of
from inferometer.predict.sweep.grid import Sizes, _tiles
from unit.predict.sweep.studies import device, graph, small


def axes(**more):
    return {"models": [graph()], "devices": [device()], **more}


def test_a_study_has_the_product_of_its_lists():
    study = study_of(axes(weights=["bf16", "q4_0"], tp=[1, 2], batch=[1, 2, 4], prompt=[8, 16], context=[1]))
    assert study.combinations == 4
    assert len(study) == 24


def test_a_single_value_is_a_list_of_one():
    study = study_of({"models": graph(), "devices": device(), "weights": "q4_0", "batch": 4})
    assert (study.weights, study.sizes.batch, len(study)) == (("q4_0",), (4,), 1)


def test_ranges_and_numpy_arrays_are_lists():
    study = study_of(axes(batch=range(1, 4), context=np.arange(0, 1024, 256)))
    assert study.sizes.batch == (1, 2, 3)
    assert study.sizes.context == (0, 256, 512, 768)


def test_combinations_come_in_the_order_of_the_axes_the_last_one_fastest():
    study = small(tp=[1, 2])
    found = [study.question(number) for number in range(study.combinations)]
    assert [(q.device.name, q.workload.precision.weights, q.workload.parallel.tp) for q in found] == [
        *product(("nvidia-h200", "nvidia-l4"), ("bf16", "q4_0"), (1, 2))
    ]


def test_a_runtime_that_is_left_open_is_the_one_of_a_prediction():
    from inferometer import predict

    study = study_of({"models": [graph(), graph("resnet50")], "devices": [device("raspberry-pi-5")]})
    for number, name in enumerate(("llama-3.2-1b", "resnet50")):
        assert study.question(number).runtime_name == predict(name, on="raspberry-pi-5").runtime


@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (3, 4, 1, 5), (1, 7, 2, 100), (2, 1, 1, 1000), (50, 1, 1, 1)])
@pytest.mark.parametrize("most", [1, 7, 64, 10_000])
def test_tiles_cover_every_row_once_and_in_order(shape, most):
    seen = []
    for tile in _tiles(shape, most):
        assert tile.rows <= most
        places = product(*(range(start, stop) for start, stop in tile.ranges))
        seen += [int(np.ravel_multi_index(place, shape)) for place in places]
    assert seen == [*range(prod(shape))]


def test_chunks_of_a_small_grid_hold_several_combinations():
    chunks = [*small(chunk_rows=24).chunks()]
    assert [chunk.rows for chunk in chunks] == [24, 24]
    assert [[*chunk.combinations] for chunk in chunks] == [[0, 1], [2, 3]]


def test_chunks_have_all_rows_whatever_their_size():
    for most in (1, 5, 12, 1000):
        study = small(chunk_rows=most)
        chunks = [*study.chunks()]
        assert sum(chunk.rows for chunk in chunks) == len(study)
        assert [chunk.number for chunk in chunks] == [*range(len(chunks))]


def test_sizes_know_their_part():
    sizes = Sizes(batch=(1, 2), prompt=(3, 4, 5), context=(6,))
    tile = [*_tiles(sizes.shape, 2)][1]
    assert sizes.part(tile) == Sizes(batch=(1,), prompt=(5,), context=(6,))


@pytest.mark.parametrize("name", ["batch", "weights", "context", "models"])
def test_an_empty_list_is_refused(name):
    with pytest.raises(DomainError, match=f"list of {name} is empty"):
        study_of(axes(**{name: []}))


@pytest.mark.parametrize("value", [float("nan"), 0, -1, 1.5, "4", True, float("inf")])
def test_a_batch_that_is_no_whole_number_is_refused(value):
    with pytest.raises(DomainError, match="batch must be whole numbers of 1 or more"):
        study_of(axes(batch=[1, value]))


def test_an_axis_that_is_not_known_is_an_error_that_suggests():
    with pytest.raises(UnknownNameError, match="Did you mean batch") as caught:
        study_of(axes(bach=[1]))
    assert all(name in str(caught.value) for name in AXES)


def test_models_and_devices_must_be_given():
    with pytest.raises(DomainError, match="needs models"):
        study_of({"devices": [device()]})
    with pytest.raises(DomainError, match="which is no Graph"):
        study_of({"models": ["llama-3.2-1b"], "devices": [device()]})


@pytest.mark.parametrize("axis", ["weights", "kv"])
def test_a_format_that_is_not_known_is_refused_before_anything_is_computed(axis):
    with pytest.raises(UnknownNameError, match="number format"):
        study_of(axes(**{axis: ["bf16", "q4_zero"]}))
    with pytest.raises(DomainError, match="is a name such as"):
        study_of(axes(**{axis: [4]}))


def test_a_place_that_is_not_known_is_refused_before_anything_is_computed():
    from inferometer.predict.options import Hosting, Options

    for place in (Hosting(grid="atlantis"), Hosting(instance="atlantis-8x")):
        with pytest.raises(UnknownNameError, match="atlantis"):
            study_of(axes(), options=Options(place=place))


def test_none_leaves_open_what_may_be_left_open():
    study = study_of(axes(weights=[None, "q4_0"], context=[None, 8]))
    assert study.sizes.context == (None, 8)
    for batch in ([None], [4, None]):
        with pytest.raises(DomainError, match="each must be given"):
            study_of(axes(batch=batch))


def test_an_open_size_is_given_to_the_models_that_have_it():
    x, y = (Tensor(name=name, shape=(Symbol("batch"), Symbol("width")), dtype="f32") for name in "xy")
    relu = Op(name="relu", kind="activation", inputs=(x,), outputs=(y,))
    blocks = (Block(name="b", ops=(relu,)),)
    file = Graph(name="file", blocks=blocks, inputs=(x,), precision="f32", metadata={"size_names": {"W": "width"}})
    both = axes(models=[graph("resnet50"), file], runtimes=["onnxruntime"])
    rows = run_study(study_of(both, options=Options(sizes={"W": 64})))
    assert [bool(seconds > 0) for seconds in rows["latency_s"]] == [True, True]
    left = run_study(study_of(both))
    assert [(why or "")[:35] for why in left["reason"]] == ["", "file leaves one size of its inputs "]
    with pytest.raises(DomainError, match="no size 'wdth'"):
        study_of(both, options=Options(sizes={"wdth": 64}))
    with pytest.raises(DomainError, match=r"Give batch=\[…\]"):
        study_of(both, options=Options(sizes={"batch": 2}))
