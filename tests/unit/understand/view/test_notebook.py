"""What a notebook shows of a value, and what data frames get."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

import inferometer as im
from inferometer.understand.view import notebook, render, terminal
from inferometer.understand.view.cards import view_of
from inferometer.understand.view.exports import markdown, view_markdown
from inferometer.understand.view.terminal import draw_card, draw_table

LLAMA = im.predict("llama-3.2-1b", on="nvidia-h200", prompt=512, generate=32)
SLOWER = im.predict("llama-3.2-1b", on="nvidia-l4", prompt=512, generate=32)
COMPARED = im.compare(LLAMA, SLOWER, names=("h200", "l4"))
ROWS = im.sweep("llama-3.2-1b", ["nvidia-h200", "nvidia-l4"], batch=[1, 8], context=1024)
BENCH = im.bench(lambda: None, im.Plan(runs=3, seconds=0), guard=im.NoGuard())
MEASURED = replace(
    LLAMA,
    kind="measured",
    phases=tuple(
        replace(
            phase,
            statistic="median",
            samples_s=(phase.time_s,) * 3,
            ops=tuple(replace(op, predicted_s=op.time_s / 2) for op in phase.ops),
        )
        for phase in LLAMA.phases
    ),
)
SHOWN = {
    "profile": LLAMA,
    "measured": MEASURED,
    "benchmark": BENCH.profile,
    "comparison": COMPARED,
    "device": im.device("raspberry-pi-5"),
    "sweep": ROWS,
    "explanation": im.explain(LLAMA),
    "fit": im.fit("llama-3.2-1b", on="nvidia-l4"),
    "measurement": BENCH,
}


class Balanced(HTMLParser):
    """Fails on a tag that is not closed, or one that could run or fetch something."""

    def __init__(self):
        super().__init__()
        self.open = []

    def handle_starttag(self, tag, attrs):
        assert tag not in {"script", "link", "iframe", "img"}
        assert all(not name.startswith("on") for name, _ in attrs)
        if tag not in {"br", "hr"}:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.mark.parametrize("value", SHOWN.values(), ids=SHOWN)
def test_a_value_shows_itself_as_a_whole_page_that_needs_nothing(value):
    page = value._repr_html_()
    parser = Balanced()
    parser.feed(page)
    assert not parser.open
    assert "<table" in page
    assert "\x1b" not in page


def test_a_recording_is_laid_out_once_for_a_page_and_for_markdown():
    profiler = im.Profiler(enabled=True)
    with profiler.span("a <b>", unit="cpu", phase="decode"), profiler.span("inner"):
        pass
    view = view_of(profiler.recording())
    page, text = notebook.view_html(view), view_markdown(view, "Profile")
    parser = Balanced()
    parser.feed(page)
    assert not parser.open
    assert "a &lt;b&gt;" in page
    for title in [table.title for table in view.tables] + [view.timeline.partition("\n")[0]]:
        assert title in page
        assert f"**{title}**" in text


@pytest.mark.parametrize("value", SHOWN.values(), ids=SHOWN)
def test_a_repr_is_one_short_line(value):
    assert len(repr(value)) < 500
    assert "\n" not in repr(value)


def test_a_measured_layer_stands_beside_its_prediction():
    page = MEASURED._repr_html_()
    assert "the line is the prediction" in page
    assert page.count("background:currentColor") > 5
    assert "the line is the prediction" not in LLAMA._repr_html_()


def test_names_out_of_a_file_stay_text():
    op = replace(LLAMA.phases[1].ops[0], name="<script>alert(1)</script>", time_s=9.0)
    phases = (replace(LLAMA.phases[1], ops=(op,)),)
    page = replace(LLAMA, model=replace(LLAMA.model, name="<b>x"), phases=phases)._repr_html_()
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert "<b>x" not in page


def test_the_columns_of_a_profile_add_up_to_its_phases():
    frame = LLAMA.to_pandas()
    for phase in LLAMA.phases:
        ours = frame[frame.phase == phase.name]
        assert ours.time_s.sum() + (phase.unattributed_s or 0) == pytest.approx(phase.time_s)
    assert LLAMA.to_polars()["time_s"].to_list() == frame.time_s.to_list()


def test_a_sweep_and_a_comparison_are_frames_of_the_same_numbers():
    import pandas as pd  # for this test alone: every worker would wait for it
    import polars as pl

    frame = ROWS.to_pandas()
    assert isinstance(frame, pd.DataFrame)
    assert frame.tpot_s.to_list() == [row["tpot_s"] for row in ROWS]
    polar = ROWS.to_polars()
    assert isinstance(polar, pl.DataFrame)
    assert polar.schema["model"] == pl.String
    ratios = dict(zip(COMPARED.to_columns()["name"], COMPARED.to_columns()["ratio"], strict=True))
    assert ratios["decode"] == COMPARED.main.ratio


def test_a_verb_takes_values_files_and_says_what_it_has_not(tmp_path):
    saved = im.export(LLAMA, tmp_path / "llama.json")
    assert im.compare(saved, LLAMA).main.verdict == "same"
    assert im.explain(saved).headline == im.explain(LLAMA).headline
    assert im.chart(saved, "kinds").spec["data"]["values"]
    assert "<svg" in im.chart(LLAMA, "layers")._repr_svg_()
    with pytest.raises(im.InferometerError, match="layers"):
        im.chart(LLAMA, "pie")
    with pytest.raises(im.InferometerError, match="suffix"):
        im.export(LLAMA, tmp_path / "llama")
    with pytest.raises(im.InferometerError, match="There is no file"):
        im.explain(tmp_path / "absent.json")


@pytest.mark.parametrize("profile", [LLAMA, MEASURED, BENCH.profile], ids=["predicted", "measured", "benchmark"])
def test_every_renderer_shows_all_of_the_one_view(profile):
    view, page, text = view_of(profile), profile._repr_html_(), markdown(profile)
    printed = "\n".join([draw_card(view.card), *(draw_table(table) for table in view.tables)])
    for label, value, _ in view.card.facts:
        assert all(label in shown and value in shown for shown in (page, text, printed))
    for table in view.tables:
        wanted = {table.title or "", *(column.heading for column in table.columns if table.rows)}
        assert all(word in shown for shown in (page, text, printed) for word in wanted)
    assert all(table.title in page and table.title in text for table in view.more)


def test_renderers_know_no_profile_from_the_inside():
    """They take a View; what a phase or an op has is read where the view is laid out."""
    for module in (notebook, terminal, render):
        source = Path(module.__file__).read_text(encoding="utf-8")
        assert not re.search(r"\.(phases|ops|summary|time_s|predicted_s|floor_s|environment)\b", source)
