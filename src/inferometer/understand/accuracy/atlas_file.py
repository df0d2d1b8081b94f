"""A file of published measurements judged: every row asked of what predicts it, and how far the answers are off.

Rows of serving engines are asked of their rules, all others of the priors; nothing of the file enters any fit but where
`from_models` says so.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import exp, log
from pathlib import Path
from typing import Any

from inferometer.core.errors import DomainError, InferometerError
from inferometer.core.frozen import frozen
from inferometer.core.statistics import EIGHT_IN_TEN
from inferometer.known.atlas import PublishedMeasurement, SetAside
from inferometer.known.atlas.reading import read_atlas
from inferometer.known.serving_costs import fitted_number, fitted_on
from inferometer.measure.calibrate.priors.cases import has_device, is_described
from inferometer.measure.calibrate.priors.judged import FEW, JudgedFile, JudgedRow, how_far, judge_rows, way_of
from inferometer.predict.ask import ask
from inferometer.predict.options import Options
from inferometer.predict.question import Question
from inferometer.predict.served.question import ServedReplica, served
from inferometer.predict.served.steady import Drafts, KernelParts, Traffic, held, kernel_parts

# Published figures of serving engines as questions: what was served, on how many devices, for how many users.
#
# A row of the atlas is read in the terms of a `Question` and of the traffic; what a source does not state is filled in
# by the rules below, each with its reason, and never by the figure itself.

ENGINES = {"vllm": "vllm", "sglang": "sglang", "trtllm": "trtllm", "tensorrt": "trtllm"}
QUANTITIES = frozenset({"ttft", "tpot", "tokens", "request"})
# Mean tokens of the datasets of MLPerf Inference's language models, in and out (mlcommons/inference, language/*).
_MLPERF = {
    "llama-2-70b": (294, 294), "llama-3.1-405b": (9428, 684), "mixtral-8x7b": (300, 145), "llama-3.1-8b": (778, 73),
    "deepseek-v3": (3880, 3880), "gpt-j-6b": (500, 69),
}  # fmt: skip
# Releases by month (GitHub), for figures that have a date and no version.
_RELEASES = {
    "trtllm": (
        ("2023-10", "0.5.0"), ("2024-02", "0.8.0"), ("2024-06", "0.10.0"), ("2024-10", "0.13.0"), ("2024-12", "0.15.0"),
        ("2025-02", "0.17.0"), ("2025-05", "0.19.0"), ("2025-07", "0.21.0"), ("2025-09", "1.0.0"), ("2025-12", "1.1.0"),
        ("2026-03", "1.2.0"),
    ),
    "vllm": (
        ("2023-09", "0.2.0"), ("2024-03", "0.4.0"), ("2024-07", "0.5.3"), ("2024-11", "0.6.4"), ("2025-01", "0.7.0"),
        ("2025-03", "0.8.0"), ("2025-07", "0.10.0"), ("2025-10", "0.11.0"), ("2025-12", "0.12.0"),
        ("2026-02", "0.16.0"), ("2026-04", "0.19.0"),
    ),
}  # fmt: skip
_NARROW = {"nvidia-b200": "nvfp4", "nvidia-gb200": "nvfp4", "nvidia-b300": "nvfp4", "nvidia-gb300": "nvfp4"}
_EIGHT_BITS = ("nvidia-h1", "nvidia-h2", "nvidia-gh", "nvidia-l4", "nvidia-rtx-4", "amd-mi3")
# InferenceMAX's client draws lengths between 80 and 100 % of those that it states, evenly.
_DRAWN = 0.9
# Its servers with drafts propose three tokens a step (one where attention is copied), of random text; how many of them
# are kept it does not state: this is what workshop/serving/fit.py finds.
_DRAFTED, _DRAFTED_COPIES = 3, 1
# Its vLLM servers of MiniMax and Kimi: --gpu-memory-utilization 0.95 --max-num-seqs 256, or as many as its client has
# users: the first tokens of 512 come twice as late as those of 256, where half of them would wait for an answer.
_ROOM, _ROOM_SEQUENCES = 0.95, 256
# Its TensorRT-LLM servers of Llama read up to 16,384 tokens a step and, for 1,024 tokens in and out on fewer than eight
# devices, hold prompts back for up to 20 steps; its SGLang servers on B200 look for requests every 10 steps, or every
# 30 from 16 users on (benchmarks/*.sh of the project, 2025-10).
_LLAMA_TOKENS, _HELD_BACK, _LOOKS, _LOOKS_BUSY, _BUSY = 16384, 20, 10, 30, 16
# Its TensorRT-LLM servers that copy attention hold a prompt back until every copy has one, or for so many steps
# (attention_dp_config, enable_balance and timeout_iters): with drafts 60 are missing where prompts of a copy are 70 to
# 280 steps apart, without them 20 where they are 60 to 460 apart.
_BALANCED_DRAFTED, _BALANCED = 60, 20
# A first token so many times as late as in another run of the same service is that of its start: SGLang's run of
# 2025-11-10 takes 7 s more wherever more than 16,384 tokens of prompts came at once, for 4 users and for 128 alike.
_STARTING = 3
_OF_A_START = f"another run of the same service has its first token {_STARTING} times sooner: this one is of a start"
_EVEN = 1024
_EXPERTS = 256  # of DeepSeek-V3
# TensorRT-LLM's performance overview, docs/source/developer-guide/perf-overview.md: its commands set
# enable_attention_dp for these mixtures, whose parallelism the tables of 2025-12 call TP and later ones DEP; and how
# many requests come, all at once, by the tokens of a prompt and of an answer: no more are under way, whatever fits.
_ATTENTION_COPIED = ("deepseek", "qwen3-235", "qwen3-30", "gpt-oss", "llama-4-maverick")
_COPIED_SINCE, _COUNTED_SINCE = "2025-12", "2024-10"
_REQUESTS = {
    (128, 128): 30_000, (128, 2048): 3000, (128, 4096): 1500, (500, 2000): 3000, (1000, 1000): 3000, (1000, 2000): 1500,
    (1024, 1024): 3000, (1024, 2048): 1500, (1024, 8192): 1500, (1024, 32_768): 1000, (2048, 128): 3000,
    (2048, 2048): 1500, (5000, 500): 1500, (8192, 1024): 1500, (20_000, 2000): 1000, (32_768, 1024): 1000,
}  # fmt: skip
_PREFIXES = ("deepseek", "qwen3-235", "qwen3-30", "mixtral", "gpt-oss", "kimi", "minimax", "olmoe", "llama-4")


@frozen
class ServedCase:
    """A published figure as a question, with the traffic it was measured under. `users` are of each replica."""

    question: Question
    traffic: Traffic
    users: int | None
    quantity: str
    step_tokens: int | None = None  # limits that the server was started with
    sequences: int | None = None
    memory_share: float | None = None
    waits: float = 0.0  # steps that it holds a prompt back for, on average
    cold: bool = False  # the figure holds what the first run of a process takes
    fronted: bool = False  # the figure holds what a front before the engine takes
    requests: int | None = None  # of the whole test, of each replica: all come at once

    def served(self) -> ServedReplica:
        limited = served(self.question).limited(tokens=self.step_tokens, sequences=self.sequences, waits=self.waits)
        return limited if self.memory_share is None else limited.with_memory_share(self.memory_share)

    def at_once(self, room: int) -> int:
        """Sequences under way where `room` fit: of a test whose requests all come at once, in as few waves as it takes.

        All waves count as equally full, since a step's time is a line over its sequences.
        """
        most = min(self.users or room, room)
        return most if self.requests is None else max(1, round(self.requests / -(-self.requests // most)))


@frozen
class ServedFigure:
    """Seconds as `PublishedMeasurement.seconds` counts them, between the ends of eight in ten."""

    seconds: float
    low_s: float
    high_s: float


def is_served(row: PublishedMeasurement) -> bool:
    """Whether a row is of an engine with rules of serving, and of what they predict."""
    return row.engine in ENGINES and row.quantity in QUANTITIES


def not_served(row: PublishedMeasurement) -> str | None:
    """Why a row of a serving engine cannot be asked; None where it can."""
    reasons = (
        (row.engine not in ENGINES, f"the engine {row.engine} has no rules of serving"),
        (row.quantity not in QUANTITIES, f"{row.quantity} is no figure of a server"),
        (row.model is None, f"the model {row.model_published} has no graph here"),
        (row.device is None, f"the device {row.device_published} is not in the catalog"),
        (row.settings.get("mode") == "disagg", "two pools of workers: the simulator's, and not the steady state's"),
        (_sizes(row) is None, "the lengths of prompts and answers are not stated"),
    )
    return next((reason for holds, reason in reasons if holds), None)


def served_case(row: PublishedMeasurement) -> ServedCase | None:
    """The row as a question; None where `not_served` has a reason."""
    runtime, sizes = ENGINES.get(row.engine or ""), _sizes(row)
    if runtime is None or sizes is None or row.device is None or not_served(row) is not None:
        return None
    tp, pp, dp, ep = _plan(row, runtime)
    weights, overrides = _formats(row)
    question = ask(
        row.model, on=row.device, runtime=runtime, weights=weights, kv=_cache_format(row, runtime, weights),
        batch=dp, prompt=sizes[0], generate=sizes[1], tp=tp, pp=pp, dp=dp, ep=ep,
        options=Options(overrides=overrides, engine_version=_version(row, runtime)),
    )  # fmt: skip
    users = row.batch
    if row.quantity != "request" and users is None and row.concurrency:
        users = max(1, row.concurrency // dp)
    drafts = None
    if row.settings.get("drafts"):
        length = _DRAFTED if dp == 1 else _DRAFTED_COPIES
        layers = int(question.graph.metadata.get("layers", 1))
        drafts = Drafts(length=length, gained=accepted_tokens(length), layers=layers)
    _require_answer(row, runtime, question)
    return ServedCase(
        question=question,
        traffic=Traffic(prompt=sizes[0], generate=sizes[1], drafts=drafts),
        users=users,
        quantity=row.quantity,
        step_tokens=_step_tokens(row, runtime, users),
        sequences=max(_ROOM_SEQUENCES, users or 1) if _is_vllm_of_inferencemax(row, runtime) else None,
        memory_share=_ROOM if _is_vllm_of_inferencemax(row, runtime) else None,
        waits=_waits(row, runtime, tp, dp, users or 1),
        cold=row.settings.get("cold") == "1",
        fronted=is_fronted(row),
        requests=_requests(row, dp),
    )


def _require_answer(row: PublishedMeasurement, runtime: str, question: Question) -> None:
    """VLLM ends an answer where the model's window does: a prompt that fills it has one token for an answer.

    TensorRT-LLM goes on: its tables have such rows, as long as those of other models.
    """
    limit = question.graph.context_limit
    if runtime == "vllm" and limit is not None and (row.prompt or 0) >= limit:
        raise DomainError(
            f"the prompt fills the window of {limit} tokens, so that no answer was measured",
            remedy="Leave the row out.",
        )


def of_a_start(rows: Sequence[PublishedMeasurement]) -> set[int]:
    """Places of first tokens that another run of the same service on as many devices has many times sooner."""
    services: dict[tuple[Any, ...], list[int]] = {}
    for place, row in enumerate(rows):
        if row.quantity == "ttft" and row.settings.get("mode") == "agg":
            traffic = (row.prompt, row.generate, row.concurrency, row.settings.get("drafts"))
            service = (row.engine, row.model, row.device, row.count, row.weights, row.settings.get("client"), *traffic)
            services.setdefault(service, []).append(place)
    soonest = {service: min(rows[place].seconds for place in places) for service, places in services.items()}
    return {
        place
        for service, places in services.items()
        for place in places
        if rows[place].seconds > _STARTING * soonest[service]
    }


def _requests(row: PublishedMeasurement, dp: int) -> int | None:
    counted = row.dataset == "trtllm" and row.quantity == "tokens" and (row.date or "") >= _COUNTED_SINCE
    known = _REQUESTS.get((row.prompt or 0, row.generate or 0)) if counted else None
    return None if known is None else max(1, known // dp)


def is_fronted(row: PublishedMeasurement) -> bool:
    """Whether a TTFT is of aiconfigurator's own harness, whose requests pass a front before they reach the engine."""
    return row.dataset == "aiconfigurator" and row.quantity == "ttft" and not row.settings.get("client")


