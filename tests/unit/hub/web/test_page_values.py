"""What pages say, before it becomes HTML: cards, tables of layers, lists and comparisons, by number."""

from types import SimpleNamespace

import pytest
from starlette.datastructures import QueryParams

from inferometer.core.errors import DomainError, UnknownNameError
from inferometer.core.profile import (
    DeviceFacts,
    Environment,
    Headline,
    ModelFacts,
    OpTime,
    Phase,
    Profile,
)
from inferometer.core.served import Distribution, LevelFigures
from inferometer.core.workload import Parallel, Workload
from inferometer.hub.web.pages import compare as compare_page
from inferometer.hub.web.pages import fleet as fleet_page
from inferometer.hub.web.pages.catalog import catalog_values
from inferometer.hub.web.pages.routes import COLUMNS, listing_from
from inferometer.store.queue.values import LeaseCheck
from inferometer.store.values import RunRow
from inferometer.understand.view import page as page_view
from inferometer.understand.view.catalog_tables import TABLES
from inferometer.understand.view.page import figures_of, layer_columns, page_of
from inferometer.understand.view.table import cell_text


def op(name, seconds, **more):
    return OpTime(name=name, time_s=seconds, **{"kind": "linear", "unit": "gpu", **more})


PREFILL = Phase(
    name="prefill", time_s=4.0, statistic="median", samples_s=(3.0, 4.0, 5.0), floor_s=1.0,
    ops=(op("a", 3.0, flops=1e12, bytes=1e6), op("b", 0.5, kind="norm", unit="cpu", layers=("x", "y"))),
)  # fmt: skip
DECODE = Phase(
    name="decode", time_s=2.0, statistic="mean", samples_s=(1.0, 3.0), context=(5, 6), op_context=(5, 6),
    floor_s=0.5, predicted_s=1.5, ops=(op("a", 2.0, samples_s=(1.0, 3.0), flops=1e9, bytes=1e6),),
)  # fmt: skip


def profile(*phases, kind="measured", generate=3, **summary):
    return Profile(
        kind=kind, model=ModelFacts(name="m"), device=DeviceFacts(name="d"), phases=phases,
        workload=Workload(batch=2, generate=generate), summary=Headline(**summary),
    )  # fmt: skip


WHOLE = profile(
    Phase(name="tokenise", time_s=0.5), PREFILL, DECODE, ttft_s=4.5, tpot_s=2.0, e2e_s=8.5, tokens_per_s=0.5,
    peak_memory_bytes=2_000_000, fits=False, top_unit="gpu", top_unit_by_count="gpu",
)  # fmt: skip


def shown(cards):
    return {card.label: (card.value, card.unit, card.note.split(" · ")[0], card.tone) for card in cards}


def test_the_cards_of_a_run_say_its_numbers_and_what_they_are_of():
    assert shown(figures_of(WHOLE)) == {
        "First token": ("4.5", "s", "median of 3", "plain"),
        "Each token": ("2", "s", "mean of 2", "plain"),
        "Throughput": ("0.5", "token/s", "batch 2", "plain"),
        "Whole request": ("8.5", "s", "3 tokens", "plain"),
        "Peak memory": ("2", "MB", "does not fit", "bad"),
        "Top unit": ("GPU", "", "82% of a request", "plain"),  # 3 + 2 × 2 of 8.5 s
        "Of the floor": ("25", "%", "decode: the floor is 500 ms", "plain"),
        "Predicted": ("1.5", "s", "decode: 25% under the measurement", "plain"),
    }


def test_a_card_of_a_prediction_says_so_and_an_unknown_fit_is_an_upper_end():
    forward = Phase(name="forward", time_s=2.0, predicted_s=3.0)
    found = shown(figures_of(profile(forward, kind="predicted", latency_s=2.0, peak_memory_bytes=5, energy_j=7.0)))
    assert found["Latency"] == ("2", "s", "predicted", "plain")
    assert found["Peak memory"] == ("5", "B", "at most", "plain")
    assert found["Energy"] == ("7", "J", "predicted", "plain")
    assert found["Predicted"][2] == "forward: 50% over the measurement"
    fits = shown(figures_of(profile(forward, latency_s=2.0, peak_memory_bytes=5, fits=True)))
    assert fits["Peak memory"][2] == "fits"
    assert fits["Latency"][2] == "measured"


