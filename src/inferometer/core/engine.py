"""An engine's descriptor: everything the rest of the program knows about one runtime, in one value.

What it opens and needs, what it does to a graph, where it is the default, the formats that advice names, and how it is
calibrated. No other module asks an engine for its name to decide something: it asks the descriptor.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING, Literal

from inferometer.core.device import Device, Sourced
from inferometer.core.frozen import frozen
from inferometer.core.kept import Kept
from inferometer.core.workload import Precision

if TYPE_CHECKING:
    from inferometer.core.graph import Op

Fusion = Literal["none", "chains", "epilogues"]
AttentionPath = Literal["flash", "masked", "materialised"]
CachePath = Literal["direct", "repeated"]
LogitsPath = Literal["prompt", "chunk"]
PromptPath = Literal["whole", "last apart"]
Execution = Literal["launched", "captured", "compiled"]  # op by op; every pass replayed as one graph; compiled
Use = Literal["gpu", "accelerator", "tokens", "arrays", "served"]  # what an engine may be the first choice for
# which models: those that make tokens, those that do not, those that read or make them
Takes = Literal["all", "tokens", "arrays", "texts", "speech"]
Probing = Literal["files", "modules", "decoders", "kernels"]


@frozen
class Overheads:
    """Seconds that are spent on no op's work, on one kind of unit. What is not known counts nothing.

    `kernel_s` is spent on the device for each kernel. `host_s` is spent by the host to start one, while the device
    works on those before it: it shows only where the device runs dry, and not in phases that are `captured` and
    replayed as a whole. `step_s` is spent once a step, in the open, and `sequence_s` for each sequence in it. On a
    CPU all of it is work of the CPU itself: `call_s` is what a call took where they were measured, and one whose
    calls take longer takes as much longer. What was measured of one phase alone is in `apart` (`kernel.decode`), in
    place of what holds for all.

    `loop` has what a host does around a pass, inside of the times above: `write` tokens, `read` one, what is `between`
    two steps, and to launch a captured phase, a `graph` and each `node` of it. One that stands under a phase too
    (`read.prefill`) holds there. To `choose` a token, and for each `word` that there is to choose from, the device
    takes what no model does: that comes on top.
    """

    kernel_s: Sourced | None = None
    host_s: Sourced | None = None
    step_s: Sourced | None = None
    sequence_s: Sourced | None = None
    call_s: Sourced | None = None
    apart: Mapping[str, Sourced] = field(default_factory=dict)
    captured: frozenset[str] = frozenset()
    reserve_bytes: Sourced | None = None  # memory that the runtime itself takes
    loop: Mapping[str, Sourced] = field(default_factory=dict)

    def looped_s(self, name: str, phase: str) -> float:
        """What the host takes for a part of the loop in a phase; nothing where nobody has measured it."""
        found = self.loop.get(f"{name}.{phase}", self.loop.get(name))
        return 0.0 if found is None else found.value

    def host_in(self, phase: str) -> Sourced | None:
        return self.apart.get(f"host.{phase}", self.host_s)

    def kernel_in(self, phase: str) -> Sourced | None:
        return self.apart.get(f"kernel.{phase}", self.kernel_s)

    def step_in(self, phase: str) -> Sourced | None:
        return self.apart.get(f"step.{phase}", self.step_s)

    def at(self, device: Device) -> Overheads:
        """On that device, by how long its calls take, if that is known of both."""
        if self.call_s is None or device.call_s is None:
            return self
        times = device.call_s.value / self.call_s.value
        kernel, step = (
            None if each is None else replace(each, value=times * each.value) for each in (self.kernel_s, self.step_s)
        )
        return replace(self, kernel_s=kernel, step_s=step)


_emulating = Kept()
DYNAMIC = "dynamic"  # in an engine's arithmetic: the format whose speed its ops have that quantise what they read


@frozen
class RuntimeEffects:
    """What a runtime does to a graph; the defaults are those of an ideal runtime.

    `fused` names op kinds (`norm`, or `norm:batch` for one of its forms) that run inside their neighbours, wherever
    they stand or, as `convolution+activation:relu`, only in a group that begins with such an op: `chains` joins them
    with each other, `epilogues` also with the product before them. `unfused` are kinds that stay apart behind an op of
    a format (`convolution:i8+activation:sigmoid`). `passes` says how many kernels an op of a kind, of a form, or of a
    kind that reads a format (`convolution:i8`) takes, each of which moves its activations once; `convolution:dynamic`
    is one that quantises what it reads. `calls` says, under the same names, how many kernels a host starts in the time
    that such an op takes it: modules and views cost it as well, and start nothing. `lone` says how many kernels longer
    than others of its bytes an op takes in a step of decoding, where one block of threads has a row. `tokenwise` says
    how many kernels an op that is a loop over tokens starts for each of them, beside others. `routed` says how often
    what experts read and write of the rows that chose them passes through memory of a GPU beside their products.
    `scores` says how often the scores of attention pass through memory, in f32, where no fused kernel takes it.
    `arithmetic` lists, for a number format, the formats it is computed in, the preferred one first: of weights, or of
    weights beside activations (`i8/f32`: weights alone are quantised). Before it may stand a kind of op
    (`convolution:f32`), and before that a kind of unit or a CPU's instruction set (`gpu:q4_0`, `arm:convolution:i8`);
    the narrowest rule counts. `convolution:dynamic` there is what ops that quantise what they read are no faster than.
    `instead` lists those that stand in for a format that the device has no peak for. Weights in an `expanded` format
    are written out in the format of the activations before they are used: in all ops, or in those of a kind
    (`convolution:i8`) that do not read them so. Where activations are bytes too (`convolution:i8/i8`), both are turned
    to f32 around the product, at each step; those of a `widened` format once, when the model is loaded, for all ops but
    look-ups (of `arrays:f16`: in networks that make no tokens). Those of an `emulated` one so where the device has no
    peak for it. An engine with `held` loads all floats of a model whose layers name no formats into the one that it
    computes in: the one asked for, else the one that stands there for the unit, else the model's own. Language models
    are made for it with weights in the `stored` format, unless another is asked for. A network whose weights are asked
    for in a format that is `whole` has its activations in it too: the engine quantises all of a network or nothing. On
    devices that it `quantises` for, patterns as those of an engine's row, it makes every network so that is given to it
    in floats. `unpack` is how many rows of products reading the weights of a dense layer takes as long as, beyond what
    the priors of its class have in them. `logits` are needed of a prompt's last token only; a runtime that reads it in
    chunks may compute them once a `prompt`, or after each `chunk`. A `prompt` is read `whole`, or with its `last` token
    `apart`: in a step as of decoding, after all others. A model that was compiled for one length `reads` so many tokens
    in a step, and fewer are padded to it. `merged` are groups of projections, by their last names, that it stores as
    one matrix; `dynamic` are the kinds of op that it quantises activations for while it runs, where weights are stored
    for that: others compute in floats. A convolution in groups is none of them unless `convolution:grouped` is. A
    concatenation of more tensors than it `joins` is a kernel of its own, and each tensor after the first takes as long
    as `joining` kernels. `gathered` is how many rows of products gathering the inputs of such a convolution takes as
    long as; it is done for one group after the other, and each is a kernel of its own. `grouped` is that of
    convolutions in groups alone, by a kernel for all of them that is slow. `unquantised` are patterns of the names of
    ops whose weights keep the model's own format. Products in an `unbiased` format have their bias added by the
    compiler's kernel that reads them, if it goes through them number by number. `reference` is how many times longer
    than in f32 an op takes that is left to plain loops: `convolution:joined` is one of bytes whose result is joined
    with others (a concat) before it is quantised, `linear:bf16` one of a format that the device has no instructions
    for, `convolution:i8/i8` one whose weights and activations are computed in another, `elementwise:i8` one of bytes
    without weights, `fft` a Fourier transform, `fft:odd` an operation of one whose length is no power of 2. `winograd`
    is how many times fewer products a 3 × 3 convolution may need by Winograd's method. `vectors` is for how many bits
    of a CPU's registers its kernels are built: where the peak needs wider ones, it takes as much longer. `sets` has
    what it does on CPUs of an instruction set, where that is not the same everywhere.
    """

    name: str
    title: str
    execution: Execution = "launched"
    fusion: Fusion = "none"
    fused: frozenset[str] = frozenset()
    unfused: frozenset[str] = frozenset()
    attention: AttentionPath = "flash"
    cache: CachePath = "direct"
    cache_moves: Sourced | None = None  # how often the cache passes through memory in a step; absent: once
    repeat_moves: Sourced | None = None  # the same of a cache repeated for every query head; absent: written and read
    passes: Mapping[str, int] = field(default_factory=dict)
    calls: Mapping[str, float] = field(default_factory=dict)
    lone: Mapping[str, float] = field(default_factory=dict)
    tokenwise: Mapping[str, float] = field(default_factory=dict)
    routed: Sourced | None = None
    scores: Mapping[str, float] = field(default_factory=dict)
    arithmetic: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    instead: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    expanded: frozenset[str] = frozenset()
    widened: Mapping[str, str] = field(default_factory=dict)
    emulated: Mapping[str, str] = field(default_factory=dict)
    held: Mapping[str, str] = field(default_factory=dict)
    stored: str | None = None
    whole: frozenset[str] = frozenset()
    quantises: tuple[str, ...] = ()
    unpack: Sourced | None = None
    merged: tuple[tuple[str, ...], ...] = ()
    dynamic: frozenset[str] = frozenset()
    joins: int | None = None
    joining: Sourced | None = None
    gathered: Sourced | None = None
    grouped: Sourced | None = None
    unquantised: tuple[str, ...] = ()
    unbiased: frozenset[str] = frozenset()
    logits: LogitsPath = "prompt"
    prompt: PromptPath = "whole"
    reference: Mapping[str, float] = field(default_factory=dict)
    reads: int | None = None
    winograd: Sourced | None = None
    vectors: Sourced | None = None
    overheads: Mapping[str, Overheads] = field(default_factory=dict)
    first_run: Sourced | None = None
    notes: str | None = None
    sets: Mapping[str, RuntimeEffects] = field(default_factory=dict)

    def at(self, device: Device) -> RuntimeEffects:
        """What it does on that device. The same answer is the same object: what is made of it is kept by identity."""
        found = self.sets.get(device.engine_set or "", self)
        wider = {name: wide for name, wide in found.emulated.items() if name not in device.peaks}
        if not wider:
            return found
        made = partial(replace, found, widened={**found.widened, **wider})
        return _emulating.get_or_make(tuple(wider), (found,), made)

    def fuses(self, op: Op, into: Op | None = None) -> bool:
        """Whether it runs inside its neighbours; `into` is the op that their group begins with."""
        if self.fusion == "none" or (self.joins is not None and _joined(op) > self.joins):
            return False
        kind = None if into is None else into.kind
        if into is not None and into.inputs and f"{kind}:{into.inputs[0].dtype}+{_form(op)}" in self.unfused:
            return False
        return not self.fused.isdisjoint({op.kind, _form(op), f"{kind}+{_form(op)}"})

    def kernels(self, op: Op) -> tuple[int, float]:
        """Kernels of the op, and those that its host starts in the time that the op takes it."""
        if not self.passes and not self.calls:
            return 1, 1.0
        names = kernel_names(op)
        kernels = next((self.passes[name] for name in names if name in self.passes), 1)
        return kernels, next((self.calls[name] for name in names if name in self.calls), float(kernels))

    def a_token(self, op: Op) -> float:
        """Kernels that its host starts for each token, where it is a loop over them; 0 where it is none."""
        return next((self.tokenwise[name] for name in kernel_names(op) if name in self.tokenwise), 0.0)

    def scored(self, op: Op) -> float:
        """How often an op's scores pass through memory; 0 where they never leave the chip."""
        return self.scores.get(f"{op.kind}:{op.get('written')}", 0.0)

    def rule(self, kind: str, name: str, places: tuple[str, ...] = ()) -> tuple[str, ...] | None:
        """What is stated of a format for an op kind: on one of the places (a unit, an instruction set), or on all."""
        where = (*(f"{place}:" for place in places), "")
        keys = (f"{place}{of}{name}" for place in where for of in (f"{kind}:", ""))
        return next((self.arithmetic[key] for key in keys if key in self.arithmetic), None)

    def candidates(self, kind: str, name: str, places: tuple[str, ...] = ()) -> tuple[str, ...]:
        """The formats that numbers of one format may be computed in, for an op kind: where none is stated its own."""
        stated = self.rule(kind, name, places) or (name.partition("/")[0],)
        return tuple(dict.fromkeys((*stated, *self.instead.get(name, ()))))

    def gathering(self, op: Op) -> float:
        """Rows of products that it takes as long as to gather the inputs of a convolution that it quantises itself."""
        if not op.get("gathered"):
            return 0.0
        rows = self.grouped if self.grouped is not None and op.get("groups", 1) > 1 else self.gathered
        return 0.0 if rows is None else rows.value

    def beyond(self, op: Op, phase: str) -> float:
        """Kernels that an op takes as long as beyond its own: a concatenation, and a lone row of a step of decoding."""
        joining = 0.0 if self.joining is None else self.joining.value * max(0, _joined(op) - 1)
        lone = (
            next((self.lone[name] for name in kernel_names(op) if name in self.lone), 0.0) if phase == "decode" else 0.0
        )
        return joining + lone

    def expands(self, op: Op, stored: str) -> bool:
        """Whether weights of a format are written out in a wider one before the op reads them.

        `i8/i8` are weights beside activations in bytes: both are then turned to floats around the product.
        """
        return stored in self.expanded or f"{op.kind}:{stored}" in self.expanded

    def plainly(self, op: Op, stored: str, read: str, computed: str) -> float:
        """How many times longer the op takes because it has no kernels of its own; 1 where it has.

        `stored` is the format of its weights, where it has some, `read` that of what it reads, and `computed` that of
        its arithmetic.
        """
        if op.get("joined") and f"{op.kind}:joined" in self.reference:
            return self.reference[f"{op.kind}:joined"]
        if op.get("function") == "fft":
            odd = op.get("odd", 0)  # how many times the operations its length takes, where it is no power of 2
            return odd * self.reference.get("fft:odd", 1.0 / odd) if odd else self.reference.get("fft", 1.0)
        if stored == computed:
            return 1.0
        return self.reference.get(f"{op.kind}:{stored}/{read}", self.reference.get(f"{op.kind}:{stored}", 1.0))

    def fewer_products(self, op: Op) -> float:
        """How many times fewer products than the direct method an op may need here: 3 × 3 windows, one step apart."""
        if self.winograd is None or op.kind != "convolution" or op.get("groups", 1) != 1:
            return 1.0
        square = tuple(op["kernel"]) == (3, 3) and set(op.get("strides", (1, 1))) == {1}
        return self.winograd.value if square and not op.get("transposed") else 1.0

    def narrower(self, device: Device) -> float:
        """How many times longer it computes than the peak says, because its kernels have narrower vectors."""
        if self.vectors is None or device.vector_bits is None:
            return 1.0
        return max(1.0, device.vector_bits / self.vectors.value)

    def on(self, unit: str) -> Overheads:
        return self.overheads.get(unit, Overheads())