def accepted_tokens(length: int) -> float:
    """Tokens of a step with drafts: each is kept with the same chance, and none after one that is not."""
    kept = fitted_number("drafts_kept")
    return float(sum(kept**index for index in range(length + 1)))


def _is_vllm_of_inferencemax(row: PublishedMeasurement, runtime: str) -> bool:
    stated = row.settings.get("client") == "inferencemax"
    return stated and runtime == "vllm" and (row.model or "").startswith(("minimax", "kimi"))


def _step_tokens(row: PublishedMeasurement, runtime: str, users: int | None) -> int | None:
    """InferenceMAX's TensorRT-LLM has room for one prompt a step beside the sequences, in blocks of 64; Llama more."""
    if row.settings.get("client") != "inferencemax" or runtime != "trtllm" or row.prompt is None:
        return None
    if (row.model or "").startswith("llama"):
        return _LLAMA_TOKENS
    return (row.prompt + (users or 1) + 64 + 63) // 64 * 64


def _waits(row: PublishedMeasurement, runtime: str, tp: int, dp: int, own: int) -> float:
    """Steps that InferenceMAX's servers hold a prompt back for on average: the first of several waits longest.

    `own` users are those of each of `dp` copies.
    """
    if row.settings.get("client") != "inferencemax" or row.generate is None:
        return 0.0
    users = own * dp
    if runtime == "trtllm" and dp > 1:
        drafted = bool(row.settings.get("drafts"))
        most = _BALANCED_DRAFTED if drafted else _BALANCED
        every = _DRAWN * row.generate / (accepted_tokens(_DRAFTED_COPIES) if drafted else 1) / own
        # Of copies whose prompts come at any time, the last has one after 1 + 1/2 + … + 1/dp of the time between two,
        # and a prompt is that of the mean copy: it waits for the rest, and no longer than it may.
        others = sum(1 / copy for copy in range(2, dp + 1))
        return most * (1 - exp(-others * every / most))
    if runtime == "sglang" and row.device == "nvidia-b200":
        return (_LOOKS_BUSY if users >= _BUSY else _LOOKS) / 2
    if runtime == "trtllm" and (row.model or "").startswith("llama") and row.prompt == row.generate == _EVEN and tp < 8:
        others = _HELD_BACK * users / row.generate  # that come while the first is held back
        return _HELD_BACK * (1 + others / 2) / (1 + others)
    return 0.0


