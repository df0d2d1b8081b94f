"""What eager PyTorch takes for each kernel of transformers' decoders on a CPU, over one call of this host.

    OMP_NUM_THREADS=1 python -m workshop.engines.eager_host [FAMILY …]

Decoders too small for their products to take time, with one thread. The difference of twelve layers and four is what a
layer takes; kernels are counted as predictions count them. The clock is the thread's own, which stands still while
others have the core, so that it serves on a busy machine too.
"""

from __future__ import annotations

import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from inferometer.known.engines import require_effects
from inferometer.known.machine.health.host_calls import host_call_s
from inferometer.predict.ask import ask
from inferometer.predict.ready import make_ready

if TYPE_CHECKING:
    from collections.abc import Callable

FAMILIES = ("Llama", "Qwen2", "Qwen3", "Mistral", "Gemma2", "Olmo2", "Phi3")
FEW, MANY = 4, 12  # layers
STEPS, BATCHES = 3, 40


def config_of(family: str, layers: int) -> Any:
    return getattr(import_module("transformers"), f"{family}Config")(
        hidden_size=16, intermediate_size=32, num_hidden_layers=layers, num_attention_heads=2, num_key_value_heads=1,
        head_dim=8, vocab_size=64, max_position_embeddings=2048, tie_word_embeddings=False, pad_token_id=0,
        bos_token_id=1, eos_token_id=2, architectures=[f"{family}ForCausalLM"],
    )  # fmt: skip


def step_of(family: str, layers: int) -> Callable[[], None]:
    torch, transformers = import_module("torch"), import_module("transformers")
    model = getattr(transformers, f"{family}ForCausalLM")(config_of(family, layers)).eval()
    ids = torch.ones((1, 4), dtype=torch.long)
    cache = model(input_ids=ids, use_cache=True).past_key_values

    def step() -> None:
        with torch.inference_mode():
            model(input_ids=ids[:, :1], past_key_values=cache, use_cache=True)
            cache.crop(-1)

    return step


def seconds_of(step: Callable[[], None]) -> float:
    """The first octile of some batches: other work only ever adds time."""
    taken = []
    for _ in range(BATCHES):
        start = time.thread_time()
        for _ in range(STEPS):
            step()
        taken.append((time.thread_time() - start) / STEPS)
    return sorted(taken)[BATCHES // 8]


def kernels_of(family: str, layers: int) -> float:
    """Of a step of decoding, as predictions count them."""
    with tempfile.TemporaryDirectory() as folder:
        config_of(family, layers).to_json_file(Path(folder) / "config.json")
        asked = ask(folder, on="arm-neoverse-n1-2-cores", runtime="torch-eager", prompt=4, generate=2)
        effects = require_effects("torch-eager")
        plan = make_ready(
            asked.graph, asked.device, effects=effects, workload=asked.workload, options=asked.options
        ).plan
    return float(np.sum(plan.prepared.counts(once=False) @ plan.rates_in("decode").launches))


def main() -> None:
    torch = import_module("torch")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    call = host_call_s()
    print(f"{1e6 * call:.3f} µs a call, PyTorch {torch.__version__}, Python {sys.version.split()[0]}")
    for family in sys.argv[1:] or FAMILIES:
        kernels = kernels_of(family, MANY) - kernels_of(family, FEW)
        taken = seconds_of(step_of(family, MANY)) - seconds_of(step_of(family, FEW))
        each = taken / kernels
        print(f"{family}: {1e6 * each:.1f} µs a kernel, {each / call:.1f} calls, {kernels / (MANY - FEW):g} a layer")


if __name__ == "__main__":
    main()
