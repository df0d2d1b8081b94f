"""Work is additive; a value that is written and read again has lost nothing."""

import dataclasses
import math
import typing

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inferometer.core import Calibration, Phase, Profile, Utilisation, Work, Workload
from inferometer.core.codec import SCHEMAS, decode, document, encode
from inferometer.core.dtypes import DTYPES
from inferometer.core.errors import SchemaError, UnitError
from inferometer.core.job import Job, JobFile, JobModel, JobResult
from inferometer.core.units import SYMBOLS, format_quantity, parse_quantity
from inferometer.core.work import STREAMS

COUNTS = st.integers(0, 2**70)
WORKS = st.builds(
    Work,
    flops=st.dictionaries(st.sampled_from(["f32", "bf16", "i8"]), COUNTS),
    **dict.fromkeys(STREAMS, COUNTS),
)


@given(WORKS, WORKS, WORKS)
def test_work_adds_in_any_order(a, b, c):
    assert a + b == b + a
    assert (a + b) + c == a + (b + c)
    assert a + Work() == a


@given(WORKS, WORKS, st.integers(0, 100))
def test_a_multiple_of_a_sum_is_the_sum_of_multiples(a, b, times):
    assert times * (a + b) == times * a + times * b
    assert (a + b).bytes == a.bytes + b.bytes
    assert (a + b).total_flops == a.total_flops + b.total_flops


@given(st.sampled_from(sorted(DTYPES)), st.integers(0, 10**9), st.integers(0, 10**9))
def test_bytes_grow_with_the_count_and_are_exact_for_whole_blocks(name, a, b):
    entry = DTYPES[name]
    assert entry.nbytes(min(a, b)) <= entry.nbytes(max(a, b))
    assert entry.nbytes(a * entry.elements) == a * entry.block_bytes


FINITE = st.floats(allow_nan=False, allow_infinity=False)
TEXT = st.text(max_size=12)
SMALL = st.integers(0, 2**53)


