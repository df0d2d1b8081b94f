"""Charts: what a spec holds, and that vl-convert can draw it."""

import importlib.util
import json
import sys
from dataclasses import replace

import numpy as np
import pytest

from inferometer import device, predict
from inferometer.core.errors import DomainError, MissingDependencyError, UnknownNameError
from inferometer.predict.sweep import Rows, run_study
from inferometer.understand.view.charts import heatmap, pareto_scatter, roofline
from inferometer.understand.view.charts.pareto import thinned
from inferometer.understand.view.charts.render import _VERSION, FORMS, _page, log_ticks, render, save
from inferometer.understand.view.sweeps import sweep_table
from unit.predict.sweep.studies import small

NEEDS_CONVERTER = pytest.mark.skipif(
    importlib.util.find_spec("vl_convert") is None,
    reason="vl-convert is not installed: pip install 'inferometer[charts]'",
)


@pytest.fixture(scope="module")
def rows():
    return run_study(small(batch=[1, 2, 4, 8], context=[100, 1000, 200_000]))


@pytest.fixture(scope="module")
def profile():
    return predict("llama-3.2-1b", on="nvidia-h200", prompt=512, context=1024, batch=4)


def points(spec):
    return spec["data"]["values"]


def test_a_scatter_has_the_front_of_all_rows(rows):
    spec = pareto_scatter(rows, "tpot_s", "usd_per_million_tokens")
    front = [point for point in points(spec) if point["front"]]
    expected = rows.pareto("tpot_s", "usd_per_million_tokens", ties=False)
    assert [point["tpot_s"] for point in front] == expected["tpot_s"].tolist()
    assert f"{len(expected)} on the front" in spec["title"]["subtitle"]


def test_a_scatter_leaves_out_what_cannot_be(rows):
    assert all(point["context"] != 200_000 for point in points(pareto_scatter(rows, "tpot_s", "energy_j")))


def test_a_scatter_of_many_rows_stays_small():
    many = run_study(small(batch=range(1, 65), prompt=range(1, 17), context=range(1, 2000, 20)))
    assert len(many) == 409_600
    kept = thinned(many.parts, "tpot_s", "energy_j", "device")
    assert 100 < len(kept) <= 4000
    assert len(json.dumps(pareto_scatter(many, "tpot_s", "energy_j"))) < 2_000_000


def test_axes_hold_every_point(rows):
    spec = pareto_scatter(rows, "tpot_s", "usd_per_million_tokens")
    for channel, name in (("x", "tpot_s"), ("y", "usd_per_million_tokens")):
        low, high = spec["encoding"][channel]["scale"]["domain"]
        assert all(low < point[name] < high for point in points(spec))


def test_a_scatter_needs_numbers_and_rows(rows):
    with pytest.raises(UnknownNameError, match="Did you mean tpot_s"):
        pareto_scatter(rows, "tpott_s", "energy_j")
    with pytest.raises(DomainError, match="no numbers"):
        pareto_scatter(rows, "device", "energy_j")
    with pytest.raises(DomainError, match="No row"):
        pareto_scatter(Rows([]), "tpot_s", "energy_j")


def test_a_heat_map_shows_the_best_row_of_a_cell(rows):
    spec = heatmap(rows, "batch", "context", "tpot_s")
    cells = {(cell["device"], cell["batch"], cell["context"]): cell["tpot_s"] for cell in points(spec)}
    assert len(cells) == 2 * 4 * 2
    chosen = (rows["device"] == "nvidia-l4") & (rows["batch"] == 4) & (rows["context"] == 1000)
    assert cells["nvidia-l4", 4, 1000] == np.nanmin(rows["tpot_s"][chosen])


def test_more_is_better_where_it_is(rows):
    cells = points(heatmap(rows, "batch", "context", "tokens_per_s", by=None))
    best = max(cell["tokens_per_s"] for cell in cells)
    assert best == np.nanmax(rows["tokens_per_s"])


