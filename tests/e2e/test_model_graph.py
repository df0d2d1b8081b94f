"""The model as a graph with its times, in a real browser: folded, opened, searched, and chosen beside the table."""

import re
from dataclasses import replace

import pytest

from e2e.test_new_run import visiting
from inferometer import predict
from inferometer.core.structure import Structure, StructureBlock
from unit.hub.web.samples import hostile, hub, network

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    with hub(tmp_path_factory.mktemp("graphs")) as (store, client):
        yield store, str(client.base_url).rstrip("/")


@pytest.fixture
def page(browser, lab):
    with visiting(browser, lab[1]) as opened:
        yield opened


def wired(profile):
    """The profile with the structure that its layers have: a chain, and a way around every fourth."""
    ops = profile.phases[-1].ops
    steps = [(at, at + 1, 1e6) for at in range(len(ops) - 1)]
    around = [(at, at + 4, 8e6) for at in range(3, len(ops) - 4, 4)]
    names, kinds = tuple(op.name for op in ops), tuple(op.kind for op in ops)
    blocks = (StructureBlock(name="all", ops=len(ops)),)
    return replace(profile, structure=Structure(names=names, kinds=kinds, blocks=blocks, edges=(*steps, *around)))


def graph_of(page, run):
    page.goto(f"/runs/{run}")
    page.locator("#graph-panel").scroll_into_view_if_needed()
    canvas = page.locator("#model-graph canvas")
    page.locator("#model-graph canvas[data-boxes]").wait_for()
    return canvas


def has(page, boxes):
    page.locator(f'#model-graph canvas[data-boxes="{boxes}"]').wait_for()


def test_a_block_that_repeats_is_one_box_until_it_is_opened(page, lab):
    canvas = graph_of(page, lab[0].add(predict("llama-3.1-8b", on="nvidia-h100-sxm"), "p"))
    has(page, 5)  # embed, decoder × 32, final_norm, last, lm_head
    canvas.press("ArrowDown")
    canvas.press("ArrowDown")
    canvas.press("Enter")
    has(page, 4 + 15)
    canvas.dblclick()  # the box that was gone to stands in the middle
    has(page, 5)
    page.locator("#unfold").click()
    has(page, 4 + 32 * 15)


def test_a_layer_chosen_in_the_graph_is_chosen_in_the_table_and_the_other_way_round(page, lab):
    canvas = graph_of(page, lab[0].add(wired(network(40)), "p"))
    has(page, 10)  # stages of four
    page.locator("#unfold").click()
    canvas.press("ArrowDown")
    assert "stage.0.op_0" in page.locator(".grid-row.chosen").inner_text()
    page.locator(".grid-row", has_text="stage.1.op_5").click()
    page.locator('#model-graph canvas[data-selected="stage.1.op_5"]').wait_for()
    page.locator("#unfold").click()  # folded again: a layer of the table opens the block that it is in
    page.locator(".grid-row", has_text="stage.1.op_6").click()
    page.locator('#model-graph canvas[data-selected="stage.1.op_6"]').wait_for()
    has(page, 9 + 4)


def test_what_fell_back_to_another_unit_is_counted_and_found(page, lab):
    graph_of(page, lab[0].add(wired(network(40)), "p"))
    assert page.locator("#fallbacks").inner_text() == "10 not on gpu"
    page.locator("#unfold").click()
    page.locator("#fallbacks").click()
    page.locator('#model-graph canvas[data-selected="stage.0.op_3"]').wait_for()
    page.locator("#fallbacks").click()
    page.locator('#model-graph canvas[data-selected="stage.1.op_7"]').wait_for()


def test_it_is_searched_coloured_and_saved(page, lab):
    graph_of(page, lab[0].add(wired(network(40)), "p"))
    page.locator("#unfold").click()
    page.locator("#find-box").fill("op_17")
    page.locator('#model-graph canvas[data-selected="stage.4.op_17"]').wait_for()
    page.locator('#graph-by [data-by="unit"]').click()
    assert page.locator("#graph-legend").inner_text().split() == ["gpu", "cpu"]
    with page.expect_download() as saved:
        page.locator("#graph-svg").click()
    drawing = saved.value.path().read_text(encoding="utf-8")
    assert drawing.count("<rect") == 1 + 40
    assert "stage.4.op_17" in drawing
    widths = {float(width) for width in re.findall(r'<path[^>]* stroke-width="([\d.]+)"', drawing)}
    assert len(widths) == 2  # the ways around carry eight times the bytes


def test_five_thousand_layers_are_drawn(page, lab):
    graph_of(page, lab[0].add(wired(network(5000)), "p"))
    page.locator("#unfold").click()
    has(page, 5000)


def test_a_run_without_its_model_shows_its_layers_in_order_and_says_so(page, lab):
    graph_of(page, lab[0].add(network(12), "p"))
    assert "order of execution" in page.locator("#graph-told").inner_text()


def test_names_from_a_file_stay_text_in_the_graph_and_in_its_drawing(page, lab):
    graph_of(page, lab[0].add(hostile(), "p"))
    with page.expect_download() as saved:
        page.locator("#graph-svg").click()
    drawing = saved.value.path().read_text(encoding="utf-8")
    assert "<img" not in drawing and "<script" not in drawing  # noqa: PT018 - either is the same failure
    assert page.evaluate("window.hacked") is None
