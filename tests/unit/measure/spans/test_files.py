"""Recordings on disk: kept, merged, cut, of another schema, on a full disk."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from inferometer.core.codec import encode
from inferometer.core.errors import DomainError, FormatError, InferometerError, SchemaError
from inferometer.measure.spans import Profiler, Ring, export, load, merge, save
from inferometer.measure.spans import files as span_files
from unit.measure.spans.clocks import Ticking


def record(profiler, count=5):
    for number in range(count):
        token = profiler.span("token", token=number, phase="decode")
        with token, profiler.span("forward", unit="gpu", flops=2.5), profiler.segment("write", bytes=8):
            pass


@pytest.fixture
def profiler():
    found = Profiler(enabled=True, clock=Ticking())
    record(found)
    return found


def same(left, right):
    names = ("start", "end", "parent", "layer", "token", "flops", "bytes", "tokens", "failed")
    for name in names:
        np.testing.assert_array_equal(getattr(left, name), getattr(right, name), err_msg=name)
    for name in ("name", "unit", "phase", "kind"):
        assert [left.word(i) for i in getattr(left, name)] == [right.word(i) for i in getattr(right, name)]
    for name in ("owner", "start", "end", "bytes"):
        np.testing.assert_array_equal(getattr(left.segments, name), getattr(right.segments, name))


def test_what_is_saved_is_what_is_loaded(profiler, tmp_path):
    loaded = load(profiler.save(tmp_path / "run.spans"))
    same(loaded, profiler.recording())
    assert loaded.run.notes == ()
    assert loaded.run.span_cost_s == profiler.recording().run.span_cost_s
    assert loaded.lanes[0].title == "MainThread"


def test_a_missing_folder_is_made(profiler, tmp_path):
    assert profiler.save(tmp_path / "not" / "yet" / "run.spans").exists()
    assert profiler.export(tmp_path / "nor" / "this" / "trace.json").exists()


def test_an_empty_recording_is_saved_and_loaded(tmp_path):
    assert len(load(Profiler(enabled=True).save(tmp_path / "run.spans"))) == 0
    assert len(load(Profiler(enabled=False).save(tmp_path / "off.spans"))) == 0


def test_a_trace_document_is_as_good(profiler, tmp_path):
    file = tmp_path / "trace.json"
    file.write_bytes(encode(profiler.trace()))
    same_but_segment_bytes = load(file)
    assert same_but_segment_bytes.trace().spans == profiler.trace().spans


def test_a_loaded_recording_can_be_saved_again(profiler, tmp_path):
    first = load(profiler.save(tmp_path / "one.spans"))
    same(load(save(first, tmp_path / "two.spans")), first)


# ── cut and broken files ────────────────────────────────────────────────────────────────────────────────────────────


def test_a_file_without_its_last_line_is_read_and_said_to_be_cut(profiler, tmp_path):
    file = profiler.save(tmp_path / "run.spans")
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:-1]))
    found = load(file)
    assert len(found) == 10
    assert "no last line" in found.run.notes[0]


def test_every_cut_of_a_file_is_recovered_or_refused_clearly(tmp_path, monkeypatch):
    monkeypatch.setattr(span_files, "_ROWS_A_LINE", 4)
    profiler = Profiler(enabled=True, clock=Ticking())
    record(profiler, 4)
    whole = profiler.save(tmp_path / "run.spans").read_bytes()
    file, sizes = tmp_path / "cut.spans", set()
    for size in range(len(whole) - 1):  # without the last newline nothing is lost
        file.write_bytes(whole[:size])
        try:
            found = load(file)
        except (FormatError, SchemaError) as error:
            assert str(file) in error.message
            assert size <= len(whole.splitlines()[0])
        else:
            sizes.add(len(found))
            assert found.run.notes, f"cut at {size}, and nothing was said"
    assert len(sizes) > 2  # the later the cut, the more is recovered


def test_a_broken_line_costs_its_own_spans_only(tmp_path, monkeypatch):
    monkeypatch.setattr(span_files, "_ROWS_A_LINE", 3)
    profiler = Profiler(enabled=True, clock=Ticking())
    record(profiler, 4)
    file = profiler.save(tmp_path / "run.spans")
    lines = file.read_bytes().splitlines(keepends=True)
    lines[2] = b'{"spans": garbage\n'
    file.write_bytes(b"".join(lines))
    found = load(file)
    assert len(found) == 6
    assert any("line 3 cannot be read" in note for note in found.run.notes)
    assert any("3 of 12 spans could not be read" in note for note in found.run.notes)


@pytest.mark.parametrize(
    "columns",
    [
        {"name": [0], "start": [1, 2], "end": [3]},
        {"name": [99], "start": [1], "end": [3]},
        {"name": ["x"], "start": [1], "end": [3]},
        {"name": [0], "start": [1.5], "end": [3]},
        {"name": [0], "start": [None], "end": [3]},
        {"name": [None], "start": [1], "end": [3]},
        {"name": [0], "start": [1], "end": [2**70]},
        {"name": [0], "start": [1], "end": [3], "layer": ["three"]},
        {"name": [0], "start": [1], "end": [3], "token": [[7]]},
        {"name": [0], "start": [1], "end": [3], "flops": ["many"]},
        {"name": [0], "start": [1], "end": [3], "thread": [1.5]},
        {"name": [0], "start": [1], "end": [3], "failed": ["no"]},
        {"name": [0], "start": [1], "end": [3], "rss_peak_bytes": [{}]},
        {"start": [1], "end": [3]},
    ],
)
def test_a_line_that_does_not_fit_is_left_out_and_said(profiler, tmp_path, columns):
    file = profiler.save(tmp_path / "run.spans")
    lines = file.read_bytes().splitlines(keepends=True)
    lines.insert(2, json.dumps({"spans": 1, "words": [], "columns": columns}).encode() + b"\n")
    file.write_bytes(b"".join(lines))
    found = load(file)
    assert len(found) == 10
    assert found.run.notes


def test_a_column_of_a_later_writer_is_left_alone(profiler, tmp_path):
    file = profiler.save(tmp_path / "run.spans")
    lines = file.read_bytes().splitlines(keepends=True)
    batch = json.loads(lines[1])
    batch["columns"]["colour"] = ["red"] * batch["spans"]
    file.write_bytes(lines[0] + json.dumps(batch).encode() + b"\n" + lines[2])
    same(load(file), profiler.recording())
    assert load(file).run.notes == ()


def test_links_that_lead_in_a_circle_are_refused(profiler, tmp_path):
    file = profiler.save(tmp_path / "run.spans")
    lines = file.read_bytes().splitlines(keepends=True)
    batch = json.loads(lines[1])
    count = batch["spans"]
    batch["columns"] |= {"link": [1, 2, *[None] * (count - 2)], "above": [2, 1, *[None] * (count - 2)]}
    file.write_bytes(lines[0] + json.dumps(batch).encode() + b"\n" + lines[2])
    with pytest.raises(SchemaError, match="in itself"):
        load(file)


@pytest.mark.parametrize(
    "content", [b"", b"\n", b"not json", b"[]", b'{"schema": 3}', b'{"schema": "other/1"}', b"\xff\xfe"]
)
def test_what_is_no_recording_is_refused_with_what_was_wanted(tmp_path, content):
    file = tmp_path / "other.spans"
    file.write_bytes(content)
    with pytest.raises((SchemaError, FormatError), match=r"other\.spans"):
        load(file)


def test_a_newer_schema_is_refused_with_the_remedy(profiler, tmp_path):
    file = profiler.save(tmp_path / "run.spans")
    file.write_bytes(file.read_bytes().replace(b"inferometer.spans/1", b"inferometer.spans/2"))
    with pytest.raises(SchemaError, match="Upgrade"):
        load(file)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(FormatError, match="No such file"):
        load(tmp_path / "nothing.spans")


# ── merging ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def saved(path, *, process, started=0, host="a", names=("forward",), begin=1000):
    """A small recording as another process would have left it."""
    clock = Ticking()
    clock.now = begin
    profiler = Profiler(enabled=True, clock=clock)
    for name in names:
        with profiler.span(name):
            pass
    file = profiler.save(path)
    lines = file.read_bytes().splitlines(keepends=True)
    header = json.loads(lines[0]) | {
        "process": process,
        "host": host,
        "epoch_ns": 10**18 + started,
        "started_ns": begin,
    }
    file.write_bytes(json.dumps(header).encode() + b"\n" + b"".join(lines[1:]))
    return file


def test_processes_of_one_machine_share_a_clock(tmp_path):
    first = saved(tmp_path / "a.spans", process=11, names=("forward",))
    second = saved(tmp_path / "b.spans", process=12, names=("sample", "forward"))
    found = merge(first, second)
    assert {lane.process for lane in found.lanes} == {11, 12}
    assert sorted(found.names()) == ["forward", "sample"]
    assert found.run.notes == ()


def test_spans_of_different_processes_never_nest_in_each_other(tmp_path):
    first = saved(tmp_path / "a.spans", process=11, names=("outer",), begin=0)
    second = saved(tmp_path / "b.spans", process=12, names=("inner",), begin=0)
    assert merge(first, second).parent.tolist() == [-1, -1]


def test_another_machines_clock_is_aligned_and_said(tmp_path):
    first = saved(tmp_path / "a.spans", process=11, host="a", begin=1000, started=0)
    second = saved(tmp_path / "b.spans", process=11, host="b", begin=500_000, started=70)
    found = merge(first, second)
    assert sorted(found.start.tolist()) == [1002, 1072]
    assert {lane.process for lane in found.lanes} == {1, 2}
    assert "aligned by the machines' wall clocks" in found.run.notes[0]


def test_files_of_different_schemas_do_not_merge(profiler, tmp_path):
    recording, trace = profiler.save(tmp_path / "run.spans"), tmp_path / "trace.json"
    trace.write_bytes(encode(profiler.trace()))
    with pytest.raises(SchemaError, match=r"trace\.json is an inferometer\.trace document"):
        merge(recording, trace)
    trace.write_bytes(b'{"schema": "inferometer.profile/1"}')
    with pytest.raises(SchemaError, match="profile/1"):
        merge(recording, trace)


def test_nothing_cannot_be_merged():
    with pytest.raises(FormatError, match="No files"):
        merge()


def test_a_merge_can_be_saved_loaded_and_exported_but_not_merged_again(tmp_path):
    first = saved(tmp_path / "a.spans", process=11)
    second = saved(tmp_path / "b.spans", process=12)
    merged = merge(first, second)
    again = save(merged, tmp_path / "both.spans")
    assert {lane.process for lane in load(again).lanes} == {11, 12}
    assert b'"pid":11' in export(merged, tmp_path / "trace.json").read_bytes()
    with pytest.raises(SchemaError, match="itself the result of a merge"):
        merge(again, first)


def test_forked_processes_leave_files_that_merge(tmp_path):
    """A fork gives the child an empty profile of its own; the span that was open belongs to the parent alone."""
    code = f"""
