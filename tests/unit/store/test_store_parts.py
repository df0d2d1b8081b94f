"""Ids, names, places, owners and files: the parts of the store that need no database."""

import errno
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferometer.core.errors import DomainError
from inferometer.store import Attachment, StoreError, files, locate, names
from inferometer.store.opened import gone, this_process

SETTINGS = ("INFEROMETER_STORE", "INFEROMETER_ARTIFACTS", "INFEROMETER_PORT", "XDG_DATA_HOME", "LOCALAPPDATA")


@pytest.fixture(autouse=True)
def none_set(monkeypatch):
    for name in SETTINGS:
        monkeypatch.delenv(name, raising=False)


@given(st.lists(st.floats(0, 9e9), min_size=2, max_size=2))
def test_ids_sort_as_their_times_do(times):
    early, late = (names.new_id(now, lambda _: 0) for now in sorted(times))
    assert early <= late
    assert len(early) == names.ID_LENGTH
    assert names.normal_id(early) == early


def test_ids_of_one_moment_differ_and_read_back_from_a_hand():
    drawn = {names.new_id(1.76e9) for _ in range(200)}
    assert len(drawn) > 190
    assert names.normal_id("574P-19OI-L9CZ") == "574p19011" + "9cz"
    assert names.normal_id("no way") is None
    assert names.normal_id("u") is None  # not a digit of ours
    assert names.normal_id("0" * 13) is None
    assert names.new_id(0, lambda most: most - 1) == "00000000zzzz"


@given(st.text(max_size=300))
def test_a_name_that_is_taken_is_fit_for_a_database_a_terminal_and_a_path(text):
    for kind in ("project", "run", "tag", "file"):
        try:
            name = names.valid_name(kind, text)
        except DomainError:
            continue
        assert name
        assert name.isprintable() or not any(letter in name for letter in "\n\r\t\x00\x1b")
        assert name.encode("utf-8")
    assert "\x00" not in (names.clean(text) or "")


@pytest.mark.parametrize("wrong", ["../up", "/etc/passwd", "a//b", "c:\\x", "a/./b", "a/..", ".", "", "a\x00"])
def test_a_file_cannot_be_named_out_of_its_folder(wrong):
    with pytest.raises(DomainError):
        names.valid_name("file", wrong)


def test_without_a_word_the_store_is_in_the_users_data_folder(tmp_path, monkeypatch):
    monkeypatch.delenv("INFEROMETER_STORE", raising=False)
    monkeypatch.delenv("INFEROMETER_ARTIFACTS", raising=False)
    monkeypatch.setenv("INFEROMETER_DATA", str(tmp_path))
    assert locate().file == tmp_path / "runs.db"
    assert locate().artifacts == tmp_path / "runs.artifacts"


def test_the_settings_move_it(monkeypatch, tmp_path):
    monkeypatch.setenv("INFEROMETER_STORE", str(tmp_path / "a.db"))
    monkeypatch.setenv("INFEROMETER_ARTIFACTS", str(tmp_path / "files"))
    assert (locate().file, locate().artifacts) == (tmp_path / "a.db", tmp_path / "files")
    monkeypatch.setenv("INFEROMETER_STORE", "postgres://u:secret@host/db")
    assert locate().url == "postgresql://u:secret@host/db"
    assert str(locate()) == "postgresql://u:***@host/db"


def test_places_are_written_in_many_ways(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert locate(tmp_path).file == tmp_path / "runs.db"
    assert locate("new/").file == tmp_path / "new" / "runs.db"
    assert locate("sqlite:///rel.db").file == tmp_path / "rel.db"
    assert locate(f"sqlite:///{tmp_path}/abs.db").file == tmp_path / "abs.db"
    assert locate("sqlite:///my%20runs.db").file == tmp_path / "my runs.db"
    for wrong in ("mysql://u:secret@h/d", "", " ", "a\0b"):
        with pytest.raises(DomainError) as caught:
            locate(wrong)
        assert "secret" not in str(caught.value)


def test_this_process_is_here_and_an_ended_one_is_not():
    here = this_process()
    assert gone(here, here) is False
    ended = subprocess.Popen([sys.executable, "-c", "pass"])
    born = this_process().born
    ended.wait()
    assert gone(replace(here, pid=ended.pid), here) is True
    assert gone(replace(here, born=f"{born}1"), here) is True  # the number was given to another process since
    assert gone(replace(here, boot="another"), here) is True
    assert gone(replace(here, host="another"), here) is None
    assert gone(replace(here, space="another"), here) is None


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads Linux's process files")
def test_a_process_whose_name_looks_like_fields_is_read_right(tmp_path):
    (tmp_path / "7").mkdir()
    fields = " ".join(str(number) for number in range(1, 30))
    (tmp_path / "7" / "stat").write_text(f"7 (a) Z 1 (b) S {fields}")
    here = this_process()
    assert gone(replace(here, pid=7, born="19"), here, proc=tmp_path) is False
    (tmp_path / "7" / "stat").write_text(f"7 (a) Z {fields}")
    assert gone(replace(here, pid=7, born="19"), here, proc=tmp_path) is True  # only its shell is left


def test_a_file_is_kept_by_what_is_in_it(tmp_path):
    first = files.keep(tmp_path, b"hello")
    assert first.sha256 == "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"  # of "hello"
    (tmp_path / "source").write_bytes(b"hello")
    assert files.keep(tmp_path, tmp_path / "source") == first
    assert files.read(tmp_path, first.sha256).read_bytes() == b"hello"
    assert list(files.all_of(tmp_path)) == [first.sha256]


def test_a_file_too_large_or_gone_is_refused_and_leaves_nothing(tmp_path):
    with pytest.raises(DomainError, match="larger than the 4 bytes"):
        files.keep(tmp_path / "kept", b"hello", most=4)
    with pytest.raises(DomainError, match="cannot be read"):
        files.keep(tmp_path / "kept", tmp_path / "nowhere")
    assert list((tmp_path / "kept").iterdir()) == []
    with pytest.raises(StoreError, match="is not in"):
        files.read(tmp_path, "0" * 64)


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_full_disk_leaves_no_half_file(tmp_path, monkeypatch, call):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(*(("os.fsync", full) if call == "fsync" else ("pathlib.Path.replace", full)))
    with pytest.raises(StoreError, match="No space left"):
        files.keep(tmp_path, b"hello")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_young_file_is_not_dropped(tmp_path):
    kept = files.keep(tmp_path, b"hello")
    born = files.path_of(tmp_path, kept.sha256).stat().st_mtime
    assert not files.drop(tmp_path, kept.sha256, now=born + 599)
    files.keep(tmp_path, b"hello")
    assert files.drop(tmp_path, kept.sha256, now=born + 9999)
    assert not files.drop(tmp_path, kept.sha256)


def test_an_attachment_may_be_a_path_or_bytes():
    assert Attachment(name="a", source=Path("b")).media_type is None


def test_a_row_is_a_value_by_the_names_of_its_columns():
    from inferometer.store.finding import value_of
    from inferometer.store.values import AuditEntry, Push

    row = {"run_id": "r1", "hub": "h", "queued_us": 2_500_000, "sent_us": None, "refused": True, "reason": "no"}
    assert value_of(Push, row) == Push(run="r1", hub="h", queued=2.5, reason="no")
    told = {"id": 7, "at_us": 0, "user": "me", "action": "x", "project": "named", "project_id": 3}
    entry = value_of(AuditEntry, told, number=7, user="you")
    assert (entry.number, entry.at, entry.user, entry.project) == (7, 0.0, "you", "named")
