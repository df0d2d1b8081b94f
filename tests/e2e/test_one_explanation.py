"""A stored run is explained with the same numbers wherever it is read: terminal, JSON, page, file, another machine."""

import html
import json
import re

import pytest
from click.testing import CliRunner

from inferometer.api import explained
from inferometer.cli.commands.explain import command as explain_command
from inferometer.cli.commands.export import command as export_command
from inferometer.cli.commands.profile import command as profile_command
from inferometer.core.codec import decode
from inferometer.core.machine import MachineFacts
from inferometer.core.profile import Profile
from inferometer.known.machine.detect import identity
from inferometer.predict.basis import roof as roofs
from inferometer.store import open_store
from unit.hub.web.samples import hub

pytest.importorskip("onnxruntime")


def run(command, *words):
    ran = CliRunner().invoke(command, list(words), catch_exceptions=False)
    assert ran.exit_code == 0, ran.output
    return ran.stdout  # a busy machine is warned of on stderr


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """A run in a store of its own, and the file of its profile. Afterwards no roof can be measured any more."""
    folder = tmp_path_factory.mktemp("one")
    store, saved = f"sqlite:///{folder / 'runs.db'}", folder / "profile.json"
    run(
        profile_command, "resnet18", "--runtime", "onnxruntime", "--image", "64", "--runs", "5", "--seconds", "0.1s",
        "--no-guard", "--store", store, "-o", str(saved),
    )  # fmt: skip
    patch = pytest.MonkeyPatch()
    for name in ("product_flop_per_s", "copy_bytes_per_s"):
        patch.setattr(roofs, name, lambda **_: pytest.fail("a roof was measured to read a stored run"))
    yield store, saved
    patch.undo()


@pytest.fixture(scope="module")
def told(measured):
    """What the terminal's JSON says: the numbers that every other place must repeat."""
    return json.loads(run(explain_command, "last", "--store", measured[0], "--format", "json"))


def gains_in(findings):
    return [(finding["code"], finding["gain"], finding["gain_low"], finding["gain_high"]) for finding in findings]


def test_what_judged_it_is_in_the_document(measured, told):
    judged_by = json.loads(measured[1].read_bytes())["judged_by"]
    peak = judged_by["device"]["peaks"]["f32"]
    assert peak["origin"] == "measured"
    assert told["roofline"]["peak"]["value"] == peak["value"]
    bandwidth = judged_by["device"]["memories"][0]["bandwidth_bytes_per_s"]
    assert told["roofline"]["memory"]["value"] == bandwidth["value"]


def test_it_is_explained_alike_each_time(measured, told):
    assert json.loads(run(explain_command, "last", "--store", measured[0], "--format", "json")) == told


def test_the_terminal_says_what_the_json_says(measured, told):
    page = re.sub(r"\s+", " ", run(explain_command, "last", "--store", measured[0]))
    assert told["headline"] in page
    for finding in told["findings"]:
        assert f"[{finding['code']}]" in page
    assert f"{told['roofline']['phases'][0]['efficiency']:.0%}" in page


def test_the_page_says_what_the_json_says(measured, told, tmp_path):
    with open_store(measured[0]) as kept, hub(tmp_path) as (store, client):
        name = store.add(kept.get("last").profile, "elsewhere")
        part = html.unescape(client.get(f"/runs/{name}/explanation").text)
        whole = client.get(f"/api/v1/runs/{name}").json()
    assert told["headline"] in part
    for finding in told["findings"]:
        assert finding["title"] in part
        if finding["gain"] is not None:
            assert f"{finding['gain']:.2f} ×" in part
    profile = whole.get("profile") or whole
    assert gains_in(profile["findings"]) == gains_in(told["findings"])


@pytest.mark.parametrize("ending", ["html", "md"])
def test_the_exported_file_says_what_the_json_says(measured, told, tmp_path, ending):
    out = tmp_path / f"report.{ending}"
    run(export_command, "last", "--store", measured[0], "-o", str(out))
    text = html.unescape(out.read_text(encoding="utf-8")).replace("\\", "")
    assert told["headline"] in text or ending == "md"
    for finding in told["findings"]:
        assert finding["title"] in text


def test_another_machine_without_the_model_says_the_same(measured, told, tmp_path, monkeypatch):
    monkeypatch.setenv("INFEROMETER_DATA", str(tmp_path / "other"))
    monkeypatch.setattr(identity, "_detected", lambda: MachineFacts(id="another-machine"))
    profile = decode(measured[1].read_bytes(), Profile)
    found = explained(profile)
    assert found.headline == told["headline"]
    assert [(each.code, each.gain, each.gain_low, each.gain_high) for each in found.findings] == gains_in(
        told["findings"]
    )
    assert json.loads(run(explain_command, str(measured[1]), "--format", "json"))["roofline"] == told["roofline"]


def test_a_roof_is_not_raised_by_the_run_it_judges(measured):
    profile = decode(measured[1].read_bytes(), Profile)
    kept = roofs.machine_roof(profile.judged_by.device)
    assert profile.judged_by.device.peaks["f32"] == kept.peaks["f32"]
