"""Rows in files: the same rows in every form, and what is left of a sweep that was cut short."""

import csv
import errno
import importlib.util
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
from concurrent.futures import Future
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import psutil
import pytest

from inferometer.core.errors import DomainError, FormatError, InferometerError, MissingDependencyError
from inferometer.predict.options import Options
from inferometer.predict.sweep import Progress, Saved, engines, read_rows, run_study, stream
from inferometer.predict.sweep.engines import _in_order
from inferometer.predict.sweep.formats import _arrow_numbers, _column, as_csv
from inferometer.predict.sweep.grid import CHUNK_ROWS, SHARED_ROWS
from inferometer.predict.sweep.sinks import partial_of
from inferometer.predict.sweep.table import SweepTable
from inferometer.predict.sweep.write import _chunk_rows, fingerprint, journal_of
from unit.predict.sweep.studies import small

HAS_ARROW = importlib.util.find_spec("pyarrow") is not None
NEEDS_ARROW = pytest.mark.skipif(not HAS_ARROW, reason="pyarrow is not installed: pip install 'inferometer[parquet]'")
FORMS = ["csv", "sqlite", pytest.param("parquet", marks=NEEDS_ARROW)]


def same(one, other):
    assert len(one) == len(other)
    for name in one.columns:
        found, expected = one[name], other[name]
        assert found.dtype == expected.dtype, name
        assert np.array_equal(found, expected, equal_nan=found.dtype == float), name


@pytest.fixture(scope="module")
def rows():
    return run_study(small(chunk_rows=7))


@pytest.mark.parametrize("form", FORMS)
def test_rows_come_back_as_they_were_written(tmp_path, rows, form):
    path = tmp_path / f"rows.{form}"
    getattr(rows, f"to_{form}")(path)
    same(read_rows(path), rows)
    assert [*tmp_path.iterdir()] == [path]


@NEEDS_ARROW
@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("bool_", [True, False, None, True, False]), ("int64", [7, 0, None, -3, 2**53]),
        ("float64", [0.5, 0.0, None, -1e300, 3.0]), ("words", ["a", "b", None, "a", "c"]),
    ],
)  # fmt: skip
def test_what_is_the_same_in_all_rows_of_a_part_stands_in_each_of_them(kind, values):
    """Flags lie eight in a byte: the third has one of the first part and some of each of the next."""
    import pyarrow as pa

    lengths = [17, 1, 3, 2, 9]
    made = pa.dictionary(pa.int32(), pa.string()) if kind == "words" else getattr(pa, kind)()
    column = _column(pa, made, values, lengths)
    assert column.to_pylist() == [value for value, length in zip(values, lengths, strict=True) for _ in range(length)]


@NEEDS_ARROW
def test_flags_and_whole_numbers_that_are_not_known_everywhere_are_read_where_they_are():
    import pyarrow as pa

    flags = [True, None, False, False, True, True, None, False, True, False, True]
    assert _arrow_numbers(pa, np.array(flags, object), pa.bool_()).to_pylist() == flags
    whole = [3.0, np.nan, 0.0, 2.0**40]
    assert _arrow_numbers(pa, np.array(whole), pa.int64()).to_pylist() == [3, None, 0, 2**40]


@pytest.mark.parametrize("form", FORMS)
def test_a_streamed_sweep_is_the_one_in_memory(tmp_path, rows, form):
    path = tmp_path / f"rows.{form}"
    written = stream(small(chunk_rows=7), path)
    assert (written.rows, written.kept, written.impossible) == (48, 0, 24)
    same(read_rows(path), rows)
    assert [*tmp_path.iterdir()] == [path]


def test_csv_is_what_csv_readers_read(tmp_path, rows):
    path = tmp_path / "rows.csv"
    rows.to_csv(path)
    with path.open(encoding="utf-8", newline="") as file:
        found = [*csv.DictReader(file)]
    assert float(found[0]["tpot_s"]) == rows["tpot_s"][0]
    assert found[0]["fits"] == "true"
    assert found[0]["batch"] == "1"
    assert found[1]["tpot_s"] == ""
    assert found[1]["reason"] == rows["reason"][1]


