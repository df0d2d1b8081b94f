"""What each config becomes, by kind of op: how many, what they read, write and hold, at sizes that divide nothing; and
every attribute of ops, with how often it stands.

`graphs_told.json` has them, for the tiny models of tests/data/huggingface and for those of the catalog that none of
these is like: `python tests/unit/formats/huggingface/test_graphs_told.py` writes it anew (with src and tests on the
path). The products among them are held to the libraries' own by test_products.py; a change of the rest shows here.
"""

import json
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from golden.test_parameters import ROWS
from inferometer.core.dims import evaluate, product
from inferometer.formats.huggingface.graph import graph_from_config

FOLDER = Path(__file__).parents[3] / "data" / "huggingface"
TOLD = Path(__file__).parent / "graphs_told.json"
SIZES = {"batch": 3, "query": 5, "context": 7, "logits": 2, "image": 232, "frames": 200, "encoder": 11, "steps": 1}
NETWORKS = (
    "resnet18", "resnet50", "convnext-tiny", "mobilenet-v2", "mobilenet-v3-large", "efficientnet-b0", "vgg16",
    "alexnet", "densenet121", "squeezenet1.1", "yolov8n", "dit-xl-2", "kimi-k2", "minimax-m2", "llama-4-scout",
    "dots-llm1", "olmoe-1b-7b", "qwen3-vl-30b-a3b", "rwkv7-0.1b", "sd-1.5-unet", "sd-1.5", "hunyuan-dit",
)  # fmt: skip
CONFIGS = {path.stem: path for path in sorted(FOLDER.glob("*.json")) if path.stem != "cases"} | dict.fromkeys(NETWORKS)


RECORDED = json.loads(TOLD.read_text()) if TOLD.exists() else {}


def config_of(name):
    path = CONFIGS[name]
    return ROWS[name]["config"] if path is None else json.loads(path.read_text())["config"]


def elements(tensors):
    return sum(evaluate(product(tensor.shape), SIZES) for tensor in tensors)


def told(name):
    graph = graph_from_config(config_of(name), name=name)
    kinds, attributes = defaultdict(lambda: [0, 0, 0, 0]), Counter()
    for block, op in graph.ops():
        for key, value in op.attributes.items():
            attributes[f"{op.kind} {key}={value}"] += block.count
        words = [
            op.kind,
            *(str(op.get(key)) for key in ("function", "norm", "causal", "cached", "window") if key in op.attributes),
        ]
        for place, number in enumerate((1, elements(op.inputs), elements(op.outputs), elements(op.weights))):
            kinds[" ".join(words)][place] += block.count * number
    ends = {
        side: [[tensor.name, elements([tensor])] for tensor in getattr(graph, side)] for side in ("inputs", "outputs")
    }
    plain = {key: value for key, value in graph.metadata.items() if key != "modules"}  # test_names.py has those
    known = {key: value for key, value in plain.items() if isinstance(value, int | float | str | dict)}
    return json.loads(json.dumps({
        "count, read, written, held": kinds, **ends, "limit": graph.context_limit, "precision": graph.precision,
        "blocks": [[block.name, block.count, block.first] for block in graph.blocks][:40], "metadata": known,
        "attributes": dict(sorted(attributes.items())),
    }, default=str))  # fmt: skip


@pytest.mark.parametrize("name", CONFIGS)
def test_a_config_becomes_the_graph_it_was(name):
    assert told(name) == RECORDED[name]


if __name__ == "__main__":
    rows = ",\n".join(f" {json.dumps(name)}: {json.dumps(told(name))}" for name in CONFIGS)
    TOLD.write_text("{\n" + rows + "\n}\n")
