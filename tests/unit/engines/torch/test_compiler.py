"""Through the compiler: the same outputs, compile times apart, and fused kernels at the modules they came from."""

import shutil
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed: PyTorch's compiler is not tested")
pytest.importorskip("transformers", reason="transformers is not installed: PyTorch's compiler is not tested")

from inferometer.engines.base import Request, Target
from inferometer.engines.torch import compiled, eager
from unit.engines.torch.configs import TEXT, written

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # the libraries' own remarks
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed: torch.compile has no C++ compiler"),
]
PROMPT = (5, 17, 33, 2)
SMALL = {**TEXT["llama"], "num_hidden_layers": 1}


def test_a_compiled_language_model_makes_the_same_tokens_and_names_its_kernels(tmp_path):
    target = Target(path=written(tmp_path, SMALL), format="config", text=True, threads=1, unit="cpu", instrument=True)
    plain = eager.open(target)
    expected = [event.ids for event in plain.generate(Request(prompt=PROMPT, generate=6))]
    plain.close()
    session = compiled.open(target)
    assert [event.ids for event in session.generate(Request(prompt=PROMPT, generate=6))] == expected
    session.kernels()
    events = list(session.generate(Request(prompt=PROMPT, generate=6)))
    assert [event.ids for event in events] == expected
    assert {"compile decode", "compile prefill"} <= {stage.name for stage in session.opened.stages}
    found = session.kernels()
    names = {name for name, _ in session._host.module.model.named_modules()}
    for phase, steps in (("prefill", events[:1]), ("decode", events[1:])):
        kernels = found[phase]
        layers = {layer for kernel in kernels for layer in kernel.layers}
        assert layers <= names
        assert {"model.layers.0.self_attn", "model.layers.0.mlp.up_proj", "model.norm", "lm_head"} <= layers
        assert any(kernel.kind.startswith("cpp_fused") and kernel.layers for kernel in kernels)
        for index, event in enumerate(steps):
            total = sum(kernel.samples_s[index] for kernel in kernels)
            assert total == pytest.approx((event.end_ns - event.start_ns) * 1e-9, rel=0.05)
    assert not any("could not be traced" in note for note in session.opened.notes)
    assert session.cost_per_kernel_s >= 0
    session.close()


ENCODER = {
    "model_type": "bert", "architectures": ["BertModel"], "hidden_size": 32, "intermediate_size": 48,
    "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 60, "max_position_embeddings": 32,
}  # fmt: skip


def test_a_second_run_compiles_nothing_gives_the_same_and_knows_its_layers(tmp_path):
    """A plain session comes first, as in a profile: its kernels have no timers, and must not be run again."""
    target = Target(path=written(tmp_path, ENCODER), format="config", threads=1, unit="cpu")
    layers, notes, outputs = [], [], []
    for runtime, instrument in ((eager, False), (compiled, False), (compiled, True), (compiled, True)):
        session = runtime.open(replace(target, instrument=instrument))
        session.feed({"input_ids": np.arange(12).reshape(2, 6)})
        session.step()
        outputs.append(session.outputs()["last_hidden_state"])
        if runtime is eager:
            assert "compile" not in {stage.name for stage in session.opened.stages}
            session.close()
            continue
        assert "compile" in {stage.name for stage in session.opened.stages}
        layers.append([kernel.layers for kernel in session.kernels().get("forward", ())])
        notes.append(" ".join(session.opened.notes))
        session.close()
    assert any("encoder.layer.0.output.dense" in kernel for kernel in layers[1])
    assert layers[1] == layers[2]
    assert "Nothing was compiled" not in notes[1]
    assert "Nothing was compiled: 1 graph came from an earlier run" in notes[2]
    for other in outputs[1:]:
        np.testing.assert_allclose(outputs[0], other, rtol=1e-3, atol=1e-4)
