"""Generates with ONNX Runtime GenAI, a step at a time: the prompt is appended, then each token asked for.

Underneath runs ONNX Runtime, the installed one: its profiler gives the kernels, and the graph that it makes of the
file says which nodes each of them stands for.
"""

import gc
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from inferometer.core.errors import DomainError, EngineError, FormatError
from inferometer.core.json_text import parse_json
from inferometer.engines.base import Event, Kernel, Opened, Request, Stage, Target, guard
from inferometer.engines.feeding import Tokenising, alive, require_no_settings, require_request
from inferometer.engines.host import threads_of
from inferometer.engines.onnxruntime.loading import CPU, LoadingPlan, engine_words
from inferometer.engines.onnxruntime.recorder import SKIP, ProfileRecorder

# The engine's model of a folder: what its config says, with threads, and a profile if one is wanted.

CONFIG = "genai_config.json"
_QUIET = 4  # of the engine's levels: fatal errors alone


@dataclass(slots=True, kw_only=True)
class GenaiModel:
    """A loaded model. A profiled one writes what it has run when it goes; what generates with it must go first."""

    model: Any
    profile: Path | None = None  # how the names of its profile begin
    running: Any = None  # what generates at present: it holds the model

    def end_profiling(self) -> str:
        """The file with the profile. The model is gone after it."""
        self.model = self.running = None
        gc.collect()  # what is in cycles holds the session, which writes when it is destroyed
        prefix = self.profile
        files = [] if prefix is None else sorted(prefix.parent.glob(f"{prefix.name}*.json"))
        if not files:
            raise EngineError("ONNX Runtime GenAI left no profile.", remedy="Try another version of onnxruntime-genai.")
        for old in files[:-1]:
            old.unlink()
        return str(files[-1])


def folder_of(path: Path) -> Path:
    """A file of the folder may be given in its place."""
    folder = path.parent if path.is_file() and path.name in {CONFIG, "model.onnx"} else path
    if not (folder / CONFIG).is_file():
        raise FormatError(
            f"{str(path)!r} is no folder of ONNX Runtime GenAI: there is no {CONFIG} in it.",
            remedy="Make one: `inferometer prepare CHECKPOINT --for onnxruntime-genai -o FOLDER`.",
        )
    return folder


def config_of(folder: Path) -> dict[str, Any]:
    try:
        config: dict[str, Any] = parse_json((folder / CONFIG).read_text(encoding="utf-8"))
        config["model"]["decoder"]["filename"]
        int(config["model"]["vocab_size"])
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise FormatError(
            f"{str(folder / CONFIG)!r} does not describe a decoder: {type(error).__name__} {error}.",
            remedy="Make the folder again: `inferometer prepare CHECKPOINT --for onnxruntime-genai -o FOLDER`.",
        ) from None
    return config


def load_model(folder: Path, plan: LoadingPlan, *, profile: Path | None = None) -> GenaiModel:
    """On the CPU, whatever provider the folder's config asks for."""
    import onnxruntime_genai  # noqa: PLC0415 - the engine is imported when a model is opened

    options: dict[str, Any] = {
        "intra_op_num_threads": plan.threads, "inter_op_num_threads": 1, "log_severity_level": _QUIET,
    }  # fmt: skip
    if profile is not None:
        options["enable_profiling"] = str(profile)
    with guard(fault_of, folder, "refused"):
        config = onnxruntime_genai.Config(str(folder))
        config.clear_providers()
        config.overlay(json.dumps({"model": {"decoder": {"session_options": options}}}))
        return GenaiModel(model=onnxruntime_genai.Model(config), profile=profile)


def fault_of(path: Path, doing: str, error: Exception) -> Exception:
    words = engine_words(error)
    if "Failed to allocate memory" in words or "bad_alloc" in words:
        return MemoryError(words)
    return EngineError(
        f"ONNX Runtime GenAI {doing} {str(path)!r}: {words.rstrip('.')}.",
        remedy="Make the folder again with the version that is installed: "
        "`inferometer prepare CHECKPOINT --for onnxruntime-genai -o FOLDER`.",
    )


