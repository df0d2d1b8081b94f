"""Forms of traces: what is read of each, and what waits for what."""

import json
import math
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from inferometer.core.errors import DomainError, FormatError, MissingDependencyError
from inferometer.core.traffic.arrivals import Arrivals
from inferometer.core.traffic.demand import Agents, made_up, trace_demand
from inferometer.core.traffic.lengths import Lengths
from inferometer.core.traffic.traces import part_of, read_trace, repeated_tokens, scaled, trace_document, written_trace


def read(tmp_path, *entries, whole=False):
    path = tmp_path / "trace"
    path.write_text(json.dumps(entries) if whole else "\n".join(map(json.dumps, entries)))
    return read_trace(path)


def rows(trace):
    """(session, turn, at_s, after, wait_s, prompt, answer) of each request."""
    return [
        (int(trace.session[at]), int(trace.turn[at]),
         None if math.isnan(trace.arrival_s[at]) else round(float(trace.arrival_s[at]), 6),
         trace.after[at] if trace.after else (), round(float(trace.wait_s[at]), 6) if trace.after else 0.0,
         int(trace.input_tokens[at]), int(trace.output_tokens[at]))
        for at in range(len(trace))
    ]  # fmt: skip


def ours(session, turn=0, tokens=10, out=2, **more):
    return {"session": session, "turn": turn, "input_tokens": tokens, "output_tokens": out, **more}


def test_a_turn_waits_for_the_turn_before_it_and_a_session_for_none(tmp_path):
    trace = read(tmp_path, ours("b", at_s=5), ours("a", at_s=3), ours("a", 1, 15, wait_s=2), ours("a", 2, 20, at_s=9))
    assert trace.form == "ours"
    assert rows(trace) == [
        (0, 0, 0.0, (), 0.0, 10, 2), (0, 1, None, (0,), 2.0, 15, 2), (1, 0, 2.0, (), 0.0, 10, 2),
        (0, 2, 6.0, (1,), 0.0, 20, 2),
    ]  # fmt: skip


@pytest.mark.parametrize("names", [["a/0", "h"], ["a:0", "h/1"], ["a", "job"]])
def test_agents_fork_and_join(tmp_path, names):
    """A request waits for those that it names: SESSION/TURN, a session for its last turn, or an id."""
    trace = read(
        tmp_path, ours("a", at_s=0), ours("h", 0, after=["a/0"]), ours("h", 1, id="job"),
        ours("a", 1, 30, after=names, wait_s=1),
    )  # fmt: skip
    assert [row[3] for row in rows(trace)] == [(), (0,), (1,), (0, 2)]


@pytest.mark.parametrize(
    ("entries", "why"),
    [
        ((ours("a", after=["b"]),), "waits for 'b', which is not there"),
        ((ours("a", after=["b"]), ours("b", after=["a"])), "waits for itself"),
        ((ours("a"), ours("a")), "twice"),
        ((ours("a", at_s="soon"),), "entry 1"),
        (({"session": 1, "output_tokens": 3},), "input_tokens"),
        ((ours("a", tokens=0),), "no request with tokens"),
        (({"messages": [{"role": "user", "content": "hi"}]},), "how long its answer is"),
        (({"something": 1},), "its first entry has something"),
        (([7],), "no request"),
    ],
)
def test_what_cannot_be_played_is_refused_with_its_reason(tmp_path, entries, why):
    with pytest.raises(FormatError, match=why):
        read(tmp_path, *entries)


TALK = [{"role": "user", "content": "a" * 40}, {"role": "assistant", "content": "b" * 20}]


