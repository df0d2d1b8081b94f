"""Language models in the engine itself: the tokens are transformers' own, the events and kernels close."""

from importlib import import_module

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed: PyTorch's sessions are not tested")
pytest.importorskip("transformers", reason="transformers is not installed: PyTorch's sessions are not tested")

import torch  # noqa: TID251 - the bare engine is what sessions are compared with

from inferometer.core.errors import DomainError, EngineError, FormatError
from inferometer.engines.base import Request, Target
from inferometer.engines.torch import eager
from inferometer.engines.torch.engine import TorchDevice
from inferometer.engines.torch.forward import Eager, Static
from inferometer.engines.torch.modules import _restore_rotary, scan_notes
from unit.engines.torch.configs import ARRAYS, RECURRENT, TEXT, written

pytestmark = pytest.mark.filterwarnings("ignore")  # the libraries' own remarks

PROMPT = (5, 17, 33, 2, 90)


@pytest.fixture
def opened(tmp_path):
    sessions = []

    def open_(kind="llama", **changes):
        path = written(tmp_path / kind, TEXT[kind])
        sessions.append(eager.open(Target(path=path, format="config", text=True, threads=1, unit="cpu", **changes)))
        return sessions[-1]

    yield open_
    for session in sessions:
        session.close()


def model_of(session):
    return session._host.module.model


def greedy(model, prompt, count):
    """A bare loop without a cache: each token from everything before it."""
    ids, made = torch.tensor([prompt]), []
    with torch.inference_mode():
        for _ in range(count):
            logits = model(input_ids=ids, use_cache=False).logits
            made.append(int(logits[0, -1].argmax()))
            ids = torch.cat([ids, torch.tensor([[made[-1]]])], dim=1)
    return made


@pytest.mark.parametrize("kind", TEXT)
def test_it_makes_the_tokens_that_the_bare_model_makes(opened, kind):
    session = opened(kind)
    events = list(session.generate(Request(prompt=PROMPT, generate=12)))
    made = [each for event in events for each in event.ids]
    assert made == greedy(model_of(session), PROMPT, 12)
    assert [event.tokens for event in events] == [5, *[1] * 11]
    assert [event.context for event in events] == [0, *range(5, 16)]


@pytest.mark.parametrize("kind", TEXT)
def test_random_weights_run_as_a_model_that_was_built_with_memory(opened, kind):
    """What is no weight and is not stored (rotary frequencies, scales) is as the library computes it."""
    session = opened(kind)
    model = model_of(session)
    built = type(model)(model.config).eval()
    built.load_state_dict(model.state_dict())
    ids = torch.tensor([PROMPT])
    with torch.inference_mode():
        expected = built(input_ids=ids).logits[0].numpy()
    np.testing.assert_allclose(session.score(PROMPT), expected, rtol=1e-4, atol=1e-5)
    assert np.abs(expected).max() > 0


def test_the_same_seed_gives_the_same_weights(opened):
    first, second, other = opened(), opened(), opened(seed=1)
    np.testing.assert_array_equal(first.score(PROMPT), second.score(PROMPT))
    assert not np.array_equal(first.score(PROMPT), other.score(PROMPT))


def test_opening_draws_nothing_from_the_processs_own_random_numbers(opened):
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    opened()
    assert torch.equal(torch.rand(2), expected)


def test_the_parts_of_an_event_fill_it(opened):
    session = opened()
    for event in session.generate(Request(prompt=PROMPT, generate=4)):
        whole = (event.end_ns - event.start_ns) * 1e-9
        assert sum(event.parts.values()) == pytest.approx(whole, rel=1e-6)
        assert {"run", "sample", "read"} <= set(event.parts)
        assert "device" not in event.parts


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_a_bare_loop_runs_its_passes_and_nothing_between_them(opened, kind):
    session, calls = opened(kind), []
    model_of(session).register_forward_pre_hook(
        lambda _module, _given, named: calls.append(named["input_ids"].shape[1]), with_kwargs=True
    )
    prompt, steps = session.generate(Request(prompt=PROMPT, generate=6, depth=3, bare=True))
    assert calls == [3, 5, 1, 1, 1, 1, 1]
    assert (prompt.kind, prompt.tokens, prompt.context, prompt.ids) == ("prefill", 5, 3, ())
    assert (steps.kind, steps.tokens, steps.context, steps.ids) == ("token", 5, 8, ())
    assert prompt.parts.keys() == steps.parts.keys() == {"run"}
    assert [event.kind for event in session.generate(Request(prompt=PROMPT, generate=1, bare=True))] == ["prefill"]


