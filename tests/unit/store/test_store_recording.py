"""A measuring command keeps its run, however it ends."""

import pytest

from inferometer.core.codec import decode
from inferometer.core.errors import DomainError, EngineError, GateError, UnknownNameError
from inferometer.core.profile import Profile
from inferometer.store import StoreError, open_store
from inferometer.store.recording import hub_link, recording
from unit.store.profiles import profile
from unit.store.test_store_parts import none_set  # noqa: F401 - a fixture


@pytest.fixture
def store(tmp_path):
    with open_store(tmp_path / "runs.db") as opened:
        yield opened


def test_a_run_is_there_while_it_is_measured_and_finished_after(store):
    with recording("phones", store=store, name="n", tags=["t"], kind="bench", parameters={"a": "b"}) as recorder:
        assert store.row(recorder.id).status == "running"
        recorder.metric("loss", 2.0)
        recorder.metrics({"loss": 1.0}, step=5)
        recorder.tag(["late"])
        recorder.log("one")
        recorder.log("two\n")
        recorder.keep(profile(1))
        recorder.keep(profile(2))
    found, row = store.get(recorder.id), store.row(recorder.id)
    assert (found.status, found.profile, row.kind) == ("finished", profile(2), "bench")
    assert (found.tags, found.name, found.project) == (("late", "t"), "n", "phones")
    assert [m.step for m in store.metrics(recorder.id)] == [0, 5]
    assert store.artifact(recorder.id, "log.txt").read_text() == "one\ntwo\n"
    assert recorder.link == f"http://127.0.0.1:8077/runs/{recorder.id}"


def test_the_port_of_the_link_is_a_setting(monkeypatch):
    monkeypatch.setenv("INFEROMETER_PORT", "9000")
    assert hub_link("x") == "http://127.0.0.1:9000/runs/x"
    monkeypatch.setenv("INFEROMETER_PORT", "none")
    assert hub_link("x") == "http://127.0.0.1:8077/runs/x"


def test_last_says_that_no_run_has_finished_and_how_to_make_one(store):
    with pytest.raises(DomainError, match=r"no run has finished yet\. Measure a model with `inferometer profile"):
        store.get("last")
    store.begin()
    with pytest.raises(DomainError, match=r"no run has finished yet\. `inferometer runs` lists those that were begun"):
        store.get("last")
    store.add(profile())
    with pytest.raises(DomainError, match="There is no last~1: 1 run has finished"):
        store.get("last~1")


def measure(store, error=None, **options):
    """A command that measures, and then may fail."""
    with recording(store=store, **options) as recorder:
        recorder.log("before")
        recorder.keep(profile())
        if error is not None:
            raise error


def test_an_error_leaves_a_failed_run_with_its_traceback(store):
    with pytest.raises(ZeroDivisionError):
        measure(store, ZeroDivisionError("division by zero"))
    (row,) = store.list().rows
    found = store.get(row.id)
    assert (found.status, row.reason, found.profile) == ("failed", "ZeroDivisionError: division by zero", profile())
    log = store.artifact(row.id, "log.txt").read_text()
    assert log.startswith("before\nTraceback")
    assert log.endswith("ZeroDivisionError: division by zero\n")


def test_ctrl_c_leaves_a_killed_run_with_what_it_had(store):
    with pytest.raises(KeyboardInterrupt):
        measure(store, KeyboardInterrupt())
    (row,) = store.list().rows
    assert (row.status, store.get(row.id).profile) == ("killed", profile())


@pytest.mark.parametrize("error", [GateError("slower"), SystemExit(1), SystemExit(0)])
def test_a_gate_that_does_not_hold_is_no_failure_of_the_run(store, error):
    with pytest.raises(type(error)):
        measure(store, error)
    assert store.row("last").status == "finished"


@pytest.mark.parametrize("error", [DomainError("0 threads"), UnknownNameError("runtime", "onx", ["onnxruntime"])])
def test_a_request_that_is_refused_before_anything_is_measured_leaves_no_run(store, error):
    with pytest.raises(type(error)), recording(store=store) as recorder:
        raise error
    assert store.list().rows == ()
    assert recorder.link is None
    with pytest.raises(EngineError), recording(store=store):
        raise EngineError("The engine could not load it.")
    assert [row.status for row in store.list().rows] == ["failed"]


def test_a_store_that_fails_meanwhile_does_not_stop_the_measurement(store, tmp_path, monkeypatch):
    def gone(*_, **__):
        raise StoreError("The database is gone.", remedy="Start it.")

    def measuring():
        with recording(store=store, folder=tmp_path) as ours:
            for name in ("add_metrics", "add_series", "tag", "begin"):
                monkeypatch.setattr(store, name, gone)
            ours.metric("progress", 0.5)
            ours.series("memory_bytes", {1: 2.0})
            ours.tag(["disturbed"])
            ours.keep(profile())
            ours.keep_below(profile())

    with pytest.raises(StoreError, match="further lengths") as caught:
        measuring()
    assert [row.status for row in store.list().rows] == ["finished"]
    saved = sorted(tmp_path.glob("inferometer-*.json"))
    assert len(saved) == 2
    assert all(str(path) in str(caught.value) for path in saved)
    assert decode(saved[1].read_bytes(), Profile) == profile()


def test_switched_off_it_leaves_no_trace(tmp_path):
    place = tmp_path / "runs.db"
    with recording(store=place, enabled=False) as recorder:
        recorder.keep(profile())
        recorder.metric("a", 1.0)
        recorder.tag(["t"])
    assert (recorder.id, recorder.link, recorder.skipped, place.exists()) == (None, None, None, False)


def test_without_a_database_it_measures_and_says_why_nothing_is_kept(monkeypatch, tmp_path):
    monkeypatch.setattr("inferometer.store.location.find_spec", lambda _: None)
    with recording(store=tmp_path / "runs.db") as recorder:
        recorder.keep(profile())
    assert recorder.link is None
    assert "inferometer[hub]" in recorder.skipped


def test_a_store_that_cannot_be_opened_is_told_before_anything_is_measured(tmp_path):
    (tmp_path / "runs.db").write_bytes(b"no database" * 100)
    measured = []
    with pytest.raises(StoreError), recording(store=tmp_path / "runs.db"):
        measured.append(1)
    with pytest.raises(DomainError), recording("a/b", store=tmp_path / "other.db"):
        measured.append(1)
    assert measured == []


def test_a_profile_that_no_folder_takes_is_said_to_be_lost(store, tmp_path, monkeypatch):
    def full(*_, **__):
        raise StoreError("The disk is full.", remedy="Make room.")

    monkeypatch.setattr(store, "finish", full)
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path / "nowhere"))
    with pytest.raises(StoreError, match="could not take it either: it is lost"):
        measure(store, folder=tmp_path / "missing")


def test_an_error_on_its_way_is_not_hidden_by_the_stores(store, tmp_path, monkeypatch):
    def full(*_, **__):
        raise StoreError("The disk is full.")

    monkeypatch.setattr(store, "fail", full)
    with pytest.raises(ValueError, match="the mind") as caught:
        measure(store, ValueError("the mind"), folder=tmp_path)
    assert "could not be stored either" in caught.value.__notes__[0]
