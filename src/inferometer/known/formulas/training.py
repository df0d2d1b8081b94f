"""Training: throughput, FLOPs per token, MFU and HFU, batches and memory."""

from inferometer.known.formulas import quantities as q
from inferometer.known.formulas.latency import throughput
from inferometer.known.formulas.registry import formula

_KAPLAN = "Kaplan et al. 2020, Scaling Laws for Neural Language Models, arXiv:2001.08361"
_PALM = "Chowdhery et al. 2022, PaLM, arXiv:2204.02311, app. B"
_ZERO = "Rajbhandari et al. 2020, ZeRO, arXiv:1910.02054"


@formula(row="8.1 Training throughput", source="definition", example={"batch": 256, "step_time": 0.5}, answer=512.0)
def training_throughput(*, batch: q.SomeSamples, step_time: q.SomeSeconds) -> q.SampleRate:
    """Samples trained on per second.

    Derivation: a step takes in one batch.
    Units: samples (the global batch) and s → sample/s.
    Ignores: evaluation, checkpoints and restarts, which lie between steps.
    """
    return throughput(work=batch, time=step_time)


@formula(
    row="8.1 Training time",
    source="definition",
    example={"epochs": 90, "dataset": 1_281_167, "throughput": 512},
    answer=225205.13671875,
)
def training_time(*, epochs: q.SomeRatio, dataset: q.SomeSamples, throughput: q.SomeSampleRate) -> q.Seconds:
    """The time to pass over a dataset some times.

    Derivation: epochs × samples, over the samples of a second.
    Units: a number, samples and sample/s → s.
    Ignores: everything between steps, and whether all these epochs are needed; see the time to accuracy.
    """
    return time_to_accuracy(samples=epochs * dataset, throughput=throughput)


@formula(row="8.2 Forward FLOPs/token", source=_KAPLAN, example={"parameters": 1_235_814_400}, answer=2_471_628_800)
def forward_flops_per_token(
    *,
    parameters: q.SomeAmount,
    layers: q.CountOrNone = 0,
    attention_width: q.CountOrNone = 0,
    context: q.TokensOrNone = 0,
) -> q.Flops:
    """Operations of a forward pass for one token: 2 per parameter, and attention where it is described.

    Derivation: each weight takes part in one multiply and one add: 2P. Attention has no weights: per layer a query
    meets S keys (2·S·H) and weighs S values (2·S·H), with H = heads × head size: 4·L·H·S. The source's 2P leaves it
    out; give `layers`, `attention_width` and `context` to count it.
    Units: parameters, layers, elements and tokens → FLOP per token.
    Ignores: norms, softmax and activation functions. For a mixture of experts the parameters are the active ones, and
    an embedding table that is only looked up does no arithmetic.
    """
    return 2 * parameters + 4 * layers * attention_width * context


@formula(row="8.2 Training FLOPs/token", source=_KAPLAN, example={"parameters": 7e9}, answer=42e9)
def training_flops_per_token(
    *,
    parameters: q.SomeAmount,
    layers: q.CountOrNone = 0,
    attention_width: q.CountOrNone = 0,
    context: q.TokensOrNone = 0,
) -> q.Flops:
    """Operations to train on one token: three forward passes' worth, so 6 per parameter.

    Derivation: the backward pass makes two products for each forward one, for the gradient of the input and of the
    weight. Forward 1 + backward 2 = 3; 3 × 2P = 6P.
    Units: as the forward pass → FLOP per token.
    Ignores: the optimizer's own arithmetic, which does not grow with the batch, and recomputation.
    """
    return 3 * forward_flops_per_token(
        parameters=parameters, layers=layers, attention_width=attention_width, context=context
    )


@formula(
    row="8.2 Training FLOPs/token, full recompute",
    source="Korthikanti et al. 2022, Reducing Activation Recomputation, arXiv:2205.05198",
    example={"parameters": 7e9},
    answer=56e9,
)
def training_flops_per_token_recompute(
    *,
    parameters: q.SomeAmount,
    layers: q.CountOrNone = 0,
    attention_width: q.CountOrNone = 0,
    context: q.TokensOrNone = 0,
) -> q.Flops:
    """Operations to train on one token when every activation is computed twice: 8 per parameter.

    Derivation: the forward pass runs once more before the backward pass: 4 × 2P = 8P. It is the numerator of HFU.
    Units: as the forward pass → FLOP per token.
    Ignores: selective recomputation, which repeats only the cheap, large parts and lies between 6P and 8P.
    """
    return 4 * forward_flops_per_token(
        parameters=parameters, layers=layers, attention_width=attention_width, context=context
    )


