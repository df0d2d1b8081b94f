"""Where the layers of models lie that do not fit, and how fast they then are: form by form, as it was.

`placings_told.json` has the answers: `python tests/unit/predict/test_placings_told.py` writes them anew (with src and
tests on the path). A change of a rule shows there as the numbers it changes: read them before committing them.
"""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from inferometer.known import device
from inferometer.predict import placing
from inferometer.predict.ask import ask
from inferometer.predict.placing import _weights, can_i_run
from unit.predict.machines import priors_alone, stated, take_fits_away  # noqa: F401 - `priors_alone` is used by being here

TOLD = Path(__file__).parent / "placings_told.json"
FORMS = ("f16", "q5_k", "q2_k")
HOST = "amd-ryzen-9-9950x"


def card(name, gigabytes):
    row = device(name)
    return replace(row, memories=(replace(row.memories[0], usable_bytes=stated(gigabytes * 1e9)), *row.memories[1:]))


CASES = {
    "experts on the host": ("qwen3-30b-a3b", {"on": "nvidia-rtx-4060-ti", "host": HOST}),
    "layers of two kinds in turn": ("gpt-oss-20b", {"on": "nvidia-rtx-3060", "host": HOST}),
    "a first layer without experts, two cards": ("deepseek-v2-lite", {
        "on": ("nvidia-rtx-3060", card("nvidia-rtx-4060-ti", 5)), "host": HOST, "context": 300,
    }),
    "layers on the host": ("llama-3.1-70b", {"on": "nvidia-rtx-4090", "host": HOST, "context": 100}),
    "layers on two cards and the host": ("llama-3.1-70b", {
        "on": ("nvidia-rtx-3060", "nvidia-rtx-4090"), "host": HOST, "context": 20,
    }),
    "nothing on the card": ("qwen2-7b", {"on": card("nvidia-rtx-3060", 1), "host": HOST}),
    "next to nothing on two cards": ("deepseek-v2-lite", {
        "on": (card("nvidia-rtx-3060", 1), card("nvidia-rtx-3060", 1)), "host": HOST,
    }),
    "a host too small": ("llama-3.1-70b", {"on": ("nvidia-rtx-3060", "nvidia-rtx-3060"), "host": "raspberry-pi-5"}),
    "beyond the window": ("smollm2-135m", {"on": "raspberry-pi-5", "context": 10**7}),
    "an engine of other files": ("qwen2-7b", {"on": "nvidia-l4", "runtime": "vllm"}),
}  # fmt: skip


@pytest.fixture(autouse=True)
def few_forms(monkeypatch):
    monkeypatch.setattr(placing, "_GGUF", FORMS)


def answer(name):
    model, asked = CASES[name]
    plain = can_i_run(model, **asked).document()
    forms = {form.pop("weights"): [*map(rounded, form.values())] for form in plain.pop("forms")}
    return {**plain, "notes": [*plain["notes"]], "quality": plain["quality"] is not None, "forms": forms}


def rounded(value):
    return float(f"{value:.7g}") if isinstance(value, float) else value


@pytest.mark.parametrize("name", CASES)
def test_a_model_is_placed_as_it_was(name):
    assert answer(name) == json.loads(TOLD.read_text())[name]


@pytest.mark.parametrize("model", ["gpt-oss-20b", "gemma-3-27b", "deepseek-v3", "smollm2-135m"])
def test_the_weights_of_all_ops_are_those_of_the_model_however_many_stacks_its_layers_are_in(model):
    question = ask(model, on="nvidia-h200", runtime="llamacpp", weights="f16")
    assert _weights(question, lambda *_: True) == pytest.approx(question.fit().weights_bytes, rel=1e-9)


if __name__ == "__main__":
    take_fits_away()
    placing._GGUF = FORMS
    told = {name: answer(name) for name in CASES}
    TOLD.write_text("{\n" + ",\n".join(f" {json.dumps(k)}: {json.dumps(v)}" for k, v in told.items()) + "\n}\n")