def kernel_names(op: Op) -> tuple[str, ...]:
    """What tables of an op's kernels may call it, the most specific first."""
    quantised = op.kind == "convolution" and op.get("dynamic")
    form = f"{op.kind}:dynamic" if quantised else _form(op)
    read = f"{op.kind}:{op.inputs[0].dtype}" if op.inputs else op.kind
    # Forms that take more kernels where nothing is fused: `activation:gelu_new`, `rotary:partial`.
    is_partial = op.kind == "rotary" and op.get("rotary_dim", 0) < op.get("head_dim", 0)
    cached = op.get("cached")
    held = {
        "partial": is_partial,
        "soft_cap": op.get("soft_cap"),
        "biased": op.get("biased") and cached,
        "causal": op.kind == "convolution" and op.get("causal"),
        "latent": cached and op.get("kv_latent"),
        "pointwise": op.kind == "convolution" and _is_pointwise(op),
        "cached": cached and not op.get("cross"),  # an encoder's keys are as they were: nothing is joined with them
        "repeated": cached and op.get("kv_heads") is not None and op["kv_heads"] < op["heads"],
    }
    named = [op["written"]] if op.get("written") else []
    variants = [f"{op.kind}:{name}" for name in (*named, *(name for name, holds in held.items() if holds))]
    return (*variants, form, read, op.kind)