@pytest.mark.parametrize(
    ("entries", "whole", "form", "expected"),
    [
        ([{"session_id": "s", "timestamp": 500, "input_length": 9, "output_length": 4, "hash_ids": [1]},
          {"session_id": "s", "delay": 250, "input_length": 20, "output_length": 5, "hash_ids": [1, 2]}], False,
         "Mooncake", [(0, 0, 0.0, (), 0.0, 9, 4), (0, 1, None, (0,), 0.25, 20, 5)]),
        ([{"chat_id": 7, "parent_chat_id": -1, "timestamp": 1.5, "input_length": 9, "output_length": 4, "turn": 1},
          {"chat_id": 8, "parent_chat_id": 7, "timestamp": 3.5, "input_length": 20, "output_length": 5, "turn": 2}],
         False, "Alibaba", [(0, 0, 0.0, (), 0.0, 9, 4), (1, 0, 2.0, (0,), 0.0, 20, 5)]),
        ([{"session_id": "s", "turns": [{"text": "a" * 40, "max_tokens": 3},
                                        {"text": "b" * 8, "delay": 1500, "max_tokens": 4}]}], False,
         "AIPerf sessions", [(0, 0, None, (), 0.0, 10, 3), (0, 1, None, (0,), 1.5, 12, 4)]),
        ([{"id": "s", "block_size": 64, "requests": [
            {"t": 1.0, "type": "n", "in": 100, "out": 5, "hash_ids": [1], "api_time": 2.0},
            {"t": 3.5, "type": "subagent", "requests": [{"t": 3.5, "type": "n", "in": 50, "out": 6}]},
            {"t": 9.0, "type": "s", "in": 130, "out": 7, "hash_ids": [1, 2], "think_time": 0.5}]}], False,
         "Weka", [(0, 0, 0.0, (), 0.0, 100, 5), (1, 0, None, (0,), 0.0, 50, 6), (0, 1, None, (0, 1), 0.5, 130, 7)]),
        ([{"conversations": [{"from": "human", "value": "a" * 40}, {"from": "gpt", "value": "b" * 20},
                             {"from": "human", "value": "c" * 4}, {"from": "gpt", "value": "d" * 8}]}], True,
         "ShareGPT", [(0, 0, None, (), 0.0, 10, 5), (0, 1, None, (0,), 0.0, 16, 2)]),
        ([{"messages": TALK}, {"messages": TALK[:1], "max_tokens": 9}], False,
         "messages", [(0, 0, None, (), 0.0, 10, 5), (1, 0, None, (), 0.0, 10, 9)]),
        ([{"custom_id": "x", "body": {"messages": TALK[:1], "max_tokens": 9}}], False,
         "prompts", [(0, 0, None, (), 0.0, 10, 9)]),
        ([{"prompt": "a" * 40, "output_tokens": 9}], False, "prompts", [(0, 0, None, (), 0.0, 10, 9)]),
    ],
)  # fmt: skip
def test_each_tool_s_form_becomes_the_same_requests(tmp_path, entries, whole, form, expected):
    trace = read(tmp_path, *entries, whole=whole)
    assert (trace.form, rows(trace)) == (form, expected)
    path = tmp_path / "ours.jsonl"
    path.write_text("\n".join(written_trace(trace)))
    again = read_trace(path)
    assert rows(again) == rows(trace)
    assert again.messages == trace.messages
    assert repeated_tokens(again) == repeated_tokens(trace)


def called(start, end):
    used = [{"key": f"gen_ai.usage.{side}_tokens", "value": {"intValue": "5"}} for side in ("input", "output")]
    return {"traceId": f"t{start}", "attributes": used,
            "startTimeUnixNano": str(start * 10**9), "endTimeUnixNano": str(end * 10**9)}  # fmt: skip


SIZES, TEXT = {"input_length": 9, "output_length": 4}, {"max_tokens": 3}


