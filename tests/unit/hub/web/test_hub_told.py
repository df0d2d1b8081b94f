"""What the hub shows and answers, word for word: pages as their text, and what programs are told.

`hub_told.txt` has a case in a line: an address, and below it what was answered: the status unless it is 200, and the
blocks of the text. A NAME in an address is the run, device or job of that name. `python
tests/unit/hub/web/test_hub_told.py` writes the answers anew (with src and tests on the path). Ids and times are written
as ID and WHEN.
"""

import json
import os
import re
import tempfile
from contextlib import contextmanager
from html.parser import HTMLParser
from pathlib import Path
from socket import gethostname

import pytest

from inferometer.known.machine.detect.identity import this_machine
from inferometer.predict.verbs import predict
from inferometer.store.queue.fleet import Fleet
from inferometer.store.queue.values import NewDevice
from inferometer.version import __version__
from unit.formats.listing import cases_in, rewrite
from unit.hub.web.samples import decoder, hub, network
from unit.predict.machines import priors_alone, take_fits_away  # noqa: F401 - `priors_alone` is used by being here

TOLD = Path(__file__).parent / "hub_told.txt"
EXPECTED = cases_in(TOLD) if TOLD.exists() else {}
MASKS = (
    (re.compile(r"\d+% of a core|ran [\d.]+ ms|(?<=datetime=)[\d.]+|\b17\d{8}(\.\d+)?\b"), "SOME"),
    (re.compile(r"\b(?=[a-z]*\d)(?=\d*[a-z])[0-9a-z]{12}\b"), "ID"),
    (re.compile(r"\b[0-9a-f]{64}\b"), "SHA"),
    (re.compile(r"127\.0\.0\.1:\d+"), "HUB"),
    (re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d)?(\.\d+)?(\+00:00|Z)?"), "WHEN"),
    (re.compile(r"\d+ (seconds?|minutes?) ago|\b(just )?now\b"), "WHEN"),
    (re.compile(r"\d+\.\d{6,}(?:e-?\d+)?"), lambda found: f"{float(found[0]):.5g}"),
)


class Text(HTMLParser):
    """The words of a page below its head, a line for each block, with what its links and fields hold."""

    HIDDEN = frozenset({"script", "style", "svg", "option", "header"})
    BLOCKS = frozenset({"title", "h1", "h2", "h3", "p", "li", "tr", "dt", "form", "section", "details", "nav", "pre"})
    HELD = ("action", "datetime", "href", "title", "value")

    def __init__(self):
        super().__init__()
        self.blocks, self.hidden = [[]], 0

    def handle_starttag(self, tag, attributes):
        self.hidden += tag in self.HIDDEN
        if tag in self.BLOCKS:
            self.blocks.append([])
        told = [f"{name}={value}" for name, value in sorted(attributes) if name in self.HELD]
        if told and not self.hidden and tag != "link":
            self.blocks[-1].append(f"<{tag} {' '.join(told)}>")

    def handle_endtag(self, tag):
        self.hidden -= tag in self.HIDDEN
        if tag in self.BLOCKS:
            self.blocks.append([])

    def handle_data(self, data):
        if not self.hidden and data.strip():
            self.blocks[-1].append(" ".join(data.split()))

    @property
    def lines(self):
        return [" | ".join(block) for block in self.blocks if block]


def lines_of(response):
    kind = response.headers.get("content-type", "")
    if "json" in kind:
        return json_lines(response.json())
    if "html" not in kind:
        return [kind, *response.text.splitlines()]
    text = Text()
    text.feed(response.text)
    return text.lines


def json_lines(value):
    """A line for each part of a document that takes no more than a line and a half; larger ones are divided."""
    whole = json.dumps(value, ensure_ascii=False, sort_keys=True)
    if len(whole) <= 180 or not isinstance(value, dict | list):
        return [whole]
    pairs = sorted(value.items()) if isinstance(value, dict) else [("-", each) for each in value]
    return [line for name, each in pairs for line in headed(name, json_lines(each))]


def headed(name, lines):
    return [f"{name}: {lines[0]}"] if len(lines) == 1 else [f"{name}:", *(f" {line}" for line in lines)]


@contextmanager
def seeded(folder):
    """A hub, and the names of what is in it by their ids."""
    with hub(folder) as (store, client):
        store.create_project("phones", description="what ships")
        names = {
            store.add(network(6, samples=30), "phones", name="net", tags=("kept", "old")): "NET",
            store.add(network(6, slower=1.3, samples=30), "phones", name="slower net"): "SLOW",
            store.add(decoder(), name="a decoder"): "DECODER",
            store.add(predict("resnet18", on="nvidia-l4", runtime="torch-eager"), name="foretold"): "FORETOLD",
        }
        failed = store.begin(name="went wrong", parameters={"model": "resnet50"})
        store.fail(failed, "It refused it.", log="the traceback")
        names[failed] = "FAILED"
        Fleet.of(store).register(NewDevice(name="pi", labels={"runtime": ("onnxruntime",), "unit": ("cpu",)}))
        yield client, names


def told(case, client, names):
    address = case
    for run, name in names.items():
        address = re.sub(rf"\b{name}\b", run, address)
    response = client.get(address)
    lines = lines_of(response)
    for run, name in names.items():
        lines = [line.replace(run, name) for line in lines]
    for pattern, instead in MASKS:
        lines = [pattern.sub(instead, line) for line in lines]
    own = {this_machine().name, gethostname()}
    lines = ["HOST" if line in own else line.replace(__version__, "VERSION") for line in lines]
    status = [] if response.status_code == 200 else [f"status {response.status_code}"]
    return status + [line.rstrip() for line in lines if line.strip()]


@pytest.fixture(scope="module")
def here(priors_alone, tmp_path_factory):  # noqa: F811 - the fixture
    with seeded(tmp_path_factory.mktemp("told")) as made:
        yield made


@pytest.mark.parametrize("case", EXPECTED)
def test_an_address_shows_what_is_written_below_it(here, case):
    assert told(case, *here) == EXPECTED[case]


if __name__ == "__main__":
    take_fits_away()
    with tempfile.TemporaryDirectory() as name:
        for variable in ("DATA", "CACHE"):
            os.environ[f"INFEROMETER_{variable}"] = str(Path(name, variable))  # noqa: TID251 - for the hub
        with seeded(Path(name)) as made:
            rewrite(TOLD, lambda case: told(case, *made))
