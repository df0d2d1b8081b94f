import gzip
import json
import re
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from inferometer.core.errors import DomainError, FormatError
from inferometer.core.traffic.demand import trace_demand
from inferometer.core.traffic.lengths import draw, parse_lengths
from inferometer.core.traffic.traces import RequestTrace, part_of, read_trace

MOONCAKE = (
    '{"timestamp": 500, "input_length": 1100, "output_length": 5, "hash_ids": [0, 1, 2]}\n'
    '{"timestamp": 0, "input_length": 700, "output_length": 4, "hash_ids": [0, 3]}\n'
)
AZURE = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,396,109\n"
)
BURSTGPT = (
    "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    "5,ChatGPT,472,18,490,Conversation log\n45,GPT-4,1087,0,1087,API log\n118,ChatGPT,417,276,693,API log\n"
)
OURS = "arrival_s,input_tokens,output_tokens\n1.5,10,20\n2.5,30,40\n"


def written(tmp_path, text, name="trace"):
    path = tmp_path / name
    path.write_bytes(text.encode())
    return path


@pytest.mark.parametrize(
    ("text", "form", "columns", "skipped"),
    [
        (MOONCAKE, "Mooncake", ([0, 0.5], [700, 1100], [4, 5]), 0),
        (AZURE, "Azure", ([0, 4.314579], [374, 396], [44, 109]), 0),
        (BURSTGPT, "BurstGPT", ([0, 113], [472, 417], [18, 276]), 1),
        (OURS, "requests", ([0, 1], [10, 30], [20, 40]), 0),
    ],
)
def test_each_form_is_known_by_its_content(tmp_path, text, form, columns, skipped):
    for path in (written(tmp_path, text), tmp_path / "packed.gz"):
        path.write_bytes(text.encode() if path.suffix != ".gz" else gzip.compress(text.encode()))
        trace = read_trace(path)
        assert trace.form == form
        assert trace.arrival_s == pytest.approx(columns[0], abs=1e-6)
        assert (list(trace.input_tokens), list(trace.output_tokens)) == columns[1:]
        assert trace.skipped == skipped


def test_blocks_stay_with_their_request(tmp_path):
    trace = read_trace(written(tmp_path, MOONCAKE))
    # Names are numbered as they come; a last block that is a part is another than the whole one.
    assert trace.pieces == (((0, 512), (1, 188)), ((0, 512), (2, 512), (3, 76)))
    demand = trace_demand(part_of(trace, count=1))
    assert demand.pieces == (((0, 512), (1, 188)),)
    assert demand.part(1, 2).pieces == ()


def test_a_part_is_replayed_faster(tmp_path):
    trace = read_trace(written(tmp_path, AZURE))
    assert part_of(trace, speed=2).arrival_s == pytest.approx([0, 2.1572895])
    assert list(part_of(trace, start_s=1).input_tokens) == [396]
    with pytest.raises(DomainError, match="no request in the part"):
        part_of(trace, start_s=100)
    with pytest.raises(DomainError, match="greater than 0"):
        part_of(trace, speed=0)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a,b\n1,2\n",
        '{"timestamp": 1}\n',
        '{"timestamp": 1,\n',
        AZURE + "soon,1,2\n",
        OURS + "inf,1,2\n",
        OURS[:36] + "\n",
    ],
)
def test_what_is_no_trace_is_refused_with_the_line(tmp_path, text):
    with pytest.raises(FormatError):
        read_trace(written(tmp_path, text))


def test_a_missing_file_is_an_error_of_ours(tmp_path):
    with pytest.raises(FormatError, match="cannot be read"):
        read_trace(tmp_path / "none.csv")


@pytest.mark.parametrize("text", ["7\n9\n", "tokens\n7\n9\n", "x,input_tokens\n1,7\n2,9\n"])
def test_lengths_come_from_a_file(tmp_path, text):
    lengths = parse_lengths(f"file:{written(tmp_path, text)}", column="input_tokens")
    assert set(draw(lengths, 100, np.random.default_rng(0))) == {7, 9}


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n", "input_tokens\nmany\n", "input_tokens\n"])
def test_a_file_without_lengths_is_refused(tmp_path, text):
    with pytest.raises(FormatError):
        parse_lengths(f"file:{written(tmp_path, text)}", column="input_tokens")