@pytest.mark.parametrize(
    ("entries", "form", "estimated"),
    [
        ([ours("a", at_s=1.5), ours("b", at_s=4.0)], "ours", False),
        ([{"timestamp": 500, **SIZES}, {"timestamp": 3000, **SIZES}], "Mooncake", False),
        ([{"chat_id": at, "parent_chat_id": -1, "timestamp": at, **SIZES} for at in (7, 9.5)], "Alibaba", False),
        ([{"turns": [{"text": "a", "timestamp": at, **TEXT}]} for at in (100, 2600)], "AIPerf sessions", True),
        ([{"id": f"{at}", "block_size": 64, "requests": [{"t": at, "type": "n", "in": 9, "out": 5}]}
          for at in (1, 3.5)], "Weka", False),
        ([{"spans": [called(1, 2)]}, {"spans": [called(3, 4)]}], "OpenTelemetry", False),
        ([{"prompt": "a", "timestamp": at, **TEXT} for at in (1000, 3500)], "prompts", True),
        ([{"messages": TALK}], "messages", True),
        ([{"conversations": TALK}], "ShareGPT", True),
    ],
)  # fmt: skip
def test_each_form_has_its_own_clock_and_says_whether_letters_stand_for_tokens(tmp_path, entries, form, estimated):
    """Seconds, thousandths or billionths of them: the second request comes 2.5 s (here once 2 s) after the first."""
    trace = read(tmp_path, *entries)
    assert (trace.form, trace.estimated) == (form, estimated)
    times = {"OpenTelemetry": [0.0, 2.0], "messages": None, "ShareGPT": None}.get(form, [0.0, 2.5])
    assert (trace.arrival_s.tolist() if trace.is_timed else None) == times


def test_a_pause_that_is_not_told_is_from_the_answer_to_the_next_call_and_never_less_than_nothing(tmp_path):
    """What was answered at 3 s is followed at 9 s, 6 s later; what was asked at 8 s came before that."""
    calls = [{"t": 1.0, "type": "n", "in": 9, "out": 5, "api_time": 2.0}, {"t": 9.0, "type": "n", "in": 20, "out": 5},
             {"t": 8.0, "type": "n", "in": 30, "out": 5}]  # fmt: skip
    trace = read(tmp_path, {"id": "s", "block_size": 64, "requests": calls})
    assert [row[4] for row in rows(trace)] == [0.0, 6.0, 0.0]


def test_what_was_said_stays_readable_in_a_written_trace(tmp_path):
    said = "ἀρχή, 始まり"
    (line,) = written_trace(read(tmp_path, {"messages": [{"role": "user", "content": said}], "max_tokens": 3}))
    assert said in line


