"""Jeff Geerling's benchmarks: tokens a second and peak watts of whole systems, mostly with Ollama.

`Pi 5 - 8GB (AMD RX 7600)` on its GPU is that card, `Cluster (10x 16GB)` ten of them. The format of the weights is not
stated: Ollama's own for these models is Q4_K_M, and MXFP4 for gpt-oss.
"""

import re
from collections.abc import Iterator

from inferometer.known.atlas.csv_lines import CsvLine, LineError
from inferometer.known.atlas.form import Form, published, settings
from inferometer.known.atlas.measurement import PublishedMeasurement


def read(line: CsvLine) -> Iterator[PublishedMeasurement]:
    system, unit = line.required("system"), line.required("unit").casefold()
    rate = re.match(r"([\d.]+)\s*Tokens/s", line.required("eval_rate"))
    if rate is None:
        raise LineError(f"eval_rate is {line.text('eval_rate')!r}, and should be a number of Tokens/s.")
    power = re.match(r"([\d.]+)\s*W", line.text("power_peak") or "")
    card = re.search(r"\((?:(?:\d+)x )?(.+)\)$", system)
    inner = card[1] if card and unit == "gpu" and re.search(r"(?i)nvidia|amd|rtx|rx |intel arc", card[1]) else None
    yield published(
        line,
        dataset="geerling",
        device_published=system,
        device_spelling=_card(inner) if inner else system,
        unit=unit,
        count=_count(system),
        model_published=line.required("model"),
        model_spelling=line.required("model").replace(":", "-"),
        engine_published="Ollama or llama.cpp",
        engine="llamacpp",
        settings=settings(host=re.sub(r"\s*\(.*\)$", "", system) if inner else None),
        weights="mxfp4" if re.search(r"(?i)gpt-?oss", line.required("model")) else "q4_k",
        batch=1,
        quantity="decode",
        figure=float(rate[1]),
        figure_unit="tokens/s",
        power_w=float(power[1]) if power else None,
    )


def _count(system: str) -> int:
    """`Raspberry Pi CM5 Cluster (10x 16GB)` → 10."""
    several = re.search(r"(?i)cluster \((\d+)x ", system)
    return int(several[1]) if several else 1


def _card(name: str) -> str:
    """`Nvidia 4070 Ti` → `Nvidia RTX 4070 Ti`."""
    return re.sub(r"(?i)^nvidia (?=[2345]0\d0)", "NVIDIA RTX ", name)


FORM = Form(
    name="geerling",
    title="Geerling, AI benchmarks",
    columns=frozenset({"model", "system", "unit", "eval_rate"}),
    read=read,
)
