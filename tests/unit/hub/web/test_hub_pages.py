"""The pages and what they are filled with."""

import csv
import io
import json
import re
from dataclasses import replace

import pytest
from starlette.datastructures import QueryParams

from inferometer.api import ask, explanations, gains
from inferometer.cli.commands.predict import command as predict_command
from inferometer.core.codec import decode
from inferometer.core.errors import MissingDependencyError, UnknownNameError
from inferometer.core.finding import Finding
from inferometer.core.machine import MachineFacts
from inferometer.core.profile import DeviceFacts, Environment, Profile
from inferometer.hub.web import assets
from inferometer.hub.web.guard.catalog_names import roofs_of
from inferometer.hub.web.pages.catalog import device_list
from inferometer.hub.web.pages.compare import compare_values
from inferometer.hub.web.pages.routes import RunListing
from inferometer.hub.web.pages.run import page_explanation, run_values
from inferometer.hub.web.rendering import data_element, environment
from inferometer.hub.web.serving import _warm
from inferometer.predict.flags import FLAGS
from inferometer.store import projects
from inferometer.store.values import Filter, RunRow
from inferometer.understand.accuracy.edgeprofiler import edgeprofiler_rows
from inferometer.understand.view.charts.samples import run_trend
from inferometer.understand.view.page import badges_of, environment_text, figures_of, layer_columns, page_of
from unit.hub.web.samples import HOSTILE, decoder, hub, network


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    with hub(tmp_path_factory.mktemp("hub")) as found:
        yield found


@pytest.fixture(scope="module")
def run(here):
    return here[0].add(network(), "phones", name="a network", tags=("nightly",))


def data(page, name):
    found = re.search(rf'<script type="application/json" id="{name}">(.*?)</script>', page, flags=re.DOTALL)
    return json.loads(found[1])


def test_cards_say_which_statistic_and_between_what():
    profile = network()
    cards = {card.label: card for card in figures_of(profile)}
    assert cards["Latency"].note.startswith("median of 12 · ")
    assert " – " in cards["Latency"].note
    assert (cards["Peak memory"].value, cards["Peak memory"].unit) == ("30", "MB")
    assert cards["Top unit"].value == "GPU"
    assert cards["Top unit"].note.endswith("9 of 12 ops")
    forward = profile.phase("forward")
    assert float(cards["Of the floor"].value) == pytest.approx(100 * forward.floor_s / forward.time_s, rel=1e-2)


def test_a_language_model_has_its_own_cards():
    labels = [card.label for card in figures_of(decoder())]
    assert labels[:4] == ["First token", "Each token", "Throughput", "Whole request"]


def test_what_does_not_fit_is_marked():
    profile = network()
    summary = replace(profile.summary, fits=False)
    card = next(c for c in figures_of(replace(profile, summary=summary)) if c.label == "Peak memory")
    assert (card.tone, card.note) == ("bad", "does not fit")


def test_badges_say_verified_and_disturbed():
    assert [word for word, _, _ in badges_of(network())] == ["measured", "verified", "disturbed"]
    assert [word for word, _, _ in badges_of(decoder())] == ["measured", "unverified"]


def test_layers_of_several_phases_share_a_row_and_every_time_is_there():
    profile = decoder()
    rows = layer_columns(profile)
    assert rows["name"] == ["embed", "layers.0.attn.q_proj", "layers.0.mlp.up_proj", "head"]
    assert rows["time_s"][1] == [None, 0.001, 0.001, 0.001]
    for index, phase in enumerate(profile.phases):
        assert sum(t or 0 for t in rows["time_s"][index]) == pytest.approx(sum(op.time_s for op in phase.ops))
    assert "predicted_s" not in rows
    assert "rung" not in rows


def test_a_layer_says_who_predicted_it():
    profile = network(2)
    phase = profile.phase("forward")
    ops = tuple(replace(op, predicted_s=1.0, rung="class prior") for op in phase.ops)
    rows = layer_columns(replace(profile, phases=(replace(phase, ops=ops),)))
    assert rows["rung"] == ["class prior"] * len(ops)


def test_layers_with_one_name_stay_apart():
    profile = network(4)
    phase = profile.phase("forward")
    same = replace(phase, ops=tuple(replace(op, name="same") for op in phase.ops))
    rows = layer_columns(replace(profile, phases=(same,)))
    assert rows["name"] == ["same"] * 4
    assert rows["time_s"][0] == [op.time_s for op in phase.ops]