def test_a_batch_makes_a_token_for_each_sequence(opened):
    events = list(opened(batch=3).generate(Request(prompt=PROMPT, generate=3)))
    assert [event.tokens for event in events] == [5, 1, 1]  # of each sequence: a step's time is one token's
    assert [event.context for event in events] == [0, 5, 6]
    alone = opened().generate(Request(prompt=PROMPT, generate=3))
    assert [(len(event.ids), event.ids[0]) for event in events] == [(3, *event.ids) for event in alone]


def test_sequences_of_a_batch_read_tokens_of_their_own(opened):
    session, read = opened(batch=7), []
    model_of(session).register_forward_pre_hook(
        lambda _module, _given, named: read.append(named["input_ids"].tolist()), with_kwargs=True
    )
    list(session.generate(Request(prompt=PROMPT, generate=1)))
    assert len({tuple(row) for row in read[0]}) == len(PROMPT) == 5
    assert all(sorted(row) == sorted(PROMPT) for row in read[0])


def test_tokens_of_a_mixture_with_random_weights_choose_among_all_experts(tmp_path):
    """Of 16 experts 96 tokens choose two each: evenly all of them, where they stay apart."""
    config = {
        "model_type": "olmoe", "architectures": ["OlmoeForCausalLM"], "num_hidden_layers": 6, "hidden_size": 64,
        "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 160,
        "max_position_embeddings": 128, "num_experts": 16, "num_experts_per_tok": 2, "pad_token_id": 0,
    }  # fmt: skip
    session, chosen = eager.open(Target(path=written(tmp_path, config), format="config", text=True, unit="cpu")), []
    for name, module in model_of(session).named_modules():
        if name.endswith("mlp.gate"):
            module.register_forward_hook(lambda _module, _given, made: chosen.append(set(made[-1].flatten().tolist())))
    list(session.generate(Request(prompt=tuple(range(20, 116)), generate=1)))
    session.close()
    assert [len(experts) for experts in chosen] == [16] * 6


def test_depth_lies_in_the_cache_and_is_no_event(opened):
    session = opened()
    events = list(session.generate(Request(prompt=PROMPT, generate=3, depth=20)))
    assert [event.context for event in events] == [20, 25, 26]
    assert session._forward._cache.get_seq_length() == 27


def test_a_generation_ends_at_the_end_of_text_where_it_is_asked_to(opened, monkeypatch):
    session = opened()
    made = [event.ids[0] for event in session.generate(Request(prompt=PROMPT, generate=6))]
    session._config.eos_token_id = made[2]
    settled = []
    monkeypatch.setattr(session._forward, "settled", lambda: settled.append(True))
    ended = [event.ids[0] for event in session.generate(Request(prompt=PROMPT, generate=6, ignore_end=False))]
    assert settled  # what was compiled meanwhile is noted, however the generation ends
    assert ended == made[: made.index(made[2]) + 1]


def test_a_table_of_positions_ends(opened):
    session = opened("gpt2")
    with pytest.raises(DomainError, match="the context holds 64"):
        session.generate(Request(prompt=PROMPT, generate=60))


def test_the_kernels_of_a_step_add_up_to_it(opened):
    """Where something else takes a moment between them, one of the other steps has none."""
    session, shares = opened(instrument=True), {"prefill": [], "decode": []}
    for _ in range(6):
        events = list(session.generate(Request(prompt=PROMPT, generate=4)))
        found = session.kernels()
        for phase, timed in (("prefill", events[:1]), ("decode", events[1:])):
            for index, event in enumerate(timed):
                total = sum(kernel.samples_s[index] for kernel in found[phase])
                shares[phase].append(total / ((event.end_ns - event.start_ns) * 1e-9))
    for of_phase in shares.values():
        assert 0.95 < max(of_phase) < 1.05


