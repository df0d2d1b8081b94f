"""A file is there whole or not at all. What can be made again goes when the disk is needed: the longest unused first,
and nothing that is in use."""

import os
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from inferometer.core.cache import held_alone, is_kept, keep_to_limit, write_whole
from inferometer.core.errors import InferometerError
from inferometer.formats.synth import synthesise
from inferometer.formats.synth.files import require_room

MB = 1_000_000
HOUR = 3600


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("INFEROMETER_CACHE", str(tmp_path))
    monkeypatch.setenv("INFEROMETER_CACHE_LIMIT", "10 MB")
    return tmp_path


def kept(path, *, mb, hours):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(int(mb * MB)))
    then = time.time() - hours * HOUR
    os.utime(path, (then, then))
    return path


def test_the_longest_unused_goes_until_the_rest_is_within_the_limit(cache):
    oldest = kept(cache / "probes" / "a.onnx", mb=6, hours=30)
    older = kept(cache / "models" / "b.gguf", mb=5, hours=20)
    newer = kept(cache / "engine-tables" / "c.tables", mb=4, hours=10)
    assert keep_to_limit() == 6 * MB
    assert (oldest.exists(), older.exists(), newer.exists()) == (False, True, True)
    assert keep_to_limit() == 0


def test_nothing_goes_that_need_not_once_the_rest_is_at_the_limit(cache):
    files = [kept(cache / "models" / f"{mb}.gguf", mb=mb, hours=hours) for mb, hours in ((4, 30), (3, 20), (7, 10))]
    assert keep_to_limit() == 4 * MB, "what is left is exactly the limit"
    assert [file.exists() for file in files] == [False, True, True]
    assert keep_to_limit() == 0


def test_a_folder_goes_as_a_whole_by_the_last_use_of_anything_in_it(cache):
    result = kept(cache / "prepared" / "onnx-1" / "model.onnx", mb=6, hours=90).parent
    kept(result / "step.json", mb=0, hours=90)
    other = kept(cache / "prepared" / "onnx-2" / "model.onnx", mb=6, hours=50).parent
    made = (result / "step.json").stat().st_mtime_ns
    assert is_kept(result / "step.json")
    assert (result / "step.json").stat().st_mtime_ns == made, "when it was made is not when it was used"
    keep_to_limit()
    assert {path.name for path in (cache / "prepared").iterdir()} == {"onnx-1"}
    assert not is_kept(other / "step.json")


def test_weights_beside_a_model_stay_and_go_with_it(cache):
    for name, mb in (("large.onnx", 0.1), ("large.onnx.data", 7)):
        kept(cache / "models" / name, mb=mb, hours=40)
    later = kept(cache / "models" / "small.onnx", mb=6, hours=20)
    assert is_kept(cache / "models" / "large.onnx")
    keep_to_limit()
    assert {path.name for path in (cache / "models").iterdir()} == {"large.onnx", "large.onnx.data"}
    assert not later.exists()


def test_what_was_used_within_the_hour_and_what_is_small_stay_above_the_limit(cache):
    held = kept(cache / "models" / "held.onnx", mb=40, hours=0.5)
    note = kept(cache / "prepared" / "origins" / "0123", mb=0.001, hours=500)
    assert keep_to_limit() == 0
    assert held.exists()
    assert note.exists()


def test_nothing_else_in_the_cache_is_touched(cache):
    other = kept(cache / "hub" / "vega.js", mb=20, hours=900)
    assert keep_to_limit() == 0
    assert other.exists()


def test_room_is_made_before_something_is_written_there_and_only_there(cache, tmp_path_factory):
    old = kept(cache / "probes" / "old.onnx", mb=12, hours=30)
    synthesise("squeezenet1.1", tmp_path_factory.mktemp("elsewhere") / "model.onnx", format="onnx")
    assert old.exists()
    require_room(cache / "models", MB)
    assert not old.exists()


def test_a_limit_that_is_no_size_is_told(cache, monkeypatch):
    monkeypatch.setenv("INFEROMETER_CACHE_LIMIT", "plenty")
    with pytest.raises(InferometerError, match="'plenty', which is no size"):
        keep_to_limit()


def test_of_writers_at_once_one_wins_and_none_leaves_anything_beside(tmp_path):
    path = tmp_path / "new" / "kept"
    texts = [bytes([letter]) * 200_000 for letter in b"abcdefgh"]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda text: write_whole(path, text), texts))
    assert path.read_bytes() in texts
    assert list(path.parent.iterdir()) == [path]


def test_what_breaks_off_leaves_what_was_there(tmp_path):
    def chunks():
        yield b"half"
        raise OSError("the disk is full")

    path = tmp_path / "kept"
    write_whole(path, [b"be", b"fore"])
    with pytest.raises(OSError, match="full"):
        write_whole(path, chunks())
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]


def test_a_lock_has_one_holder_and_is_free_again_after_an_error(tmp_path):
    pytest.importorskip("fcntl")
    lock = tmp_path / "new" / "lock"

    def failing():
        with held_alone(lock) as first, held_alone(lock) as second:
            assert (first, second) == (True, False)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        failing()
    with held_alone(lock) as again:
        assert again
