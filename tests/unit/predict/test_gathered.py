"""Convolutions that quantise what they read while they run: what gathering it costs beside the products."""

import pytest

from inferometer.core.graph import Block, Graph, Op, Tensor
from inferometer.core.reformat import with_formats
from inferometer.core.workload import Workload
from inferometer.known.engines import engine
from inferometer.predict.ask import ask
from inferometer.predict.options import Options
from inferometer.predict.ready import make_layout


def convolution(groups, channels=64, pixels=28):
    x, y = (Tensor(name=name, shape=(1, channels, pixels, pixels), dtype="f32") for name in "xy")
    weight = Tensor(name="w", shape=(channels, channels // groups, 3, 3), dtype="f32", role="weight")
    sizes = {"in_channels": channels, "out_channels": channels, "groups": groups, "kernel": (3, 3), "strides": (1, 1)}
    op = Op(name="c", kind="convolution", inputs=(x,), outputs=(y,), weights=(weight,), attributes=sizes)
    return Graph(name=f"c{groups}", blocks=(Block(name="b", ops=(op,)),))


def dynamic(graph, runtime):
    return with_formats(graph, weights="i8", dynamic="i8", kinds=engine(runtime).effects.dynamic)


def seconds(graph, runtime):
    return ask(graph, on="arm-neoverse-n1-2-cores", runtime=runtime, calibrated=False).answer().steady.time_s


@pytest.mark.parametrize("groups", [1, 4, 64])
def test_gathering_takes_as_long_as_some_more_filters_of_each_group(groups):
    effects, graph = engine("onnxruntime").effects, dynamic(convolution(groups), "onnxruntime")
    prepared = make_layout(graph, effects=effects, workload=Workload(batch=1), options=Options()).prepared
    counted = prepared.quantities({"batch": 1})
    windows = 64 * 9 * 28 * 28  # each input channel's, whatever the groups
    assert counted.extra_flops.sum() == pytest.approx(2 * effects.gathered.value * windows)
    assert counted.flops.sum() == 2 * windows * 64 // groups


@pytest.mark.parametrize("runtime", ["onnxruntime", "litert"])
def test_int8_found_while_it_runs_gains_for_whole_convolutions_and_loses_for_depthwise_ones(runtime):
    gains = [
        seconds(graph, runtime) / seconds(dynamic(graph, runtime), runtime)
        for graph in (convolution(1), convolution(64))
    ]
    assert gains[0] > 1.5
    assert gains[1] < 0.8