def test_the_run_page_has_the_layers_the_findings_slot_and_the_downloads(here, run):
    page = here[1].get(f"/runs/{run}").text
    rows = data(page, "layers")
    assert rows["name"] == [op.name for op in network().phase("forward").ops]
    assert rows["colours"]["gpu"] == "#009E73"
    assert f'data-src="/runs/{run}/explanation"' in page
    for form in ("html", "md", "csv", "json", "trace.json", "svg"):
        assert f"/runs/{run}/export/{form}" in page
    assert "disturbed" in page


def test_a_run_is_found_by_its_name_and_leads_to_its_address(here, run):
    found = here[1].get("/runs/a%20network")
    assert (found.status_code, found.headers["location"]) == (303, f"/runs/{run}")


def test_explaining_is_a_part_of_its_own(here):
    run = here[0].add(network(), "phones")
    part = here[1].get(f"/runs/{run}/explanation").text
    assert 'id="part-findings"' in part
    assert "A finding it carries" in part
    assert "1.50 ×" in part
    again = here[1].get(f"/runs/{run}").text  # page_explanation once, it stands in the page itself
    assert "A finding it carries" in again
    assert "findings-slot" not in again


def test_an_explanation_that_fails_leaves_the_page_whole(monkeypatch):
    def broken(*_args, **_kwargs):
        raise ZeroDivisionError

    monkeypatch.setattr(explanations, "explained", broken)
    found = page_explanation(network())
    assert found.headline is None
    assert [finding.title for finding in found.findings] == ["A finding it carries"]


def test_attribution_closes():
    for table in page_explanation(network()).tables:
        shares = sum(row["time_s"] for row in table["rows"]) + table["remainder_s"]
        assert shares == pytest.approx(table["whole_s"])


def test_charts_are_those_the_profile_can_fill():
    known = page_of(network(), roofs_of(network())).charts
    assert {"layers", "kinds", "kinds-count", "units", "histogram", "memory", "roofline-forward"} <= set(known)
    assert "tokens" not in known
    assert {"tokens", "histogram"} <= set(page_of(decoder()).charts)
    for chart in known.values():
        assert chart.spec()["$schema"].endswith("v5.json")
    assert page_of(network(), roofs_of(network())).chart_spec("roofline")["layer"]
    with pytest.raises(UnknownNameError, match="histogram"):
        page_of(network()).chart_spec("histogramm")


def test_charts_come_as_specs_and_pictures(here, run):
    client = here[1]
    assert client.get(f"/runs/{run}/charts/roofline-forward.json").json()["layer"]
    assert client.get(f"/runs/{run}/charts/nope.json").status_code == 404
    assert client.get(f"/runs/{run}/charts/layers.exe").status_code == 400
    pytest.importorskip("vl_convert", reason="pip install 'inferometer[charts]'")
    assert client.get(f"/runs/{run}/charts/layers.svg").text.startswith("<svg")
    assert client.get(f"/runs/{run}/charts/units-count.png").content.startswith(b"\x89PNG")


def test_every_download_is_what_it_says(here, run):
    client = here[1]
    profile = network()
    asked = {form: client.get(f"/runs/{run}/export/{form}") for form in ("json", "csv", "md", "trace.json", "svg")}
    for form, found in asked.items():
        assert found.status_code == 200, form
        assert found.headers["content-disposition"] == f'attachment; filename="inferometer-{run}.{form}"'
    assert decode(asked["json"].content, Profile) == profile
    rows = list(csv.DictReader(io.StringIO(asked["csv"].text)))
    assert [float(row["time_s"]) for row in rows] == [op.time_s for op in profile.phase("forward").ops]
    assert "| forward |" in asked["md"].text
    names = {event["name"] for event in asked["trace.json"].json()["traceEvents"]}
    assert {"forward", "op_0"} & names
    assert asked["svg"].text.startswith("<svg")
    assert client.get(f"/runs/{run}/export/exe").status_code == 404


@pytest.fixture(scope="module")
def client(here):
    """Of a hub with a project of sixty runs."""
    store, asked = here
    for number in range(60):
        model = network(2, seed=number, name=f"model-{number % 3}")
        store.add(model, "many", name=f"run {number}", tags=(f"t{number % 2}",))
    return asked