def test_a_heat_map_of_many_values_shows_some_of_them():
    many = run_study(small(batch=range(1, 401), prompt=[16], context=[100]))
    spec = heatmap(many, "batch", "weights", "tpot_s")
    assert len({cell["batch"] for cell in points(spec)}) <= 160


def test_a_heat_map_is_over_inputs(rows):
    with pytest.raises(DomainError, match="not an input"):
        heatmap(rows, "tpot_s", "batch", "energy_j")
    with pytest.raises(DomainError, match="no numbers"):
        heatmap(rows, "batch", "context", "model")
    with pytest.raises(DomainError, match="No row"):
        heatmap(rows, "batch", "context", "latency_s")


def test_a_roofline_has_the_ops_under_the_roofs_of_the_device(profile):
    spec = roofline(profile, device("nvidia-h200"))
    texts = json.dumps(spec, ensure_ascii=False)
    assert "hbm  4.8 TB/s" in texts
    assert "bf16/f16  990 TFLOP/s" in texts
    dots = next(layer for layer in spec["layer"] if layer["mark"]["type"] == "circle")["data"]["values"]
    known = {op.name for op in profile.phases[-1].ops}
    assert {dot["op"] for dot in dots} <= known
    attention = next(op for op in profile.phases[-1].ops if op.kind == "attention")
    dot = next(dot for dot in dots if dot["op"] == attention.name)
    assert dot["flops_per_s"] == attention.flops / attention.time_s
    assert "decode" in spec["title"]["subtitle"][0]


def test_ops_are_drawn_by_their_share_of_a_phase_however_short_it_is(profile):
    phase = profile.phases[-1]
    quick = replace(
        phase, time_s=phase.time_s / 1e6, ops=tuple(replace(op, time_s=op.time_s / 1e6) for op in phase.ops)
    )
    shown = [
        [dot["op"] for layer in spec["layer"] if layer["mark"]["type"] == "circle" for dot in layer["data"]["values"]]
        for spec in (roofline(replace(profile, phases=(one,)), device("nvidia-h200")) for one in (phase, quick))
    ]
    assert shown[0]
    assert shown[0] == shown[1]


def test_a_roofline_is_of_the_phase_asked_for(profile):
    assert "prefill" in roofline(profile, device("nvidia-h200"), phase="prefill")["title"]["subtitle"][0]
    with pytest.raises(UnknownNameError, match="Did you mean prefill"):
        roofline(profile, device("nvidia-h200"), phase="prefil")


def test_the_roofs_of_several_devices_stand_higher():
    one, two = (predict("llama-3.2-1b", on="nvidia-h200", context=100, tp=tp) for tp in (1, 2))
    high = [roofline(found, device("nvidia-h200"))["encoding"]["y"]["scale"]["domain"][1] for found in (one, two)]
    assert high[1] == 2 * high[0]


def test_a_roofline_needs_work_and_roofs(profile):
    bare = replace(profile, phases=tuple(replace(phase, ops=()) for phase in profile.phases))
    with pytest.raises(UnknownNameError, match="no phase with ops"):
        roofline(bare, device("nvidia-h200"))
    with pytest.raises(DomainError, match="roofs"):
        roofline(profile, replace(device("nvidia-h200"), peaks={}))


@pytest.mark.parametrize(("low", "high"), [(0.9, 12), (1e-4, 1e-1), (3, 1e9), (0.5, 0.6)])
def test_ticks_lie_within_their_axis(low, high):
    ticks = log_ticks(low, high)
    assert ticks == sorted(ticks)
    assert all(low <= tick <= high for tick in ticks)
    assert len(ticks) <= 12


def test_a_spec_is_json_as_it_is(rows, tmp_path):
    spec = pareto_scatter(rows, "tpot_s", "energy_j")
    assert json.loads(render(spec, "json")) == spec
    save(spec, tmp_path / "chart.json")
    assert json.loads((tmp_path / "chart.json").read_text(encoding="utf-8")) == spec


