"""The engine's sessions: the providers they are asked to run on, their inputs and outputs, and their one-time costs."""

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnxruntime as ort

from inferometer.core.errors import DomainError, EngineError, FormatError, UnknownNameError
from inferometer.core.frozen import frozen
from inferometer.engines.base import Opened, Port, Stage, Target, guard, op_named
from inferometer.engines.host import threads_of
from inferometer.engines.onnx_nodes import load_model, require_sizes

# The engine's exceptions in our sentences.

_OPS = (
    re.compile(r"implementation for (?P<op>[\w.:]+)\(\d+\) node with name '(?P<node>[^']*)'"),
    re.compile(r"Fatal error: (?P<op>[\w.:]+)\(-?\d+\) is not a registered"),
    re.compile(r"running (?P<op>\w+) node\. Name:'(?P<node>[^']*)'"),
    re.compile(r"No Op registered for (?P<op>\w+)"),
    re.compile(r"Node \((?P<node>[^)]*)\) Op \((?P<op>\w+)\)"),
)
_HEAD = re.compile(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ")
_LOAD = re.compile(r"^(Load model from .*? failed:)+")
_WHERE = re.compile(r"\S*/onnxruntime_src/\S+ .*?\) (?=[A-Z])")  # the engine's own file, line and function


def engine_words(error: BaseException) -> str:
    """The message without the engine's own file names and repetitions, on one line."""
    text = _HEAD.sub("", str(error).strip())
    text = _WHERE.sub("", _LOAD.sub("", text))
    return " ".join(text.split()) or type(error).__name__


def fault_of(path: Path, doing: str, error: Exception) -> Exception:
    """What an exception means, in a sentence; for a loop that cannot afford `guarded`, too."""
    words = engine_words(error)
    if "Failed to allocate memory" in words or "bad_alloc" in words:
        return MemoryError(words)
    op = op_named(words, _OPS, which=-1)  # the innermost, where one is within another
    about = f" at {op}" if op else ""
    return EngineError(f"ONNX Runtime {doing} {str(path)!r}{about}: {words.rstrip('.')}.", remedy=_remedy(words))


guarded = partial(guard, fault_of)


def _remedy(words: str) -> str:
    if "Protobuf parsing failed" in words:
        return "The file is damaged or no ONNX model."
    if "File doesn't exist" in words:
        return "Check the path."
    if "external" in words.casefold():
        return "Files with the weights belong beside the model, under the names it gives."
    if "opset" in words.casefold() or "not a registered" in words or "implementation for" in words:
        return "Export it with an operator set and types that this version runs, or upgrade onnxruntime."
    return "Check the model with `onnx.checker`, and that its inputs have the sizes it was exported for."


# Execution providers: which ones to ask for, on which kind of unit each runs, and what came of it.

CPU = "CPUExecutionProvider"

# By kind of unit, the first that is there is taken. TensorRT compiles for minutes: it is used where it is named.
_UNITS: Mapping[str, tuple[str, ...]] = {
    "cpu": (CPU,),
    "gpu": (
        "CUDAExecutionProvider", "ROCMExecutionProvider", "MIGraphXExecutionProvider", "DmlExecutionProvider",
        "WebGpuExecutionProvider",
    ),
    "npu": ("QNNExecutionProvider", "VitisAIExecutionProvider", "CANNExecutionProvider", "CoreMLExecutionProvider"),
}  # fmt: skip
_ALSO_GPU = frozenset(
    {"TensorrtExecutionProvider", "NvTensorRTRTXExecutionProvider", "JsExecutionProvider", "WebNNExecutionProvider"}
)
_REMOTE = frozenset({"AzureExecutionProvider"})  # calls a service; runs no nodes here


def unit_of(provider: str) -> str:
    """cpu, gpu or npu. A provider that is not known is taken to run on the CPU."""
    if provider in _ALSO_GPU:
        return "gpu"
    return next((unit for unit, names in _UNITS.items() if provider in names), "cpu")


def split_unit(text: str) -> tuple[str, int | None]:
    """`gpu:1` is the second GPU."""
    kind, colon, index = text.partition(":")
    if not colon:
        return kind, None
    if not index.isdecimal():
        raise DomainError(f"The unit {text!r} must be a kind and a number, as in gpu:1.")
    return kind, int(index)


def choose_providers(target: Target, available: Sequence[str]) -> list[tuple[str, dict[str, str]]]:
    """Names with their options, the CPU's last: what the others cannot run falls to it."""
    usable = [name for name in available if name not in _REMOTE]
    index = split_unit(target.unit)[1] if target.unit else None
    names = _named(target.providers, usable) if target.providers else _of_unit(target.unit or "cpu", usable)
    chosen = [(name, {"device_id": str(index)} if index and unit_of(name) != "cpu" else {}) for name in names]
    return chosen if CPU in names else [*chosen, (CPU, {})]


def _named(asked: Sequence[str], usable: Sequence[str]) -> list[str]:
    by_short = {name.removesuffix("ExecutionProvider").casefold(): name for name in usable}
    chosen = []
    for name in asked:
        full = by_short.get(name.removesuffix("ExecutionProvider").casefold())
        if full is None:
            raise UnknownNameError("execution provider", name, usable, listing=f"Here: {', '.join(usable)}.")
        chosen.append(full)
    return chosen


def _of_unit(asked: str, usable: Sequence[str]) -> list[str]:
    kind, index = split_unit(asked)
    if kind not in _UNITS:
        raise UnknownNameError("kind of unit", kind, _UNITS, listing=f"Known: {', '.join(_UNITS)}.")
    if kind == "cpu" and index:
        raise DomainError(f"The unit {asked!r} was asked for; ONNX Runtime sees one cpu.")
    for name in _UNITS[kind]:
        if name in usable:
            return [name]
    raise EngineError(
        f"ONNX Runtime was asked to run on {asked!r}, and this build has no provider for it; "
        f"it has {', '.join(usable)} (units: {', '.join(sorted({unit_of(name) for name in usable}))}).",
        remedy=f"Install a build with one of {', '.join(_UNITS[kind])}, or choose another unit.",
    )


def placement_notes(asked: Sequence[str], got: Sequence[str], placed: Mapping[str, int]) -> tuple[str, ...]:
    """In words, what ran elsewhere than it was asked to."""
    lost = [name for name in asked if name not in got]
    notes = [f"{name} was asked for, and the engine dropped it." for name in lost]
    first = asked[0]
    total, there = sum(placed.values()), placed.get(first, 0)
    if not lost and total and there < total and first != CPU:
        elsewhere = ", ".join(f"{count} on {name}" for name, count in sorted(placed.items()) if name != first)
        notes.append(f"Of {total} nodes {there} were placed on {first}, {elsewhere}.")
    return tuple(notes)


# Inputs and outputs: the engine's names for types.

_DTYPES = {
    "float": "float32", "double": "float64", "float16": "float16", "bfloat16": "bfloat16", "bool": "bool",
    "string": "object",
    **{f"{sign}int{bits}": f"{sign}int{bits}" for sign in ("", "u") for bits in (4, 8, 16, 32, 64)},
}  # fmt: skip


def to_port(entry: Any, *, fed: bool = True) -> Port:
    """From the engine's `NodeArg`: `tensor(float)` and a shape of numbers, names and nothing.

    A result may be a sequence or a map, as classifiers of scikit-learn give theirs: it has no shape, and is read as
    arrays by `result_arrays`. What is `fed` must be a tensor.
    """
    match = re.fullmatch(r"tensor\((\w+)\)", entry.type)
    if match is None and fed:
        raise EngineError(
            f"The input {entry.name!r} is a {entry.type}; only tensors can be fed.",
            remedy="Export the model with tensors alone as inputs.",
        )
    if match is None:
        return Port(name=entry.name, dtype=entry.type, shape=())
    shape = tuple(_dim(dim) for dim in entry.shape)
    return Port(name=entry.name, dtype=_DTYPES.get(match[1], match[1]), shape=shape)


def result_arrays(name: str, result: Any) -> dict[str, Any]:
    """A result as arrays: itself; a sequence of maps as a table, a row a map and a column a key; any other by parts."""
    if isinstance(result, np.ndarray):
        return {name: result}
    if isinstance(result, dict):
        return result_arrays(name, [result])
    rows = list(result)
    if rows and all(isinstance(row, dict) and row.keys() == rows[0].keys() for row in rows):
        return {name: np.array([list(row.values()) for row in rows])}
    return {f"{name}.{index}": np.asarray(part) for index, part in enumerate(rows)}


def _dim(dim: Any) -> int | str | None:
    if isinstance(dim, int):
        return dim if dim >= 0 else None
    return str(dim) if dim else None


def wrongly_declared(ports: Sequence[Port], given: Sequence[tuple[int, ...]]) -> list[str]:
    """A note for each output whose shape is not what the file declares."""
    notes = []
    for port, shape in zip(ports, given, strict=True):
        fits = len(port.shape) == len(shape) and all(
            dim == size for dim, size in zip(port.shape, shape, strict=True) if isinstance(dim, int)
        )
        if port.shape and not fits:
            declared = ", ".join("?" if dim is None else str(dim) for dim in port.shape)
            notes.append(
                f"The file declares the output {port.name!r} as [{declared}], and it is {list(shape)}: the engine does "
                "not reuse its memory, so every step allocates it anew."
            )
    return notes


Clock = Callable[[], float]
_LEVELS = {
    "none": "ORT_DISABLE_ALL",
    "basic": "ORT_ENABLE_BASIC",
    "extended": "ORT_ENABLE_EXTENDED",
    "all": "ORT_ENABLE_ALL",
}
ORT = ".ort"  # the engine's own format: a file of it has this ending, or the engine takes it for ONNX
_EXTERNAL = "weights.bin"
_EXTERNAL_FROM_BYTES = 1024  # smaller ones stay in the file


@frozen
class LoadingPlan:
    """How to make a session. `model` replaces the file's content where it had to be changed to be read."""

    path: Path
    threads: int
    providers: tuple[tuple[str, Mapping[str, str]], ...]
    level: str = "all"
    model: bytes | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class _Mark:
    """Empty, and asked for its content by the engine between loading the file and preparing the session."""

    clock: Clock
    at: float | None = None

    def __iter__(self) -> Iterator[str]:
        self.at = self.clock()
        return iter(())


def load_plan(target: Target) -> LoadingPlan:
    path = _file(target.path)
    chosen = choose_providers(target, ort.get_available_providers())
    plan = LoadingPlan(
        path=path,
        threads=threads_of(target.threads),
        providers=tuple(chosen),
        level=target.optimisation or "all",
        sizes=target.sizes,
        options=target.options,
    )
    plan = _readable(plan)
    if target.sizes:
        require_sizes(as_onnx(plan), path, target.sizes)
    return plan


def as_onnx(plan: LoadingPlan) -> Any:
    """The model of a plan as the `onnx` package holds it. A file in the engine's own format is written as ONNX first.

    Such a file was optimised when it was made, and the engine runs its nodes as they are.
    """
    if plan.path.suffix != ORT:
        return load_model(plan.path)
    with TemporaryDirectory(prefix="inferometer-") as folder:
        place = Path(folder) / "model.onnx"
        options = _quiet()
        options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, _LEVELS["none"])
        options.optimized_model_filepath = str(place)
        options.add_session_config_entry("session.save_model_format", "ONNX")
        with guarded(plan.path, "refused"):
            ort.InferenceSession(str(plan.path), options, providers=[CPU])
        return load_model(place)