def strategy(hint):
    """A strategy for any annotation that the values use."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is str:
        return TEXT
    if hint is int:
        return SMALL
    if hint is float:
        return FINITE
    if hint is bool:
        return st.booleans()
    if hint is typing.Any:
        return st.one_of(st.none(), SMALL, TEXT)
    if origin is typing.Literal:
        return st.sampled_from(arguments)
    if dataclasses.is_dataclass(hint):
        return value_of(hint)
    if origin is tuple and Ellipsis not in arguments:
        return st.tuples(*map(strategy, arguments))
    if origin is tuple:
        return st.lists(strategy(arguments[0]), max_size=2).map(tuple)
    if origin is not None and issubclass_mapping(origin):
        return st.dictionaries(TEXT, strategy(arguments[1]), max_size=2)
    return st.one_of(*(st.none() if part is type(None) else strategy(part) for part in arguments))


HASHES = st.text("0123456789abcdef", min_size=64, max_size=64)
PATHS = st.sampled_from(["net", "net/config.json"])
FILES = st.builds(JobFile, path=PATHS, sha256=HASHES, size_bytes=SMALL)
SERIES = st.dictionaries(TEXT, st.lists(st.tuples(SMALL, FINITE), max_size=2).map(tuple), max_size=2)
INPUTS = st.dictionaries(TEXT, HASHES, max_size=2).map(
    lambda hashes: {
        name: JobFile(path=f"{number}.npy", sha256=sha256, size_bytes=number)
        for number, (name, sha256) in enumerate(hashes.items())
    }
)
JOBS = {
    "id": st.text("abc-123", min_size=1, max_size=9).map("j{}".format),
    "model": st.builds(JobModel, name=st.text(st.characters(categories=["L", "N"]), max_size=12).map("net{}".format)),
    "inputs": INPUTS,
    "runtime": st.sampled_from([None, "onnxruntime"]),
    "seconds_at_most": st.sampled_from([None, 1.5]),
}


def issubclass_mapping(origin):
    import collections.abc

    return isinstance(origin, type) and issubclass(origin, collections.abc.Mapping)


def value_of(kind):
    if kind is Utilisation:
        return st.builds(
            Utilisation,
            op_class=TEXT,
            stream=TEXT,
            axes=st.just(("rows",)),
            grid=st.just(((1.0, 2.0),)),
            values=st.tuples(*[st.floats(0, 1, exclude_min=True)] * 2),
            residual=FINITE,
        )
    if kind is JobModel:
        return st.builds(
            JobModel, name=st.just("net"), entry=st.just("net"), files=st.lists(FILES, max_size=1).map(tuple)
        )
    # Load tests (`served`) have their own example in tests/unit/understand/view/test_load_tests.py: columns take long
    # here.
    fields = {name: strategy(hint) for name, hint in typing.get_type_hints(kind).items() if name != "served"}
    sizes = ("batch", "prompt", "generate", "context", "image") if kind is Workload else ("batch", "prompt", "image")
    limits = {name: st.integers(1, 9) for name in sizes}
    plan = {name: st.integers(1, 9) for name in ("tp", "pp", "ep", "dp")}
    formats = {name: st.sampled_from([None, "f32", "q4_0"]) for name in ("weights", "activations", "kv")}
    special = {"arrival_per_s": st.none(), "start_ns": st.integers(0, 9), "end_ns": st.integers(10, 99)}
    chosen = limits | plan | formats | special | (JOBS if kind is Job else {})
    chosen |= {"path": PATHS, "sha256": HASHES} if kind is JobFile else {}
    # A profile and a calibration have their own examples here: together they take hypothesis a minute.
    chosen |= {"series": SERIES, "profiles": st.just(()), "calibration": st.none()} if kind is JobResult else {}
    # A calibration has rates of one kind, and only parts that were measured have a prediction beside them.
    chosen |= {name: st.just({}) for name in ("kernels", "forms", "parameters")} if kind is Calibration else {}
    made = st.builds(kind, **{name: chosen.get(name, made) for name, made in fields.items()})
    return made.map(lambda phase: dataclasses.replace(phase, predicted_parts=phase.parts)) if kind is Phase else made


@pytest.mark.parametrize("kind", SCHEMAS, ids=lambda kind: kind.__name__)
def test_a_document_written_and_read_loses_nothing(kind):
    @settings(max_examples=15)
    @given(value_of(kind))
    def round_trip(value):
        assert decode(encode(value), kind) == value

    round_trip()


@pytest.mark.parametrize("kind", SCHEMAS, ids=lambda kind: kind.__name__)
def test_unknown_fields_are_skipped_and_newer_schemas_refused(kind):
    @settings(max_examples=5)
    @given(value_of(kind))
    def check(value):
        plain = document(value)
        assert decode(msgspec.json.encode({**plain, "invented_later": {"x": 1}}), kind) == value
        newer = f"{SCHEMAS[kind].name}/{SCHEMAS[kind].version + 1}"
        with pytest.raises(SchemaError, match="Upgrade"):
            decode(msgspec.json.encode({**plain, "schema": newer}), kind)

    check()


@settings(max_examples=100)
@given(st.one_of(st.binary(max_size=40), st.text(max_size=40)))
def test_any_bytes_are_a_document_or_a_schema_error(data):
    with pytest.raises(SchemaError):
        decode(data, Profile)


UNITS = ["s", "B", "B/s", "FLOP/s", "W", "J", "Hz", "USD", "g", "1"]


@given(st.floats(1e-12, 1e20), st.sampled_from(UNITS))
def test_a_quantity_written_for_people_reads_back_within_its_digits(value, unit):
    text = format_quantity(value, unit, digits=6)
    assert math.isclose(parse_quantity(text, unit), value, rel_tol=1e-5)


@settings(max_examples=100)
@given(st.text(max_size=20), st.sampled_from(UNITS))
def test_any_text_is_a_quantity_or_a_unit_error(text, unit):
    try:
        assert math.isfinite(parse_quantity(text, unit))
    except UnitError as error:
        assert "Accepted" in str(error)


WRITTEN = sorted(set(SYMBOLS) - {"1", "T"})  # a bare number, and a symbol that is only clear as in "GT/s"


@given(st.sampled_from(WRITTEN), st.floats(0, 1e6))
def test_every_symbol_reads_as_itself(symbol, value):
    assert parse_quantity(f"{value!r} {symbol}", symbol) == value