import os, sys
from inferometer.measure.spans import Profiler
p = Profiler(enabled=True)
with p.span("before"):
    pass
with p.span("open"):
    child = os.fork()
    with p.span("child" if child == 0 else "parent"):
        pass
name = "child" if child == 0 else "parent"
p.save({str(tmp_path)!r} + "/" + name + ".spans")
if child:
    assert os.waitpid(child, 0)[1] == 0
else:
    os._exit(0)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=240)
    found = merge(tmp_path / "parent.spans", tmp_path / "child.spans")
    names = [found.words[name] for name in found.name]
    assert sorted(names) == ["before", "child", "open", "parent"]
    assert len({lane.process for lane in found.lanes}) == 2


# ── writing as the run goes on ──────────────────────────────────────────────────────────────────────────────────────


def test_a_profiler_with_a_file_writes_in_batches_and_holds_few(tmp_path, monkeypatch):
    monkeypatch.setattr("inferometer.measure.spans.recorder._SPILL_EVERY", 4)
    with Profiler(enabled=True, clock=Ticking(), file=tmp_path / "run.spans") as profiler:
        record(profiler, 10)
        assert len(profiler.recording()) == 20
        assert len(profiler._recorder.log.entries()) < 4
    found = load(tmp_path / "run.spans")
    assert len(found) == 20
    assert found.parent.tolist().count(-1) == 10
    assert "took" in found.run.notes[0]
    assert len(profiler.recording()) == 20  # it can still be asked