def _file(path: Path) -> Path:
    """The model itself where a folder is given."""
    if not path.is_dir():
        if not path.exists():
            raise FormatError(f"There is no file {str(path)!r}.", remedy="Check the path.")
        return path
    known = [path / name for name in ("model.onnx", "decoder_model_merged.onnx", "onnx/model.onnx")]
    candidates = [file for file in known if file.is_file()] or sorted(path.glob("*.onnx"))
    if len(candidates) > 1 and candidates[0] not in known:
        names = ", ".join(file.name for file in candidates)
        raise FormatError(f"The folder {str(path)!r} has several models: {names}.", remedy="Name one of them.")
    if not candidates:
        raise FormatError(f"The folder {str(path)!r} has no ONNX model.", remedy="Name the file itself.")
    return candidates[0]


def _readable(plan: LoadingPlan) -> LoadingPlan:
    """A file of a newer IR version than the engine's is read as the engine's newest, where it can be, with a note.

    IR versions add fields; a model that uses none of the new ones means the same under the older number.
    """
    with plan.path.open("rb") as file:
        head = file.read(2)
    newest = _newest_ir() if len(head) == 2 and head[0] == 8 and head[1] > 10 else None
    if newest is None or head[1] <= newest or head[1] > 127:
        return plan
    model = load_model(plan.path)
    model.ir_version = newest
    note = f"The file is of IR version {head[1]}; it was read as version {newest}, the newest this engine takes."
    return replace(plan, model=model.SerializeToString(), notes=(*plan.notes, note))