def test_a_layer_has_one_row_and_a_time_in_each_phase():
    found = layer_columns(WHOLE)
    assert found["name"] == ["a", "b"]
    assert [(phase["name"], phase["times"]) for phase in found["phases"]] == [("prefill", 1.0), ("decode", 2.0)]
    assert found["time_s"] == [[3.0, 0.5], [2.0, None]]
    assert found["flops"] == [[1e12, None], [1e9, None]]
    assert (found["min_s"], found["max_s"]) == ([[None, None], [1.0, None]], [[None, None], [3.0, None]])
    assert (found["kind"], found["unit"], found["fused"]) == (["linear", "norm"], ["gpu", "cpu"], [None, 2])
    assert found["request_s"] == 8.5
    assert "kernel" not in found
    assert {*found["colours"]} == {"gpu", "cpu"}
    outside = {(row["phase"], row["kind"]): row["time_s"] for row in found["outside"]}
    assert outside[0, "unattributed"] == 0.5
    assert outside[-1, "tokenise"] == 0.5
    assert sum(outside.values()) + 3.5 + 2 * 2.0 == 8.5


# Charts


def test_a_run_has_the_charts_that_it_has_data_for():
    charts = page_of(WHOLE).charts
    assert list(charts) == ["layers", "kinds", "kinds-count", "units", "units-count", "histogram", "tokens", "memory"]
    assert [name for name, chart in charts.items() if chart.shown] == ["histogram", "tokens"]
    bare = profile(Phase(name="forward", time_s=1.0), latency_s=1.0)
    assert page_of(bare).charts == {}
    with pytest.raises(UnknownNameError):
        page_of(bare).chart_spec("roofline")


def test_a_roofline_is_of_phases_with_layers_that_can_be_placed(monkeypatch):
    memory = SimpleNamespace(bandwidth_bytes_per_s=1.0)
    device = SimpleNamespace(peaks={"f32": 1.0}, memory=memory)
    drawn = []
    monkeypatch.setattr(page_view, "drawn_roofs", lambda roofs: roofs.device)
    monkeypatch.setattr(page_view, "roofline", lambda _p, _d, **more: drawn.append(more) or more)
    page = page_of(WHOLE, SimpleNamespace(device=device))
    assert [name for name in page.charts if "roofline" in name] == [
        "roofline-prefill", "roofline-decode",
    ]  # fmt: skip
    assert page.chart_spec("roofline") == {"phase": "decode"}  # the last
    assert page.chart_spec("roofline-prefill", 620) == {"phase": "prefill", "width": 400}
    assert page.chart_spec("roofline", 619) == {"phase": "decode", "width": 509}
    for lacking in ({"peaks": {}}, {"memory": None}, {"memory": SimpleNamespace(bandwidth_bytes_per_s=None)}):
        bare = SimpleNamespace(device=SimpleNamespace(**{**vars(device), **lacking}))
        assert page_view._rooflines(WHOLE, bare) == []


def test_a_layer_is_placed_by_its_work_its_bytes_and_more_than_a_trace_of_the_time():
    phase = Phase(name="p", time_s=1.0)
    assert page_view._placed(op("a", 1.1e-4, flops=1.0, bytes=1.0), phase)
    for lacking in ({"flops": None}, {"bytes": None}, {"flops": 0.0}, {"time_s": 1e-4}):
        given = {"flops": 1.0, "bytes": 1.0, "time_s": 1.0, **lacking}
        assert not page_view._placed(op("a", given.pop("time_s"), **given), phase)


def test_the_cards_of_a_load_test_say_the_headlines_figures():
    def cards(**figures):
        served = SimpleNamespace(levels=[SimpleNamespace(name="8/s")], headline=0)
        found = LevelFigures(**{"requests": 10, "completed": 9, **figures})
        return shown(page_view._load_figures(SimpleNamespace(headline=found, served=served)))

    found = cards(
        ttft_s=Distribution(count=9, p50=0.25, mean=9.0), tpot_s=Distribution(count=1200, mean=0.5),
        e2e_s=Distribution(count=9), requests_per_s=4.0, output_tokens_per_s=50.0, goodput_per_s=3.0, attained=0.949,
        errors={"http_500": 1, "reset": 2},
    )  # fmt: skip
    assert found["First token"][:2] == ("250", "ms")
    assert found["First token"][2].startswith("median of 9")
    assert found["Each token"][2].startswith("mean of 1,200")
    assert "Whole request" not in found
    assert found["Answered"] == ("4", "1/s", "requests at 8/s", "plain")
    assert found["Goodput"][2:] == ("94.9% within the objectives", "bad")
    assert found["Failed"] == ("3", "", "1 http 500, 2 reset", "bad")
    assert cards(goodput_per_s=3.0, attained=0.95)["Goodput"][3] == "good"
    assert cards(goodput_per_s=3.0)["Goodput"][2:] == ("", "plain")
    assert cards()["Failed"] == ("0", "", "of 10 requests", "plain")
    assert cards(requests=0) == {}


# Lists


def listing(text, **more):
    return listing_from(QueryParams(text), **more)