def test_a_file_and_a_bound_contradict_each_other(tmp_path):
    with pytest.raises(DomainError, match="not both"):
        Profiler(enabled=True, keep=Ring(spans=3), file=tmp_path / "run.spans")


def test_a_run_that_is_killed_leaves_what_it_had(tmp_path):
    code = f"""
import os
from inferometer.measure.spans import Profiler, recorder
recorder._SPILL_EVERY = 10
p = Profiler(enabled=True, file={str(tmp_path / "run.spans")!r})
for number in range(25):
    with p.span("token", token=number):
        pass
os._exit(9)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=240).returncode == 9
    found = load(tmp_path / "run.spans")
    assert len(found) == 20
    assert "did not finish" in found.run.notes[0]


def test_a_fork_writes_to_a_file_of_its_own(tmp_path):
    code = f"""
import os
from inferometer.measure.spans import Profiler
p = Profiler(enabled=True, file={str(tmp_path / "run.spans")!r})
child = os.fork()
with p.span("child" if child == 0 else "parent"):
    pass
p.close()
if child:
    os.waitpid(child, 0)
else:
    os._exit(0)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=240)
    files = sorted(tmp_path.glob("*.spans"))
    assert len(files) == 2
    assert sorted(merge(*files).names()) == ["child", "parent"]