def test_the_list_sorts_filters_and_leafs(client):
    first = client.get("/projects/many").text
    assert first.count("data-run=") == 50
    more = re.search(r'href="\?([^"]*after=[^"]+)"', first)[1].replace("&amp;", "&")
    assert client.get(f"/projects/many?{more}").text.count("data-run=") == 10
    assert client.get("/projects/many?tag=t1").text.count("data-run=") == 30
    assert client.get("/projects/many?model=model-0&words=run").text.count("data-run=") == 20
    fastest = client.get("/projects/many?sort=latency").text
    slowest = client.get("/projects/many?sort=-latency").text
    assert re.search(r'data-run="(\w+)"', fastest)[1] != re.search(r'data-run="(\w+)"', slowest)[1]
    assert "No run matches" in client.get("/?words=nowhere").text
    assert client.get("/?sort=nonsense&status=nonsense&after=nonsense").status_code in {200, 400, 404}


def test_machines_are_listed_filtered_and_named_in_the_title(here):
    store, client = here
    facts = MachineFacts(id="0123456789ab", name="pi-desk", cpu="Cortex-A76", physical_cores=4)
    measured = network(2)
    there = replace(measured, device=DeviceFacts(name="local", title="Cortex-A76"),
                    environment=replace(measured.environment, machine=facts))  # fmt: skip
    run, _ = store.add(there, "machines"), store.add(measured, "machines")
    page = client.get("/projects/machines").text
    assert 'href="?machine=0123456789ab"' in page
    assert '<span class="quiet">unknown</span>' in page  # the run that does not say
    for wanted in ("0123456789ab", "pi-desk"):
        assert client.get(f"/projects/machines?machine={wanted}").text.count("data-run=") == 1
    assert len(client.get("/api/v1/runs?machine=pi-desk").json()["rows"]) == 1
    shown = client.get(f"/runs/{run}").text
    assert "<h1>tiny-cnn on pi-desk · Cortex-A76 · 4 cores</h1>" in shown
    assert "<tr><th>machine id</th><td>0123456789ab</td></tr>" in shown


def test_the_trend_is_of_the_metric_asked_for(client):
    spec = data(client.get("/projects/many?metric=peak_memory_bytes").text, "charts")["trend"]
    assert {row["value"] for row in spec["data"]["values"]} == {30_000_000}


def test_an_empty_store_teaches(tmp_path):
    with hub(tmp_path) as (_, client):
        page = client.get("/").text
        assert "No runs yet" in page
        assert "inferometer profile resnet50" in page
        assert "Choose two runs" in client.get("/compare").text
        assert "Nothing is running" in client.get("/live").text


def test_comparing_gives_a_verdict_with_its_reason(here):
    store, client = here
    a = store.add(network(seed=1, samples=40), name="before")
    b = store.add(network(seed=1, slower=1.4, samples=40), name="after")
    c = store.add(network(seed=1, samples=40, slower=0.5), name="best")
    quiet = [store.add(replace(store.get(x).profile, environment=None), name=f"{x} quiet") for x in (a, b, c)]
    page = client.get("/compare", params={"run": quiet}).text
    assert page.count("as baseline") == 2
    assert "slower" in page
    assert "faster" in page
    charts = data(page, "charts")
    assert {"layers-0", "layers-1"} == set(charts)
    paths = re.findall(r'<path d="M0 100(.+?)H100"', page)
    assert [path.count("V") for path in paths] == [40, 40, 40]
    assert all(path.endswith("V0.00") for path in paths)  # all the readings, in the end
    assert client.get(f"/compare?run={','.join(quiet)}").status_code == 200
    assert client.get("/compare", params={"run": ["nope", "neither"]}).status_code == 404
    assert client.get("/compare", params={"run": [f"x{n}" for n in range(41)]}).status_code == 400


def test_runs_without_a_profile_have_a_page(here):
    store, client = here
    running, failed = store.begin(name="goes on", parameters={"model": "resnet50"}), store.begin(name="went wrong")
    store.fail(failed, "ONNX Runtime refused it.", log="the traceback")
    assert "Progress" in client.get(f"/runs/{running}").text
    page = client.get(f"/runs/{failed}").text
    assert "ONNX Runtime refused it." in page
    log = client.get(f"/runs/{failed}/files/log.txt")
    assert log.text == "the traceback"
    assert log.headers["content-disposition"].startswith("attachment")
    assert client.get(f"/runs/{failed}/export/json").status_code == 400
    assert client.get(f"/runs/{failed}/explanation").status_code == 200
    store.kill(running)