_STRIDE = 7  # through the vocabulary, so that the tokens of a depth differ
_PACKAGES = ("onnxruntime-genai", "onnxruntime")


def open_session(target: Target, name: str, *, clock: Callable[[], float] = time.perf_counter) -> "GenaiSession":
    folder = _checked(target, name)
    config = config_of(folder)
    plan = LoadingPlan(
        path=folder / config["model"]["decoder"]["filename"], threads=threads_of(target.threads), providers=((CPU, {}),)
    )
    start = clock()
    if target.instrument:
        recorder = ProfileRecorder(plan, begin=partial(_profiled, folder))
        model = recorder.session
    else:
        recorder, model = None, load_model(folder, plan)
    asked = config["model"]["decoder"].get("session_options", {}).get("provider_options", ())
    names = [name for entry in asked for name in entry]
    notes = (f"The folder was made for {', '.join(names)}; it was run on the CPU.",) if names else ()
    opened = Opened(
        stages=(Stage(name="load", seconds=clock() - start),),
        versions={package: version(package) for package in _PACKAGES},
        threads=plan.threads,
        notes=notes,
    )
    return GenaiSession(target, folder, config, model, opened, recorder)


def _profiled(folder: Path, plan: LoadingPlan, profile: Path) -> GenaiModel:
    return load_model(folder, plan, profile=profile)


def _checked(target: Target, name: str) -> Path:
    if not target.text:
        raise DomainError(f"{name} opens language models; one of arrays was asked for.")
    folder = folder_of(target.path)
    if target.unit is not None and target.unit.removesuffix(":0") != "cpu":
        raise EngineError(f"ONNX Runtime GenAI is not run on the unit {target.unit!r} here.", remedy="There is: cpu.")
    require_no_settings(target, "ONNX Runtime GenAI", listing="None can be chosen here.")
    return folder


