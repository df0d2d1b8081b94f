"""What a server says of itself: which engine it is, its models, its tokenizer, and its own counters."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from inferometer.core.frozen import frozen
from inferometer.serving.load.apis import Address, Endpoint, plain_request
from inferometer.serving.load.faults import Fault
from inferometer.serving.load.prompts import WORDS, PromptMaker, local_tokenizer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from inferometer.serving.load.pool import Pool
    from inferometer.serving.load.wire import Connection, Headers


# Single requests outside the load: what a server says of itself.

_MOST_BODY = 16_000_000


@frozen
class Fetched:
    status: int
    server: str | None
    body: bytes

    @property
    def json(self) -> Any:
        """The JSON in it, or None."""
        try:
            return msgspec.json.decode(self.body)
        except msgspec.DecodeError:
            return None


class _Collecting:
    def __init__(self, done: asyncio.Future[Fetched]) -> None:
        self._done, self._pieces, self._size = done, [], 0  # type: tuple[asyncio.Future[Fetched], list[bytes], int]
        self._status, self._server = 0, None  # type: tuple[int, str | None]

    def on_head(self, status: int, headers: Headers, now: float) -> None:  # noqa: ARG002 - the exchange's signature
        self._status = status
        self._server = headers.get(b"server", b"").decode(errors="replace") or None

    def on_body(self, data: bytes, now: float) -> None:  # noqa: ARG002 - as above
        self._size += len(data)
        if self._size > _MOST_BODY:
            raise Fault("malformed", "a page of more than 16 MB")
        self._pieces.append(data)

    def on_end(self, now: float) -> None:  # noqa: ARG002 - as above
        if not self._done.done():
            self._done.set_result(Fetched(status=self._status, server=self._server, body=b"".join(self._pieces)))

    def on_fault(self, fault: Fault, now: float) -> None:  # noqa: ARG002 - as above
        if not self._done.done():
            self._done.set_exception(fault)


async def fetch(  # noqa: PLR0913 - the parts of a request
    pool: Pool,
    address: Address,
    method: str,
    path: str,
    *,
    body: Any = None,
    headers: Sequence[tuple[str, str]] = (),
    timeout_s: float = 10.0,
) -> Fetched:
    """One answer in full, or a Fault. `body` is sent as JSON, or as it is where it is bytes."""
    data = b"" if body is None else body if isinstance(body, bytes) else msgspec.json.encode(body)
    request = plain_request(address, method, address.base + path, data, headers)
    kept = pool.take()
    if kept is not None:
        try:
            return await _answer(kept, request, path, timeout_s)
        except Fault as fault:
            if fault.kind not in {"closed_early", "reset"}:  # else it was closed while it was idle
                raise
    return await _answer(await pool.connect(), request, path, timeout_s)


async def _answer(connection: Connection, request: bytes, path: str, timeout_s: float) -> Fetched:
    done: asyncio.Future[Fetched] = asyncio.get_running_loop().create_future()
    try:
        connection.send(request, _Collecting(done))
        async with asyncio.timeout(timeout_s):
            return await done
    except TimeoutError:
        raise Fault("timeout", f"no answer from {path} in {timeout_s:g} s") from None
    finally:
        if not done.done() or done.cancelled():
            connection.abort()


_ENOUGH_WORDS = 48
_PROBE_S = 60.0  # a probe waits no longer
_PROBES = (8, 72)  # words of two prompts, whose usage tells the tokens of a word and those around a prompt

# How each engine is told to count tokens in every event of a stream.
COUNTING: dict[str, dict[str, Any]] = {
    "vllm": {"stream_options": {"include_usage": True, "continuous_usage_stats": True}},
    "sglang": {"stream_options": {"include_usage": True, "continuous_usage_stats": True}},
    "llamacpp": {"timings_per_token": True},
}
# What we take of /metrics, by a name of our own: the engines' names for it.
COUNTERS = {
    "prompt_tokens": ("vllm:prompt_tokens_total", "sglang:prompt_tokens_total", "llamacpp:prompt_tokens_total"),
    "generated_tokens": (
        "vllm:generation_tokens_total", "sglang:generation_tokens_total", "llamacpp:tokens_predicted_total",
    ),
    "preemptions": ("vllm:num_preemptions_total",),
    "drafts": ("vllm:spec_decode_num_drafts_total",),
    "drafted_tokens": ("vllm:spec_decode_num_draft_tokens_total",),
    "accepted_tokens": ("vllm:spec_decode_num_accepted_tokens_total",),
    "prefix_hits": ("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total"),
    "prefix_queries": ("vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total"),
}  # fmt: skip
GAUGES = {
    "running": ("vllm:num_requests_running", "sglang:num_running_reqs", "llamacpp:requests_processing"),
    "waiting": ("vllm:num_requests_waiting", "sglang:num_queue_reqs", "llamacpp:requests_deferred"),
    "kv_used": ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "sglang:token_usage",
                "llamacpp:kv_cache_usage_ratio"),
}  # fmt: skip
# Of NVIDIA's dcgm-exporter, summed over the GPUs of its page; energy is counted in thousandths of a joule.
DCGM_ENERGY, _MILLI = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 1e-3
DCGM = {
    "gpu_power_w": ("DCGM_FI_DEV_POWER_USAGE", 1.0), "gpu_busy": ("DCGM_FI_DEV_GPU_UTIL", 0.01),
    "gpu_celsius": ("DCGM_FI_DEV_GPU_TEMP", 1.0), "gpu_clock_mhz": ("DCGM_FI_DEV_SM_CLOCK", 1.0),
}  # fmt: skip
_SAMPLE = re.compile(r"^([A-Za-z_:][\w:]*)(?:\{[^}]*\})?\s+(\S+)", re.MULTILINE)


@frozen
class ServerFacts:
    """`engine` is one of our runtime names, `models` what it says it serves; `fault` says why it is silent."""

    engine: str | None = None
    version: str | None = None
    models: tuple[str, ...] = ()
    has_metrics: bool = False
    fault: str | None = None


def _models(entries: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """The models of a server: of adapters, which name the model that they are of, that model alone."""
    named = [entry for entry in entries if "id" in entry]
    whole = [entry for entry in named if not entry.get("parent")]
    return tuple(str(entry["id"]) for entry in whole or named)


async def facts_of(pool: Pool, endpoint: Endpoint) -> ServerFacts:
    """Ask it. A server that does not answer here may still answer requests: nothing is an error."""
    address, headers = endpoint.address, endpoint.headers
    try:
        page = await fetch(pool, address, "GET", "/v1/models", headers=headers)
    except Fault as fault:
        return ServerFacts(fault=f"{fault.kind}: {fault.message}")
    listed = page.json if page.status == 200 else None
    entries = [entry for entry in _mapping(listed).get("data") or () if isinstance(entry, dict)]
    owner = " ".join(str(entry.get("owned_by", "")) for entry in entries).lower()
    named = f"{owner} {page.server or ''}".lower()
    engine = next((name for word, name in _ENGINES.items() if word in named), None)
    facts = ServerFacts(engine=engine, models=_models(entries))
    metrics = await _page(pool, endpoint, "/metrics")
    return replace(facts, version=await _version(pool, endpoint, engine), has_metrics=metrics is not None)


_ENGINES = {"vllm": "vllm", "sglang": "sglang", "llamacpp": "llamacpp", "llama.cpp": "llamacpp", "tensorrt": "trtllm"}


async def _version(pool: Pool, endpoint: Endpoint, engine: str | None) -> str | None:
    where = {"vllm": ("/version", "version"), "llamacpp": ("/props", "build_info")}.get(engine or "")
    if where is None:
        return None
    page = await _page(pool, endpoint, where[0])
    value = _mapping(_decoded(page)).get(where[1])
    return value if isinstance(value, str) else None


async def _page(pool: Pool, endpoint: Endpoint, path: str) -> bytes | None:
    try:
        page = await fetch(pool, endpoint.address, "GET", path, headers=endpoint.headers)
    except Fault:
        return None
    return page.body if page.status == 200 else None


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _decoded(body: bytes | None) -> Any:
    try:
        return None if body is None else msgspec.json.decode(body)
    except msgspec.DecodeError:
        return None


async def metrics_of(pool: Pool, endpoint: Endpoint) -> dict[str, float]:
    """The counters and gauges that are known, summed over their labels."""
    body = await _page(pool, endpoint, "/metrics")
    return {} if body is None else parse_metrics(body.decode(errors="replace"))


async def telemetry_of(pool: Pool, endpoint: Endpoint) -> dict[str, float]:
    """What a page of dcgm-exporter says of the GPUs: power together, the others on average; joules since they began."""
    body = await _page(pool, endpoint, endpoint.address.path or "/metrics")
    text = "" if body is None else body.decode(errors="replace")
    sums, counts = _summed(text)
    found = {
        ours: scale * sums[name] / (1 if ours == "gpu_power_w" else counts[name])
        for ours, (name, scale) in DCGM.items()
        if name in sums
    }
    return found | ({"gpu_joules": _MILLI * sums[DCGM_ENERGY]} if DCGM_ENERGY in sums else {})


def _summed(text: str) -> tuple[dict[str, float], Counter[str]]:
    """Every figure of a page, summed over its labels, and over how many."""
    sums: dict[str, float] = {}
    counts: Counter[str] = Counter()
    for name, value in _SAMPLE.findall(text):
        with suppress(ValueError):
            sums[name] = sums.get(name, 0.0) + float(value)
            counts[name] += 1
    return sums, counts


def parse_metrics(text: str) -> dict[str, float]:
    sums, _ = _summed(text)
    known = {}
    for ours, theirs in {**COUNTERS, **GAUGES}.items():
        value = next((sums[name] for name in theirs if name in sums), None)
        if value is not None and value == value:  # noqa: PLR0124 - NaN: nothing measured yet
            known[ours] = value
    return known


async def prompt_maker(  # noqa: PLR0913 - the server, and how prompts are made for it
    pool: Pool,
    endpoint: Endpoint,
    facts: ServerFacts,
    seed: int,
    timeout_s: float = _PROBE_S,
    *,
    tokenizer: str | None = None,
) -> PromptMaker:
    """Prompts whose tokens this server counts as we do; where it cannot be asked, the maker says so."""
    whose, words = "a tokenizer on this machine", () if tokenizer is None else _single_here(tokenizer)
    if facts.fault is not None or endpoint.api in {"template", "transcriptions"}:
        unasked = PromptMaker(words=words or WORDS, seed=seed, tokenizer=tokenizer)
        return replace(unasked, how=f"one token a word, by {whose}") if words else unasked
    if not words:
        whose, words = "the server's tokenizer", await single_tokens(pool, endpoint, facts.engine)
    maker = PromptMaker(words=words or WORDS, seed=seed, tokenizer=tokenizer)
    used = [await _usage(pool, endpoint, maker, _PROBES[0], timeout_s)]
    if used[0] is not None:  # one that does not answer is not asked again
        used.append(await _usage(pool, endpoint, maker, _PROBES[1], timeout_s))
    if used[-1] is None:
        how = f"words of one token each, by {whose}; what the server adds around them is not known"
        return replace(maker, how=how) if words else maker
    few, many = (count or 0 for count in used)
    per_word = (many - few) / (_PROBES[1] - _PROBES[0])
    if not 0.2 < per_word < 20:
        return maker
    added = max(0, round(few - per_word * _PROBES[0]))
    source = "the server's usage"
    if words:
        source = f"{whose} and {source}" if tokenizer is not None else f"{whose} and usage"
    plural = "" if per_word == 1 else "s"
    how = f"by {source}: {per_word:.4g} token{plural} a word, {added} around a prompt"
    return replace(maker, per_word=per_word, added=added, how=how, exact=abs(per_word - 1) < 1e-9)


def _single_here(tokenizer: str) -> tuple[str, ...]:
    count = local_tokenizer(tokenizer)
    return tuple(word for word in WORDS if count(f" {word}") == 1)[:_ENOUGH_WORDS]


async def single_tokens(pool: Pool, endpoint: Endpoint, engine: str | None) -> tuple[str, ...]:
    """The words that the server's tokenizer makes one token of, after a space; empty where it has no such page."""
    known = {"llamacpp": (_llamacpp,), "vllm": (_vllm,), "sglang": (_vllm,)}
    for request in known.get(engine or "", (_llamacpp, _vllm)):
        kept = []
        for word in WORDS:
            count = await _count(pool, endpoint, request(endpoint, f" {word}"))
            if count is None:
                break
            if count == 1:
                kept.append(word)
            if len(kept) >= _ENOUGH_WORDS:
                break
        if len(kept) >= 8:
            return tuple(dict.fromkeys(kept))
    return ()


