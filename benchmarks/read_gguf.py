"""Reading an 8 B GGUF, header only, beside gguf's own reader: time from a warm process, memory in a fresh one.

The file is llama-3.1-8b's with the formats of Q4_K_M, a full vocabulary and merges. Its tensors are a hole: it claims
4.9 GB and takes some 10 MB.
"""

import subprocess
import sys
import tempfile
import time
from math import prod
from pathlib import Path

import gguf
import numpy as np
from figure import Figure, call_seconds
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from inferometer.formats.gguf import reader

LAYERS, HIDDEN, MIDDLE, KEYS, VOCABULARY, MERGES = 32, 4096, 14336, 1024, 128_256, 280_147
F32, Q4, Q6 = GGMLQuantizationType.F32, GGMLQuantizationType.Q4_K, GGMLQuantizationType.Q6_K
PARAMETERS = 8_030_261_248
# A fresh process: what importing takes, and what reading adds at its highest.
MEASURE = """
import resource, sys
from pathlib import Path
from inferometer.formats.gguf import reader
reader.read(Path(sys.argv[1]))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def tensors():
    yield "token_embd.weight", (VOCABULARY, HIDDEN), Q4
    yield "rope_freqs.weight", (64,), F32
    for layer in range(LAYERS):
        more = Q6 if layer < 4 or layer >= 28 or (layer - 4) % 3 == 2 else Q4  # where Q4_K_M keeps more bits
        at = f"blk.{layer}."
        yield f"{at}attn_norm.weight", (HIDDEN,), F32
        yield f"{at}attn_q.weight", (HIDDEN, HIDDEN), Q4
        yield f"{at}attn_k.weight", (KEYS, HIDDEN), Q4
        yield f"{at}attn_v.weight", (KEYS, HIDDEN), more
        yield f"{at}attn_output.weight", (HIDDEN, HIDDEN), Q4
        yield f"{at}ffn_norm.weight", (HIDDEN,), F32
        yield f"{at}ffn_gate.weight", (MIDDLE, HIDDEN), Q4
        yield f"{at}ffn_up.weight", (MIDDLE, HIDDEN), Q4
        yield f"{at}ffn_down.weight", (HIDDEN, MIDDLE), more
    yield "output_norm.weight", (HIDDEN,), F32
    yield "output.weight", (VOCABULARY, HIDDEN), Q6


def write(path):
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(LAYERS)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(MIDDLE)
    writer.add_head_count(32)
    writer.add_head_count_kv(8)
    writer.add_context_length(131_072)
    writer.add_rope_dimension_count(128)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([f"token{index}" for index in range(VOCABULARY)])
    writer.add_token_types([1] * VOCABULARY)
    writer.add_token_merges([f"to {index}" for index in range(MERGES)])
    total = 0
    for name, shape, kind in tensors():
        elements, size = GGML_QUANT_SIZES[kind]
        nbytes = prod(shape) // elements * size
        stored = (*shape[:-1], shape[-1] // elements * size) if kind != F32 else shape
        writer.add_tensor_info(name, stored, np.dtype(np.float32 if kind == F32 else np.uint8), nbytes, raw_dtype=kind)
        total += -(-nbytes // 32) * 32
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    with path.open("r+b") as file:
        start = -(-file.seek(0, 2) // 32) * 32
        file.truncate(start + total)


def peak_bytes(path):
    command = [sys.executable, "-c", MEASURE, str(path)]
    taken = subprocess.run(command, check=True, capture_output=True, text=True)
    return int(taken.stdout) * (1 if sys.platform == "darwin" else 1024)


def figures():
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "llama-3.1-8b-q4_k_m.gguf")
        write(path)
        graph = reader.read(path)
        if graph.parameters != PARAMETERS or graph.metadata["notes"]:
            raise RuntimeError(f"read {graph.parameters:,} parameters: {graph.metadata['notes']}")
        peak = (
            0 if sys.platform == "win32" else peak_bytes(path)
        )  # first: a child's highest mark starts at its parent's
        own = call_seconds(lambda: reader.read(path), least=1.0)
        start = time.perf_counter()
        gguf.GGUFReader(path)
        peer = time.perf_counter() - start
        yield Figure(name="read_gguf_8b", value=own, unit="s", target="≤ 0.3", met=own <= 0.3)
        yield Figure(
            name="read_gguf_8b_over_gguf_reader", value=peer / own, unit="×", target="≥ 1", met=peer >= own,
            note=f"gguf.GGUFReader takes {peer:.2f} s",
        )  # fmt: skip
        if peak:
            yield Figure(
                name="read_gguf_8b_peak_memory", value=peak / 1e6, unit="MB", target="≤ 200", met=peak <= 200e6
            )