def test_a_file_somebody_attached_is_never_shown_as_a_page(here):
    from inferometer.store import Attachment

    store, client = here
    run = store.add(
        network(), attachments=[Attachment(name="evil.html", source=b"<script>1</script>", media_type="text/html")]
    )
    found = client.get(f"/runs/{run}/files/evil.html")
    assert found.headers["content-type"] == "application/octet-stream"
    assert found.headers["content-disposition"].startswith("attachment")


def test_a_new_name_and_tag_show_at_once_though_profiles_are_kept(here, run):
    store, client = here
    client.get(f"/runs/{run}")
    store.tag(run, "kept")
    store.rename(run, "another name")
    page = client.get(f"/runs/{run}").text
    assert "another name" in page
    assert ">kept<" in page
    store.rename(run, "a network")


@pytest.mark.parametrize(
    "path",
    ["/predict", "/devices", "/devices/nvidia-h200", "/formulas", "/formulas/ridge_point", "/sweep", "/atlas", "/live"],
)
def test_every_page_answers(here, path):
    found = here[1].get(path)
    assert found.status_code == 200
    assert "<h1>" in found.text


@pytest.mark.parametrize(
    "path",
    [
        "/runs/nothing",
        "/devices/nothing",
        "/catalog/nothing",
        "/catalog/links/nothing",
        "/formulas/nothing",
        "/projects/nothing",
        "/nothing",
    ],
)
def test_what_is_not_there_is_said_in_words(here, path):
    found = here[1].get(path)
    assert found.status_code == 404
    assert "There is no" in found.text


def test_the_predict_page_takes_its_question_from_the_address(here):
    page = here[1].get("/predict", params={"model": "resnet50", "on": ["nvidia-t4", HOSTILE], "batch": "8"}).text
    found = data(page, "data")
    assert (found["model"], found["chosen"], found["asked"]["batch"]) == ("resnet50", {"nvidia-t4": "NVIDIA T4"}, "8")
    assert data(here[1].get("/predict?model=nope").text, "data")["model"] == "llama-3.2-1b"


def test_the_predict_page_has_a_field_for_every_flag_of_the_command(here):
    page = here[1].get("/predict").text
    called = {"models": "model", "devices": "device", "sizes": "size", "calibration_file": "calibration",
              "changes": "what_if"}  # fmt: skip
    asked = {*FLAGS, *(called.get(parameter.name, parameter.name) for parameter in predict_command.params)}
    shown = {"why", "fit"}  # of every answer: the page need not be asked
    assert {name for name in asked - {"form", "help"} - shown if f'id="{name}"' not in page} == set()


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"draft": "gpt2", "acceptance": 0.9}, "tpot_s"),
        ({"usd_per_hour": 2.5}, "usd_per_million_tokens"),
        ({"grid": "world"}, "co2e_g"),
        ({"battery": "15Wh"}, "battery_s"),
        ({"sampling": "1ms"}, "e2e_s"),
        ({"override": ["lm_head=f32"]}, "e2e_s"),
    ],
)
def test_a_flag_changes_what_the_hub_predicts(here, more, told):
    asked = {"model": "llama-3.2-1b", "devices": ["nvidia-l4"], "prompt": 64, "generate": 8}
    plain, found = (here[1].post("/api/v1/predict", json=asked | given).json()["answers"][0] for given in ({}, more))
    assert found["summary"][told] != plain["summary"][told]


def test_an_answer_says_what_share_of_the_phase_that_repeats_each_source_has(here):
    asked = {"model": "llama-3.2-1b", "devices": ["nvidia-l40s"], "runtime": "vllm", "context": 64}
    (found,) = here[1].post("/api/v1/predict", json=asked).json()["answers"]
    assert {row["origin"] for row in found["rungs"] if row["rung"] == "class prior"} == {"prior"}
    assert sum(row["share"] for row in found["rungs"]) == pytest.approx(1)