def _is_pointwise(op: Op) -> bool:
    return {*op.get("kernel", (0,)), *op.get("strides", ()), op.get("groups", 1)} == {1}


def _joined(op: Op) -> int:
    """How many tensors an op joins."""
    return len(op.inputs) if op.kind == "copy" and op.get("function") in {"cat", "concat"} else 0


def _form(op: Op) -> str:
    """An op's kind with its form: `norm:rms`, `elementwise:add`."""
    return f"{op.kind}:{op.get('norm') or op.get('function')}"


@frozen
class SmallFormats:
    """The formats that advice names: weights in some four bits or in eight, and a cache in eight."""

    narrow: str = "i4"
    byte: str = "i8"
    kv: str = "i8"


@frozen
class StepCosts:
    """Seconds of an engine step that no kernel takes, from one version of the engine on, on some devices or on all.

    `step_s` is the scheduler's, the sampler's and the launch's own time in a step of decoding, `sequence_s` comes on
    top for each sequence in it. `launch_s` is what the host takes to launch a kernel of a step that reads prompts and
    is not replayed from a graph: such a step is as long as the longer of its kernels and its launches. `prompt_s` comes
    for each request (tokenising, the first answer's way out), and a first token is seen `later` steps after it is made
    (steps are prepared ahead, and servers hand out tokens in groups). `kernels` is what the kernels of a step take over
    what they took alone, `kernels_prompt` the same of what prompts add to it. `together` is the share of the requests
    that find all other users' prompts before theirs, as at the start of a load test. `context_s` is what a layer's
    attention takes for each token that a decoding sequence has cached, beyond its kernel's own time, however many heads
    and devices share it. The spreads are standard deviations of logarithms: what published figures that no fit had seen
    are off by.
    """

    since: str
    devices: tuple[str, ...]  # patterns of their names; none: every device
    step_s: Sourced
    sequence_s: Sourced
    prompt_s: Sourced
    launch_s: Sourced
    later: Sourced
    kernels: Sourced
    kernels_prompt: Sourced
    together: Sourced
    context_s: Sourced
    ttft_spread: Sourced
    tpot_spread: Sourced
    batch_spread: Sourced  # of whole batches, and of all tokens of a saturated system