class GenaiSession(Tokenising):
    """A TextSession. Each generation has a generator of its own, made before anything is timed: it holds the cache.

    The events of its tokens come together, once the last of them is there, unless they are asked for apart.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - what is open, and how
        self, target: Target, folder: Path, config: Mapping[str, Any], model: GenaiModel, opened: Opened,
        recorder: ProfileRecorder | None,
    ) -> None:  # fmt: skip
        self.opened, self._target, self._folder, self._recorder = opened, target, folder, recorder
        self._model_file = folder / "model.onnx"
        self._model: GenaiModel | None = model
        self.vocabulary = int(config["model"]["vocab_size"])
        self._room = target.context or config["model"].get("context_length")

    @property
    def cost_per_kernel_s(self) -> float | None:
        return self._recorder.timers.node_s if self._recorder else None

    @property
    def idle_per_step_s(self) -> float | None:
        return self._recorder.timers.step_s if self._recorder else None

    def generate(self, request: Request) -> Iterator[Event]:
        require_request(request, vocabulary=self.vocabulary, room=self._room)
        if request.depth and self._target.batch > 1:
            raise DomainError(
                "ONNX Runtime GenAI goes on from a filled cache with one sequence alone.",
                remedy="Leave --depth out, or ask for a batch of 1.",
            )
        count = max(1, request.generate)
        self._ready(count + bool(request.depth))
        running = self._begin(request.depth + len(request.prompt) + count, stops=not request.ignore_end)
        if request.depth:
            filler = [(1 + _STRIDE * index) % self.vocabulary for index in range(request.depth)]
            self._append(running, filler, SKIP)
        yield self._prefill(running, request)
        cached, left = request.depth + len(request.prompt), count - 1
        while left > 0 and running.model is not None:
            with guard(fault_of, self._folder, "failed to run"):
                steps = self._tokens(running, 1 if request.apart else left)
            for index, (start, ran, end, token) in enumerate(steps):
                yield Event(
                    kind="token", start_ns=start, end_ns=end, tokens=1, context=cached + index, ids=(token,),
                    parts={"run": (ran - start) * 1e-9, "read": (end - ran) * 1e-9},
                )  # fmt: skip
            cached, left = cached + len(steps), left - len(steps) if steps else 0

    def _tokens(self, running: GenaiModel, count: int) -> list[tuple[int, int, int, int]]:
        """When each step began, had run and was read, and its token. The engine runs and chooses in one call.

        What is done between two calls counts as the engine's time. After a step none of it lies in the caches: an
        event takes 7 µs there, fifteen times what it takes alone. So they are made when all steps have run.
        """
        generator, clock, recorder = running.running, time.perf_counter_ns, self._recorder
        steps: list[tuple[int, int, int, int]] = []
        while len(steps) < count and not generator.is_done():
            start = clock()
            generator.generate_next_token()
            ran = clock()
            token = generator.get_next_tokens().item(0)
            steps.append((start, ran, clock(), token))
            if recorder:
                recorder.ran("decode")
        return steps

    def _prefill(self, running: GenaiModel, request: Request) -> Event:
        start = time.perf_counter_ns()
        self._append(running, request.prompt, "prefill")
        ran = time.perf_counter_ns()
        with guard(fault_of, self._folder, "failed to run"):
            running.running.generate_next_token()
            token = running.running.get_next_tokens().item(0)
        end = time.perf_counter_ns()
        return Event(
            kind="prefill", start_ns=start, end_ns=end, tokens=len(request.prompt), context=request.depth,
            ids=(token,) if request.generate else (), parts={"run": (ran - start) * 1e-9, "sample": (end - ran) * 1e-9},
        )  # fmt: skip

    def _begin(self, length: int, *, stops: bool = False) -> GenaiModel:
        """Replace the generator by one whose cache has room for this many tokens."""
        import onnxruntime_genai  # noqa: PLC0415 - as above

        running = alive(self._model)
        running.running = None
        with guard(fault_of, self._folder, "failed to run"):
            chosen = onnxruntime_genai.GeneratorParams(running.model)
            chosen.set_search_options(
                batch_size=self._target.batch, max_length=length, min_length=0 if stops else length, do_sample=False,
                num_beams=1,
            )  # fmt: skip
            running.running = onnxruntime_genai.Generator(running.model, chosen)
        return running

    def _append(self, running: GenaiModel, ids: Sequence[int], phase: str) -> None:
        """The model reads the tokens, all at once."""
        import numpy as np  # noqa: PLC0415 - the engine has brought it

        batch = self._target.batch
        rows = np.tile(np.asarray(ids, np.int32), (batch, 1))
        with guard(fault_of, self._folder, "failed to run"):
            running.running.append_tokens(rows)
        if self._recorder:
            self._recorder.ran(phase)

    def score(self, ids: tuple[int, ...]) -> np.ndarray[Any, Any]:
        import numpy as np  # noqa: PLC0415 - as above

        require_request(Request(prompt=ids, generate=0), vocabulary=self.vocabulary, room=self._room)
        self._ready(len(ids) + 1)
        running = self._begin(len(ids) + 1)
        self._append(running, ids, SKIP)
        logits = running.running.get_output("logits")[0]
        if len(logits) == len(ids):
            return np.array(logits, np.float32)[:, : self.vocabulary]
        running = self._begin(len(ids) + 1)  # the file gives the logits of the last token alone
        rows = []
        for token in ids:
            self._append(running, (token,), SKIP)
            rows.append(np.array(running.running.get_output("logits")[0, -1], np.float32))
        return np.stack(rows)[:, : self.vocabulary]

    def kernels(self) -> Mapping[str, tuple[Kernel, ...]]:
        return self._recorder.take() if self._recorder else {}

    def _ready(self, runs: int) -> None:
        alive(self._model)
        if self._recorder:
            self._recorder.ready(runs, self._renew)

    def _renew(self, model: GenaiModel) -> None:
        """In a fresh model the first runs pay for its memory: a short text is read and gone on from."""
        self._model = model
        running = self._begin(4)
        self._append(running, (0, 0), SKIP)
        for _ in range(2):
            running.running.generate_next_token()
        if self._recorder:
            self._recorder.ran(SKIP)

    def close(self) -> None:
        if self._model is not None:
            self._model.running = None
            if self._recorder:
                self._recorder.close()
            self._model = None