def test_a_list_is_what_its_address_says():
    found = listing(
        "project=p&model=m&status=failed&status=&tag=a&tag=b&words=w&sort=latency&after=X&columns=run,model"
    )
    assert (found.filter.project, found.filter.model, found.filter.status) == ("p", "m", ("failed",))
    assert (found.filter.tags, found.filter.words, found.sort, found.after) == (("a", "b"), "w", "latency", "X")
    assert found.columns == ("run", "model")
    assert ("after", "X") not in found.query
    plain = listing("sort=nonsense&model=&words=")
    assert (plain.sort, plain.filter.model, plain.filter.words, plain.after) == ("-created", None, None, None)
    assert listing("project=p", project="q").filter.project == "q"


def test_every_filter_can_be_taken_away_and_added():
    found = listing("model=m&tag=a&tag=b&sort=-latency&status=failed")
    assert [(name, value) for name, value, _ in found.chips()] == [
        ("model", "m"), ("status", "failed"), ("tag", "a"), ("tag", "b"),
    ]  # fmt: skip
    assert found.without("tag", "a") == "?model=m&tag=b&sort=-latency&status=failed"
    assert found.adding("model", "n") == "?tag=a&tag=b&sort=-latency&status=failed&model=n"
    assert found.adding("tag", "c") == "?model=m&tag=a&tag=b&sort=-latency&status=failed&tag=c"
    assert found.adding("tag", "a").endswith("status=failed&tag=a")
    assert (found.sorting("latency")[-13:], found.sorting("ttft")[-10:]) == ("&sort=latency", "&sort=-ttft"[-10:])
    assert found.following("M").endswith("&after=M")
    assert ("project", "p") not in [chip[:2] for chip in listing("", project="p").chips()]
    assert ("project", "p") in [chip[:2] for chip in listing("project=p").chips()]


def row(**more):
    return RunRow(**{"id": "1", "project": "p", "status": "finished", "kind": "k", "created": 1.0, **more})


def test_columns_are_shown_where_they_say_something_and_there_is_room():
    alike = [row(model="m", batch=1, runtime="r"), row(model="m", batch=1, runtime="s")]
    found = {key for key, is_shown in listing("").shown(alike).items() if is_shown}
    assert found == {"when", "run", "status", "model", "runtime"}  # a batch that all share tells nothing
    chosen = listing("columns=batch,tpot").shown(alike)
    assert {key for key, is_shown in chosen.items() if is_shown} == {"run", "batch", "tpot"}
    full = row(model="m", device="d", latency_s=1.0, ttft_s=1.0, tpot_s=1.0, tokens_per_s=1.0, peak_memory_bytes=1,
               runtime="r", tags=("t",), batch=1, precision="p", threads=1, machine_id="x", author="a")  # fmt: skip
    other = row(model="m", runtime="s", batch=2, precision="q", machine_id="y")
    kept = [column for column in COLUMNS if listing("").shown([full, other])[column.key]]
    assert sum(column.width for column in kept) <= 1020
    ranks = {column.rank for column in kept}
    assert ranks >= set(range(1, 9))  # the most important are there
    assert not {"tpot", "threads", "author"} & {column.key for column in kept}  # only where they are asked for


def test_whoever_tags_runs_sees_the_tags_and_still_the_layers():
    measured = {"model": "m", "device": "d", "latency_s": 1.0, "peak_memory_bytes": 1, "profile_kind": "measured"}
    found = listing("").shown([row(**measured, tags=("nightly",)), row(**measured, runtime="r")])
    assert found["tags"]
    assert found["layers"]
    assert not listing("").shown([row(**measured)])["tags"]
    assert not listing("").shown([row(**measured, tags=("disturbed",))])["tags"]  # the status says so


# Comparisons


def run(number, made=WHOLE, **more):
    return SimpleNamespace(**{"id": f"r{number}", "name": None, "profile": made, "parameters": {}, "status": "finished",
                              "created": "2026-01-02T03:04:05.6", **more})  # fmt: skip


def test_runs_are_told_apart_by_their_names_their_devices_or_their_ids():
    def names(*runs):
        return [name for name, _ in compare_page.profiles_of(runs)]

    assert names(run(1, name="x"), run(2)) == ["x", "m"]
    assert names(run(1), run(2, parameters={"device": "pi"})) == ["m on d", "m on pi"]
    assert names(run(1), run(2)) == ["m (r1)", "m (r2)"]
    with pytest.raises(DomainError, match="r3 has no profile to compare: it is failed"):
        names(run(3, None, status="failed"))


def test_only_facts_that_differ_are_listed():
    other = Profile(
        kind="measured", model=ModelFacts(name="m"), device=DeviceFacts(name="d", title="A device"), phases=(PREFILL,),
        workload=Workload(batch=4, generate=3, parallel=Parallel(tp=2)), summary=Headline(),
        environment=Environment(threads=8, disturbed=True, versions={"torch": "2"}),
    )  # fmt: skip
    assert dict(compare_page.differing_facts([run(1), run(2, other, parameters={"x": "y"})])) == {
        "device": ["d", "A device"], "batch": ["2", "4"], "tp": ["–", "2"], "threads": ["–", "8"],
        "version of torch": ["–", "2"], "machine was": ["–", "disturbed"], "with x": ["–", "y"],
    }  # fmt: skip
    assert compare_page.differing_facts([run(1), run(1)]) == []


