"""Argonne's LLM-Inference-Bench: whole requests, `batch` at once, with as many tokens out as in.

The throughput counts tokens in and out. In the rows of llama.cpp it is that of one sequence, whatever the batch size:
there it is the engine's `--batch-size`, so many tokens of the prompt are read at once, and one request ran. Weights are
as the models are published, in 16 bits. vLLM's rows of one `Intel PVC GPU` hold the first run of a process: some 17 s
at every length and batch, which the rows of the same card as `Intel Max 1550` do not have.
"""

from collections.abc import Iterator

from inferometer.known.atlas.csv_lines import CsvLine, LineError
from inferometer.known.atlas.form import Form, published, settings
from inferometer.known.atlas.measurement import PublishedMeasurement

_ENGINES = {
    "vllm": "vllm", "llama.cpp": "llamacpp", "tensorrt-llm": "trtllm", "deepspeed": "deepspeed-mii",
    "deepspeed-mii": "deepspeed-mii", "sambaflow": "sambaflow", "sglang": "sglang",
}  # fmt: skip
_DEVICES = {
    "Nvidia A100 GPU": "NVIDIA A100 40GB", "Nvidia H100 GPU": "NVIDIA H100 SXM", "Nvidia GH200 GPU": "NVIDIA GH200",
    "Intel PVC GPU": "Intel Data Center GPU Max 1550", "Intel Max 1550": "Intel Data Center GPU Max 1550",
    "Habana Gaudi2": "Intel Gaudi 2", "Habana Gaudi3": "Intel Gaudi 3", "AMD MI250 GPU": "AMD MI250",
    "AMD MI300X GPU": "AMD MI300X",
}  # fmt: skip
_FIRST_RUNS = ("Intel PVC GPU", "vLLM")
_APART = 0.05


def read(line: CsvLine) -> Iterator[PublishedMeasurement]:
    hardware, framework = line.required("Hardware"), line.required("Framework")
    latency, throughput = line.positive("Latency"), line.positive("Throughput")
    length, batch = line.whole("Input Output Length") or 0, line.whole("Batch Size") or 1
    devices = line.whole("Num of Hardware") or 1
    several = throughput * latency / (2 * length) if length else 0.0  # requests that ran at once
    if not length or min(abs(several / batch - 1), abs(several - 1)) > _APART:
        raise LineError(f"{throughput:g} tokens/s and {latency:g} s do not go together at batch {batch}.")
    one = framework.casefold() == "llama.cpp" or (batch > 1 and abs(several - 1) <= _APART)
    yield published(
        line,
        dataset="argonne",
        date="2024",
        device_published=hardware,
        device_spelling=_DEVICES.get(hardware, hardware),
        unit="npu" if "SambaNova" in hardware or "Gaudi" in hardware else "gpu",
        count=devices,
        model_published=line.required("Model"),
        engine_published=framework,
        engine=_ENGINES.get(framework.casefold(), framework.casefold()),
        settings=settings(
            chunk=batch if one else None, cold=1 if (hardware, framework) == _FIRST_RUNS and devices == 1 else None
        ),
        weights="f16",
        batch=1 if one else batch,
        prompt=length,
        generate=length,
        quantity="request",
        figure=latency,
        figure_unit="s",
    )


FORM = Form(
    name="argonne",
    title="Argonne, LLM-Inference-Bench",
    columns=frozenset({"Hardware", "Num of Hardware", "Framework", "Model", "Batch Size", "Latency", "Throughput"}),
    read=read,
)
