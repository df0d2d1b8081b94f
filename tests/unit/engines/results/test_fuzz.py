"""Whatever is done to a file, the answer is a profile that can be written down, or an error that says why."""

import copy
import json
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fakes.closing import contradictions_allowed
from inferometer.core.codec import decode, encode
from inferometer.core.errors import InferometerError
from inferometer.core.profile import Profile
from inferometer.engines.results.detect import choose_importer, parse_document
from unit.engines.results.sources import DATA, OURS, SAMPLES

ODD = [
    None, True, False, 0, -1, 1, -0.0, 1e-300, 1e300, 10**30, -(10**30), 2**63, float("nan"), float("inf"), "", " ",
    "x", "NaN", "-1", "1e999", "0.5", "\x00", "\ud800", "é" * 300, [], {}, [[]], [{}], [None], {"": None},
    [1, "x", None],    {"unit": "ms", "avg": 3}, {"mean": 3}, "Status.EXECUTED", "ProfilerStep#1", "kernel", "Node",
]  # fmt: skip
TREES = sorted(name for name in SAMPLES if name.endswith((".json", ".jsonl")))
# Of each of forty samples; other ones in each run.
EVERY = settings(max_examples=10, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


@pytest.fixture(autouse=True, scope="module")
def _files_that_contradict_themselves():
    with contradictions_allowed():
        yield


def accept(path, data):
    """Import these bytes by whoever knows them. Anything but a profile or an error of ours fails the test."""
    try:
        document = parse_document(path, data)
        profiles = choose_importer(document, importers=OURS.values()).read(document)
    except InferometerError as error:
        assert error.message
        return
    for profile in profiles:
        assert decode(encode(profile), Profile).phases == profile.phases
        assert all(phase.time_s >= 0 for phase in profile.phases)
        assert all(op.time_s >= 0 and op.count >= 1 for phase in profile.phases for op in phase.ops)


def places(tree, path=()):
    """Every place in a tree of dicts and lists."""
    yield path
    inside = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in inside:
        yield from places(value, (*path, key))


def changed(tree, path, what, value):
    """The tree with one place replaced, dropped or doubled."""
    if not path:
        return value if what == "replace" else tree
    parent = tree
    for key in path[:-1]:
        parent = parent[key]
    if what == "replace":
        parent[path[-1]] = value
    elif what == "drop":
        del parent[path[-1]]
    elif isinstance(parent, list):
        parent.append(copy.deepcopy(parent[path[-1]]))
    else:
        parent[f"{path[-1]}2"] = copy.deepcopy(parent[path[-1]])
    return tree


def written(trees):
    return "\n".join(json.dumps(tree) for tree in trees).encode("utf-8", errors="surrogatepass")


@pytest.mark.parametrize("name", TREES)
@EVERY
@given(data=st.data())
def test_any_value_anywhere_in_a_json_result(name, data):
    text = (DATA / name).read_text(encoding="utf-8")
    trees = [json.loads(line) for line in text.splitlines()] if name.endswith(".jsonl") else [json.loads(text)]
    for _ in range(data.draw(st.integers(1, 3))):
        index = data.draw(st.integers(0, len(trees) - 1))
        path = data.draw(st.sampled_from(list(places(trees[index]))))
        what = data.draw(st.sampled_from(["replace", "replace", "replace", "drop", "double"]))
        trees[index] = changed(trees[index], path, what, copy.deepcopy(data.draw(st.sampled_from(ODD))))
    accept(DATA / name, written(trees))


@pytest.mark.parametrize("name", sorted(SAMPLES))
@EVERY
@given(data=st.data())
def test_any_bytes_changed_in_any_result(name, data):
    raw = bytearray((DATA / name).read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(raw)))
        what = data.draw(st.sampled_from(["flip", "insert", "cut", "remove"]))
        if what == "insert":
            raw[at:at] = data.draw(st.binary(min_size=1, max_size=6))
        elif what == "cut":
            del raw[at:]
        elif what == "remove":
            del raw[at : at + data.draw(st.integers(1, 40))]
        elif at < len(raw):
            raw[at] = data.draw(st.integers(0, 255))
    accept(DATA / name, bytes(raw))


@pytest.mark.parametrize("name", ["litert.txt", "litert.csv", "openvino_detailed.csv", "openvino_report.csv"])
@EVERY
@given(seed=st.integers(0, 2**32))
def test_any_lines_and_cells_shuffled_in_a_text_result(name, seed):
    chance = random.Random(seed)  # noqa: S311 - a shuffle, not a secret
    lines = (DATA / name).read_text().splitlines()
    for _ in range(chance.randint(1, 5)):
        at = chance.randrange(len(lines))
        delimiter = next((mark for mark in (";", "\t", ",") if mark in lines[at]), " ")
        cells = lines[at].split(delimiter)
        match chance.randrange(4):
            case 0:
                cells[chance.randrange(len(cells))] = str(chance.choice(ODD))
            case 1:
                del cells[chance.randrange(len(cells))]
            case 2:
                chance.shuffle(cells)
            case _:
                other = chance.randrange(len(lines))
                lines[at], lines[other] = lines[other], lines[at]
                continue
        lines[at] = delimiter.join(cells)
    accept(DATA / name, "\n".join(lines).encode("utf-8", errors="replace"))


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_every_truncation(name):
    raw = (DATA / name).read_bytes()
    for size in range(0, len(raw), max(1, len(raw) // 60)):
        accept(DATA / name, raw[:size])


@EVERY
@given(st.binary(max_size=400))
def test_any_bytes_at_all(raw):
    accept(DATA / "noise", raw)
