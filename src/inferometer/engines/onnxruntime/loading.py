"""The engine's sessions: made from a target, with their one-time costs apart."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import onnxruntime as ort

from inferometer.core.errors import DomainError, EngineError, FormatError
from inferometer.core.frozen import frozen
from inferometer.engines.base import Opened, Stage, Target
from inferometer.engines.host import threads_of
from inferometer.engines.onnx_nodes import load_model, require_sizes
from inferometer.engines.onnxruntime.faults import engine_words, guarded
from inferometer.engines.onnxruntime.ports import to_port
from inferometer.engines.onnxruntime.providers import CPU, choose_providers, placement_notes, unit_of

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