def _llamacpp(_endpoint: Endpoint, text: str) -> dict[str, Any]:
    return {"content": text, "add_special": False}


def _vllm(endpoint: Endpoint, text: str) -> dict[str, Any]:
    return {"model": endpoint.model, "prompt": text, "add_special_tokens": False}


async def _count(pool: Pool, endpoint: Endpoint, body: dict[str, Any]) -> int | None:
    try:
        page = await fetch(pool, endpoint.address, "POST", "/tokenize", body=body, headers=endpoint.headers)
    except Fault:
        return None
    tokens: Sequence[Any] | None = _mapping(page.json).get("tokens") if page.status == 200 else None
    return len(tokens) if isinstance(tokens, list) else None


async def _usage(pool: Pool, endpoint: Endpoint, maker: PromptMaker, words: int, timeout_s: float) -> int | None:
    """The tokens that the server counts in a prompt of so many words."""
    asked = replace(endpoint, stream=False)
    body = asked.body(maker.text(words, 9, words), output=1, input_tokens=words, index=0)
    path = asked.path.removeprefix(endpoint.address.base)
    try:
        page = await fetch(
            pool,
            endpoint.address,
            "POST",
            path,
            body=body,
            headers=endpoint.headers,
            timeout_s=min(timeout_s, _PROBE_S),
        )
    except Fault:
        return None
    count = _mapping(_mapping(page.json).get("usage")).get("prompt_tokens") if page.status == 200 else None
    return count if isinstance(count, int) and count > 0 else None