def _newest_ir() -> int | None:
    """The engine names it only when it refuses a model, so it is given one of a version far ahead."""
    impossible = bytes([8, 120, 58, 0, 66, 2, 16, 17])  # IR version 120, an empty graph, operator set 17
    try:
        ort.InferenceSession(impossible, _quiet(), providers=[CPU])
    except Exception as error:  # noqa: BLE001 - the refusal is the answer
        words = engine_words(error).rpartition("max supported IR version:")[2].split()
        return int(words[0]) if words and words[0].isdecimal() else None
    return None


def _quiet() -> Any:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    return options


def load(
    plan: LoadingPlan,
    *,
    profile: Path | None = None,
    optimised: Path | None = None,
    clock: Clock = time.perf_counter,
) -> tuple[Any, tuple[Stage, ...]]:
    """A session and what it cost. Names of profiles begin with `profile`; the graph as run goes to `optimised`."""
    options = _options(plan)
    if profile is not None:
        options.enable_profiling = True
        options.profile_file_prefix = str(profile)
    if optimised is not None:
        options.optimized_model_filepath = str(optimised)
        prefix = "session.optimized_model_external_initializers_"
        options.add_session_config_entry(f"{prefix}file_name", _EXTERNAL)
        options.add_session_config_entry(f"{prefix}min_size_in_bytes", str(_EXTERNAL_FROM_BYTES))
    mark = _Mark(clock)
    with guarded(plan.path, "refused"):
        start = clock()
        session = ort.InferenceSession(
            plan.model if plan.model is not None else str(plan.path),
            options,
            providers=[(name, dict(settings)) for name, settings in plan.providers],
            disabled_optimizers=mark,
            enable_fallback=0,  # it would print, and run elsewhere than it was asked to
        )
        end = clock()
    if mark.at is None:
        return session, (Stage(name="load", seconds=end - start),)
    return session, (Stage(name="load", seconds=mark.at - start), Stage(name="compile", seconds=end - mark.at))


