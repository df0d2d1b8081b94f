"""How many kernels a layer starts where nothing is fused, beside the ops that transformers dispatches for it."""

import json
from collections import Counter

import pytest

pytest.importorskip("torch", reason="torch is not installed: its ops are not counted")
pytest.importorskip("transformers", reason="transformers is not installed: its ops are not counted")

import torch  # noqa: TID251 - the bare engine is what is counted
import transformers
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: TID251 - as above

from inferometer.formats.resolve import read
from inferometer.known.engines import runtime_effects
from inferometer.predict.work.collect import fuse

pytestmark = pytest.mark.filterwarnings("ignore")  # the libraries' own remarks

# what moves nothing: views, and a dropout of a model that is not trained
FREE = frozenset(
    "view _unsafe_view reshape transpose unsqueeze expand slice select t permute detach split chunk alias squeeze "
    "unbind as_strided split_with_sizes lift_fresh unfold narrow numpy_T flatten dropout".split()
)
WIDE = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "vocab_size": 160,
        "max_position_embeddings": 64}  # fmt: skip
GROUPED = {**WIDE, "num_key_value_heads": 2}
FAMILIES = {
    "llama": ("LlamaForCausalLM", GROUPED),
    "qwen3": ("Qwen3ForCausalLM", {**GROUPED, "head_dim": 16}),
    "gemma2": ("Gemma2ForCausalLM", {**GROUPED, "head_dim": 16, "query_pre_attn_scalar": 16}),
    "phi": ("PhiForCausalLM", {**WIDE, "partial_rotary_factor": 0.5}),
    "phi3": ("Phi3ForCausalLM", {**GROUPED, "pad_token_id": 0}),
    "gpt_neox": ("GPTNeoXForCausalLM", {**WIDE, "rotary_pct": 0.25}),
    "gpt2": ("GPT2LMHeadModel", {"n_embd": 64, "n_head": 4, "n_positions": 64, "vocab_size": 160}),
    "bloom": ("BloomForCausalLM", {"hidden_size": 64, "n_head": 4, "vocab_size": 160}),
    "opt": ("OPTForCausalLM", {"hidden_size": 64, "ffn_dim": 96, "num_attention_heads": 4, "vocab_size": 160,
                               "max_position_embeddings": 64, "word_embed_proj_dim": 64, "pad_token_id": 1}),
    "mixtral": ("MixtralForCausalLM", {**GROUPED, "num_local_experts": 8, "num_experts_per_tok": 2}),
    "olmoe": ("OlmoeForCausalLM", {**GROUPED, "num_experts": 8, "num_experts_per_tok": 2, "pad_token_id": 0}),
    "starcoder2": ("Starcoder2ForCausalLM", {**GROUPED, "sliding_window": None}),
}  # fmt: skip


class Dispatched(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.ops = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func._schema.name.partition("::")[2]
        self.ops[name] += name not in FREE
        return func(*args, **(kwargs or {}))


def dispatched(folder):
    config = transformers.AutoConfig.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()
    with torch.inference_mode():
        kept = model(input_ids=torch.ones(1, 9, dtype=torch.long), use_cache=True).past_key_values
        with Dispatched() as counted:
            model(input_ids=torch.ones(1, 1, dtype=torch.long), past_key_values=kept, use_cache=True)
    return counted.ops.total()


def predicted(folder):
    graph, effects = read(str(folder)), runtime_effects("torch-eager")
    return sum(block.count * sum(each.launches for each in ops)
               for block, ops in zip(graph.blocks, fuse(graph, effects), strict=True))  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES)
def test_a_layer_starts_as_many_kernels_as_transformers_dispatches_ops(family, tmp_path):
    name, sizes = FAMILIES[family]
    layers = "n_layer" if family in {"gpt2", "bloom"} else "num_hidden_layers"
    counts = []
    for count in (2, 4):
        folder = tmp_path / str(count)
        folder.mkdir()
        config = {"model_type": family, "architectures": [name], layers: count, "bos_token_id": 1, "eos_token_id": 2}
        (folder / "config.json").write_text(json.dumps({**config, **sizes}))
        counts.append((dispatched(folder), predicted(folder)))
    (fewer, told_fewer), (more, told_more) = counts
    assert told_more - told_fewer == pytest.approx(more - fewer, rel=0.16)
