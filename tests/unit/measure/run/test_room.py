"""Memory that a run will need is compared with what there is before it is run."""

import pytest

from inferometer.core.binding import Binding
from inferometer.core.dims import Symbol
from inferometer.core.errors import DomainError
from inferometer.core.graph import Block, Graph, Op, Tensor
from inferometer.measure.run.room import available_bytes, require_room
from inferometer.predict.memory.footprint import footprint


def needed(width):
    x, y = (Tensor(name=name, shape=(1, Symbol("width")), dtype="f32") for name in "xy")
    op = Op(name="relu", kind="activation", inputs=(x,), outputs=(y,))
    graph = Graph(name="net", blocks=(Block(name="b", ops=(op,)),), inputs=(x,), outputs=(y,), precision="f32")
    return footprint(graph, Binding(sizes={"width": width}))


def test_a_run_that_does_not_fit_is_refused_with_both_figures():
    require_room("net", needed(1000), {"width": 1000}, 8000)
    with pytest.raises(DomainError, match=r"net at width 1001 needs about 8\.008 kB.*8 kB are available.*--ignore-mem"):
        require_room("net", needed(1001), {"width": 1001}, 8000)


def test_a_system_that_does_not_tell_refuses_nothing():
    require_room("net", needed(10**15), {}, None)


def test_this_machine_tells():
    assert available_bytes() > 0
