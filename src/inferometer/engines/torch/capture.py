"""CUDA graphs: a pass recorded once and replayed as a whole, and which modules the kernels of a replay stand for."""

from __future__ import annotations

import gc
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from inferometer.core.errors import EngineError
from inferometer.engines.torch.kernels import map_calls
from inferometer.engines.torch.trace import TraceRecorder

Calls = Sequence[tuple[str, tuple[str, ...]]]  # names of kernels in order, with the modules they stand for


def capture_graph(
    torch: Any, call: Callable[[], Any], *, warm: int = 3, ready: Callable[[], None] = lambda: None
) -> tuple[Callable[[], None], Any]:
    """What replays a call, and the result that every replay writes anew. `ready` puts back what a call changes.

    As torch asks: a few passes on a side stream, then one that is recorded and not run. The last of the warm passes is
    held to what a capture forbids, for there it only raises: a capture that fails leaves the process broken.
    """
    cuda = torch.cuda
    side = cuda.Stream()
    side.wait_stream(cuda.current_stream())
    with cuda.stream(side):
        for _ in range(warm - 1):
            ready()
            call()
        ready()
        with _refused(), _waits_forbidden(cuda):
            call()
        ready()
    cuda.current_stream().wait_stream(side)
    cuda.synchronize()
    graph, pool = cuda.CUDAGraph(), cuda.graph_pool_handle()
    try:
        # Where ending a capture fails, torch does not leave its stream: the outer context does.
        with _refused(), cuda.stream(cuda.current_stream()), cuda.graph(graph, pool=pool):
            result = call()
    except BaseException:
        _abandon(torch, graph, pool)
        raise
    return graph.replay, result


@contextmanager
def _waits_forbidden(cuda: Any) -> Iterator[None]:
    """What waits for the device, as a copy from the host or a look at a value does, raises."""
    before = cuda.get_sync_debug_mode()

    def choose(mode: int | str) -> None:
        with warnings.catch_warnings():  # torch calls this a prototype, once a process
            warnings.simplefilter("ignore", UserWarning)
            cuda.set_sync_debug_mode(mode)

    choose("error")
    try:
        yield
    finally:
        choose(before)


@contextmanager
def _refused() -> Iterator[None]:
    """An error of a pass that cannot be captured becomes one that says which line of the model it came from."""
    try:
        yield
    except RuntimeError as error:
        if type(error).__name__ == "OutOfMemoryError":
            raise
        first: BaseException = error  # ending a capture that had failed raises once more
        while isinstance(first.__context__, RuntimeError):
            first = first.__context__
        frames = [frame for frame in traceback.extract_tb(first.__traceback__) if not _ours(Path(frame.filename))]
        where = f" in {Path(frames[-1].filename).name}, line {frames[-1].lineno}" if frames else ""
        words = str(first).strip().partition("\n")[0]
        for failed in (error, first):  # or else the error keeps all that its frames hold on the device
            traceback.clear_frames(failed.__traceback__)
        raise EngineError(
            f"No CUDA graph holds this pass: what it does{where} cannot be captured ({words}).",
            remedy="Choose torch-compile or torch-eager.",
        ) from error


def _ours(file: Path) -> bool:
    """A file of this package or of torch: the line that is to blame is of neither."""
    folders = (Path(__file__).parents[2], Path(str(import_module("torch").__file__)).parent)
    return any(file.is_relative_to(folder) for folder in folders)


_ABANDONED: list[Any] = []  # graphs: torch's allocator of pinned memory asks each that began whether it captures still