@frozen
class MemoryRules:
    """What an engine leaves for its cache, from one version of it on.

    It takes `share` of what the driver shows and fills what its weights, a step and its own leave of that; with
    `of_free` the share is of what those leave free. Where it `profiles`, it runs one step at its limits first, and the
    larger of two peaks counts: of the layers, or of the sampler, which takes `logit_bytes` for each word of the
    vocabulary and each sequence that a step may have. With `keeps_experts` the buffers of 16- and 8-bit experts stay
    beside the sampler's. `own_bytes` are the process's, outside of its allocator, and `split_bytes` come on top where
    tensors are split (buffers of messages), and `switched_bytes` where such devices are linked as by one of `switched`:
    memory that all of them see. A graph that is captured takes `layer_bytes` for each layer. Experts in
    MXFP4 that the device widens are stored with their widths rounded up to multiples of `padded_to` (input, inner).
    """

    since: str
    share: Sourced
    of_free: bool = False
    profiles: bool = False
    keeps_experts: bool = False
    logit_bytes: Sourced
    own_bytes: Sourced
    split_bytes: Sourced
    switched_bytes: Sourced
    switched: tuple[str, ...]  # patterns of links
    layer_bytes: Sourced
    padded_to: tuple[int, int]


@frozen
class ServingRules:
    """How a serving engine makes steps of requests, and what it does with the memory.

    `tables` is the engine's name in tables of measured kernels. A step has at most `step_tokens` tokens and
    `most_sequences` sequences, on devices with less than `large_bytes` of memory the small ones; with `mixed` the
    chunks of prompts ride in the steps of decoding, without it steps that read prompts come first and decoding waits.
    Steps of up to `captured_up_to` sequences are replayed as CUDA graphs. The cache comes in blocks of `block_tokens`,
    as many as `memory` leaves room for, by the engine's version. With `frees_windows` layers that look back over a
    window give back the blocks before it. Experts of 8 bits that name no scales are those of `byte_experts`, as tables
    call the format.
    """

    tables: str
    version: str
    step_tokens: int = 8192
    most_sequences: int = 256
    small_step_tokens: int = 2048
    small_sequences: int = 256
    large_bytes: Sourced
    block_tokens: int = 16
    captured_up_to: int = 512
    mixed: bool = False
    frees_windows: bool = False
    byte_experts: str
    memory: tuple[MemoryRules, ...]
    costs: tuple[StepCosts, ...]