_SWITCHES = frozenset({"enable_cpu_mem_arena", "enable_mem_pattern"})  # attributes of a session's options, not entries


def _options(plan: LoadingPlan) -> Any:
    options = _quiet()
    options.intra_op_num_threads = plan.threads
    options.inter_op_num_threads = 1
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, _LEVELS[plan.level])
    for name, size in plan.sizes.items():
        options.add_free_dimension_override_by_name(name, size)
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    if plan.model is not None:
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(plan.path.parent))
    for name, value in plan.options.items():
        if name in _SWITCHES:
            if value not in {"0", "1"}:
                raise DomainError(f"The option {name} is 0 or 1, and not {value!r}.")
            setattr(options, name, value == "1")
            continue
        with guarded(plan.path, f"refused the option {name}={value} for"):
            options.add_session_config_entry(name, value)
    return options


def opened_of(plan: LoadingPlan, session: Any, stages: tuple[Stage, ...]) -> Opened:
    asked = [name for name, _ in plan.providers]
    placed = _placed(session)
    got = session.get_providers()
    main = max(placed, key=placed.__getitem__) if placed else got[0]
    return Opened(
        stages=stages,
        versions={"onnxruntime": ort.__version__},
        inputs=tuple(to_port(entry) for entry in session.get_inputs()),
        outputs=tuple(to_port(entry, fed=False) for entry in session.get_outputs()),
        threads=plan.threads,
        unit=unit_of(main),
        placed=placed,
        notes=(*plan.notes, *placement_notes(asked, got, placed)),
    )


def _placed(session: Any) -> dict[str, int]:
    """Nodes by provider, before fusion; empty where the engine is too old to report it."""
    ask = getattr(session, "get_provider_graph_assignment_info", None)
    if ask is None:
        return {}
    counts: dict[str, int] = {}
    try:
        for part in ask():
            counts[part.ep_name] = counts.get(part.ep_name, 0) + len(part.get_nodes())
    except Exception as error:
        raise EngineError(f"ONNX Runtime did not say where it placed the nodes: {engine_words(error)}.") from error
    return counts