def test_kernels_are_at_the_modules_that_called_them(opened):
    session = opened(instrument=True)
    list(session.generate(Request(prompt=PROMPT, generate=3)))
    decode = session.kernels()["decode"]
    by_layer = {kernel.layers: kernel for kernel in decode if kernel.kind == "aten::mm"}
    for layer in range(2):
        for part in ("self_attn.q_proj", "self_attn.o_proj", "mlp.down_proj"):
            assert (f"model.layers.{layer}.{part}",) in by_layer
    assert by_layer["model.layers.1.mlp.down_proj",].shapes == ((1, 96), (96, 64))
    assert by_layer["model.layers.1.mlp.down_proj",].dtype == "f32"
    attention = [kernel.layers for kernel in decode if "scaled_dot_product" in kernel.kind]
    assert attention == [("model.layers.0.self_attn",), ("model.layers.1.self_attn",)]
    order = [kernel.layers[0] for kernel in decode if kernel.kind == "aten::mm"]
    assert order[0] == "model.layers.0.self_attn.q_proj"
    assert order[-1] == "lm_head"
    assert session.cost_per_kernel_s >= 0


def test_measuring_the_cost_loses_no_step(opened):
    session = opened(instrument=True)
    list(session.generate(Request(prompt=PROMPT, generate=3)))
    assert session.cost_per_kernel_s >= 0
    assert {len(kernel.samples_s) for kernel in session.kernels()["decode"]} == {2}


def test_hooks_are_gone_when_it_is_closed(opened):
    session = opened(instrument=True)
    model = model_of(session)
    assert any(module._forward_hooks for module in model.modules())
    session.close()
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_real_weights_are_loaded(opened, tmp_path):
    source = opened()
    model_of(source).save_pretrained(tmp_path / "saved")
    session = eager.open(Target(path=tmp_path / "saved", format="safetensors", text=True, threads=1, unit="cpu"))
    np.testing.assert_allclose(session.score(PROMPT), source.score(PROMPT), rtol=1e-5, atol=1e-6)
    assert not any("andom" in note for note in session.opened.notes)
    session.close()


def test_weights_that_are_missing_are_an_error_that_says_so(tmp_path):
    path = written(tmp_path / "empty", TEXT["llama"])
    with pytest.raises(EngineError, match="safetensors"):
        eager.open(Target(path=path.parent, format="safetensors", text=True))


@pytest.mark.parametrize("kind", RECURRENT)
def test_a_profile_says_whose_code_ran_recurrent_layers(tmp_path, monkeypatch, kind):
    path = written(tmp_path, RECURRENT[kind])
    session = eager.open(Target(path=path, format="config", text=True, threads=1, unit="cpu"))
    (note,) = [note for note in session.opened.notes if "recurrent layers" in note]
    assert "ran transformers' own code, op by op: kernels of mamba-ssm" in note
    of_gpu = (type(model_of(session)), TorchDevice(unit="gpu", device="cuda:0"))
    for spec, words in (
        (None, "much slower; not installed: mamba-ssm, causal-conv1d."),
        (1, "ran kernels of mamba-ssm"),
    ):
        monkeypatch.setattr("inferometer.engines.torch.modules.find_spec", lambda _name, spec=spec: spec)
        assert words in next(scan_notes(*of_gpu))
    assert [event.kind for event in session.generate(Request(prompt=PROMPT, generate=3))] == [
        "prefill",
        "token",
        "token",
    ]
    session.close()
    assert not list(scan_notes(torch.nn.Linear, of_gpu[1])), "a model without them says nothing"


def test_a_model_that_reads_pictures_beside_its_prompt_is_refused_in_a_sentence(tmp_path):
    config = {"model_type": "llava", "architectures": ["LlavaForConditionalGeneration"]}
    with pytest.raises(EngineError, match="LlavaForConditionalGeneration reads pictures beside its prompt"):
        eager.open(Target(path=written(tmp_path, config), format="config", text=True, unit="cpu"))


def test_an_encoder_does_not_generate(tmp_path):
    path = written(tmp_path / "bert", ARRAYS["bert"])
    with pytest.raises(EngineError, match="BertModel cannot be opened as a language model"):
        eager.open(Target(path=path, format="config", text=True))


def test_a_type_that_is_not_known_is_refused_with_what_is(tmp_path):
    path = written(tmp_path, {"model_type": "perceptron-9000"})
    with pytest.raises(EngineError, match=r"'perceptron-9000'.*llama"):
        eager.open(Target(path=path, format="config", text=True))


def test_values_that_do_not_fit_are_said(tmp_path):
    path = written(tmp_path, {**TEXT["llama"], "hidden_size": "wide"})
    with pytest.raises((EngineError, FormatError), match="config"):
        eager.open(Target(path=path, format="config", text=True))


