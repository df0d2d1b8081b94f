"""One suite over every importer: what it says of any file, and what it does with one that is not what it seems."""

import random
import tomllib
from pathlib import Path

import pytest

from inferometer.core.codec import decode, encode
from inferometer.core.errors import FormatError, InferometerError
from inferometer.core.graph import KINDS
from inferometer.core.plugins import load_all
from inferometer.core.profile import Headline, ModelFacts, Phase, Profile
from inferometer.engines.results.assemble import Draft, finish
from inferometer.engines.results.base import GROUP, Document, Importer
from inferometer.engines.results.detect import load_document, parse_document
from unit.engines.results.sources import DATA, ENTRIES, OURS, SAMPLES

ROOT = Path(__file__).parents[2]


class Toy:
    """An importer of somebody else's: a file that says TOY and a number of seconds."""

    name = "toy"
    title = "A toy"

    def matches(self, document: Document) -> bool:
        return document.data.startswith(b"TOY")

    def read(self, document: Document) -> tuple[Profile, ...]:
        if not document.data.startswith(b"TOY ") or not document.data[4:].isdigit():
            raise FormatError("It is no toy.")
        draft = Draft(tool="toy", phases=[Phase(name="forward", time_s=float(document.text[4:]))])
        return (finish(draft, document),)


IMPORTERS = {**OURS, **load_all(GROUP)[0], "toy": Toy()}
GOOD = {**{name: DATA / name for name in SAMPLES}}
OF = {importer: [DATA / name for name, (owner, _) in SAMPLES.items() if owner == importer] for importer in OURS}
JUNK = {
    "empty": b"",
    "one byte": b"{",
    "zeros": bytes(4096),
    "random": random.Random(7).randbytes(4096),  # noqa: S311 - the same junk in every run
    "text": b"hello, this is no result\n" * 10,
    "wrong JSON": b'{"results": [{"command": "x", "times": [1, 2}',
    "other JSON": b'{"hello": [1, 2, 3]}',
    "a list": b'["traceEvents"]',
    "nulls": b'{"results": null, "traceEvents": null, "benchmarks": null, "execution_summary": null}',
    "lists of nothing": b'{"results": [], "traceEvents": [], "benchmarks": [], "execution_summary": []}',
    "lists of lists": b'{"results": [[]], "traceEvents": [[]], "benchmarks": [[]]}',
    "a list of lists": b"[[], {}, null, 3]",
    "a number": b"3",
    "unhashable categories": b'{"traceEvents": [{"cat": []}, {"cat": {}}]}',
}


@pytest.fixture(params=sorted(IMPORTERS))
def importer(request):
    return IMPORTERS[request.param]


@pytest.fixture
def samples(importer, tmp_path):
    toy = tmp_path / "toy"
    toy.write_bytes(b"TOY 12")
    return OF.get(importer.name, [toy])


def test_an_importer_keeps_the_contract(importer):
    assert isinstance(importer, Importer)
    assert importer.name
    assert importer.title


def test_the_declared_importers_are_the_ones_that_are_tested():
    """Before the project declares them, the table of the tests stands alone."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    declared = project["project"]["entry-points"][GROUP]
    assert (declared or ENTRIES) == ENTRIES


def test_every_installed_importer_is_known_by_its_entry_point():
    loaded, broken = load_all(GROUP)
    assert not broken
    assert all(entry.name == name for name, entry in loaded.items())


def test_matches_answers_yes_or_no_whatever_it_sees(importer, tmp_path):
    for name, junk in JUNK.items():
        assert importer.matches(parse_document(tmp_path / "junk.bin", junk)) is False, name


def test_its_own_samples_are_its_own_and_no_others(importer, samples):
    mine = {path.name for path in samples}
    for name, path in {**GOOD, **{path.name: path for path in samples}}.items():
        assert importer.matches(load_document(path)) is (name in mine)


def test_a_sample_gives_measured_profiles_that_can_be_written_down(importer, samples):
    for path in samples:
        profiles = importer.read(load_document(path))
        assert len(profiles) == SAMPLES.get(path.name, (None, 1))[1]
        for profile in profiles:
            assert profile.kind == "measured"
            assert profile.phases or profile.environment.host  # scores and curves need not say how long they took
            assert profile.provenance.tool
            assert decode(encode(profile), Profile) == profile


def test_the_sums_of_a_sample_close(importer, samples):
    for path in samples:
        for phase in (phase for profile in importer.read(load_document(path)) for phase in profile.phases):
            if phase.unattributed_s is not None:
                whole = sum(op.time_s for op in phase.ops) + phase.unattributed_s
                assert whole == pytest.approx(phase.time_s)


def test_the_words_of_a_sample_are_ours(importer, samples):
    for path in samples:
        for profile in importer.read(load_document(path)):
            for op in (op for phase in profile.phases for op in phase.ops):
                assert op.kind in KINDS
                assert op.unit in {None, "cpu", "gpu", "npu", "dsp", "tpu"}


def test_what_a_source_does_not_say_stays_unknown(importer, samples):
    """No source measures these, so none may come out of an import; bytes are what tests of disks and networks count."""
    never = ("fits", "energy_j", "usd_per_million_tokens", "co2e_g")
    for path in samples:
        for profile in importer.read(load_document(path)):
            assert all(getattr(profile.summary, name) is None for name in never)
            assert isinstance(profile.summary, Headline)
            assert isinstance(profile.model, ModelFacts)
            for phase in profile.phases:
                assert (phase.flops, phase.floor_s, phase.bound) == (None, None, None)
                assert phase.bytes is None or importer.name in {"fio", "iperf3", "sysbench"}
                assert all(op.flops is None and op.origin is None for op in phase.ops)


def test_reading_a_sample_twice_gives_the_same(importer, samples):
    for path in samples:
        assert importer.read(load_document(path)) == importer.read(load_document(path))


def test_a_truncated_sample_is_refused_or_read_but_never_breaks(importer, samples):
    for path in samples:
        data = path.read_bytes()
        for size in range(0, len(data), max(1, len(data) // 25)):
            document = parse_document(path, data[:size])
            if importer.matches(document):
                try:
                    importer.read(document)
                except InferometerError as error:
                    assert error.message