class FullDisk:
    """A file that takes some bytes and then says that the disk is full."""

    def __init__(self, file, room):
        self._file, self._room = file, room

    def write(self, data):
        self._room -= len(data)
        if self._room < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return self._file.write(data)

    def writelines(self, chunks):
        for chunk in chunks:
            self.write(chunk)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._file.close()

    def __getattr__(self, name):
        return getattr(self._file, name)


@pytest.fixture
def full_disk(monkeypatch):
    real = Path.open

    def opened(self, mode="r", *args, **kwargs):
        file = real(self, mode, *args, **kwargs)
        return FullDisk(file, 900) if "w" in mode and "spans" in self.name + "spans" else file

    monkeypatch.setattr(Path, "open", opened)


def test_saving_to_a_full_disk_is_an_error_with_a_remedy_and_leaves_nothing(profiler, tmp_path, full_disk):
    with pytest.raises(InferometerError, match=r"run\.spans cannot be written: No space left.*Free some space"):
        profiler.save(tmp_path / "run.spans")
    with pytest.raises(InferometerError, match="No space left"):
        profiler.export(tmp_path / "trace.json")
    assert list(tmp_path.iterdir()) == []
    assert len(profiler.recording()) == 10  # nothing of it is lost


def test_a_disk_that_fills_up_ends_the_writing_and_not_the_program(tmp_path, monkeypatch, full_disk):
    monkeypatch.setattr("inferometer.measure.spans.recorder._SPILL_EVERY", 4)
    profiler = Profiler(enabled=True, clock=Ticking(), file=tmp_path / "run.spans")
    record(profiler, 20)
    found = profiler.recording()
    assert 0 < len(found) < 40
    assert found.run.dropped > 0
    assert any("No space left" in note and "not kept" in note for note in found.run.notes)
    with pytest.raises(InferometerError, match="No space left"):
        profiler.close()


def test_a_folder_that_may_not_be_written_to(profiler, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(InferometerError, match="cannot be written"):
        profiler.save(tmp_path / "file" / "run.spans")


def test_an_unknown_suffix_says_the_known_ones(profiler, tmp_path):
    with pytest.raises(InferometerError, match=r"\.speedscope\.json, \.stats\.json, \.json"):
        profiler.export(tmp_path / "profile.xlsx")