def test_rotary_frequencies_that_were_left_empty_are_computed(opened):
    model = model_of(opened())
    expected = model.model.rotary_emb.inv_freq.clone()
    model.model.rotary_emb.inv_freq.zero_()
    _restore_rotary(model, model.config, "cpu")
    assert torch.equal(model.model.rotary_emb.inv_freq, expected)
    assert expected.any()


def test_there_is_no_tokeniser_in_a_config(opened):
    with pytest.raises(DomainError, match="without a tokeniser"):
        opened().tokenise("hello")


class Graph:
    """A CUDA graph without CUDA: replays by calling again, on the tensors of the capture."""

    def __init__(self):
        self.calls = []

    def replay(self):
        for function, arguments in self.calls:
            function(*arguments)


class Cuda:
    """What of torch.cuda the capture uses. Everything happens at once, so streams and waits do nothing."""

    CUDAGraph = Graph

    def __init__(self):
        self.capturing = None

    def __getattr__(self, name):
        return lambda *_, **__: self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.capturing = None

    def graph(self, graph, **_):
        self.capturing = graph
        return self


class Engine:
    """Torch with that in place of its CUDA, and a compiler that leaves functions as they are."""

    def __init__(self):
        self.cuda = Cuda()

    def __getattr__(self, name):
        return getattr(torch, name)

    def compile(self, function, **_):
        def run(*arguments, **named):
            out = function(*arguments, **named)
            if self.cuda.capturing is not None:
                self.cuda.capturing.calls.append((function, arguments))
            return out

        return run


class Place:
    unit, device, kind, cuda = "gpu", "cpu", "gpu", True


def stepped(forward, prompt, count, before=()):
    """Tokens as a session has them, without its clocks."""
    with torch.inference_mode():
        forward.prepare(prompt=len(prompt), depth=len(before), needed=len(before) + len(prompt) + count)
        forward.reset()
        if before:
            forward.fill(torch.tensor([before]))
        last = likeliest(forward, forward.read(torch.tensor([prompt])))
        made = [int(last)]
        for _ in range(count - 1):
            last = likeliest(forward, forward.token(last))
            made.append(int(last))
    if forward.samples:  # tokens of random weights hardly tell where they stand
        assert int(forward._position) == len(before) + len(prompt) + count - 1
    return made


def likeliest(forward, out):
    return out if forward.samples else out.argmax(-1, keepdim=True)


def test_a_prompt_on_which_the_compiler_fails_is_compiled_without_what_fails(opened):
    host = opened("llama")._host
    expected = stepped(Eager(host.module), PROMPT, 4)

    class Failing(Engine):
        def compile(self, function, **given):
            run = super().compile(function, **given)

            def once(*arguments):
                if len(arguments) == 1 and import_module("torch._inductor.config").loop_ordering_after_fusion:
                    raise import_module("torch._inductor.exc").InductorError(AssertionError(), None)
                return run(*arguments)

            return once

    host.torch, host.place = Failing(), Place()
    with torch.inference_mode():
        forward = Static(host, compiled=True)
        forward.prepare(prompt=len(PROMPT), depth=0, needed=len(PROMPT) + 4)
    assert "without reordered loops" in " ".join(forward.notes)
    with import_module("torch._inductor.config").patch(loop_ordering_after_fusion=False):
        assert stepped(forward, PROMPT, 4) == expected


@pytest.mark.parametrize("kind", ["llama", "qwen2", "gpt2", "gemma3_text"])
def test_a_captured_step_with_a_fixed_cache_makes_the_same_tokens(opened, kind):
    host = opened(kind)._host
    expected = stepped(Eager(host.module), PROMPT, 12)
    host.torch, host.place = Engine(), Place()
    with torch.inference_mode():
        forward = Static(host, compiled=True)
    assert stepped(forward, PROMPT, 12) == expected
    assert stepped(forward, PROMPT, 12) == expected  # the cache is empty again
    assert forward.captured
    assert stepped(forward, PROMPT[:3], 5) == stepped(Eager(host.module), PROMPT[:3], 5)
    deep = stepped(forward, PROMPT, 4, before=(7, 8, 9, 10))
    assert deep == stepped(Eager(host.module), PROMPT, 4, before=(7, 8, 9, 10))
    assert {stage.name for stage in forward.stages} >= {"compile decode", "compile prefill"}
    host.torch, host.place = torch, type("Cpu", (Place,), {"cuda": False})()