def test_a_heading_makes_its_run_the_baseline_or_leaves_it_out():
    runs = [run(1), run(2), run(3)]
    found = compare_page._heading(runs[1], "n", WHOLE, runs)
    assert found["as_baseline"] == "?run=r2&run=r1&run=r3&baseline=r2"
    assert (found["without"], found["created"]) == ("?run=r1&run=r3", "2026-01-02 03:04")
    assert compare_page._heading(runs[0], "n", WHOLE, runs[:2])["without"] is None


def metric(name, a, b, **more):
    given = {"phase": None, "unit": "s", "ratio": None, "low": None, "high": None, "p_value": None, "verdict": "same",
             "reason": ""}  # fmt: skip
    return SimpleNamespace(name=name, a=a, b=b, **{**given, **more})


def test_a_matrix_has_a_row_a_metric_the_main_one_first_and_a_cell_a_run():
    faster = metric("tpot", 0.5, 0.25, ratio=0.5, low=0.4, high=0.6, verdict="faster")
    slower = metric("tpot", 0.5, 1.0, ratio=2.0, verdict="slower")
    one = SimpleNamespace(metric="tpot", metrics=[metric("ttft", 1.0, 2.0), faster])
    two = SimpleNamespace(metric="tpot", metrics=[slower, metric("e2e", None, 3.0)])
    rows = compare_page._matrix([one, two])
    assert [(row["name"], row["main"], row["baseline"]) for row in rows] == [
        ("tpot", True, "500 ms"), ("ttft", False, "1 s"), ("e2e", False, "–"),
    ]  # fmt: skip
    first = rows[0]["cells"]
    assert [(cell["b_text"], cell["ratio_text"], cell["tone"]) for cell in first] == [
        ("250 ms", "0.5 (0.4 – 0.6)", "good"), ("1 s", "2", "bad"),
    ]  # fmt: skip
    assert [cell is None for cell in rows[1]["cells"]] == [False, True]
    assert rows[2]["cells"][1]["tone"] == "quiet"


def test_layers_that_differ_most_come_first(monkeypatch):
    monkeypatch.setattr(compare_page, "_MOST_LAYERS", 2)
    ops = [metric("small", 1.0, 1.1), metric("gone", 5.0, None), metric("slower", 1.0, 3.0)]
    made = SimpleNamespace(ops=ops, a="A", b="B", main=ops[0], metrics=[], notes=())
    found = compare_page._comparison_values(4, made)
    assert [cells[0] for cells in found["table"]["rows"]] == ["gone", "slower"]
    assert (found["left"], found["index"]) == ("1 more op changed by less", 4)
    assert (found["a"], found["b"]) == ("A", "B")


@pytest.mark.parametrize("name", TABLES)
def test_the_page_of_a_table_has_all_its_rows_and_cells(name):
    """And each is found by every word that is in it."""
    found, table = catalog_values(name), TABLES[name]
    records = list(table.records())
    assert records
    assert [row["name"] for row in found["rows"]] == [record["name"] for record in records]
    for row, record in zip(found["rows"], records, strict=True):
        assert [cell["text"] for cell in row["cells"]] == [
            cell_text(column, record[column.key]) for column in table.columns
        ]
        assert all(str(value).lower() in row["words"] for value in record.values() if isinstance(value, str))


def test_a_device_s_reference_is_drawn_beside_its_usual_time():
    checks = tuple(LeaseCheck(before_s=before, after_s=after, moved=after > before)
                   for before, after in ((2.0, 2.2), (2.0, 1.8), (1.9, 2.0)))  # fmt: skip
    drawn = fleet_page._drawing(checks)
    assert drawn["most"] == pytest.approx(0.1)
    assert [(point["x"], point["before"], point["after"], point["moved"]) for point in drawn["points"]] == [
        (0.0, 20.0, 2.0, True), (50.0, 20.0, 38.0, False), (100.0, 29.0, 20.0, True),
    ]  # fmt: skip
    still = fleet_page._drawing((checks[0], LeaseCheck(before_s=2.0, after_s=2.0, moved=False)))
    assert still["most"] == pytest.approx(0.1)
    quiet = tuple(LeaseCheck(before_s=2.0, after_s=2.001, moved=False) for _ in range(2))
    assert fleet_page._drawing(quiet)["most"] == 0.01  # what hardly moves is not drawn as if it did
    assert fleet_page._drawing(checks[:1]) is None
