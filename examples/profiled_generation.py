"""A generation loop with spans around its steps: where the time goes, layer by layer and token by token.

The model is a small random transformer in numpy; put your own in its place. Run with INFEROMETER_PROFILE=0, and the
spans cost nothing.
"""

import numpy as np

from inferometer.measure.spans import Profiler

LAYERS, WIDTH, VOCABULARY, PROMPT, NEW_TOKENS = 4, 256, 4096, 64, 96
random = np.random.default_rng(0)
weights = random.standard_normal((LAYERS, 2, WIDTH, WIDTH), dtype=np.float32) / WIDTH
embedding = random.standard_normal((VOCABULARY, WIDTH), dtype=np.float32)

p = Profiler()


def forward(tokens: list[int], cache: list[np.ndarray]) -> np.ndarray:
    """One pass over `tokens`: attention over all that is in the cache, and a feed-forward product, a layer."""
    x = embedding[tokens]
    for layer in range(LAYERS):
        with p.span("layer", layer=layer):
            with p.span("kv_cache_update", unit="cpu"):
                cache[layer] = np.concatenate((cache[layer], x))
            with p.span("attention", unit="cpu", flops=4.0 * len(x) * len(cache[layer]) * WIDTH):
                scores = np.exp(x @ cache[layer].T / WIDTH)
                x = x + scores / scores.sum(axis=1, keepdims=True) @ cache[layer]
            with p.span("feed_forward", unit="cpu", flops=4.0 * len(x) * WIDTH * WIDTH, bytes=weights[layer].nbytes):
                x = x + np.maximum(x @ weights[layer, 0], 0) @ weights[layer, 1]
    with p.span("lm_head", unit="cpu", bytes=embedding.nbytes):
        return x[-1] @ embedding.T


@p.wrap(name="sampling", unit="cpu")
def sample(logits: np.ndarray) -> int:
    return int(np.argmax(logits))


def generate(prompt: str) -> str:
    cache = [np.empty((0, WIDTH), np.float32)] * LAYERS
    with p.span("prefill", phase="prefill", tokens=PROMPT):
        with p.span("tokenize", unit="cpu"):
            tokens = [hash((prompt, place)) % VOCABULARY for place in range(PROMPT)]
        found = [sample(forward(tokens, cache))]
    for token in range(1, NEW_TOKENS):
        with p.span("token", phase="decode", token=token, tokens=1):
            found.append(sample(forward(found[-1:], cache)))
    with p.span("detokenize", phase="detokenize", unit="cpu"):
        return " ".join(map(str, found))


generate("Explain photosynthesis in detail.")
print(p.report())
print()
print("\n".join(p.report("operations").splitlines()[:11]), "…", sep="\n")
print()
print(p.dataflow())
for file in ("generation.json", "generation.speedscope.json", "generation.svg", "generation.html"):
    print(f"wrote {p.export(file)}")