def test_a_change_an_open_size_and_edgeprofiler_answer_as_the_command_does(here):
    changes = ["weights=i8", "on=nvidia-h200", "batch=0"]
    asked = {"model": "llama-3.2-1b", "devices": ["raspberry-pi-5"], "what_if": changes, "edgeprofiler": True}
    (found,) = here[1].post("/api/v1/predict", json=asked).json()["answers"]
    assert found["gains"] == gains(ask("llama-3.2-1b", on="raspberry-pi-5"), changes)
    assert found["edgeprofiler"] == edgeprofiler_rows(["llama-3.2-1b"], ["raspberry-pi-5"])
    heard = {"model": "whisper-tiny", "devices": ["nvidia-l4"], "what_if": [], "edgeprofiler": True}
    short, whole = (
        here[1].post("/api/v1/predict", json=heard | each).json()["answers"][0]
        for each in ({"size": ["frames=300"]}, {})
    )
    assert short["summary"]["ttft_s"] < whole["summary"]["ttft_s"]
    assert "error" in short["edgeprofiler"][0]  # it knows neither the device nor such a model
    for wrong in ({"what_if": ["batch"]}, {"what_if": ["on=/etc/passwd"]}):
        assert here[1].post("/api/v1/predict", json=asked | wrong).status_code in {400, 404}
    (refused,) = here[1].post("/api/v1/predict", json=asked | {"size": ["frames"]}).json()["answers"]
    assert "is not a size" in refused["error"]


def test_a_calibration_is_one_that_the_hub_keeps_by_its_name(here, own_data):
    """A path is no name, and a calibration of another device is refused by the devices it is not of."""
    controls = here[1].get("/api/v1/models/resnet50/controls?on=nvidia-h200&on=nvidia-l4").json()
    assert controls["calibrations"]
    assert all(name.startswith("nvidia-h200-") for name in controls["calibrations"])
    name = next(each for each in controls["calibrations"] if "torch-graph-f32" in each)
    asked = {"model": "resnet50", "devices": ["nvidia-h200", "nvidia-l4"], "calibration": name}
    told, other = here[1].post("/api/v1/predict", json=asked).json()["answers"]
    assert told["runtime"] == "torch-graph"
    assert "is a calibration of nvidia-h200" in other["error"]
    assert (
        "Priors ignore" in here[1].post("/api/v1/predict", json=asked | {"priors": True}).json()["answers"][0]["error"]
    )
    (own_data / "elsewhere.json").write_text("{}")
    for path in ("../elsewhere", str(own_data / "elsewhere.json")[-99:], f"../calibrations/{name}"[:99]):
        assert here[1].post("/api/v1/predict", json=asked | {"calibration": path}).status_code == 404
    assert "calibration" not in here[1].get("/api/v1/models/resnet50/controls?on=nvidia-l4").json()["options"]


def test_users_of_a_service_are_predicted_beside_one_request(here):
    asked = {"model": "llama-3.2-1b", "devices": ["nvidia-l4", "nvidia-t4"], "users": 8, "tokens_per_user": 1}
    answers = here[1].post("/api/v1/predict", json=asked).json()["answers"]
    assert [(each["served"]["users"], each["served"]["meets"]) for each in answers] == [(8, True), (8, True)]


@pytest.mark.parametrize("value", [0, 1, 100_000_000])
def test_no_number_that_a_flag_takes_breaks_the_hub(here, value):
    for name, flag in FLAGS.items():
        if flag.takes in {"whole", "number", "share"} and not (flag.takes == "share" and value > 1):
            asked = {"model": "llama-3.2-1b", "devices": ["nvidia-l4"], "prompt": 8, "generate": 2, name: value}
            assert here[1].post("/api/v1/predict", json=asked).status_code in {200, 422}, name


def test_a_draft_or_another_device_is_of_the_catalog(here, tmp_path):
    for name in ("draft", "prefill_on"):
        asked = {"model": "llama-3.2-1b", "devices": ["nvidia-l4"], name: str(tmp_path)[:99]}
        assert here[1].post("/api/v1/predict", json=asked).status_code == 404


def test_commands_in_advice_are_code_and_the_rest_is_escaped():
    coded, linked = environment().filters["coded"], environment().filters["linked"]
    assert coded("run `a <b>` & see") == "run <code>a &lt;b&gt;</code> &amp; see"
    assert coded("one ` alone <") == "one ` alone &lt;"
    assert 'href="https://a.example/x"' in linked("[1] A & B, https://a.example/x")
    assert "<a" not in linked('odd, https://a"onclick=')


def test_readings_over_time_are_not_written_out():
    held = {"before_bytes": 42_528_768, "at_s": [0.1 * n for n in range(100)]}
    assert environment_text(held) == "before 42.53 MB"
    assert environment_text([1, 2, 3]) == "1, 2, 3"


