"""Comparing runs in a real browser: first what changed and why, then only what moved."""

from dataclasses import replace

import pytest

from e2e.test_new_run import visiting
from unit.hub.web.samples import hub, network

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    with hub(tmp_path_factory.mktemp("compared")) as (store, client):
        yield store, str(client.base_url).rstrip("/")


@pytest.fixture
def page(browser, lab):
    with visiting(browser, lab[1]) as opened:
        yield opened


def fallen_back(profile):
    """The same run on another engine, in which one layer fell back to the CPU and took three times as long."""
    forward = profile.phases[-1]
    ops = tuple(replace(op, time_s=3 * op.time_s, unit="cpu") if "op_10" in op.name else op for op in forward.ops)
    more = sum(op.time_s for op in ops) - sum(op.time_s for op in forward.ops)
    times = {"time_s": forward.time_s + more, "low_s": None, "high_s": None}
    samples = tuple(time + more for time in forward.samples_s)
    phase = replace(forward, ops=ops, samples_s=samples, clean_s=forward.time_s + more, **times)
    return replace(profile, runtime="openvino", phases=(*profile.phases[:-1], phase))


def test_the_page_says_first_what_changed_where_and_why(page, lab):
    store = lab[0]
    runs = [store.add(network(40), "p", name="old"), store.add(fallen_back(network(40)), "p", name="new")]
    page.goto("/compare?" + "&".join(f"run={run}" for run in runs))
    story = page.locator("#changes .story").inner_text()
    assert "in stage.2.op_10 (moved from gpu to cpu)" in story
    assert "runtime (onnxruntime → openvino)" in story
    assert page.locator("#changes .moved tbody tr").count() == 1  # the other 39 did not move
    assert page.locator("#changes").bounding_box()["y"] < page.locator("#matrix").bounding_box()["y"]


def test_runs_without_a_difference_are_said_to_have_none(page, lab):
    store = lab[0]
    runs = [store.add(network(12), "p", name="one"), store.add(network(12), "p", name="other")]
    page.goto("/compare?" + "&".join(f"run={run}" for run in runs))
    assert "other against one: same" in page.locator("#changes .story").inner_text()
    assert page.locator("#changes .moved").count() == 0


def test_eight_runs_are_told_one_by_one_and_fit_on_a_phone(page, lab):
    runs = [lab[0].add(network(12, slower=1 + number / 10), "p", name=f"run {number}") for number in range(8)]
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto("/compare?" + "&".join(f"run={run}" for run in runs))
    assert page.locator("#changes .story").count() == 7
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