def _abandon(torch: Any, graph: Any, pool: Any) -> None:
    """Give back what a capture that failed holds: the allocator's pool, and the generator of random numbers.

    torch does either only where a capture ends. Until then no memory is freed for others, and every random number is
    refused ("Offset increment outside graph capture").
    """
    cuda = torch.cuda
    _ABANDONED.append(graph)
    device = cuda.current_device()
    try:
        graph.pool()
    except RuntimeError:  # it has not ended
        for end in ("_cuda_endAllocateToPool", "_cuda_releasePool"):
            with suppress(RuntimeError):
                getattr(torch._C, end)(device, pool)  # noqa: SLF001 - the only names they have
    graph.reset()
    generator = cuda.default_generators[device]
    fresh = torch.Generator(device=generator.device)
    fresh.manual_seed(generator.initial_seed())
    generator.graphsafe_set_state(fresh.graphsafe_get_state())
    gc.collect()
    cuda.empty_cache()


# What a model makes of Python's numbers in every step, as `torch.tensor(0.0, device=…)` and `x[..., [-2]]` do: a copy
# from the host, which waits and cannot be captured.


def looks_at_values(torch: Any, call: Callable[[], Any]) -> bool:
    """Whether a pass takes a value of a tensor as a number of Python, for which it waits until the device is done."""
    mode = import_module("torch.utils._python_dispatch").TorchDispatchMode
    looks: list[Any] = []
    aten = torch.ops.aten  # `item` and `is_nonzero` come apart into the first outside of inference mode alone
    reads = {aten._local_scalar_dense.default, aten.item.default, aten.is_nonzero.default}  # noqa: SLF001 - its name

    class Watch(mode):  # type: ignore[misc, valid-type]  # a class of torch, known when it is imported
        def __torch_dispatch__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func in reads:
                looks.append(func)
            return func(*args, **(kwargs or {}))

    with Watch():
        call()
    return bool(looks)


@contextmanager
def as_captured(torch: Any, constants: Any) -> Iterator[None]:
    """Run a pass as a capture will: with the constants, and with libraries that think that they are captured.

    transformers looks at values of masks unless it is, so that a warm pass would be another one than what is captured.
    """
    cuda = torch.cuda
    before = cuda.is_current_stream_capturing
    cuda.is_current_stream_capturing = lambda: True
    try:
        with constants:
            yield
    finally:
        cuda.is_current_stream_capturing = before


def kept_constants(kind: str) -> Any:
    """A mode of torch in which constants of a kind of device are copied there once, and are on it from then on."""
    return _constants_class()(kind)


@cache
def _constants_class() -> Any:
    torch, mode = import_module("torch"), import_module("torch.overrides").TorchFunctionMode
    makers, subscripts = {torch.tensor, torch.as_tensor}, {torch.Tensor.__getitem__, torch.Tensor.__setitem__}

    class KeptConstants(mode):  # type: ignore[misc, valid-type]  # a class of torch, known when it is imported
        def __init__(self, kind: str) -> None:
            super().__init__()
            self._kind, self._kept = kind, dict[tuple[str, ...], Any]()

        def __torch_function__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
            given = kwargs or {}
            if func in makers and len(args) == 1 and _plain(args[0]) and self._here(given.get("device")):
                # Whoever made it may write to it.
                return self._constant(args[0], given.get("device"), given.get("dtype")).clone()
            if func in subscripts and self._here(args[0].device):
                tensor, index, *rest = args
                indices = index if isinstance(index, tuple) else (index,)
                if any(isinstance(each, list) and _plain(each) for each in indices):
                    placed = tuple(
                        self._constant(each, tensor.device, None) if isinstance(each, list) and _plain(each) else each
                        for each in indices
                    )
                    return func(tensor, placed, *rest)
            return func(*args, **given)

        def _here(self, device: Any) -> bool:
            return device is not None and torch.device(device).type == self._kind

        def _constant(self, value: Any, device: Any, dtype: Any) -> Any:
            key = (repr(value), str(device), str(dtype))
            if key not in self._kept:
                self._kept[key] = torch.tensor(value, device=device, dtype=dtype)
            return self._kept[key]

    return KeptConstants


def _plain(value: Any) -> bool:
    """Python's own numbers, or lists of them."""
    return isinstance(value, bool | int | float) or (
        isinstance(value, list | tuple) and all(_plain(inner) for inner in value)
    )


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