def test_the_list_leaves_out_what_is_the_same_of_all_runs():
    rows = [RunRow(id=f"{n}", project="p", kind="bench", status="finished", created=0.0, runtime="ort", batch=n + 1)
            for n in range(2)]  # fmt: skip
    shown = RunListing(filter=Filter()).shown(rows)
    assert (shown["runtime"], shown["batch"]) == (False, True)


def test_data_for_scripts_cannot_end_its_element():
    made = str(data_element("x", {"name": "</script><!--\u2028&", "n": [1.5, None]}))
    assert made.count("<") == 2
    assert json.loads(made.partition(">")[2].removesuffix("</script>")) == {
        "name": "</script><!--\u2028&",
        "n": [1.5, None],
    }


def test_run_values_are_the_same_for_page_and_report():
    from inferometer.core.profile import Run

    run = Run(id="x", project="p", status="finished", created="2026-11-15T00:00:00+00:00", profile=network())
    values = run_values(run, network())
    assert values["title"] == "tiny-cnn on NVIDIA T4"
    assert ("disturbed", "the load rose") in dict(values["environment"])["While it was measured"]


def test_without_vl_convert_the_page_says_what_to_install(monkeypatch, tmp_path):
    def missing(_name):
        raise assets.PackageNotFoundError

    monkeypatch.setattr(assets, "version", missing)
    with pytest.raises(MissingDependencyError, match="charts"):
        assets.vega_bundle(tmp_path)


def test_the_bundle_is_made_once_and_then_read(monkeypatch, tmp_path):
    class Converter:
        calls = 0

        def javascript_bundle(self):
            Converter.calls += 1
            return "window.vegaEmbed = 1"

    monkeypatch.setattr(assets, "import_module", lambda _name: Converter())
    monkeypatch.setattr(assets, "version", lambda _name: "9.9")
    assert [assets.vega_bundle(tmp_path) for _ in range(3)] == [b"window.vegaEmbed = 1"] * 3
    assert Converter.calls == 1
    assert [path.name for path in (tmp_path / "hub").iterdir()] == ["vega-9.9.js"]


