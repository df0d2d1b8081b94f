"""What a model in one memory is timed for: each stage once, with or without the compiler, until the device is idle."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from inferometer.engines.torch import forward, host
from inferometer.engines.torch.forward import Static

STAGES = sorted(forward._DOING)


def made(*, cuda):
    told = []
    one = object.__new__(Static)
    ticks = iter([10.0, 12.5, 20.0, 21.0])
    one._clock, one._paid, one._place = ticks.__next__, {}, SimpleNamespace(cuda=cuda)
    one._torch = SimpleNamespace(cuda=SimpleNamespace(synchronize=lambda: told.append("idle")))
    one._compiling = lambda phase, work: told.append(phase) or work()
    return one, told


@pytest.mark.parametrize("cuda", [True, False])
def test_a_stage_takes_until_the_device_is_idle_and_is_compiled_if_it_has_a_phase(cuda):
    one, told = made(cuda=cuda)
    first, second = STAGES[:2]
    assert one._timed(first, None, lambda: told.append("work") or "done") == "done"
    assert one._timed(second, "decode", lambda: told.append("work") or "compiled") == "compiled"
    idle = ["idle"] if cuda else []
    assert told == ["work", *idle, "decode", "work", *idle]
    assert one._paid == {first: 2.5, second: 1.0}


def test_a_source_is_read_by_the_encoder_of_its_shape_and_ids_by_the_pass_of_their_length():
    one, _ = made(cuda=False)
    read = []
    one._encoders = {(1, 8): lambda source: read.append(("short", source)), (1, 9): lambda _: read.append("long")}
    one._prefills = {(3, False): lambda _: read.append("first"), (3, True): lambda _: read.append("further")}
    one._length, one._token = 0, "token"
    source, ids = SimpleNamespace(shape=[1, 8]), SimpleNamespace(shape=[1, 3])
    one.encode(source)
    assert [one.read(ids), one.read(ids)] == ["token", "token"]
    assert (read, one._length) == ([("short", source), "first", "further"], 6)


def test_compiled_graphs_lie_in_a_folder_that_is_made_or_where_torch_likes(monkeypatch, tmp_path):
    asked = []
    found = SimpleNamespace(temporary_cache_dir=lambda folder: asked.append(folder) or nullcontext())
    monkeypatch.setattr(host, "import_module", lambda _: found)
    folder = tmp_path / "a" / "b"
    for _ in range(2):
        with host._directed_to(folder):
            assert folder.is_dir()
    assert asked == [str(folder)] * 2
    (tmp_path / "file").write_bytes(b"")
    for elsewhere, module in ((tmp_path / "file" / "c", found), (folder, SimpleNamespace())):
        monkeypatch.setattr(host, "import_module", lambda _, module=module: module)
        with host._directed_to(elsewhere):
            assert len(asked) == 2


def test_what_came_from_an_earlier_run_is_told_beside_what_was_compiled(monkeypatch, tmp_path):
    counts = iter([(10, 20), (12, 20), (10, 20), (11, 23), (5, 5), (5, 9)])
    monkeypatch.setattr(host, "_counts", lambda: next(counts))
    monkeypatch.setattr(host, "_directed_to", lambda _: nullcontext())
    found = []
    for _ in range(3):
        with host.kept_graphs(tmp_path) as kept:
            assert (kept.found, kept.made, kept.note) == (0, 0, None)
        found.append((kept.found, kept.made, kept.note))
    assert found == [
        (2, 0, f"Nothing was compiled: 2 graphs came from an earlier run ({tmp_path})."),
        (1, 3, f"1 graph came from an earlier run ({tmp_path}), 3 were compiled."), (0, 4, None),
    ]  # fmt: skip
    assert kept.calls == tmp_path / "calls"