def test_csv_has_numbers_as_python_writes_them():
    exponents = np.arange(-24.0, 25.0)
    seconds = np.concatenate([3.3 * 10**exponents, 10**exponents, -(10**exponents), [0.0, -0.0, 0.1, np.nan, np.inf]])
    whole = np.where(np.abs(seconds) < 1e-3, np.nan, np.trunc(np.where(np.isfinite(seconds), seconds, np.nan)))
    part = SweepTable(length=len(seconds), values={"tpot_s": seconds, "batch": whole})
    expected = [
        f"{'' if np.isnan(number) else repr(number)},{'' if np.isnan(count) else int(count)}"
        for number, count in zip(seconds.tolist(), whole.tolist(), strict=True)
    ]
    assert b"".join(as_csv([part])).decode().splitlines() == expected


@NEEDS_ARROW
def test_writing_parquet_does_not_take_pandas_along():
    code = (
        "import sys; from inferometer.predict.sweep.formats import as_arrow;"
        "from inferometer.predict.sweep.table import SweepTable; import numpy as np;"
        "[*as_arrow([SweepTable(length=2, values={'model': np.array(['a', 'b'], object), 'tpot_s': np.ones(2)})])];"
        "assert 'pandas' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_sqlite_is_a_table_to_ask(tmp_path, rows):
    path = tmp_path / "rows.sqlite"
    rows.to_sqlite(path)
    base = sqlite3.connect(path)
    count, least = base.execute(
        "SELECT count(*), min(tpot_s) FROM sweep WHERE fits AND device = 'nvidia-l4'"
    ).fetchone()
    base.close()
    chosen = rows.take(rows["device"] == "nvidia-l4")
    assert (count, least) == (12, np.nanmin(chosen["tpot_s"]))


def test_a_saved_sweep_is_asked_without_reading_all_of_it_at_once(tmp_path, rows):
    path = tmp_path / "rows.csv"
    rows.to_csv(path)
    saved = Saved(path)
    assert len(saved) == len(rows)
    same(saved.pareto("tpot_s", "usd_per_million_tokens"), rows.pareto("tpot_s", "usd_per_million_tokens"))
    same(saved.cheapest("tpot_s<1"), rows.cheapest("tpot_s<1"))
    assert next(saved.records())["model"] == "llama-3.2-1b"


def test_progress_tells_rate_and_time_left(tmp_path):
    told, ticks = [], iter(range(1000, 1100))
    stream(small(chunk_rows=12), tmp_path / "rows.csv", progress=told.append, clock=lambda: float(next(ticks)))
    assert [progress.done for progress in told] == [12, 24, 36, 48]
    assert (told[1].rate, told[1].remaining_s) == (12.0, 2.0)
    assert told[-1].remaining_s == 0
    assert Progress(done=5, total=10, kept=5, seconds=0.0).remaining_s is None


class _Cut(Exception):  # noqa: N818 - a cut is no error
    pass


def cut_after(chunks):
    left = iter(range(chunks - 1))

    def progress(_):
        if next(left, None) is None:
            raise _Cut

    return progress


@pytest.mark.parametrize("form", FORMS)
def test_what_was_written_is_kept_and_not_computed_again(tmp_path, rows, form, monkeypatch):
    path = tmp_path / f"rows.{form}"
    with pytest.raises(_Cut):
        stream(small(chunk_rows=12), path, progress=cut_after(2))
    assert not path.exists()
    computed = []
    from inferometer.predict.sweep import engines

    work = engines.work
    monkeypatch.setattr(engines, "work", lambda *asked: computed.append(asked[1].number) or work(*asked))
    written = stream(small(chunk_rows=12), path, resume=True)
    assert computed == [2, 3]
    assert (written.rows, written.kept, written.impossible) == (48, 24, 24)
    same(read_rows(path), rows)
    assert [*tmp_path.iterdir()] == [path]


@pytest.mark.parametrize("form", FORMS)
def test_what_a_kill_left_half_written_is_dropped(tmp_path, rows, form):
    """A chunk that reached the file but not the journal, half a row after it, and half a line of the journal."""
    path = tmp_path / f"rows.{form}"
    with pytest.raises(_Cut):
        stream(small(chunk_rows=12), path, progress=cut_after(3))
    journal = journal_of(path)
    *lines, last = journal.read_text(encoding="utf-8").splitlines(keepends=True)
    journal.write_text("".join(lines) + last[:9], encoding="utf-8")
    if form == "csv":
        with partial_of(path).open("ab") as file:
            file.write(b"llama-3.2-1b,nvid")
    written = stream(small(chunk_rows=12), path, resume=True)
    assert written.kept == 24
    same(read_rows(path), rows)


CHILD = """
import sys
from pathlib import Path
from inferometer.predict.sweep import stream
from unit.predict.sweep.studies import small

def progress(step):
    print(step.done, flush=True)
    if step.done == 24:
        sys.stdin.read()  # until it is killed

if __name__ == "__main__":
    stream(small(chunk_rows=12), Path(sys.argv[1]), engine=sys.argv[2], progress=progress)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
@pytest.mark.parametrize(
    ("form", "engine"), [("csv", "local:2"), ("sqlite", "local"), pytest.param("parquet", "local", marks=NEEDS_ARROW)]
)
def test_a_process_that_is_killed_can_be_resumed(tmp_path, rows, form, engine):
    script, path = tmp_path / "child.py", tmp_path / f"rows.{form}"
    script.write_text(CHILD, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}  # noqa: TID251 - a child needs PATH
    child = subprocess.Popen(
        [sys.executable, str(script), str(path), engine],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip
    with child:
        assert [child.stdout.readline().strip() for _ in range(2)] == ["12", "24"]
        workers = psutil.Process(child.pid).children(recursive=True)
        child.send_signal(signal.SIGKILL)
    assert child.returncode == -signal.SIGKILL
    assert len(workers) >= (1 if engine == "local:2" else 0)
    assert psutil.wait_procs(workers, timeout=120)[1] == []  # none outlives its parent
    assert not path.exists()
    written = stream(small(chunk_rows=12), path, resume=True)
    assert written.kept == 24
    same(read_rows(path), rows)


def test_an_unfinished_sweep_is_not_overwritten_unasked(tmp_path):
    path = tmp_path / "rows.csv"
    with pytest.raises(_Cut):
        stream(small(chunk_rows=12), path, progress=cut_after(1))
    with pytest.raises(DomainError, match=r"unfinished sweep beside it .*--resume"):
        stream(small(chunk_rows=12), path)
    with pytest.raises(DomainError, match="another one than is asked for"):
        stream(small(chunk_rows=12, batch=[1, 9]), path, resume=True)
    journal_of(path).write_text("[]\n", encoding="utf-8")
    with pytest.raises(DomainError, match="no journal of a sweep"):
        stream(small(chunk_rows=12), path, resume=True)


def test_resume_without_anything_to_resume_begins(tmp_path):
    path = tmp_path / "rows.csv"
    assert stream(small(), path, resume=True).kept == 0
    with pytest.raises(_Cut):
        stream(small(chunk_rows=12), path, progress=cut_after(1))
    partial_of(path).unlink()  # somebody tidied up, but for the journal
    assert stream(small(chunk_rows=12), path, resume=True).kept == 0


def test_a_sweep_that_cannot_begin_leaves_nothing_behind(tmp_path):
    path = tmp_path / "rows.csv"
    with pytest.raises(DomainError, match="no engine"):
        stream(small(), path, engine="spark://x")
    with pytest.raises(DomainError, match="one process or more"):
        stream(small(), path, engine="local:0")
    with pytest.raises(DomainError, match="does not say what to write"):
        stream(small(), tmp_path / "rows.txt")
    assert [*tmp_path.iterdir()] == []
    (tmp_path / "file").touch()
    with pytest.raises(InferometerError, match=r"folder .* cannot be made"):
        stream(small(), tmp_path / "file" / "rows.csv")


def test_several_processes_give_the_same_rows(tmp_path, rows):
    same(run_study(small(chunk_rows=7), engine="local:2"), rows)


def test_what_is_computed_here_while_others_work_keeps_its_place():
    """The asking process takes what comes next as long as enough is under way and what stands first is not done."""
    under_way, here = [], []

    def submit(item):
        under_way.append((item, Future()))
        return under_way[-1][1]

    def own(item):
        here.append(item)
        if len(here) == 2:  # the others come back in another order than they were given out
            for item_, future in reversed(under_way):
                future.set_result(item_)
            under_way.clear()
        return item

    found = _in_order(submit, range(9), 2, here=own)
    assert [next(found) for _ in range(4)] == [0, 1, 2, 3]
    assert here == [2, 3]


def test_the_journal_is_lines_of_json(tmp_path):
    path = tmp_path / "rows.csv"
    with pytest.raises(_Cut):
        stream(small(chunk_rows=12), path, progress=cut_after(2))
    head, *lines = [json.loads(line) for line in journal_of(path).read_text(encoding="utf-8").splitlines()]
    assert head["sweep"] == fingerprint(small(chunk_rows=12), "csv")
    assert [(line["chunks"], line["rows"], line["impossible"]) for line in lines] == [(1, 12, 6), (2, 24, 12)]
    assert lines[-1]["mark"] == partial_of(path).stat().st_size


def test_a_fingerprint_is_of_what_is_asked_and_the_same_in_every_process():
    code = "from unit.predict.sweep.studies import small; from inferometer.predict.sweep.write import fingerprint;"
    code += "print(fingerprint(small(), 'csv'))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": "7"}  # noqa: TID251 - as above
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert found.stdout.strip() == fingerprint(small(), "csv")
    assert fingerprint(small(), "csv") != fingerprint(small(batch=[1, 9]), "csv")
    assert fingerprint(small(), "csv") != fingerprint(small(), "sqlite")


def test_a_file_that_is_no_sweep_is_refused(tmp_path):
    for name, data in (
        ("a.csv", b"x,y\n1,2\n"),
        ("a.sqlite", b"no database at all, but long enough to look at"),
        ("b.csv", b""),
    ):
        path = tmp_path / name
        path.write_bytes(data)
        with pytest.raises(FormatError):
            read_rows(path)
    (tmp_path / "there.txt").write_text("x")
    (tmp_path / "folder.csv").mkdir()
    for name in ("missing.csv", "there.txt", "folder.csv"):
        with pytest.raises(FormatError, match=r"There is no file .* of a sweep\."):
            read_rows(tmp_path / name)


def test_a_file_with_something_that_is_no_number_says_so(tmp_path, rows):
    path = tmp_path / "rows.csv"
    rows.to_csv(path)
    path.write_text(
        path.read_text(encoding="utf-8").replace(
            "nvidia-h200,ideal,bf16,bf16,bf16,,1,", "nvidia-h200,ideal,bf16,bf16,bf16,,one,", 1
        ),
        encoding="utf-8",
    )
    with pytest.raises(FormatError, match="tp has something that is no number"):
        read_rows(path)
    path.write_text(path.read_text(encoding="utf-8") + "half,a,row\n", encoding="utf-8")
    with pytest.raises(FormatError, match=f"not of {len(rows.columns)} values"):
        len(Saved(path))


def test_parquet_without_pyarrow_says_what_to_install(tmp_path, rows, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingDependencyError, match=r"inferometer\[parquet\].*\.csv or \.sqlite"):
        stream(small(), tmp_path / "rows.parquet")
    with pytest.raises(MissingDependencyError):
        rows.to_parquet(tmp_path / "rows.parquet")
    assert [*tmp_path.iterdir()] == []


def test_dask_without_distributed_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(MissingDependencyError, match=r"inferometer\[dask\]"):
        run_study(small(), engine="dask://127.0.0.1:8786")


def test_a_file_from_before_a_column_came_is_still_read(tmp_path, rows):
    path = tmp_path / "rows.csv"
    rows.to_csv(path)
    lines = [line.split(",") for line in path.read_text(encoding="utf-8").splitlines()]
    place = lines[0].index("threads")
    without = "\n".join(",".join((*line[:place], *line[place + 1 :])) for line in lines) + "\n"
    path.write_text(without, encoding="utf-8")
    found = read_rows(path)
    assert len(found) == len(rows)
    assert found["tpot_s"].tolist() == pytest.approx(rows["tpot_s"].tolist(), nan_ok=True)


def test_a_worker_leaves_an_interrupt_to_its_parent(monkeypatch):
    set_to, watching = {}, []
    monkeypatch.setattr(engines.signal, "signal", set_to.__setitem__)
    monkeypatch.setattr(
        engines.threading, "Thread", lambda **made: SimpleNamespace(start=lambda: watching.append(made))
    )
    monkeypatch.setattr(engines, "_study", None)
    engines._begin("a study")
    assert set_to == {signal.SIGINT: signal.SIG_IGN}
    assert watching == [{"target": engines._end_with_parent, "daemon": True}]
    assert engines._study == "a study"


@pytest.mark.parametrize(
    ("side", "more", "rows"),
    [
        (300, {}, SHARED_ROWS),
        (8, {}, CHUNK_ROWS),  # few points: combinations go together as they did
        (300, {"options": Options(chunk=64)}, CHUNK_ROWS),  # each row is predicted alone
        (300, {"chunk_rows": 12}, 12),  # what was asked for
    ],
)
def test_what_rows_share_is_worked_out_once_for_a_million_rows_unless_each_is_predicted_alone(side, more, rows):
    whole = list(range(1, side + 1))
    assert (
        _chunk_rows(small(devices=["nvidia-l4"], batch=whole, prompt=whole, context=None, **more), SHARED_ROWS) == rows
    )


@NEEDS_ARROW
def test_what_goes_wrong_while_the_whole_file_grows_is_said(tmp_path, monkeypatch):
    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("inferometer.predict.sweep.sinks.parquet_writer", lambda *_: nullcontext(full))
    with pytest.raises(InferometerError, match="cannot be written: No space left on device"):
        stream(small(), tmp_path / "rows.parquet")
    assert not (tmp_path / "rows.parquet").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="there is no limit on the size of files")
@pytest.mark.parametrize("form", FORMS)
def test_rows_that_a_disk_has_no_room_for_are_refused_in_a_sentence_and_leave_nothing(tmp_path, rows, form):
    from fakes.full_disk import full_disk

    path = tmp_path / f"rows.{form}"
    with full_disk(900), pytest.raises(InferometerError, match="cannot be written: "):
        getattr(rows, f"to_{form}")(path)
    assert [*tmp_path.iterdir()] == []
    getattr(rows, f"to_{form}")(path)
    same(read_rows(path), rows)


@pytest.mark.skipif(sys.platform == "win32", reason="there is no limit on the size of files")
@pytest.mark.parametrize(("form", "room"), [("csv", 9_000), ("sqlite", 16_384), ("csv", 900)])
def test_a_full_disk_is_said_and_what_was_written_is_kept(tmp_path, rows, form, room):
    path = tmp_path / f"rows.{form}"
    code = (
        "import resource, sys; from pathlib import Path; from inferometer.predict.sweep import stream;"
        "from inferometer.core.errors import InferometerError; from unit.predict.sweep.studies import small;"
        "study = small(chunk_rows=12); resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]),) * 2)\n"
        "try: stream(study, Path(sys.argv[1]))\nexcept InferometerError as error: print(error)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}  # noqa: TID251 - a child needs PATH
    command = [sys.executable, "-c", code, str(path), str(room)]
    words = subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout
    assert words.startswith(f"{path} cannot be written: ")
    told = re.search(r"Its first (\d+) rows are kept: make room, and continue with --resume", words)
    kept = int(told[1]) if told else 0
    assert (0 < kept < 48) == (room > 1000) == journal_of(path).exists()
    assert stream(small(chunk_rows=12), path, resume=True).kept == kept
    same(read_rows(path), rows)
    assert [*tmp_path.iterdir()] == [path]
