"""CUDA graphs: a pass recorded once and replayed as a whole, and which modules the kernels of a replay stand for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from inferometer.engines.torch.kernels import map_calls
from inferometer.engines.torch.trace import TraceRecorder

Calls = Sequence[tuple[str, tuple[str, ...]]]  # names of kernels in order, with the modules they stand for


def capture_graph(
    torch: Any, call: Callable[[], Any], *, warm: int = 3, ready: Callable[[], None] = lambda: None
) -> tuple[Callable[[], None], Any]:
    """What replays a call, and the result that every replay writes anew. `ready` puts back what a call changes.

    As torch asks: a few passes on a side stream, then one that is recorded and not run.
    """
    cuda = torch.cuda
    side = cuda.Stream()
    side.wait_stream(cuda.current_stream())
    with cuda.stream(side):
        for _ in range(warm):
            ready()
            call()
        ready()
    cuda.current_stream().wait_stream(side)
    cuda.synchronize()
    graph = cuda.CUDAGraph()
    with cuda.graph(graph):
        result = call()
    return graph.replay, result


def kernels_in_order(torch: Any, call: Callable[[], Any], known: Calls = ()) -> Calls:
    """The device's kernels of a pass that is not captured, with their modules: as marked, or as the compiler says."""
    recorder = TraceRecorder(torch, cuda=True)
    recorder.start()
    with recorder.step("pass"):
        call()
        torch.cuda.synchronize()
    ((_, rows),) = recorder.stop()
    mapped, _missed = map_calls(rows, known)
    return [
        (name, row.layers or ((row.place,) if row.module and row.place else ()))
        for row in mapped
        for name in row.device_names
    ]
