"""The server's stream as events: chunks recorded from xllamacpp 2026.10.11549."""

import pytest

from inferometer.core.errors import EngineError
from inferometer.engines.llamacpp.session import StreamedChunk, events_of, read_chunk


def document(text, made, made_ms, **more):
    timings = {"cache_n": 0, "prompt_n": 64, "prompt_ms": 751.092, "predicted_n": made, "predicted_ms": made_ms, **more}
    return {"choices": [{"text": text, "index": 0, "finish_reason": None}], "timings": timings}


RECORDED = [
    (756_749_908, document("�", 1, 0.001)),
    (785_762_468, document("׃", 3, 33.607)),
    (855_183_792, document("ע", 5, 103.021)),
    (917_323_702, document("כ", 7, 165.144)),
    (931_760_242, document("", 8, 179.6)),
]


def events(recorded, **more):
    chunks = [read_chunk(each, at) for at, each in recorded]
    return list(events_of(chunks, **{"start_ns": 0, "prompt": 64, "depth": 0, **more}))


def test_a_chunk_may_hold_several_tokens_and_the_last_none_of_the_text():
    found = events(RECORDED)
    assert [event.kind for event in found] == ["prefill", "token", "token", "token", "token"]
    assert [event.tokens for event in found] == [64, 2, 2, 2, 1]
    assert [event.context for event in found] == [0, 64, 66, 68, 70]
    assert found[1].end_ns - found[1].start_ns == 785_762_468 - 756_749_908
    assert found[0].parts["run"] == pytest.approx(0.751092)
    assert found[2].parts["run"] == pytest.approx(0.069414)


def test_the_engines_time_is_never_more_than_ours():
    for event in events(RECORDED):
        assert event.parts["run"] <= (event.end_ns - event.start_ns) * 1e-9


def test_a_last_chunk_without_new_tokens_is_no_step():
    assert len(events([*RECORDED, (940_000_000, document("", 8, 179.6))])) == 5


def test_tokens_that_lay_in_the_cache_are_not_the_prompts():
    recorded = [(at, document(each["choices"][0]["text"], n, 1.0, cache_n=60, prompt_n=4))
                for n, (at, each) in enumerate(RECORDED[:2], 1)]  # fmt: skip
    assert [event.context for event in events(recorded, prompt=4, depth=60)] == [60, 64]


def test_a_cache_that_was_not_kept_is_an_error():
    with pytest.raises(EngineError, match="read 64 with 0"):
        events(RECORDED, prompt=4, depth=60)


def test_an_error_of_the_server_is_its_words():
    chunk = read_chunk({"error": {"code": 400, "message": '"prompt" must not be empty'}}, 5)
    assert chunk == StreamedChunk(at_ns=5, error='"prompt" must not be empty')