def parts_of(case: ServedCase) -> KernelParts:
    """What the kernels take of what a row is about."""
    what = case.served()
    room = held(what.limits, case.traffic, what.memory) if case.quantity != "request" else case.users or 1
    asked = case.at_once(room) if case.quantity == "tokens" else case.users or 1
    sequences = min(asked, room)
    users = sequences if case.quantity == "tokens" else asked
    return kernel_parts(
        what.step, what.rules, what.limits, case.traffic, sequences=max(1, sequences), users=users, stages=what.stages
    )


def predict_served(case: ServedCase) -> ServedFigure:
    """What the model says of a case, in the seconds that the row counts."""
    what = case.served()
    if case.quantity == "request":
        seconds = what.batch_seconds(case.traffic, (case.users or 1) * what.replicas)
        seconds += fitted_number("cold_s") if case.cold else 0.0
    elif case.quantity == "tokens":
        most = case.users
        if case.requests is not None:
            most = case.at_once(held(what.limits, case.traffic, what.memory))
        seconds = 1 / what.saturated(case.traffic, most)
    else:
        steady = what.steady(case.traffic, (case.users or 1) * what.replicas)
        low, high = steady.interval(case.quantity)
        seconds = steady.ttft_s if case.quantity == "ttft" else steady.tpot_s
        front = fitted_number(f"front_s.{case.question.runtime_name}") if case.fronted else 0.0
        wider = (seconds + front) / seconds
        return ServedFigure(seconds=seconds + front, low_s=low * wider, high_s=high * wider)
    wide = exp(EIGHT_IN_TEN * max(what.step.costs.batch_spread.value, what.step.spread))
    return ServedFigure(seconds=seconds, low_s=seconds / wide, high_s=seconds * wide)


