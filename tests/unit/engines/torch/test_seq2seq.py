"""Models with an encoder and a decoder: the tokens are transformers' own, however the passes are run."""

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed: PyTorch's sessions are not tested")
pytest.importorskip("transformers", reason="transformers is not installed: PyTorch's sessions are not tested")

import torch  # noqa: TID251 - the bare engine is what sessions are compared with

from inferometer.core.errors import DomainError, EngineError
from inferometer.engines.base import Request, Target
from inferometer.engines.torch import eager
from inferometer.engines.torch.forward import Static
from inferometer.engines.torch.seq2seq import Seq2Seq
from inferometer.engines.torch.session import Text
from unit.engines.torch.configs import SEQ2SEQ, written
from unit.engines.torch.test_capture import Replays
from unit.engines.torch.test_text import PROMPT, Engine, Place

pytestmark = pytest.mark.filterwarnings("ignore")  # the libraries' own remarks


@pytest.fixture
def opened(tmp_path):
    sessions = []

    def open_(kind, **changes):
        path = written(tmp_path / kind, SEQ2SEQ[kind])
        sessions.append(eager.open(Target(path=path, format="config", text=True, threads=1, unit="cpu", **changes)))
        model = sessions[-1]._host.module.model
        with torch.no_grad():  # wider than they are initialised: otherwise every step makes the same token
            for place, weight in enumerate(model.parameters()):
                if weight.dim() > 1:
                    weight.normal_(0.0, 1.0, generator=torch.Generator().manual_seed(place))
        return sessions[-1]

    yield open_
    for session in sessions:
        session.close()


def greedy(session, prompt, count):
    """A bare loop without a cache and without our encoder: transformers makes each token from all before it."""
    model, seq2seq = session._host.module.model, session._seq2seq
    source = {model.main_input_name: seq2seq.source(prompt)}
    ids, made = (
        torch.tensor([seq2seq.start if seq2seq.reads_prompt else prompt] * source[model.main_input_name].shape[0]),
        [],
    )
    with torch.inference_mode():
        for _ in range(count):
            last = model(**source, decoder_input_ids=ids, use_cache=False).logits[:, -1].argmax(-1, keepdim=True)
            made.append(tuple(last.flatten().tolist()))
            ids = torch.cat([ids, last], dim=1)
    return made


@pytest.mark.parametrize("kind", SEQ2SEQ)
@pytest.mark.parametrize("batch", [1, 2])
def test_it_encodes_once_and_makes_the_tokens_that_the_bare_model_makes(opened, kind, batch):
    session = opened(kind, batch=batch)
    for prompt in (PROMPT, PROMPT[:3]):
        events = list(session.generate(Request(prompt=prompt, generate=6)))
        assert [event.ids for event in events][1:] == greedy(session, prompt, 6)
        assert [event.kind for event in events] == ["encode", "prefill", *["token"] * 5]
        first = 1 if kind == "t5" else len(prompt)
        assert [event.context for event in events] == [0, 0, *range(first, first + 5)]
        assert events[1].tokens == first
        for event in events:
            assert sum(event.parts.values()) == pytest.approx((event.end_ns - event.start_ns) * 1e-9, rel=1e-6)
    assert len(set(greedy(session, PROMPT, 6))) > 1, "tokens that tell steps apart"


@pytest.mark.parametrize("kind", SEQ2SEQ)
@pytest.mark.parametrize("compiled", [False, True], ids=["captured", "compiled"])
def test_captured_and_compiled_passes_make_the_same_tokens(opened, monkeypatch, kind, compiled):
    """With a capture that replays by calling again, and a compiler that leaves functions as they are."""
    session, replays = opened(kind), Replays()
    host, expected = session._host, greedy(session, PROMPT, 6)
    real = host.torch, host.place
    host.torch, host.place, host.landing = Engine(), Place(), torch.zeros((1, 1), dtype=torch.long)
    host.wait = lambda: None
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor)
    seq2seq = Seq2Seq(host)
    with torch.inference_mode():
        forward = Static(host, compiled=compiled, capture=replays, seq2seq=seq2seq)
    text = Text(host, forward, seq2seq=seq2seq)
    for prompt in (PROMPT, PROMPT, PROMPT[:3]):
        events = list(text.generate(Request(prompt=prompt, generate=6)))
        assert [event.ids for event in events][1:] == (expected if prompt == PROMPT else greedy(session, prompt, 6))
        assert list(events[0].parts) == ["write", "launch", "run"]
    assert forward.captured
    assert {stage.name for stage in forward.stages} >= {"compile encode" if compiled else "capture encode"}
    host.torch, host.place = real


@pytest.mark.parametrize("kind", SEQ2SEQ)
def test_scores_are_the_bare_models(opened, kind):
    session = opened(kind, batch=2)
    model, seq2seq = session._host.module.model, session._seq2seq
    before = [event.ids for event in session.generate(Request(prompt=PROMPT, generate=4))]
    with torch.inference_mode():
        given = {model.main_input_name: seq2seq.source(PROMPT)[:1]}
        expected = model(**given, decoder_input_ids=torch.tensor([PROMPT])).logits[0]
    np.testing.assert_allclose(session.score(PROMPT), expected, rtol=1e-4, atol=1e-5)
    assert [event.ids for event in session.generate(Request(prompt=PROMPT, generate=4))] == before


def test_what_a_decoder_cannot_hold_is_refused(opened):
    with pytest.raises(DomainError, match="48"):
        next(opened("whisper").generate(Request(prompt=PROMPT, generate=60)))
    with pytest.raises(DomainError, match="outside the vocabulary"):
        next(opened("t5").generate(Request(prompt=(500,), generate=2)))
    with pytest.raises(DomainError, match="The prompt is empty"):
        next(opened("t5").generate(Request(prompt=(), generate=2)))


def test_another_kind_of_encoder_is_refused_in_a_sentence(opened):
    host = opened("t5")._host
    host.module.model.named_modules = lambda: iter(())
    with pytest.raises(EngineError, match="attends to its encoder in a way that is not known here"):
        Seq2Seq(host)
    del host.module.model.named_modules


@pytest.mark.parametrize("kind", SEQ2SEQ)
def test_kernels_of_every_phase_have_their_modules(opened, tmp_path, kind):
    path = written(tmp_path / "again", SEQ2SEQ[kind])
    session = eager.open(Target(path=path, format="config", text=True, threads=1, unit="cpu", instrument=True))
    list(session.generate(Request(prompt=PROMPT, generate=3)))
    kernels = session.kernels()
    assert set(kernels) == {"encode", "prefill", "decode"}
    for phase, part in (("encode", "encoder."), ("prefill", "decoder."), ("decode", "decoder.")):
        layers = {layer for kernel in kernels[phase] for layer in kernel.layers}
        assert any(part in layer for layer in layers), phase
    cross = [layer for kernel in kernels["decode"] for layer in kernel.layers if layer.endswith((".k_proj", ".k"))]
    assert not any("encoder_attn" in layer or "EncDec" in layer for layer in cross), "made once, by the encoder's pass"
    session.close()