@frozen
class EngineDescriptor:
    """What the program knows of an engine without importing it. An engine that runs nothing opens no format.

    `opens` lists model formats, its own first: of two engines that open a file the one whose own format it is comes
    first. `packages` are the distributions that decide its speed, the one that must be installed first. `first_for`
    are the questions it answers where no engine is named; the others follow by `rank`, and one without a rank is
    chosen only for a file that it opens. `usual_on` are the devices whose owners run it, by what a model makes
    (`tokens` or `arrays`), or of one that hears `speech`: there it comes first. `only_on` are those that it runs on
    at all; none stands for every device. `not_on` are those among them that are too old for it. Devices are
    patterns of a unit with a vendor, a kind, a family or a name: `npu:Rockchip`, `gpu:pascal`,
    `gpu:nvidia-jetson-*`. It `lacks` models of some architectures. `calibrated` says, by unit, what it is
    calibrated with: probe networks as `files`, the same as PyTorch `modules`, `decoders`, or single `kernels` of
    PyTorch. Its calibrations are of a format of the activations; where `by_weights` is given they are of a format
    of the weights, and those are the formats it computes in. One that goes `beyond_peaks` computes in fewer bits or
    with fewer products than a format says unless told otherwise: its calibrations measure the peaks that it
    reaches. One of a single `build` has the same kernels on every core of an architecture, whatever instructions
    that has. `compiled_by` names the runtime that compiles what this one launches op by op, `keeps_up_with` one
    that it is no slower than where nobody has measured it. `serving` has the rules of an engine that serves many
    requests at once. `job_options` are those of its options that a job may set: none of them names a file or a
    library. `tuned` are values that are worth a try (`inferometer prepare --tune`): of options, and of `providers`.
    """

    effects: RuntimeEffects
    opens: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    module: str | None = None  # as Python imports it
    extra: str | None = None  # as `pip install inferometer[…]` names it
    rank: int | None = None
    first_for: frozenset[Use] = frozenset()
    usual_on: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    only_on: tuple[str, ...] = ()
    not_on: tuple[str, ...] = ()
    takes: Takes = "all"
    lacks: tuple[str, ...] = ()
    small: SmallFormats = field(default_factory=SmallFormats)
    calibrated: Mapping[str, Probing] = field(default_factory=dict)
    calibrated_in: str | None = None  # the format that is calibrated where none is asked for
    by_weights: Precision | None = None
    beyond_peaks: bool = False
    one_build: bool = False
    compiled_by: str | None = None
    keeps_up_with: str | None = None
    serving: ServingRules | None = None
    job_options: frozenset[str] = frozenset()
    tuned: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.effects.name

    @property
    def title(self) -> str:
        return self.effects.title

    def runs_on(self, device: Device) -> bool:
        """Whether it is made for such a device. A machine whose vendor was not detected may be any.

        A microcontroller has no operating system: what runs on any CPU does not run there, unless it says so.
        """
        if device.is_bare:
            return is_one_of(device, [pattern for pattern in self.only_on if not pattern.endswith(":*")])
        if is_one_of(device, self.not_on):
            return False
        return not self.only_on or device.vendor == "unknown" or is_one_of(device, self.only_on)