@formula(
    row="8.3 MFU",
    source=_PALM,
    example={"flops_per_step": 6 * 7e9 * 4e6, "step_time": 10.0, "peak": 989e12, "devices": 64},
    answer=0.26541961577350857,
)
def mfu(*, flops_per_step: q.SomeFlops, step_time: q.SomeSeconds, peak: q.FlopRate, devices: q.Count = 1) -> q.Ratio:
    """Model FLOPs utilisation: the share of the machines' peak that went into the model's own arithmetic.

    Derivation: the model needs F FLOPs a step, so F/T a second; the machines could do peak × devices. The source
    divides by the peak of one device, which is right for one device only.
    Units: FLOP of all devices together, s, FLOP/s of one device and a count → 1.
    Ignores: recomputed work, on purpose: it is not the model's. Use the dense peak of the type computed in. A value
    above 1 says that one of these is wrong.
    """
    return flops_per_step / step_time / (peak * devices)


@formula(
    row="8.3 HFU",
    source=_PALM,
    example={"flops_per_step": 8 * 7e9 * 4e6, "step_time": 10.0, "peak": 989e12, "devices": 64},
    answer=0.3538928210313448,
)
def hfu(*, flops_per_step: q.SomeFlops, step_time: q.SomeSeconds, peak: q.FlopRate, devices: q.Count = 1) -> q.Ratio:
    """Hardware FLOPs utilisation: the share of the machines' peak that did anything, recomputation included.

    Derivation: MFU with all the FLOPs that were executed: 8P a token with full recomputation where the model has 6P.
    Units: as MFU → 1.
    Ignores: whether the work was of use. A higher HFU at the same MFU is waste.
    """
    return mfu(flops_per_step=flops_per_step, step_time=step_time, peak=peak, devices=devices)


@formula(
    row="8.4 Time to accuracy",
    source="Coleman et al. 2017, DAWNBench: An End-to-End Deep Learning Benchmark and Competition",
    example={"samples": 4.6e7, "throughput": 512},
    answer=89843.75,
)
def time_to_accuracy(*, samples: q.Samples, throughput: q.SomeSampleRate) -> q.Seconds:
    """The time until a model reaches its target.

    Derivation: the samples that it needs, over the samples of a second.
    Units: samples and sample/s → s.
    Ignores: that the samples needed depend on the batch. A larger batch is faster per sample and may need more.
    """
    return samples / throughput


@formula(
    row="8.5 Effective batch",
    source="definition",
    example={"micro_batch": 4, "accumulation": 8, "devices": 16},
    answer=512,
)
def effective_batch(*, micro_batch: q.Count, accumulation: q.Count = 1, devices: q.Count = 1) -> q.Samples:
    """Samples that one update of the weights sees.

    Derivation: each device takes `accumulation` micro-batches before the gradients are summed over all devices.
    Units: samples, steps and devices → samples.
    Ignores: other parallelism. Only data-parallel replicas count as devices; those of one tensor or pipeline group
    work on the same samples.
    """
    return micro_batch * accumulation * devices


@formula(row="8.6 Training memory (mixed Adam)", source=_ZERO, example={"parameters": 7e9}, answer=112e9)
def training_memory(
    *,
    parameters: q.SomeAmount,
    activations: q.Bytes = 0,
    weight_bytes: q.SomeBytes = 2,
    gradient_bytes: q.Bytes = 2,
    optimizer_bytes: q.Bytes = 12,
) -> q.SomeBytes:
    """Memory of mixed-precision training with Adam: 16 bytes a parameter, and the activations.

    Derivation: a 16-bit weight (2) and gradient (2), and in 32 bits a master weight, momentum and variance (12).
    2 + 2 + 12 = 16. Gradients kept in 32 bits make it 18, and 20 with a 16-bit copy; hence the source's 16–20.
    Units: parameters, B, and B per parameter → B.
    Ignores: fragmentation, communication buffers and the framework itself. It is all on one device; see ZeRO.
    """
    return parameters * (weight_bytes + gradient_bytes + optimizer_bytes) + activations
