"""What each sample of another tool becomes, and what each of its fields is read for: the sample without it, or twice.

`samples_told.txt` has the samples and below each the profiles that it becomes, a value a line, without what is empty;
then, for every field that is left out (`-`), doubled (`*`), 0 or something else (`3`), and for every line that is a
remark (`#`), what else the profiles say. `python tests/unit/engines/results/test_samples_told.py` writes those lines
anew (with src and tests on the path): every line is read against the sample before it is committed.
"""

import json
import re
from pathlib import Path

import msgspec
import pytest

from fakes.closing import contradictions_allowed
from inferometer.core.errors import InferometerError
from inferometer.engines.results.detect import parse_document
from unit.engines.results.sources import DATA, OURS, SAMPLES
from unit.formats.listing import cases_in, rewrite

TOLD = Path(__file__).parent / "samples_told.txt"
FIRST = 2  # entries of a list, lines of a text: the others are alike
MOST = 6  # changes that are written out
ASIDE = ("kind",)


def flat(value, start=""):
    """{path: plain value} of everything that says something; entries of a list go by their names."""
    if isinstance(value, list | tuple) and value and isinstance(value[0], dict):
        value = {inner.get("name", n): {**inner, "name": None} for n, inner in enumerate(value)}
    if not isinstance(value, dict):
        return {start: value}
    found = {}
    for key, inner in value.items():
        if inner is not None and inner not in ((), [], {}):
            found |= flat(inner, f"{start}.{key}" if start else str(key))
    return found


def taken(name, data):
    """The profiles that its own importer makes of such bytes, or what it says of them."""
    importer, document = OURS[SAMPLES[name][0]], parse_document(Path(name), data)
    if not importer.matches(document):
        return "is none of its files"
    try:
        return importer.read(document)
    except InferometerError as error:
        return error.message


def said(profiles):
    found = flat(msgspec.to_builtins(profiles))
    return {key: value for key, value in found.items() if not key.partition(".")[2].startswith(ASIDE)}


# A document with one thing changed, and a text with a line or a number changed.


def leaves(value, start=()):
    entries = value.items() if isinstance(value, dict) else enumerate(value[:FIRST]) if isinstance(value, list) else ()
    for key, inner in entries:
        yield (*start, key)
        yield from leaves(inner, (*start, key))


def changed(value):
    """{mark: another value}: twice a number, and 0, which tools write for what they did not measure."""
    if isinstance(value, bool) or value is None:
        return {"*": not value}
    if isinstance(value, dict):
        return {"3": 3}  # something else where a record is due
    return {"*": 2 * value, "0": 0} if isinstance(value, int | float) else {}


def edited(plain, path, edit):
    """A copy of the document, with `edit(parent, key)` done to the last of the path."""
    key, *rest = path
    copied = plain.copy()
    if rest:
        copied[key] = edited(plain[key], rest, edit)
    else:
        edit(copied, key)
    return copied


def variants_of_document(plain):
    for path in leaves(plain):
        name = ".".join(map(str, path))
        yield f"-{name}", edited(plain, path, lambda parent, key: parent.pop(key))
        value = plain
        for key in path:
            value = value[key]
        for mark, other in changed(value).items():
            yield f"{mark}{name}", edited(plain, path, lambda parent, key, other=other: parent.__setitem__(key, other))


def variants_of_text(text):
    lines = text.splitlines(keepends=True)
    seen = set()
    for number, line in enumerate(lines):
        kind = re.sub(r"[\d.]+", "#", line)
        if kind in seen:
            continue
        seen.add(kind)
        yield f"-{number + 1}", "".join(lines[:number] + lines[number + 1 :])
        yield f"#{number + 1}", "".join([*lines[:number], f"# {line}", *lines[number + 1 :]])
        for place, found in enumerate(re.finditer(r"(?<![\w.])\d+(\.\d+)?(?![\w.])", line)):
            for mark, times in (("*", 2), ("0", 0)):
                other = f"{line[: found.start()]}{times * float(found[0]):g}{line[found.end() :]}"
                yield f"{mark}{number + 1}/{place + 1}", "".join([*lines[:number], other, *lines[number + 1 :]])


def variants(name):
    if name.endswith(".tfevents"):
        return  # bytes: test_rates_and_scores cuts it everywhere
    text = (DATA / name).read_text(encoding="utf-8")
    if name.endswith(".json"):
        yield from variants_of_document(json.loads(text))
    elif name.endswith(".jsonl") and not name.startswith("perf_stat"):
        first, *rest = text.splitlines()
        for label, plain in variants_of_document(json.loads(first)):
            yield label, "\n".join([json.dumps(plain), *rest])
        yield "{}", "\n".join([first, "{}", *rest[1:]])
    else:
        yield from variants_of_text(text)


def told(value):
    return json.dumps(value, ensure_ascii=False)


def read(name):
    whole = taken(name, (DATA / name).read_bytes())
    before = said(whole)
    yield from (f"{key} {told(value)}" for key, value in before.items())
    with contradictions_allowed():
        for label, value in variants(name):
            changed_text = value if isinstance(value, str) else json.dumps(value)
            profiles = taken(name, changed_text.encode())
            if profiles == whole:
                continue
            if isinstance(profiles, str):
                yield f"{label}: {profiles}"
                continue
            after = said(profiles)
            other = [f"{key} {told(value)}" for key, value in after.items() if before.get(key) != value]
            other += [f"no {key}" for key in before if key not in after]
            more = f"; and {len(other) - MOST} more" if len(other) > MOST else ""
            if other:
                yield f"{label}: {'; '.join(other[:MOST])}{more}"


EXPECTED = cases_in(TOLD)


@pytest.mark.parametrize("name", EXPECTED)
def test_every_field_is_read_for_what_is_written_here(name):
    assert list(read(name)) == EXPECTED[name]


def test_every_sample_is_told():
    assert EXPECTED.keys() == SAMPLES.keys()


if __name__ == "__main__":
    rewrite(TOLD, read)