def is_one_of(device: Device, patterns: Iterable[str]) -> bool:
    """Whether a device is meant by a pattern of its unit with its vendor, its kind, its family or its name."""
    names = [f"{device.unit}:{word}" for word in (device.vendor, device.kind, device.family, device.name)]
    return any(is_like(name, pattern) for pattern in patterns for name in names)


def is_like(name: str, pattern: str) -> bool:
    """Whether a pattern with `*` in it, or none, means the name."""
    start, star, rest = pattern.partition("*")
    if not rest and "?" not in start and "[" not in start:  # as nearly all are: no expression has to be compiled
        return name.startswith(start) if star else name == start
    return fnmatchcase(name, pattern)


# How an engine puts requests into steps: the rules of its scheduler, by version, as data.

Order = Literal["decode", "prompts"]
Admission = Literal["chunk", "prompt", "whole", "estimate", "slot"]
Victim = Literal["last", "shortest", "none"]


@frozen
class SchedulerRules:
    """The rules that hold from the version `since` of an engine on.

    `order` says what a step takes first: sequences that decode, with prompts' chunks in what is left of its tokens, or
    prompts alone, while decoding waits. `admission` says what must fit into the cache before a request is taken: the
    blocks of its first `chunk`, of its `prompt`, of prompt and answer as a `whole`, of the prompt and an `estimate` of
    what answers will still need, or nothing but a `slot`. `victim` is who gives way when the cache is full: the one
    that came `last`, the one with the `shortest` answer so far, or `none`. `estimate_start`, `estimate_least` and
    `estimate_steps` are the share of an answer's length that `estimate` reserves: where it begins, where it ends, and
    over how many steps of decoding.
    """

    engine: str
    since: str
    title: str
    order: Order
    admission: Admission
    victim: Victim
    prefix_cache: bool = False
    ahead: bool = False  # whether a step is planned while the one before it runs
    gang: bool = False  # whether data-parallel ranks of a mixture of experts step together and share the experts
    waits_after_preemption: bool = True  # whether a step that preempted admits nobody
    estimate_start: float = 0.0
    estimate_least: float = 0.0
    estimate_steps: int = 0
    slots: int | None = None  # of an engine without paged memory: sequences at once, where nobody says how many
    step_tokens: int | None = None  # and its tokens a step
    apart: bool = False  # whether prompts take a pass of their own, and so do slots that are no neighbours
    source: str = ""
    url: str = ""
