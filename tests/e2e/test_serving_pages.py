"""Planning and simulating a service in a real browser: the address is the question, the command stands beside it."""

import re
import shlex
from urllib.parse import urlencode

import pytest

from e2e.test_load_command import quick
from e2e.test_new_run import visiting
from fakes.scripted_server import ScriptedServer
from inferometer import can_i_run
from inferometer.api import ask
from inferometer.api.services import plan
from inferometer.predict.fitting import memory_fit
from unit.hub.web.samples import HOSTILE, hub

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    with hub(tmp_path_factory.mktemp("serving")) as (_, client):
        yield str(client.base_url).rstrip("/")


@pytest.fixture
def page(browser, lab):
    with visiting(browser, lab) as opened:
        yield opened


def test_a_plan_is_asked_for_shared_by_its_address_and_the_same_as_the_verbs(page):
    page.goto("/plan")
    assert page.locator("#answer").count() == 0  # nothing is worked out before somebody asks
    page.locator('[name="devices"]').fill("nvidia-l4")
    page.locator('[name="rate"]').fill("2")
    page.locator("form.ask button").click()
    page.locator("#answer").wait_for()
    best = plan("llama-3.1-8b", rate=2, slo="ttft_p95<=1s,tpot_p95<=50ms", devices=["nvidia-l4"]).plans[0]
    assert f"{best.count} × nvidia-l4" in page.locator("#answer").inner_text()
    address = page.url
    page.goto("about:blank")
    page.goto(address)
    page.locator("#answer").wait_for()


def test_what_fits_is_answered_as_the_commands_answer_it(page):
    page.goto("/can-i-run")
    page.get_by_role("button", name="Answer").click()
    forms = page.locator("#answer tbody").last.locator("tr")
    forms.first.wait_for()
    answer = can_i_run("llama-3.1-8b", on="nvidia-rtx-4090", context=4096)
    assert [row.split()[0] for row in forms.all_inner_texts()] == [form.weights for form in answer.forms]
    page.goto("/fit")
    page.get_by_role("button", name="Answer").click()
    longest = memory_fit(ask("llama-3.1-8b", on="nvidia-l4")).document()["max_context"]
    page.locator("#answer", has_text=f"{longest:,}").wait_for()


def test_a_service_is_simulated_with_its_percentiles_and_charts(page):
    page.goto("/simulate?" + urlencode({"model": "llama-3.1-8b", "on": "nvidia-h100-sxm", "rate": 5, "requests": 60}))
    page.locator("#latencies-panel").wait_for()
    assert page.locator(".card").count() >= 3
    page.locator("figure[data-drawn]").first.wait_for()


@pytest.mark.parametrize("verb", ["plan", "simulate", "can-i-run", "fit", "load", "calibrate", "sweep"])
def test_the_command_beside_it_is_one_that_the_command_line_takes(page, verb, answered):
    page.goto(f"/{verb}")
    words = shlex.split(page.locator("#command").inner_text())
    assert words[0] == "inferometer"
    assert words[1] == ("predict" if verb == "fit" else verb)
    known = answered(words[1], "--help").stdout
    assert all(word in known for word in words if word.startswith("--"))


def test_a_load_test_is_started_by_a_page_and_its_run_is_where_one_lands(page):
    with ScriptedServer(quick) as server:
        page.goto("/load")
        page.locator('[name="url"]').fill(server.url)
        page.locator('[name="requests"]').fill("4")
        page.locator("#command", has_text=f"load {server.url} ").wait_for()  # it follows what is typed
        page.get_by_role("button", name="Start").click()
        page.wait_for_url(re.compile("/runs/"))
        page.locator("#latencies-panel").wait_for()


def test_what_cannot_begin_says_why_where_it_was_asked(page):
    page.goto("/load?" + urlencode({"url": "http://127.0.0.1:1", "slo": "no goal"}))
    page.get_by_role("button", name="Start").click()
    page.locator("#problem", has_text="no goal").wait_for()
    page.goto("/calibrate")
    assert "inferometer hub agent --hub http" in page.locator("#why-not").inner_text()  # no device is there yet
    assert page.get_by_role("button", name="Start").is_disabled()


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("/simulate?model=llama-3.1-8b&on=nvidia-h100-sxm&rate=fast", "Requests a second is a number"),
        ("/simulate?model=llama-3.1-8b&on=nvidia-h100-sxm&rate=1&requests=900000", "up to 5,000 requests"),
        ("/simulate?model=llama-3.1-8b&on=nvidia-h100-sxm&rate=1&prompt=file:/etc/passwd", "read on your own machine"),
        ("/simulate?model=/etc/passwd&on=nvidia-h100-sxm&rate=1", "/etc/passwd"),
        ("/simulate?model=llama-3.1-8b&on=nvidia-h100-sxm&rate=1&concurrency=2", "one of the two"),
        ("/can-i-run?model=llama-3.1-8b&on=nvidia-l4,/etc/passwd", "/etc/passwd"),
        ("/can-i-run?model=llama-3.1-8b", "device"),
        ("/can-i-run?model=resnet50&on=nvidia-l4", "makes no tokens"),
        ("/fit?model=llama-3.1-8b&on=nvidia-l4&weights=q99", "q99"),
        ("/plan?model=llama-3.1-8b&rate=5", "what comes and what is in time"),
        ("/plan?model=llama-3.1-8b&rate=5&slo=ttft_p95<=1s&goal=fastest", "Goal is one of"),
    ],
)
def test_what_cannot_be_answered_is_told_beside_the_form_that_keeps_its_words(page, query, told):
    page.goto(query)
    assert told in page.locator(".callout.bad:visible").inner_text()
    assert page.locator('[name="model"]').input_value() == re.search("model=([^&]+)", query).group(1)


def test_names_in_an_address_stay_text(page):
    page.goto("/plan?" + urlencode({"model": HOSTILE, "rate": 1, "slo": "ttft_p95<=1s"}))
    page.locator(".callout.bad:visible").wait_for()
    assert page.evaluate("window.hacked") is None
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