def _sizes(row: PublishedMeasurement) -> tuple[int, int] | None:
    if row.dataset == "mlperf":
        return _MLPERF.get(row.model or "") if row.settings.get("scenario") == "offline" else None
    if row.prompt is None or row.generate is None or row.prompt < 1 or row.generate < 1:
        return None
    if row.settings.get("client") == "inferencemax":
        return max(1, round(_DRAWN * row.prompt)), max(1, round(_DRAWN * row.generate))
    return row.prompt, row.generate


def _plan(row: PublishedMeasurement, runtime: str) -> tuple[int, int, int, int]:
    """Tensor, pipeline, data and expert parallelism.

    Where attention is shared by fewer devices than the experts are, the others hold copies of it. What a source calls
    `dep` has attention copied and experts spread. Where only a number of devices is stated they share each layer, but
    for MLPerf, whose entries run as many copies as fit, and DeepSeek with attention copied and experts spread: one
    latent serves all heads, so devices that share heads would each hold the whole cache.
    """
    stated = {
        name: int(text) for name, text in row.settings.items() if name in {"tp", "pp", "dp", "ep", "moe_tp", "dep"}
    }
    copied = (row.model or "").startswith(_ATTENTION_COPIED)
    if row.dataset == "trtllm" and copied and (row.date or "") >= _COPIED_SINCE:
        stated.setdefault("dep", stated.get("tp", 1))
    if "dep" in stated:
        return 1, stated.get("pp", 1), stated["dep"], stated["dep"]
    if not stated and row.dataset == "mlperf":
        if (row.model or "").startswith("deepseek") and _EXPERTS % row.count == 0:
            return 1, 1, row.count, row.count
        tp = _fewest_devices(row, runtime)
        return tp, 1, max(1, row.count // tp), 1
    tp, pp = stated.get("tp", row.count if not stated else 1), stated.get("pp", 1)
    experts = stated.get("moe_tp", 1) * stated.get("ep", 1)
    dp = max(stated.get("dp", 1), experts // tp)
    if dp > 1:
        return tp, pp, dp, tp * dp if _is_mixture(row) else 1
    spread = stated.get("ep", 1) if stated.get("moe_tp", 1) == 1 else 1
    return tp, pp, 1, tp if spread > 1 and _is_mixture(row) else 1


def _is_mixture(row: PublishedMeasurement) -> bool:
    return (row.model or "").startswith(_PREFIXES)


def _fewest_devices(row: PublishedMeasurement, runtime: str) -> int:
    weights, overrides = _formats(row)
    for tp in (1, 2, 4, 8):
        try:
            question = ask(
                row.model, on=row.device or "", runtime=runtime, weights=weights, tp=tp,
                options=Options(overrides=overrides),
            )  # fmt: skip
            memory = served(question).memory
        except DomainError:
            continue
        if memory is None or memory.kv_bytes > 0.15 * memory.usable_bytes:
            return tp
    return max(1, row.count)


def _formats(row: PublishedMeasurement) -> tuple[str | None, dict[str, str]]:
    """The format of the weights, and those of some ops: narrow checkpoints of mixtures leave attention in bf16."""
    weights = row.weights
    if weights is None and row.dataset == "mlperf":
        device = row.device or ""
        weights = _NARROW.get(device) or ("f8e4m3" if device.startswith(_EIGHT_BITS) else None)
    model = row.model or ""
    if model.startswith("gpt-oss"):
        return None, {}  # its own blocks of 4 bits, whatever a table's column says of the arithmetic
    if model.startswith("deepseek"):
        if weights == "nvfp4":
            return None, {"*experts*": "nvfp4", "*mlp*_proj*": "nvfp4", "*attn*_proj*": "bf16"}
        return None, {}  # its own blocks of 8 bits
    if model.startswith(("kimi", "minimax")) and weights in {"i4", "nvfp4"}:
        return None, {"*mlp.experts*": weights}  # their config.json leaves everything else in bf16
    return ("bf16" if weights == "f16" else weights), {}


def _cache_format(row: PublishedMeasurement, runtime: str, weights: str | None) -> str | None:
    """TensorRT-LLM's quantised checkpoints, and nvfp4, and all but Kimi on Blackwell keep the cache in 8 bits.

    MiniMax's 512 users on two B200 are let in at once there, where 350 would fit in 16 bits.

    gpt-oss is computed in bf16 where a GPU does not multiply 4 bits, whatever a table's column says, and keeps that.
    """
    stored = weights or row.weights
    if (row.model or "").startswith("gpt-oss") and stored == "f8e4m3":
        return None
    narrow = stored in {"nvfp4", "f8e4m3"}
    blackwell = (row.device or "") in _NARROW and not (row.model or "").startswith("kimi")
    if narrow and (runtime == "trtllm" or blackwell or stored == "nvfp4" or "FP8-KV" in row.model_published):
        return "f8e4m3"
    return None


def _version(row: PublishedMeasurement, runtime: str) -> str | None:
    """The engine's version: as stated, else the release of the day of the figure.

    Some sources state the version of what is around the engine (a container, TensorRT): a TensorRT-LLM before 1.0 is
    taken by its date. MLPerf's entries are tuned as far as they go: they count as the newest, those of TensorRT-LLM as
    the one of its latest round that is known here (v5.1, 2025-09).
    """
    if row.dataset == "mlperf":
        return "1.0.0" if runtime == "trtllm" else None
    if row.version is not None and not (runtime == "trtllm" and row.version.startswith("0.")):
        return row.version
    releases = _RELEASES.get(runtime, ())
    if row.date is None:
        return None
    before = [version for released, version in releases if released <= row.date[:7]]
    return before[-1] if before else releases[0][1] if releases else None


_WORDS = {"median": "median_error", "p90": "p90_error", "bias": "bias", "coverage": "covers", "width": "width"}


@frozen
class JudgedSet:
    """One file: `unmapped` are its rows whose model, device or engine nobody here knows by that name."""

    name: str
    file: JudgedFile
    unmapped: int
    set_aside: tuple[SetAside, ...] = ()

    @property
    def asked(self) -> int:
        return self.file.rows - sum(self.file.left.values())

    @property
    def aside(self) -> Counter[str]:
        """How many lines were set aside, by the reason."""
        return Counter(line.reason for line in self.set_aside)


def judge_atlas(path: Path, *, from_models: int | None = None, engine: str = "local") -> JudgedSet:
    """The rows of a file in any form of the atlas. `engine` is where those of a long one are counted: see `cases_of`.

    `from_models=3` first calibrates every device from three of its models, and judges the others. Rows of serving
    engines are judged without that: their overhead around the kernels belongs to the engine, not to the device.
    """
    reading = read_atlas(path)
    rows = list(reading.table.rows())
    served, left = judge_served(row for row in rows if is_served(row))
    others = judge_rows((row for row in rows if not is_served(row)), from_models=from_models, engine=engine)
    return JudgedSet(
        name=path.name.partition(".csv")[0],
        file=JudgedFile(judged=(*others.judged, *served), rows=len(rows), left=dict(Counter(others.left) + left)),
        unmapped=sum(row.model is None or not has_device(row) or not is_described(row.engine) for row in rows),
        set_aside=reading.set_aside,
    )


def judge_served(rows: Iterable[PublishedMeasurement]) -> tuple[list[JudgedRow], Counter[str]]:
    """Rows of serving engines, and why others cannot be asked."""
    judged: list[JudgedRow] = []
    left: Counter[str] = Counter()
    asked = list(rows)
    starting = of_a_start(asked)
    for index, row in enumerate(asked):
        reason = not_served(row) or (_OF_A_START if index in starting else None)
        if reason is None:
            try:
                judged.append(_judged(row))
            except InferometerError as error:
                reason = f"{row.model} on {row.count} {row.device}: {error}".partition("\n")[0]
        if reason is not None:
            left[reason] += 1
    return judged, left


def _judged(row: PublishedMeasurement) -> JudgedRow:
    case = served_case(row)
    if case is None or row.device is None or row.model is None:
        raise ValueError("a row without a question was asked")
    figure, engine = predict_served(case), case.question.runtime_name
    devices, models = fitted_on(engine)
    return JudgedRow(
        dataset=row.dataset,
        unit=row.unit or "gpu",
        engine=engine,
        quantity=row.quantity,
        way=way_of(row.device in devices, row.model in models),
        device=row.device,
        model=row.model,
        residual=log(row.seconds / figure.seconds),
        half=log(figure.high_s / figure.seconds),
    )


def accuracy_document(sets: Sequence[JudgedSet]) -> dict[str, Any]:
    """A set for each file, and in it a group for each device, engine, quantity and way of being predicted."""
    return {"schema": "inferometer.accuracy/1", "sets": [_set_document(judged) for judged in sets]}


def _set_document(judged: JudgedSet) -> dict[str, Any]:
    rows = judged.file.judged
    as_they_are = [row for row in rows if row.way != FEW] or list(rows)
    groups: dict[tuple[str, ...], list[JudgedRow]] = {}
    for row in rows:
        groups.setdefault((row.device, row.engine, row.quantity, row.way), []).append(row)
    return {
        "name": judged.name,
        "rows": judged.file.rows,
        **_figures(as_they_are),
        "unmapped": judged.unmapped,
        "set_aside": len(judged.set_aside),
        "aside": dict(judged.aside),
        "left": dict(judged.file.left),
        "by": [
            {
                "device": device, "runtime": engine, "quantity": quantity, "way": way,
                "models": len({row.model for row in members}), **_figures(members),
            }
            for (device, engine, quantity, way), members in sorted(groups.items())
        ],
    }  # fmt: skip


def _figures(rows: Sequence[JudgedRow]) -> dict[str, Any]:
    figures: Mapping[str, float | None] = how_far(rows) if rows else dict.fromkeys(_WORDS)
    return {"n": len(rows), **{word: figures[name] for name, word in _WORDS.items()}}
