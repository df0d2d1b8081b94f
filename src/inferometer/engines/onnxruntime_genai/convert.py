"""A Hugging Face checkpoint as a folder of ONNX Runtime GenAI, by its own model builder."""

import subprocess
import sys
from collections.abc import Iterator

from inferometer.core.errors import FormatError
from inferometer.engines.order import ToolOrder
from inferometer.engines.torch.checkpoint import offline, whole_checkpoint

_PRECISION = {"f32": "fp32", "i8": "int8", "i4": "int4"}
# Of a prompt only the last token's logits are used: the head is not computed for the others.
_OPTIONS = ("prune_lm_head=true",)


def build(order: ToolOrder) -> Iterator[str]:
    """The builder is a program: its modules import each other by names that only work when it is run as one."""
    offline()
    folder, notes = whole_checkpoint(order)
    yield from notes
    weights = order.options.get("weights", "f32")
    command = [
        sys.executable, "-m", "onnxruntime_genai.models.builder", "--input", str(folder), "--output",
        str(order.target), "--precision", _PRECISION[weights], "--execution_provider", "cpu", "--cache_dir",
        str(order.target.parent.parent / "builder"), "--extra_options", *_OPTIONS,
    ]  # fmt: skip
    done = subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: S603 - the engine's own program
    if done.returncode:
        raise FormatError(
            f"ONNX Runtime GenAI's builder failed: {_reason(done.stderr)}.",
            remedy="Its list of architectures is at https://onnxruntime.ai/docs/genai; prepare others for llamacpp.",
        )
    if weights != "f32":
        yield "Weights of products have a scale for each block; the embedding stays as it is."


def _reason(printed: str) -> str:
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    named = [line for line in lines if "Error" in line or "Exception" in line]
    return (named or lines or ["it gave no reason"])[-1].rstrip(".")