def test_calls_that_opentelemetry_saw_wait_for_the_one_that_had_ended(tmp_path):
    def span(start, end, tokens):
        used = [{"key": "gen_ai.usage.input_tokens", "value": {"intValue": str(tokens)}},
                {"key": "gen_ai.usage.output_tokens", "value": {"intValue": "5"}}]  # fmt: skip
        times = {"startTimeUnixNano": str(int(start * 1e9)), "endTimeUnixNano": str(int(end * 1e9))}
        return {"traceId": "t", "attributes": used if tokens else [], **times}

    spans = [span(10, 12, 100), span(12.5, 14, 0), span(13, 15, 50), span(14, 15.5, 60), span(16, 17, 200)]
    trace = read(tmp_path, {"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]})
    assert rows(trace) == [
        (0, 0, 0.0, (), 0.0, 100, 5), (0, 1, None, (0,), 1.0, 50, 5), (0, 2, None, (0,), 2.0, 60, 5),
        (0, 3, None, (2,), 0.5, 200, 5),
    ]  # fmt: skip


def test_texts_that_begin_alike_share_what_was_said(tmp_path):
    trace = read(tmp_path, *({"messages": [{"role": "system", "content": "s" * 80}, *TALK]} for _ in range(2)))
    one, other = trace.pieces
    assert one == other  # the same begin, and the same question
    assert repeated_tokens(trace) == 30
    assert trace.estimated


@pytest.mark.parametrize(
    ("prompts", "repeated"), [((10, 12, 14), 0), ((10, 12, 15), 14), ((10, 13, 15), 12), ((10, 13, 16), 12 + 15)]
)
def test_a_turn_repeats_what_was_asked_and_answered_before_it_where_it_is_longer_than_both(prompts, repeated, tmp_path):
    """Answers have two tokens: a turn of 12 after one of 10 has nothing of its own, and is another talk."""
    trace = read(tmp_path, *(ours("a", turn, tokens) for turn, tokens in enumerate(prompts)))
    assert repeated_tokens(trace) == repeated
    told = trace_document(trace)
    assert told["repeated_share"] == pytest.approx(repeated / sum(prompts))
    assert (told["seconds"], told["requests_per_s"]) == (None, None)  # it has no times


def test_a_prompt_goes_on_from_the_turn_before_where_it_is_long_enough(tmp_path):
    trace = read(tmp_path, ours("a", 0, 10, 5, at_s=0), ours("a", 1, 18, 5), ours("a", 2, 18, 5))
    demand = trace_demand(trace)
    assert demand.continues.tolist() == [-1, 0, -1]  # the third is shorter than what was said: it begins anew
    assert demand.input_tokens.tolist() == [10, 3, 18]
    assert demand.prompt_tokens().tolist() == [10, 18, 18]


def test_a_part_keeps_what_waits_with_what_it_waits_for(tmp_path):
    trace = read(tmp_path, ours("a", at_s=0), ours("a", 1, wait_s=4), ours("b", at_s=10), ours("b", 1, wait_s=6))
    late = part_of(trace, start_s=5, speed=2)
    assert rows(late) == [(1, 0, 2.5, (), 0.0, 10, 2), (1, 1, None, (0,), 3.0, 10, 2)]
    assert [row[3] for row in rows(part_of(trace, count=3))] == [(), (0,), ()]


def test_half_of_the_load_is_half_of_the_sessions_and_twice_of_it_comes_twice_as_fast():
    trace = made_up(Agents(sessions=200, rate_per_s=1.0, seed=3))
    half, double = scaled(trace, 0.5), scaled(trace, 2.0)
    assert half.first_turns == pytest.approx(100, abs=2)
    assert half.seconds == pytest.approx(trace.seconds, rel=0.1)
    assert (len(double), double.seconds) == (len(trace), pytest.approx(trace.seconds / 2))
    assert double.wait_s is trace.wait_s


def test_sessions_without_times_come_at_a_rate_or_take_places(tmp_path):
    trace = read(tmp_path, {"messages": TALK}, {"messages": TALK})
    assert not trace.is_timed
    steady = Arrivals(rate_per_s=2.0, process="constant")
    assert trace_demand(trace, arrivals=steady).due_s.tolist() == [0.0, 0.5]
    assert not trace_demand(trace, timed=False).is_open


def test_made_up_agents_share_their_begin_wait_for_tools_and_join_their_helpers():
    agents = Agents(
        sessions=30, calls=Lengths(kind="fixed", mean=9), delegated=0.3, tool_s=Lengths(kind="fixed", mean=4), seed=2
    )
    trace = made_up(agents)
    assert trace.first_turns == 30
    assert len({pieces[0] for pieces in trace.pieces}) == 1  # what all begin with
    joins = [before for before in trace.after if len(before) == 3]
    assert joins
    assert len(trace) == 30 * 9 + 2 * 3 * len(joins)  # two helpers with a third of the calls
    sums = [sum(size for _, size in pieces) for pieces in trace.pieces]
    assert sums == trace.input_tokens.tolist()
    assert set(trace.wait_s.tolist()) == {0.0, 4.0}
    assert np.isnan(trace.arrival_s).tolist() == [bool(before) for before in trace.after]  # a moment or something first
    again = made_up(agents)
    assert np.array_equal(again.input_tokens, trace.input_tokens)


def test_a_talk_that_grows_too_long_begins_anew():
    trace = made_up(Agents(sessions=3, system=100, context=3000, calls=Lengths(kind="fixed", mean=40), delegated=0.0))
    assert trace.input_tokens.max() <= 3000
    begun = [pieces for pieces in trace.pieces if len(pieces) == 2 and pieces[1][1] == 300]
    assert begun, "a tenth of the context is what a summary keeps"
    assert {pieces[0][1] for pieces in begun} == {100}
    wrong = ({"context": 199}, {"sessions": 0}, {"delegated": -0.1}, {"delegated": 1.1})
    for more in wrong:
        with pytest.raises(DomainError, match="cannot be"):
            Agents(**{"sessions": 1, "system": 100, **more})
    assert Agents(sessions=1, system=100, context=200, delegated=1.0).context == 200
    with pytest.raises(DomainError, match="1 call or more"):
        Agents(sessions=1, calls=Lengths(kind="fixed", mean=0))


def a_dataset(monkeypatch, rows):
    asked = []

    def load_dataset(*where, **how):
        asked.append((*where, how["split"], how["streaming"]))
        if rows is None:
            raise RuntimeError("Unknown split\nand more")
        return iter(rows)

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    return asked


def test_rows_of_a_dataset_are_requests(monkeypatch):
    rows = [
        {"instruction": "add them", "input": "2 and 2", "output": "they are four", "id": 7},
        {"instruction": "say yes", "input": "", "output": "yes"},
    ]
    asked = a_dataset(monkeypatch, rows)
    trace = read_trace(Path("hf:someone/some:main:test"), count=lambda text: len(text.split()))
    assert asked == [("someone/some", "main", "test", True)]
    assert (trace.form, trace.input_tokens.tolist(), trace.output_tokens.tolist()) == ("prompts", [5, 2], [3, 1])
    assert (trace.messages[0][0]["content"], trace.estimated) == ("add them\n\n2 and 2", False)
    talk = {"conversation": [{"role": "user", "content": "one two"}, {"role": "assistant", "content": "three"}]}
    asked = a_dataset(monkeypatch, [talk])
    trace = read_trace(Path("hf:someone/some"))
    assert asked == [("someone/some", None, "train", True)]
    assert (trace.form, trace.input_tokens.tolist(), trace.output_tokens.tolist()) == ("messages", [2], [2])
    assert trace.estimated


def test_a_dataset_that_cannot_be_read_is_refused_in_one_line(monkeypatch):
    a_dataset(monkeypatch, None)
    with pytest.raises(FormatError, match=r"some cannot be read \(Unknown split\)"):
        read_trace(Path("hf:some:wrong"))
    a_dataset(monkeypatch, [{"image": 1}])
    with pytest.raises(FormatError, match="its first entry has image"):
        read_trace(Path("hf:some"))
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingDependencyError, match="pip install datasets"):
        read_trace(Path("hf:some"))


def test_a_talk_is_as_long_as_the_context_and_no_longer():
    """Each call adds 10 and 20 tokens to 150: the sixth has 300 and an answer of 10."""
    lengths = {name: Lengths(kind="fixed", mean=mean) for name, mean in (("task", 50), ("answer", 10), ("result", 20))}
    for context, prompts in ((310, [150, 180, 210, 240, 270, 300, 131]), (309, [150, 180, 210, 240, 270, 130, 160])):
        agents = Agents(
            sessions=1, system=100, context=context, calls=Lengths(kind="fixed", mean=7), delegated=0.0, **lengths
        )
        assert made_up(agents).input_tokens.tolist() == prompts, "a tenth of the context is left"


@pytest.mark.parametrize(("prompt", "continues", "new"), [(15, -1, 15), (16, 0, 1), (17, 0, 2)])
def test_a_prompt_goes_on_if_it_has_one_token_of_its_own(tmp_path, prompt, continues, new):
    demand = trace_demand(read(tmp_path, ours("a", 0, 10, 5, at_s=0), ours("a", 1, prompt, 5)))
    assert (demand.continues.tolist(), demand.input_tokens.tolist()) == ([-1, continues], [10, new])


def test_a_part_of_a_trace_has_its_own_messages_and_figures(tmp_path):
    said = [
        {"messages": [{"role": "user", "content": letter * size}], "max_tokens": 3}
        for letter, size in (("a", 40), ("b", 8))
    ]
    trace = read(tmp_path, *said)
    assert part_of(trace, count=1).messages == trace.messages[:1]
    told = trace_document(trace)
    assert (told["longest_prompt"], told["input_tokens"], told["output_tokens"], told["requests"]) == (10, 6.0, 3.0, 2)
    assert (told["skipped"], told["estimated"], told["sessions"]) == (0, True, 2)


@pytest.mark.parametrize(
    ("entry", "tokens", "estimated"),
    [({"input_length": 9}, 9, False), ({"text_input": "a" * 40}, 10, True), ({"messages": TALK[:1]}, 10, True),
     ({"input_length": 9, "text_input": "a" * 40}, 9, False),
     ({"messages": TALK[1:], "text_input": "a" * 400}, 5, True)],
)  # fmt: skip
def test_a_length_that_is_stated_comes_before_the_text(tmp_path, entry, tokens, estimated):
    trace = read(tmp_path, {"timestamp": 0, "output_length": 4, **entry})
    assert (trace.form, trace.input_tokens.tolist(), trace.estimated) == ("Mooncake", [tokens], estimated)
    assert bool(trace.messages) == ("input_length" not in entry or "text_input" in entry)


def test_texts_in_parts_and_waits_for_one_are_read_as_they_are(tmp_path):
    parts = [{"type": "text", "text": "a" * 20}, {"type": "image"}, "b" * 19]
    called = [{"role": "user", "content": parts}, {"role": "assistant", "tool_calls": [{"f": 1}]}]
    trace = read(tmp_path, {"messages": called})
    assert (trace.input_tokens.tolist(), trace.output_tokens.tolist()) == ([11], [3])  # 41 letters, and 10
    waiting = read(tmp_path, ours("a", id=7, at_s=0), ours("b", after=7), ours("c", after="a"))
    assert [row[3] for row in rows(waiting)] == [(), (0,), (0,)]
    with pytest.raises(FormatError, match="holds no request"):
        read(tmp_path, whole=True)


def test_a_request_without_a_turn_is_the_first_and_waits_go_on_as_they_were(tmp_path):
    plain = {"input_tokens": 10, "output_tokens": 2}
    trace = read(tmp_path, {"session": "a", **plain}, {"session": "b", "after": ["a"], "wait_s": 3, **plain})
    assert rows(trace) == [(0, 0, None, (), 0.0, 10, 2), (1, 0, None, (0,), 3.0, 10, 2)]
    demand = trace_demand(trace, seed=7)
    assert (demand.after, demand.wait_s.tolist(), demand.session.tolist(), demand.seed) == (
        ((), (0,)), [0.0, 3.0], [0, 1], 7,
    )  # fmt: skip
    longer = read(tmp_path, {"session": "a", **plain}, {"session": "b", "after": ["a"], **plain, "input_tokens": 40})
    assert repeated_tokens(longer) == 0, "what another session said is not in its prompt"


@pytest.mark.parametrize(("calls", "requests"), [(1, 1), (2, 4), (6, 6 + 5 * 2 * 2)])
def test_every_call_but_the_last_may_be_followed_by_two_helpers_with_a_third_of_the_calls(calls, requests):
    trace = made_up(Agents(sessions=1, calls=Lengths(kind="fixed", mean=calls), delegated=1.0))
    assert len(trace) == requests
    assert sum(len(before) == 3 for before in trace.after) == calls - 1


def test_a_trace_has_times_if_all_that_wait_for_nobody_have_one(tmp_path):
    both, one = ours("a", at_s=1), ours("b")
    assert [read(tmp_path, both, other).is_timed for other in (ours("b", at_s=2), ours("a", 1), one)] == [
        True, True, False,
    ]  # fmt: skip


def test_what_waits_stands_with_what_it_waits_for_on_any_clock(tmp_path):
    trace = read(tmp_path, ours("a", at_s=-5), ours("b", at_s=-3), ours("a", 1, 15), ours("b", 1, 16, at_s=-4))
    assert [row[:3] for row in rows(trace)] == [(0, 0, 0.0), (0, 1, None), (1, 0, 2.0), (1, 1, 1.0)]


def test_a_row_without_a_number_of_tokens_is_a_request_that_failed(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("arrival_s,input_tokens,output_tokens\n0,5,3\n1,,3\n2,5,\n3,7,4\n")
    trace = read_trace(path)
    assert (trace.input_tokens.tolist(), trace.arrival_s.tolist(), trace.skipped) == ([5, 7], [0.0, 3.0], 2)