def test_times_that_an_engine_took_down_between_its_steps_are_known_by_how_they_stand():
    came = np.cumsum(np.random.default_rng(3).exponential(0.1, 300))
    ends = np.cumsum(np.random.default_rng(4).uniform(0.02, 0.04, 3000))
    stamped = ends[np.searchsorted(ends, came)] + 5e-6 * np.arange(300) % 7e-5

    def trace(arrivals, form="requests"):
        tokens = np.ones(len(arrivals), int)
        return RequestTrace(name="x", form=form, arrival_s=arrivals, input_tokens=tokens, output_tokens=tokens)

    assert trace(stamped).between_steps
    assert not trace(came).between_steps
    assert not trace(stamped, form="Azure").between_steps
    assert not trace(np.array([1.0])).between_steps
    # Of those that came together and those that came a little apart: the latter must be less than a quarter.
    for apart, told in ((4, True), (5, False), (12, False)):
        gaps = [0.0] * 20 + [4e-3] * apart + [1.0] * 50
        assert trace(np.cumsum(gaps)).between_steps == told


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "is empty"),
        (b"arrival_s,\0", "no text"),
        (b"\x1b[2Ja,b\n1,2\n", "columns are ?[2Ja, b"),  # what a terminal would obey is not printed
        (b"a" * 101, "more than"),
    ],
)
def test_what_is_no_text_without_end_or_empty_says_so(tmp_path, monkeypatch, data, words, packed):
    monkeypatch.setattr("inferometer.core.traffic.lengths._MOST_BYTES", 100)
    path = tmp_path / "t.csv"
    path.write_bytes(gzip.compress(data) if packed else data)
    with pytest.raises(FormatError, match=re.escape(words)):
        read_trace(path)


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="no device of zeros here")
def test_a_device_of_zeros_is_no_trace():
    with pytest.raises(FormatError, match="no text"):
        read_trace(Path("/dev/zero"))


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ({"output_tokens": 1e30}, "has 10 tokens and an answer of 1e"),
        ({"output_tokens": float("inf")}, "infinity"),
        ({"input_tokens": -10}, "has -10 tokens"),
        ({"wait_s": -5}, "waits for -5 s"),
        ({"wait_s": float("nan")}, "not a number"),
        ({"at_s": float("nan"), "output_tokens": 0}, "not a number"),  # though a row without tokens is left out
        ({"at_s": 1e300}, "years apart"),
        ({"id": "first"}, "two requests with the id 'first'"),
    ],
)
def test_numbers_that_cannot_be_are_refused_and_not_left_out(tmp_path, line, why):
    first = {"id": "first", "session": "a", "at_s": 0, "input_tokens": 10, "output_tokens": 5}
    other = {"session": "b", "at_s": 1, "input_tokens": 10, "output_tokens": 5}
    path = written(tmp_path, "\n".join(map(json.dumps, (first, {**other, **line}))))
    with pytest.raises(FormatError, match=why):
        read_trace(path)


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_a_long_trace_takes_some_hundred_bytes_a_row_beside_its_text(tmp_path, form):
    """Requests as objects had taken a kilobyte each: a million of them a gigabyte."""
    rows = [(at / 10, 100 + at % 7, 1 + at % 5) for at in range(20_000)]
    if form == "csv":
        text = "arrival_s,input_tokens,output_tokens\n" + "".join(f"{at},{one},{two}\n" for at, one, two in rows)
    else:
        names = ("at_s", "input_tokens", "output_tokens")
        text = "".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows)
    path = written(tmp_path, text)
    tracemalloc.start()
    trace = read_trace(path)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 4 * len(text) + 400 * len(rows)
    found = zip(trace.arrival_s.tolist(), trace.input_tokens.tolist(), trace.output_tokens.tolist(), strict=True)
    assert [*found] == [(pytest.approx(at), one, two) for at, one, two in rows]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("0.5,1", "line 4"), ("x,1,2", "line 4"), ("0.5,1,two", "line 4"), ("0.5,1," + "9" * 200_000, "field limit"),
    ],
)  # fmt: skip
def test_a_line_that_is_no_request_is_named(tmp_path, line, said):
    text = f"arrival_s,input_tokens,output_tokens\n1,2,3\n2,3,4\n{line}\n3,4,5\n"
    with pytest.raises(FormatError, match=said):
        read_trace(written(tmp_path, text))


def test_json_that_breaks_off_far_down_names_its_line(tmp_path):
    lines = [json.dumps({"at_s": at, "input_tokens": 3, "output_tokens": 4}) for at in range(3000)]
    lines[2718] = lines[2718][:-5]
    with pytest.raises(FormatError, match="line 2719"):
        read_trace(written(tmp_path, "\n".join(lines)))


def test_a_session_that_is_no_name_is_refused(tmp_path):
    text = json.dumps({"session": [1], "at_s": 0, "input_tokens": 3, "output_tokens": 4})
    with pytest.raises(FormatError, match="entry 1 is not one of ours"):
        read_trace(written(tmp_path, text))