@NEEDS_CONVERTER
@pytest.mark.parametrize("form", FORMS)
def test_every_chart_can_be_drawn_in_every_form(rows, profile, form):
    begins = {"json": b"{", "svg": b"<svg", "png": b"\x89PNG", "html": b"<!DOCTYPE html>"}[form]
    for spec in (
        pareto_scatter(rows, "tpot_s", "usd_per_million_tokens"),
        heatmap(rows, "batch", "context", "tpot_s"),
        roofline(profile, device("nvidia-h200")),
    ):
        assert render(spec, form).lstrip().startswith(begins)


@NEEDS_CONVERTER
def test_an_axis_speaks_in_units(rows):
    drawn = render(pareto_scatter(rows, "tpot_s", "peak_memory_bytes"), "svg").decode()
    assert ">10 ms<" in drawn
    assert " GB<" in drawn
    assert "NaN" not in drawn


def test_a_chart_without_the_converter_says_what_to_install(rows, monkeypatch):
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    with pytest.raises(MissingDependencyError, match=r"inferometer\[charts\]"):
        render(pareto_scatter(rows, "tpot_s", "energy_j"), "svg")


def test_a_form_that_is_not_known_is_refused(rows, tmp_path):
    with pytest.raises(DomainError, match=r"\.svg, \.png, \.html, \.json"):
        save(pareto_scatter(rows, "tpot_s", "energy_j"), tmp_path / "chart.gif")
    with pytest.raises(DomainError, match="cannot be made 'gif'"):
        render({}, "gif")


def test_a_table_shows_what_differs_and_says_what_does_not(rows):
    table = sweep_table(rows, most=5)
    assert len(table.rows) == 5
    headings = [column.heading for column in table.columns]
    assert "context" in headings
    assert "model" not in headings
    assert "model llama-3.2-1b" in table.note
    assert f"{len(rows) - 5} more rows" in table.note


SPEC = {"mark": "bar", "data": {"values": [{"a": 1}]}, "encoding": {"x": {"field": "a"}}}


@NEEDS_CONVERTER
def test_a_page_is_the_one_that_vl_convert_bundles_and_its_scripts_are_made_once(tmp_path, monkeypatch):
    converter = importlib.import_module("vl_convert")
    monkeypatch.setenv("INFEROMETER_CACHE", str(tmp_path))
    made, bundle = [], converter.javascript_bundle
    monkeypatch.setattr(converter, "javascript_bundle", lambda **how: made.append(how) or bundle(**how))
    pages = {render(SPEC, "html").decode() for _ in range(2)}
    assert pages == {converter.vegalite_to_html(SPEC, vl_version=_VERSION, bundle=True)}
    assert made == [{"vl_version": _VERSION}]
    assert [path.name for path in (tmp_path / "charts").iterdir()] == [f"vega-{converter.__version__}-{_VERSION}.js"]


class OtherConverter:
    """Of a version that writes its page otherwise, or bundles what no cache can keep."""

    __version__ = "9.9"

    def __init__(self, head):
        self.head = head

    def vegalite_to_html(self, _spec, *, bundle, **_version):
        return "whole" if bundle else f"<html><head>{self.head}</head><body></body></html>"

    def javascript_bundle(self, **_version):
        return "scripts"


OWN = '<script type="text/javascript">scripts</script>'
ADDRESS = '<script src="https://cdn.example/vega@6"></script>'


@pytest.mark.parametrize(
    ("head", "page"),
    [
        (f"{ADDRESS}\n {ADDRESS}", f"<html><head>{OWN}</head><body></body></html>"),
        ("", "whole"),
        (ADDRESS + "<title>x</title>" + ADDRESS, "whole"),
        ("<script type=module>import 'https://cdn.example'</script>", "whole"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("writable", [True, False])
def test_a_page_never_loads_what_lies_elsewhere(head, page, writable, tmp_path, monkeypatch):
    cache = tmp_path / "cache"
    if not writable:
        cache.touch()
    monkeypatch.setenv("INFEROMETER_CACHE", str(cache))
    assert _page(OtherConverter(head), SPEC) == page
