"""Whatever is done to a program's bytes or to its document, reading ends in a graph or in an error of ours."""

import json
from contextlib import suppress

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from inferometer.core.errors import InferometerError
from inferometer.core.graph import Graph
from inferometer.formats.base import Peek
from inferometer.formats.torch import read_pt2, reader
from inferometer.predict import coverage
from unit.formats.torch.archives import DATA, document_of, packed, with_document

WHOLE = (DATA / "mlp.pt2").read_bytes()
DOCUMENTS = {name: json.dumps(document_of(name)) for name in ("mlp", "mixed")}
BOUNDED = settings(
    max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(allow_nan=False), st.text(max_size=8),
    st.sampled_from(["linear", "x", "torch.ops.aten.cat.default", "torch.ops.higher_order.cond", "Infinity"]),
)  # fmt: skip
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner))


def outcome(path):
    with suppress(InferometerError):
        graph = read_pt2(path)
        assert isinstance(graph, Graph)
        assert graph.parameters >= 0
        coverage(graph)


@BOUNDED
@given(changes=st.lists(st.tuples(st.integers(0, len(WHOLE) - 1), st.integers(0, 255)), min_size=1, max_size=20))
def test_changed_bytes(tmp_path, changes):
    data = bytearray(WHOLE)
    for place, byte in changes:
        data[place] = byte
    path = tmp_path / "m.pt2"
    path.write_bytes(data)
    outcome(path)


@BOUNDED
@given(start=st.integers(0, len(WHOLE)), length=st.integers(0, 4000), filler=st.binary(max_size=64))
def test_cut_or_filled_bytes(tmp_path, start, length, filler):
    path = tmp_path / "m.pt2"
    path.write_bytes(WHOLE[:start] + filler + WHOLE[start + length :])
    outcome(path)


def places(value, path=()):
    """Every place in a document, by its keys."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*path, key))


PLACES = {name: list(places(json.loads(text))) for name, text in DOCUMENTS.items()}


@BOUNDED
@given(data=st.data(), name=st.sampled_from(sorted(DOCUMENTS)))
def test_changed_documents(tmp_path, data, name):
    """Some places of the document are removed, replaced, or exchanged with what stands at another."""
    document = json.loads(DOCUMENTS[name])
    for _ in range(data.draw(st.integers(1, 4))):
        *parents, last = data.draw(st.sampled_from(PLACES[name][1:]))
        with suppress(KeyError, IndexError, TypeError):  # an earlier change took the place away
            place = document
            for key in parents:
                place = place[key]
            if data.draw(st.booleans()):
                place[last] = data.draw(VALUES)
            else:
                del place[last]
    outcome(with_document(tmp_path / "m.pt2", document, name))


@BOUNDED
@given(text=st.binary(max_size=400))
def test_any_document(tmp_path, text):
    outcome(packed(tmp_path / "m.pt2", {"models/model.json": text}))


@given(head=st.binary(max_size=200), start=st.sampled_from([b"", b"PK\x03\x04", b"\x80\x04", WHOLE[:100]]))
def test_matching_never_fails(tmp_path_factory, head, start):
    assert 0 <= reader.match(Peek(path=DATA, size=len(head), head=start + head)) <= 1
