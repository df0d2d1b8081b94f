"""Small tables of language models on phones and Macs: LiteRT-LM, ExecuTorch, mlx-lm.

The source's name holds the sizes: `pp1024/tg256`; ExecuTorch's are those of Meta's model cards, a prompt of 64 tokens.
A line whose rates are no numbers is a row of another table.
"""

import re
from collections.abc import Iterator
from typing import Any

from inferometer.known.atlas.csv_lines import CsvLine
from inferometer.known.atlas.form import Form, published
from inferometer.known.atlas.measurement import PublishedMeasurement

_SOURCES = {
    "LiteRT-LM": ("litert-lm", "litert-lm"),
    "executorch": ("executorch", "executorch"),
    "mlx-lm": ("mlx-lm", "mlx"),
}
_SIZES = {"executorch": (64, 64)}
_WEIGHTS = {
    "bf16": "bf16", "f16": "f16", "q8": "i8", "q6": "i6", "q5": "i5", "q4": "i4", "spinquant": "i4", "qat+lora": "i4",
}  # fmt: skip


def read(line: CsvLine) -> Iterator[PublishedMeasurement]:
    told, name, backend = line.required("source"), line.required("model"), line.required("backend")
    source, engine = _SOURCES.get(told.split()[0], (told.split()[0], None))
    device = line.required("device")
    sizes = re.search(r"pp(\d+)/tg(\d+)", told)
    prompt, generate = (int(sizes[1]), int(sizes[2])) if sizes else _SIZES.get(source, (None, None))
    words = name.casefold().split()
    facts: dict[str, Any] = {
        "dataset": "phones",
        "source": source,
        "device_published": device,
        "device_spelling": re.sub(r"\s*\(see README\)$", "", device),
        "unit": "gpu"
        if "MLX" in backend
        else next((unit for unit in ("cpu", "gpu", "npu") if unit.upper() in backend), None),
        "model_published": name,
        "model_spelling": re.sub(r"(?i)\s+(?:bf16|f16|q\d|spinquant|qat\+lora)(?:\s+g\d+)?$", "", name),
        "engine_published": f"{told.split()[0]} {backend}",
        "engine": engine,
        "weights": next(
            (_WEIGHTS[word] for word in words if word in _WEIGHTS), "i4" if source == "litert-lm" else None
        ),
        "precision_published": " ".join(words[1:]) or None,
        "batch": 1,
    }
    yield published(
        line, quantity="prefill", figure=line.positive("prefill_tok_s"), figure_unit="tokens/s", prompt=prompt,
        context=0, **facts,
    )  # fmt: skip
    yield published(
        line, quantity="decode", figure=line.positive("decode_tok_s"), figure_unit="tokens/s", context=prompt,
        generate=generate, **facts,
    )  # fmt: skip


FORM = Form(
    name="phones",
    title="language models on phones",
    columns=frozenset({"source", "model", "device", "backend", "prefill_tok_s", "decode_tok_s"}),
    read=read,
)
