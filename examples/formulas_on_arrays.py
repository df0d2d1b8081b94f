"""A formula takes arrays as well as numbers: the KV cache of Llama-3.1-70B over a range of contexts, in one call."""

import numpy as np

from inferometer.core.units import format_quantity
from inferometer.known.formulas import llm

contexts = np.array([1_024, 8_192, 32_768, 131_072])
per_token = llm.kv_bytes_per_token(layers=80, kv_heads=8, head_dim=128, element_bytes=2)
totals = llm.kv_cache_bytes(bytes_per_token=per_token, tokens=contexts)

print(f"one token: {format_quantity(per_token, 'B')}")
for context, total in zip(contexts, totals, strict=True):
    print(f"{context:>7} tokens: {format_quantity(float(total), 'B')}")