def test_scripts_and_styles_are_kept_by_the_browser_and_asked_after(here):
    client = here[1]
    first = client.get("/static/run.js")
    assert first.headers["cache-control"] == "no-cache"
    again = client.get("/static/run.js", headers={"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert client.get("/").headers["cache-control"] == "no-store"
    assert client.post("/devices").status_code == 405


def test_what_a_list_keeps_to_change_a_run_stays_data_whatever_the_run_is_called(here):
    """It is in an attribute of the row: a name must not end it, nor add another."""
    from html.parser import HTMLParser

    store, client = here
    for name in (
        HOSTILE,
        "' onmouseover='window.hacked=1",
        '" autofocus onfocus="window.hacked=1',
        "&#39; \\u0027 </tr>",
    ):
        run = store.add(network(2), "hostile rows", name=name, tags=[name.replace(" ", "")[:20]])
        rows = []

        class Rows(HTMLParser):
            def handle_starttag(self, tag, attributes, run=run, rows=rows):
                if tag == "tr" and ("data-run", run) in attributes:
                    rows.append(dict(attributes))

        Rows().feed(client.get("/projects/hostile%20rows").text)
        (row,) = rows
        assert set(row) == {"data-run", "data-change"}
        kept = json.loads(row["data-change"])
        assert (kept["name"], kept["tags"], kept["project"]) == (name, [name.replace(" ", "")[:20]], "hostile rows")


def test_what_a_page_loads_is_kept_for_good_under_an_address_that_changes_with_it(here):
    """The next page asks for nothing again; after an update its addresses are new, and the old ones still answer."""
    client = here[1]
    loaded = re.findall(r'(?:href|src)="(/static/[^"]+)"', client.get("/predict").text)
    assert {address.rpartition("/")[2] for address in loaded} >= {"hub.css", "theme.js", "predict.js", "dom.js"}
    for address in loaded:
        kept = client.get(address)
        assert (kept.status_code, kept.headers["cache-control"]) == (200, "public, max-age=31536000, immutable")
        assert kept.headers["content-encoding"] == "gzip"
        assert kept.content == assets.own_assets()[address.rpartition("/")[2]]
        plain = client.get(address, headers={"accept-encoding": "identity"})
        assert ("content-encoding" in plain.headers, plain.content) == (False, kept.content)
    assert client.get("/static/0123456789ab/dom.js").headers["cache-control"] == "no-cache"
    assert [client.get(f"/static/{path}").status_code for path in ("x/dom.js", "../dom.js", "0123456789ab/no.js")] == [
        404
    ] * 3


def test_a_page_names_every_module_that_its_scripts_import(here):
    """A browser that learns of a module from another one waits for the first before it asks for the second."""
    for path in sorted(assets.STATIC.glob("*.js")):
        for needed in re.findall(r"^import .* from \"\./(.+?)\"", path.read_text(encoding="utf-8"), re.MULTILINE):
            assert assets.asset_address(needed) in assets.module_scripts(path.name)


def test_every_formula_has_a_page_whose_example_gives_the_answer_it_names(here):
    """What stands in the calculator's fields is typed text: it must mean the example's numbers."""
    import html

    from inferometer.hub.web.pages.catalog import formula_values
    from inferometer.known.formulas.listing import calculate
    from inferometer.known.formulas.registry import all_formulas

    for name, formula in all_formulas().items():
        typed = {each["name"]: each["example"] for each in formula_values(name)["inputs"] if each["example"] != ""}
        answer = calculate(name, typed)
        exact = isinstance(formula.answer, str | bool)
        assert answer == (formula.answer if exact else pytest.approx(formula.answer, rel=1e-3)), name
    page = here[1].get("/formulas/ridge_point").text
    assert 'value="989 TFLOP/s"' in html.unescape(page)


def test_a_trend_joins_only_equal_workloads_and_names_what_differs():
    rows = [
        RunRow(id=str(n), project="p", status="finished", kind="profile", created=float(n), model="m", runtime="r",
               latency_s=1.0, workload=f"batch={batch} image=224", precision=precision)
        for n, (batch, precision) in enumerate([(1, "f32"), (8, "f32"), (1, "f32"), (1, "int8")])
    ]  # fmt: skip
    lines = [point["of"] for point in run_trend(rows, "latency_s")["data"]["values"]]
    assert lines == ["m · r · batch 1, image 224 · f32", "m · r · batch 8, image 224 · f32",
                     "m · r · batch 1, image 224 · f32", "m · r · batch 1, image 224 · int8"]  # fmt: skip
    alone = run_trend(rows[:1], "latency_s")["data"]["values"]
    assert alone[0]["of"] == "m · r"


def test_an_empty_project_says_what_to_do(here, run):
    here[0].create_project("nothing here")
    page = here[1].get("/projects/nothing here").text
    assert "No runs in nothing here yet" in page
    assert "--project &#39;nothing here&#39;" in page
    assert "No run matches" in here[1].get("/?model=nope").text


def test_lists_count_the_runs_of_projects_once_until_somebody_writes(tmp_path, monkeypatch):
    counted = []
    listed = projects.listed
    monkeypatch.setattr(projects, "listed", lambda *seen: counted.append(seen) or listed(*seen))
    with hub(tmp_path) as (store, client):
        store.add(network(), "phones")
        for path in ("/", "/?sort=-latency", "/projects/phones", "/?model=nope"):
            client.get(path)
        assert len(counted) == 1
        store.create_project("boards")
        assert "boards" in client.get("/?sort=name").text
        assert len(counted) == 2


def test_a_failed_run_keeps_its_model_and_says_why(here):
    run = here[0].begin("failing", subject={"model": "mobilenet-v2"}, author="ann")
    here[0].fail(run, "The engine ended with signal 11.", log="first\nlast words\n")
    page = here[1].get(f"/runs/{run}").text
    assert all(text in page for text in ("mobilenet-v2", "The engine ended with signal 11.", "last words", "by ann"))
    assert "The engine ended with signal 11." in here[1].get("/projects/failing?model=mobilenet-v2").text
    done = here[0].begin("preparing", subject={"model": "mobilenet-v2"})
    here[0].finish(done)
    page = here[1].get(f"/runs/{done}").text
    assert "It is done." in page
    assert "callout bad" not in page  # a run that made a file has nothing to be sorry for


def test_eight_runs_are_compared_in_one_table_with_what_differs(here):
    made = [replace(network(2, samples=30, slower=1 + n / 10), environment=Environment(threads=n)) for n in range(8)]
    runs = [here[0].add(profile, "eight", name=f"run {n}") for n, profile in enumerate(made)]
    values = compare_values([here[0].get(run) for run in runs])
    latency = values["matrix"][0]
    assert (latency["name"], len(latency["cells"])) == ("latency", 7)
    assert {cell["verdict_text"] for cell in latency["cells"]} == {"slower"}
    assert values["differing"] == [("threads", [str(n) for n in range(8)])]
    load = next(row for row in values["matrix"] if row["name"] == "load")
    assert load["cells"][0]["verdict_text"] == "no difference shown"  # the words of the command line
    page = here[1].get("/compare", params={"run": [*reversed(runs)]}).text
    assert page.index("run 0") < page.index("run 1")  # the oldest is the baseline, however they were chosen
    chosen = here[1].get("/compare", params={"run": runs, "baseline": runs[3]}).text
    assert re.search(r"against <a [^>]*>run 3<", chosen)


def test_a_list_of_devices_is_short_whatever_is_asked(client):
    for query in (
        "",
        "?page=2",
        "?page=99999",
        "?page=x&sort=nothing",
        "?words=gpu&sort=-memory",
        "?words=no+such+thing",
    ):
        page = client.get(f"/devices{query}")
        assert page.status_code == 200
        assert len(page.content) <= 150_000, query


def test_devices_without_a_figure_come_last_whichever_way_it_is_sorted():
    for sort in ("price", "-price"):
        prices = [row["price"] for row in device_list(QueryParams({"sort": sort, "words": "nvidia"}))["devices"]]
        known = [price for price in prices if price is not None]
        assert known == sorted(known, reverse=sort.startswith("-"))
        assert prices[: len(known)] == known


def test_no_card_says_that_all_of_it_ran_on_the_only_unit():
    assert "Top unit" not in {card.label for card in figures_of(decoder())}


def test_the_finding_with_the_largest_sure_gain_comes_first_and_the_machine_apart():
    def finding(code, severity="warning", gain=None, low=None):
        return Finding(code=code, severity=severity, title=code, gain=gain, gain_low=low, gain_high=gain)

    given = (
        finding("environment.noisy"), finding("host.gap"), finding("memory.bound", gain=4.0, low=1.1),
        finding("batch.small", gain=2.0, low=1.9), finding("outputs.wrong", severity="critical"),
    )  # fmt: skip
    told = page_explanation(replace(network(), phases=(), findings=given))
    assert [each.code for each in told.advice] == ["outputs.wrong", "batch.small", "memory.bound", "host.gap"]
    assert [each.code for each in told.machine] == ["environment.noisy"]


def test_a_run_says_how_it_changed_since_the_last_one_of_the_same(tmp_path):
    with hub(tmp_path) as (store, client):
        first = store.add(network(seed=1), "phones")
        store.add(replace(network(seed=1), runtime="openvino"), "phones")  # another engine
        store.add(network(seed=1, slower=5.0), "cars")  # another project
        assert "Since the last run" not in client.get(f"/runs/{first}").text
        later = store.add(network(seed=1, slower=1.5), "phones")
        page = client.get(f"/runs/{later}").text
        assert f'href="/compare?run={first}&amp;run={later}"' in page
        assert "+50.0 %" in page


@pytest.mark.parametrize(
    ("path", "entry", "inside"),
    [
        ("/runs", "Runs", ["All runs", "Compare", "Timeline", "Live"]),
        ("/compare", "Runs", ["All runs", "Compare", "Timeline", "Live"]),
        ("/load", "New run", ["Measure or prepare a model", "Load a server", "Calibrate a device"]),
        ("/fleet", "Fleet", []),
        ("/sweep", "Explore", ["Predict", "Can I run it?", "Fit", "Sweep", "Simulate", "Plan", "Atlas"]),
        ("/formulas", "Reference", ["Devices", "Catalog", "Formulas"]),
    ],
)  # fmt: skip
def test_the_menu_has_five_entries_and_each_page_says_where_it_is(here, path, entry, inside):
    page = here[1].get(path).text
    menu = re.search(r'<nav aria-label="Pages">(.*?)</nav>', page, flags=re.DOTALL)[1]
    assert re.findall(r">([^<]+)</a>", menu) == ["Runs", "New run", "Fleet", "Explore", "Reference"]
    assert re.findall(r'aria-current="(?:page|true)">([^<]+)<', menu) == [entry]
    tabs = re.search(r'<nav class="tabs wide inside".*?</nav>', page, flags=re.DOTALL)
    assert re.findall(r">([^<]+)</a>", tabs[0] if tabs else "") == inside


def test_what_a_hub_loads_after_its_first_page_is_there():
    """It runs in a thread of its own, a second after the start: a module that had moved was a traceback to all."""
    _warm()
