"""The hub in a real browser: what a person does there, done by Chromium."""

import importlib.util
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fakes.fleet import a_job
from fakes.load_profiles import sweep_profile
from inferometer.cli.run import run as run_command
from inferometer.core.job import JobModel
from inferometer.core.profile import Run
from inferometer.hub.web.downloads import one_file
from inferometer.store import Filter, Metric
from inferometer.store.queue.fleet import Fleet
from inferometer.store.queue.values import NewDevice, NewJob, Wanted
from inferometer.store.tables import tokens
from inferometer.understand.view.catalog_tables import TABLES
from unit.hub.web.samples import decoder, hostile, hub, network

pytestmark = pytest.mark.slow
HELD = [Metric(name="memory_bytes", step=0, value=1e6), Metric(name="memory_bytes", step=400, value=2e6)]
CHARTS = pytest.mark.skipif(importlib.util.find_spec("vl_convert") is None, reason="pip install 'inferometer[charts]'")


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    with hub(tmp_path_factory.mktemp("hub"), poll_s=0.1) as (store, client):
        yield store, str(client.base_url).rstrip("/")


@pytest.fixture(scope="module")
def tab(browser, here):
    """One for all tests, since opening it takes longer than most of them; and the errors of scripts and the policy."""
    context = browser.new_context(base_url=here[1])
    opened, troubles = context.new_page(), []
    opened.set_default_timeout(200_000)
    opened.on("pageerror", lambda error: troubles.append(str(error)))
    opened.on("console", lambda said: troubles.append(said.text) if said.type in {"error", "warning"} else None)
    yield opened, troubles
    context.close()


@pytest.fixture
def page(tab):
    """The tab as a new visitor has it; any error fails the test."""
    opened, troubles = tab
    opened.set_viewport_size({"width": 1280, "height": 900})
    yield opened
    opened.evaluate("localStorage.clear()")
    for other in opened.context.pages[1:]:
        other.close()
    opened.goto("about:blank")  # what it still asks for ends here
    found = [*troubles]
    troubles.clear()
    assert found == []


@pytest.fixture(scope="module")
def team(tmp_path_factory):
    """A hub that needs tokens."""
    with hub(tmp_path_factory.mktemp("team"), tokens=True, sign_ins=100) as (store, client):
        store.create_user("ann")
        yield store, str(client.base_url).rstrip("/")


@pytest.fixture
def visitor(browser, team):
    context = browser.new_context(viewport={"width": 1280, "height": 900}, base_url=team[1])
    opened = context.new_page()
    opened.set_default_timeout(200_000)
    yield opened
    context.close()


def sign_in(page, text):
    page.locator("input[name=token]").fill(text)
    page.locator("main button").click()


def test_signing_in_and_out(visitor, team):
    secret = team[0].create_token("ann", scopes=("read",))
    visitor.goto("/?words=anything")
    visitor.wait_for_url(re.compile("/sign-in[?]"))
    sign_in(visitor, "wrong")
    visitor.locator("[role=alert]", has_text="not valid").wait_for()
    sign_in(visitor, secret.text)
    visitor.wait_for_url("**/?words=anything")  # where they wanted to go
    assert visitor.locator(".who").inner_text().split() == ["ann", "Sign", "out"]
    visitor.goto("/formulas/ridge_point")  # a token to read calculates
    visitor.locator('[name="peak"]').fill("100 TFLOP/s")
    visitor.locator('[name="bandwidth"]').fill("1 TB/s")
    visitor.locator("#answer", has_text="100 FLOP/B").wait_for()
    visitor.locator(".who button").click()
    visitor.wait_for_url("**/sign-in")
    visitor.goto("/devices")
    visitor.wait_for_url(re.compile("/sign-in[?]"))


@pytest.mark.parametrize("how", ["revoked", "expired"])
def test_a_live_page_ends_with_its_token(visitor, team, how):
    secret = team[0].create_token("ann", lasts_s=3600)
    visitor.goto("/live")
    sign_in(visitor, secret.text)
    visitor.locator("#state", has_text="live").wait_for()
    if how == "revoked":
        team[0].revoke_token(secret.token.id)
    else:  # an hour later
        its_row = tokens.update().where(tokens.c.id == secret.token.id)
        team[0].database.write(lambda connection: connection.execute(its_row.values(expires_us=1)))
    visitor.wait_for_url(re.compile("/sign-in[?]"))
    assert "expired or was revoked" in visitor.locator("[role=alert]").inner_text()


def test_a_run_is_pushed_from_one_hub_to_another(visitor, here, team, monkeypatch, capsys):
    run = here[0].add(network(12), "phones", name="measured at home")
    secret = team[0].create_token("ann", scopes=("write",))
    monkeypatch.setenv("INFEROMETER_TOKEN", secret.text)
    pushed = ["push", "measured at home", "--hub", team[1], "--store", str(here[0].location)]
    assert (run_command(pushed), run_command(pushed)) == (0, 0)  # once more: it is there once
    link = f"{team[1]}/runs/{run}"
    assert link in capsys.readouterr().out
    visitor.goto(link)
    sign_in(visitor, secret.text)
    visitor.locator("h1", has_text="measured at home").wait_for()
    visitor.goto("/projects/phones")
    assert visitor.locator("#runs tbody tr").count() == 1
    assert team[0].row(run).author == "ann"


def test_any_number_of_tabs_is_live(page):
    tabs = [page, *(page.context.new_page() for _ in range(7))]
    for tab in tabs:  # a browser keeps six connections to a hub
        tab.goto("/live")
        tab.locator("#state", has_text="live").wait_for()


def bar(page, index, count):
    """The middle of a layer's bar."""
    box = page.locator("#layer-chart canvas").bounding_box()
    wide = box["width"] - 62 - 8
    return box["x"] + 62 + wide * (index + 0.5) / count, box["y"] + box["height"] / 2


def hover(page, index, count, name):
    """Point at a layer's bar until its name shows: parts of the page that load later move the bar away."""
    tip = page.locator("#tip strong", has_text=name)
    page.locator("#layer-chart canvas").scroll_into_view_if_needed()
    while not tip.is_visible():
        page.mouse.move(0, 0)  # the same point again would be no move
        page.mouse.move(*bar(page, index, count))
        page.evaluate("() => new Promise(requestAnimationFrame)")


def test_hover_tells_the_layer_and_a_click_shows_its_row(page, here):
    profile = network(40)
    run = here[0].add(profile)
    page.goto(f"/runs/{run}")
    page.locator("canvas[data-ready]").wait_for()
    name = profile.phase("forward").ops[33].name
    hover(page, 33, 40, name)
    assert re.search(r"[\d.]+ [µm]s", page.locator("#tip").inner_text())
    page.mouse.click(*bar(page, 33, 40))
    row = page.locator('.grid-row.chosen[data-index="33"]')
    row.wait_for()
    assert name in row.inner_text()
    grid, box = page.locator("#layer-table").bounding_box(), row.bounding_box()
    assert grid["y"] <= box["y"] <= grid["y"] + grid["height"]
    assert 0 <= box["y"] <= 900 - box["height"]  # also on the screen


def test_a_row_highlights_its_bar(page, here):
    run = here[0].add(network(40))
    page.goto(f"/runs/{run}")
    page.locator("canvas[data-ready]").wait_for()
    before = page.locator("#layer-chart canvas").screenshot()
    page.locator('.grid-row[data-index="5"]').click()
    page.locator('.grid-row.chosen[data-index="5"]').wait_for()
    page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert page.locator("#layer-chart canvas").screenshot() != before


@CHARTS
def test_a_load_test_draws_its_levels_and_requests(page, here):
    run = here[0].add(sweep_profile(), name="load")
    page.set_viewport_size({"width": 390, "height": 8000})  # everything is in view, so everything is drawn
    page.goto(f"/runs/{run}")
    page.locator("#load-findings", has_text="The highest load within").wait_for()
    count = page.locator("[data-chart]").count()
    assert count >= 10
    page.locator("[data-drawn]").nth(count - 1).wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.locator("#levels-panel tbody tr").count() == 4


def test_every_menu_opens_within_a_phones_screen(page, here):
    run = here[0].add(network(12), name="menus")
    page.set_viewport_size({"width": 390, "height": 844})
    for path, least in (("/runs", 2), (f"/runs/{run}", 1)):
        page.goto(path)
        menus = page.locator(".menu")
        assert menus.count() >= least
        for menu in menus.all():
            menu.locator("summary").click()
            box = menu.locator("ul").bounding_box()
            assert box is not None
            assert box["x"] >= 0, path
            assert box["x"] + box["width"] <= 390, path
            menu.locator("summary").click()


def test_five_thousand_layers_scroll_sort_and_are_found(page, here):
    run = here[0].add(network(5000))
    page.goto(f"/runs/{run}")
    page.locator("canvas[data-ready]").wait_for()
    assert page.locator(".grid-row").count() < 60
    page.mouse.click(*bar(page, 4200, 5000))
    chosen = page.locator(".grid-row.chosen")
    chosen.wait_for()
    assert 4150 <= int(chosen.get_attribute("data-index")) <= 4250
    page.locator("#find-layer").fill("op_4321")
    page.locator("#layer-count", has_text="1 of 5,000 layers").wait_for()
    assert page.locator(".grid-row").count() == 1


def test_keys_walk_the_layers(page, here):
    run = here[0].add(network(40))
    page.goto(f"/runs/{run}")
    page.locator("canvas[data-ready]").focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    page.locator('.grid-row.chosen[data-index="2"]').wait_for()
    page.locator("#layer-table").focus()
    page.keyboard.press("ArrowDown")
    page.locator('.grid-row.chosen[data-index="3"]').wait_for()


def test_the_kinds_are_counted_by_time_or_by_number(page, here):
    run = here[0].add(network(40))
    page.goto(f"/runs/{run}")
    first = page.locator("#kinds .row").first
    first.wait_for()
    assert "s" in first.locator(".number").first.inner_text()
    page.locator('#kind-mode [data-mode="count"]').click()
    page.locator('#kinds[data-mode="count"]').wait_for()
    counts = page.locator("#kinds .row .number:nth-child(3)").all_inner_texts()
    assert [int(text) for text in counts] == [10, 10, 10, 10]
    assert page.locator('#units .row[data-name="gpu"]').inner_text().startswith("gpu · 30 ops")
    page.locator('#units .row[data-name="gpu"]').click()
    page.locator("#layer-count", has_text="30 of 40 layers: gpu").wait_for()
    page.locator('#kind-donut path[data-name="linear"]').click()
    page.locator("#layer-count", has_text="10 of 40 layers: linear, gpu").wait_for()
    page.locator('#kinds .row[data-name="linear"]').click()  # once more: off
    page.locator("#layer-count", has_text="30 of 40 layers: gpu").wait_for()


def test_phases_are_stacked_or_shown_alone(page, here):
    run = here[0].add(decoder())
    page.goto(f"/runs/{run}")
    units = page.locator("#units .row .number:nth-child(3)")
    units.first.wait_for()
    assert units.all_inner_texts() == ["64 ms", "1.6 ms", "1 ms"]  # of a request of 66.6 ms: cpu, host, unattributed
    assert page.locator('#units .row[data-name="cpu"]').inner_text().startswith("cpu · 4 ops")
    page.locator("#phases button", has_text="decode").click()
    assert page.locator("#closing").inner_text() == "decode: 3 ms in layers + 60 µs sample + 40 µs read"
    grown = page.locator('.grid-row[data-index="1"]').inner_text()
    assert "+3 %" in grown  # attention, from the first token to the last
    assert "985 µs" in grown
    assert page.locator('.grid-row[data-index="0"]').inner_text().count("–") >= 1


@CHARTS
@pytest.mark.parametrize("width", [1280, 390])
def test_every_chart_is_there_to_be_printed_and_can_be_read(browser, here, width):
    run = here[0].add(network(40))
    context = browser.new_context(viewport={"width": width, "height": 800}, base_url=here[1], color_scheme="dark")
    page = context.new_page()
    page.goto(f"/runs/{run}", wait_until="networkidle")
    assert page.evaluate("window.vegaEmbed === undefined")  # no chart is in sight yet
    page.keyboard.press("Control")  # the first key of those that print
    page.wait_for_function("() => document.querySelectorAll('[data-chart]').length === "
                           "document.querySelectorAll('[data-chart][data-drawn]').length")  # fmt: skip
    sizes = page.evaluate("""() => [...document.querySelectorAll('[data-chart^=roofline] svg text')].map((text) =>
        parseFloat(getComputedStyle(text).fontSize) * Math.hypot(text.getScreenCTM().a, text.getScreenCTM().b))""")
    assert min(sizes) >= 10.99
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.emulate_media(media="print")
    assert page.locator(".top").is_hidden()
    assert len(page.pdf()) > 20_000
    context.close()


@CHARTS
def test_charts_are_drawn_without_eval_and_in_the_dark(page, here):
    run = here[0].add(network(40))
    page.goto(f"/runs/{run}")
    for name in ("histogram", "roofline-forward"):
        chart = page.locator(f'[data-chart="{name}"]')
        chart.scroll_into_view_if_needed()
        page.locator(f'[data-chart="{name}"][data-drawn] svg').wait_for()
    text = page.locator('[data-chart="histogram"] .role-axis-label text').first.element_handle()
    ink = "(text) => text.isConnected && getComputedStyle(text).fill"
    light = text.evaluate(ink)
    page.locator("#theme").click()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert text.evaluate(ink) not in {light, False}  # the drawing that was there, in other inks


def test_findings_arrive(page, here):
    run = here[0].add(network(12))
    page.goto(f"/runs/{run}")
    page.locator("#findings li", has_text="A finding it carries").first.wait_for(state="attached")


def test_two_runs_are_chosen_and_compared(page, here):
    quiet = replace(network(12, samples=40), environment=None)
    slow = replace(network(12, samples=40, slower=1.5), environment=None)
    for name, profile in (("before", quiet), ("after", slow)):
        here[0].add(profile, "pair", name=name)
    page.goto("/projects/pair?sort=created")
    assert page.locator("#compare").is_disabled()
    for box in page.locator("#runs input[name=run]").all():
        box.check()
    page.locator("#compare", has_text="Compare 2").click()
    page.wait_for_url("**/compare?*")
    assert page.locator("#matrix td.main .verdict").inner_text() == "slower"  # the oldest is the baseline
    page.locator("#swap").click()
    page.locator("#matrix td.main .verdict", has_text="faster").wait_for()


def test_a_run_is_renamed_tagged_noted_moved_and_deleted_on_its_page(page, here):
    run = here[0].add(network(12), "hands", name="typo")
    page.goto(f"/runs/{run}")
    page.locator("#change").click()
    for name, text in (
        ("name", "mended"),
        ("tags", "good nightly"),
        ("project", "other hands"),
        ("note", "as shipped"),
    ):
        page.locator(f'#edit [name="{name}"]').fill(text)
    page.locator("#edit button[type=submit]").click()
    page.locator("h1", has_text="mended").wait_for()
    assert page.locator(".note-text").inner_text() == "as shipped"
    row = here[0].row(run)
    assert (row.name, row.tags, row.project, row.note) == ("mended", ("good", "nightly"), "other hands", "as shipped")
    page.locator("#change").click()
    page.locator("#edit-delete").click()
    assert here[0].row(run).id == run  # it asks first
    page.locator("#edit-delete").click()
    page.wait_for_url(re.compile("/$"))
    assert here[0].count(Filter(project="other hands")) == 0


def test_filters_add_up_and_columns_are_chosen_in_the_address(page, here):
    for number, threads in enumerate((1, 2)):
        made = network(12, name=f"model-{threads}")
        environment = replace(made.environment, threads=threads, disturbed=False)
        here[0].add(replace(made, environment=environment), "adding up", name=f"run {number}", tags=["a", "b"])
    page.goto("/projects/adding%20up?sort=name&columns=run,model,tags")
    chips = page.locator(".chip.on")
    page.locator("#runs .chip:visible", has_text="a").first.click()
    chips.first.wait_for()
    page.locator("#runs a", has_text="model-2").click()
    chips.nth(1).wait_for()
    assert [text.split(" ×")[0] for text in chips.all_inner_texts()] == ["model model-2", "tag a"]
    assert "sort=name" in page.url
    assert page.locator("#runs tbody tr").count() == 1
    page.locator("#columns summary").click()
    page.locator('#columns input[value="threads"]').check()
    assert page.locator('#runs td[data-column="threads"]').inner_text() == "2"
    address = page.url
    page.evaluate("localStorage.clear()")
    page.goto(address)  # as somebody else opens it
    assert page.locator('#runs th[data-column="threads"]').is_visible()
    chips.first.click()
    page.locator("#runs tbody tr").nth(1).wait_for()
    assert page.locator("#runs tbody tr").count() == 2


MANY = """WITH RECURSIVE number(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM number WHERE i < {count} - 1)
    INSERT INTO runs ({columns}) SELECT {values} FROM runs, number WHERE name = '{name}'"""


def add_many(store, project, count):
    """`{project} 0` and so on, each older than the one before it; as rows, since adding each takes ten milliseconds."""
    name = f"{project} 0"
    store.add(network(2), project, name=name)
    otherwise = {"id": "printf('%012d', i)", "created_us": "created_us - 1000000 * i", "name": f"'{project} ' || i"}

    def multiply(connection):
        columns = [row[1] for row in connection.exec_driver_sql("PRAGMA table_info(runs)")]
        values = ", ".join(otherwise.get(column, column) for column in columns)
        connection.exec_driver_sql(MANY.format(count=count, columns=", ".join(columns), values=values, name=name))

    store.database.write(multiply)


def test_a_long_list_comes_as_one_scrolls_and_what_is_far_away_is_only_its_height(page, here):
    add_many(here[0], "long", 270)
    page.mouse.move(600, 600)  # over the rows, as whoever reads them
    page.goto("/projects/long")
    names = page.locator("#runs tbody tr[data-run] a[href^='/runs/']")
    assert names.first.inner_text() == "long 0"
    while page.locator("#more").count():
        page.mouse.wheel(0, 4000)
        page.wait_for_timeout(50)
    page.locator("#runs a", has_text=re.compile("^long 269$")).wait_for()
    page.locator("#runs .spacer").first.wait_for(state="attached")
    assert page.locator("#runs tbody").count() == 6
    assert names.count() < 270
    page.mouse.wheel(0, -100_000)
    page.locator("#runs a", has_text=re.compile("^long 0$")).wait_for()
    page.locator("#choose-all").check()
    page.locator("#change", has_text="Change ").wait_for()  # what was added may be changed as well


def test_thousands_of_runs_scroll_and_only_those_near_are_held(browser, tmp_path):
    """`make bench` has a hundred thousand."""
    with hub(tmp_path) as (store, client):
        add_many(store, "many", 5000)
        page = browser.new_page(base_url=str(client.base_url), viewport={"width": 1280, "height": 900})
        page.goto("/projects/many?columns=run,latency")
        assert page.locator(".projects .number").inner_text() == "5,000"
        for number in range(1, 26):  # more than are held as they are
            page.evaluate("window.scrollTo(0, document.body.scrollHeight)")
            page.locator("#runs tbody").nth(number).wait_for(state="attached")
        page.locator("#runs a", has_text=re.compile("^many 1275$")).wait_for()
        assert page.locator("#runs tr[data-run]").count() < 500
        assert page.evaluate("document.querySelector('#runs tbody').kept") is None  # only where it came from
        page.evaluate("window.scrollTo(0, 0)")
        page.locator("#runs a", has_text=re.compile("^many 0$")).wait_for()  # asked for again
        assert page.locator("#runs th[data-column=when]").is_hidden()
        assert page.locator("#runs td[data-column=when]").first.is_hidden()
        page.locator("#runs input[name=run]").first.check()
        page.locator("#change", has_text="Change 1").click()
        assert page.locator("dialog input[name=name]").input_value() == "many 0"
        page.context.close()


def test_a_view_is_kept_under_its_name_until_it_is_forgotten(page, here):
    here[0].add(network(2), "viewed", name="seen")
    page.goto("/?words=seen&sort=latency")
    page.locator("#views summary").click()
    page.get_by_label("Name of this view").fill("the <b>fast</b> ones")
    page.get_by_label("Name of this view").press("Enter")
    page.goto("/")
    page.locator("#views summary").click()
    page.locator("#views a", has_text="the <b>fast</b> ones").click()
    page.wait_for_url(re.compile(r"words=seen&sort=latency"))
    assert (
        page.locator("#runs .thumbnail").first.evaluate(
            "async (image) => { await image.decode(); return image.naturalWidth; }"
        )
        == 96
    )
    page.locator("#views summary").click()
    page.get_by_label("Forget the <b>fast</b> ones").click()
    assert page.locator("#views a").count() == 0


def test_a_prediction_follows_its_sliders(page):
    page.goto("/predict?model=llama-3.2-1b&on=nvidia-t4&prompt=512")
    card = page.locator('.answer[data-device="nvidia-t4"]')
    card.wait_for()
    first = card.locator("dd").first.inner_text()
    page.locator("#prompt").fill("48")
    page.wait_for_function("text => document.querySelector('.answer:not(.stale) dd')?.textContent !== text", arg=first)
    page.locator("#device").fill("nvidia-l4")
    page.locator('.answer[data-device="nvidia-l4"]').wait_for()
    assert "on=nvidia-l4" in page.url
    assert "prompt=48" in page.url
    page.goto(page.url)
    card.wait_for()
    assert page.locator("#prompt").input_value() == "48"  # and not the slider's nearest
    assert page.locator("#image").is_hidden()
    page.locator("#weights").select_option("q4_k")
    engines = "[...document.querySelectorAll('#runtime option')].map(each => each.value)"
    page.wait_for_function(f"() => {engines}.includes('llamacpp') && !{engines}.includes('torch-compile')")
    page.goto("/predict?model=llama-3.2-1b&on=nvidia-t4&users=8&priors=true")
    card.locator("dt", has_text="8 users").wait_for()
    assert page.locator("#users").is_visible()  # its group is open: it is asked for
    assert page.locator("#priors").is_checked()
    page.locator("#acceptance").evaluate("field => { field.closest('details').open = true }")
    page.locator("#draft").fill("gpt2")
    page.wait_for_url("**draft=gpt2**")
    page.goto("/predict?model=resnet50&on=nvidia-t4")
    card.wait_for()
    assert page.locator("#prompt").is_hidden()
    assert page.locator("#draft").is_hidden()
    assert page.locator("#image").input_value() == "224"
    assert "cache" not in card.inner_text()  # it makes no tokens
    page.goto("/predict?model=llama-3.2-1b&on=raspberry-pi-5&what_if=weights=i8,batch=8&edgeprofiler=true")
    card = page.locator(".answer[data-device=raspberry-pi-5]")
    card.locator("dt", has_text="INT8").wait_for()
    gained = card.locator("dt", has_text="weights=i8")
    assert re.search(r"^[\d.]+×", gained.locator("xpath=following-sibling::dd[1]").inner_text())
    assert page.locator("#what_if").input_value() == "weights=i8,batch=8"


def test_a_sweep_draws_its_front(page):
    page.goto("/sweep?models=resnet50&devices=nvidia-t4")
    page.locator("#told", has_text="on the front").wait_for()
    page.locator("#x").select_option("latency_s")
    page.locator("#y").select_option("peak_memory_bytes")
    page.locator("#front tbody tr").first.wait_for()


def test_the_atlas_shows_published_times_and_predicts_them(page):
    page.goto("/atlas?model=resnet101&device=nvidia-rtx-4090")
    page.locator("#told", has_text="20 measurements, forward").wait_for()
    assert page.locator("#list tbody tr").count() == 20
    assert page.locator("#list a").first.get_attribute("href").startswith("https://github.com/huggingface/")
    page.locator("#predict").check()
    page.locator("#told", has_text="median error").wait_for()
    assert "Predicted" in page.locator("#list thead").inner_text()


def test_a_formula_is_calculated_as_one_types(page):
    page.goto("/formulas/ridge_point")
    page.locator('[name="peak"]').fill("100 TFLOP/s")
    page.locator('[name="bandwidth"]').fill("1 TB/s")
    page.locator("#answer", has_text="100 FLOP/B").wait_for()
    page.goto("/formulas?words=ridge")
    assert page.locator("#list li:visible").count() < 10


def test_live_progress_arrives(page, here):
    page.goto("/live")
    page.locator("#state", has_text="live").wait_for()
    run = here[0].begin(name="watched")
    page.locator(f'.answer[data-run="{run}"]', has_text="watched").wait_for()
    here[0].add_metrics(run, {"latency_s": 0.25})
    page.locator(f'.answer[data-run="{run}"]', has_text="latency_s").wait_for()
    page.goto(f"/runs/{run}")
    page.locator('[data-metric="latency_s"]', has_text="250 ms").wait_for()
    here[0].finish(run, network(12))
    page.locator("#layer-chart canvas[data-ready]").wait_for()


# ONNX Runtime, which waits in its tenth step until a page has seen it run.
GATED = """
import time
from dataclasses import replace
from pathlib import Path
from inferometer.engines.onnxruntime import runtime

class Gated:
    def __init__(self, real, **more):
        self.__dict__.update(more, real=real, steps=0)

    def __getattr__(self, name):
        return getattr(self.real, name)

    def open(self, target):
        return Gated(self.real.open(replace(target, options={})), seen=Path(target.options["seen"]))

    def step(self):
        self.steps += 1
        while self.steps == 10 and not self.seen.exists():
            time.sleep(0.01)
        self.real.step()

ENGINE = Gated(runtime)
"""


def test_a_real_measurement_is_watched_from_its_begin_to_its_result(page, here, tmp_path, monkeypatch):
    """The command as a person gives it, in a process of its own: the bar moves, and the page turns to the result."""
    model, seen = small_network(tmp_path / "small.onnx"), tmp_path / "seen"
    (tmp_path / "gated.py").write_text(GATED)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    page.goto("/live")
    page.locator("#state", has_text="live").wait_for()
    command = [
        sys.executable, "-m", "inferometer", "profile", str(model), "--runtime", "gated:ENGINE", "--name", "real",
        "--option", f"seen={seen}", "--store", str(here[0].location), "--seconds", "0", "--runs", "30", "--no-guard",
        "--no-predict",
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        card = page.locator(".answer", has_text="real")
        card.wait_for()
        card.locator("a").click()
        bar = page.locator("progress")
        bar.wait_for()
        first = bar.evaluate("bar => bar.value")
        seen.touch()
        page.wait_for_function("before => { const bar = document.querySelector('progress'); "
                               "return bar === null || bar.value > before; }", arg=first)  # fmt: skip
        page.locator("#layer-chart canvas[data-ready]").wait_for()
        assert process.wait(240) in {0, 1}
    assert page.locator("h1").inner_text() == "real"
    assert page.locator(".grid-row").count() >= 3
    assert here[0].row("real").status == "finished"


def small_network(path):
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(1)
    shapes = {"conv": (32, 3, 3, 3), "deep": (32, 32, 3, 3)}
    held = [numpy_helper.from_array(rng.standard_normal(size, dtype="float32"), name) for name, size in shapes.items()]
    nodes = [
        helper.make_node("Conv", ["image", "conv"], ["a"], name="first", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"], name="second"),
        helper.make_node("Conv", ["b", "deep"], ["c"], name="third", pads=[1, 1, 1, 1]),
        helper.make_node("GlobalAveragePool", ["c"], ["out"], name="fourth"),
    ]
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, 96, 96])
    out = helper.make_tensor_value_info("out", TensorProto.FLOAT, [1, 32, 1, 1])
    graph = helper.make_graph(nodes, "small", [image], [out], held)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(made, path)
    return path


def test_memory_over_time_is_drawn(page, here):
    run = here[0].begin(name="held")
    here[0].add_series(run, "memory_bytes", {0: 1e6, 500: 3e7, 1500: 2.5e7})
    here[0].finish(run, network(12))
    page.goto(f"/runs/{run}")
    canvas = page.locator("#held canvas")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    page.mouse.move(box["x"] + 62 + (box["width"] - 70) / 3, box["y"] + 40)
    page.locator("#tip", has_text="30 MB").wait_for()
    assert "500 ms" in page.locator("#tip").inner_text()


def test_markup_in_a_model_stays_text(page, here):
    run = here[0].add(hostile(), name=hostile().model.name, tags=("<b>",))
    for path in (f"/runs/{run}", "/", f"/runs/{run}/explanation"):
        page.goto(path)
        assert page.evaluate("window.hacked") is None
        assert page.locator("img[src='x']").count() == 0
    page.goto(f"/runs/{run}")
    page.locator("canvas[data-ready]").wait_for()
    hover(page, 0, 2, "onerror")
    assert page.evaluate("window.hacked") is None
    assert page.locator("img[src='x']").count() == 0
    page.set_viewport_size({"width": 390, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390  # nor does a long name of a unit widen it


@pytest.mark.parametrize("profile", [network(40), hostile()], ids=["network", "hostile"])
def test_the_report_works_from_a_file_without_a_network(browser, tmp_path, profile):
    run = Run(id="574p191w9czk", project="p", status="finished", created="2026-11-15T00:00:00+00:00", profile=profile)
    file = Path(tmp_path, "report.html")
    file.write_text(one_file(run, profile, HELD), encoding="utf-8")
    page = browser.new_context(offline=True).new_page()
    asked, troubles = [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("console", lambda said: troubles.append(said.text) if said.type in {"error", "warning"} else None)
    page.goto(file.as_uri())
    page.locator("#layer-chart canvas[data-ready]").wait_for()
    page.locator(".grid-row").first.click()
    page.locator(".grid-row.chosen").wait_for()
    assert page.locator("#held canvas").count() == 1
    assert page.evaluate("window.hacked") is None
    assert (asked, troubles) == ([file.as_uri()], [])
    page.context.close()


# Boxes that can be moved sideways although their columns were chosen to fit.
SIDEWAYS = """() => [...document.querySelectorAll('main .scroll:has(> table)')].filter((box) =>
    box.scrollWidth > box.clientWidth + 1).map((box) => `${box.scrollWidth} > ${box.clientWidth}`)"""


UNFOLDED = "document.querySelectorAll('main details:not(.menu)').forEach((box) => { box.open = true; })"
LISTS = {"/", "/runs", "/projects/wide", "/compare", "/devices"}
PAGES = (
    *LISTS, "/new", "/fleet", "/fleet/queue", "/fleet/jobs/{job}", "/fleet/devices/{device}", "/settings",
    "/compare?run={run}&run={first}", "/projects/wide/settings", "/runs/{run}", "/predict", "/sweep",
    "/formulas", "/can-i-run?model=llama-3.1-8b&on=nvidia-rtx-4090", "/fit?model=llama-3.1-8b&on=nvidia-l4",
    "/live", "/atlas?model=resnet101", "/devices/nvidia-h200",
    *(f"/catalog/{name}" for name in TABLES), "/catalog/instances/azure-nc-a100-v4",
)  # fmt: skip


@pytest.fixture(scope="module")
def wide(here):
    """Names for the addresses of pages: of runs, a job and a device that are called at length."""
    store, fleet = here[0], Fleet.of(here[0])
    long = "a-model-whose-name-somebody-exported-with-a-hash-0123456789abcdef0123456789abcdef.onnx"
    profiles = (replace(network(40, name=long), runtime="openvino"), decoder(), sweep_profile())
    runs = [
        store.add(
            made,
            "wide",
            name=f"run of {long}",
            tags=["nightly", "candidate", "arm64"],
            parameters={"job": "575b3md8k0vd"},
        )
        for made in profiles
    ]
    device = "a-board-in-the-cellar-that-somebody-named-after-all-that-is-in-it"
    labels = {"unit": ("cpu", "gpu", "npu"), "runtime": ("onnxruntime", "openvino", "litert", "llamacpp", "torch")}
    fleet.register(NewDevice(name=device, labels=labels))
    job = a_job(1, model=JobModel(name="mobilenet-v2"))
    row, _ = fleet.submit(NewJob(job=job, wanted=Wanted(device=device), project="wide", name=f"job of {long}"))
    other, _ = fleet.submit(NewJob(job=replace(job, id="profile-other"), wanted=Wanted(device=device), name=long))
    fleet.cancel(other.id)
    return {"run": runs[-1], "first": runs[0], "job": row.id, "device": device}


@pytest.mark.parametrize("path", sorted(PAGES))
def test_no_page_is_wider_than_the_screen(page, wide, path):
    page.goto(path.format(**wide))
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.evaluate(UNFOLDED)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        if width == 1280 and path in LISTS:
            assert page.evaluate(SIDEWAYS) == []


def test_an_answer_stands_on_the_first_screen_of_predict(page):
    page.goto("/predict")
    answer = page.locator(".answer:not(.stale) dl").first
    answer.wait_for()
    assert answer.bounding_box()["y"] < 700
    assert page.locator("#ask details[open]").count() == 0


def test_the_list_of_devices_narrows_as_one_types_and_turns_its_pages(page):
    page.goto("/devices")
    first = page.locator("#list tbody tr").first.inner_text()
    page.get_by_role("link", name="More devices").click()
    page.wait_for_url(re.compile("page=2"))
    assert page.locator("#list tbody tr").first.inner_text() != first
    page.locator("#words").fill("raspberry pi 5")
    page.locator("#count", has_text=re.compile("^[0-9]{1,2} devices?$")).wait_for()
    assert "words=raspberry" in page.url
    page.locator("#list thead a", has_text="Memory").click()
    page.wait_for_url(re.compile("sort=-memory"))
    assert page.locator("#words").input_value() == "raspberry pi 5"


SHIFTS = """window.shifted = 0;
new PerformanceObserver((list) => { for (const each of list.getEntries()) window.shifted += each.value; })
    .observe({ type: "layout-shift", buffered: true })"""


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize(
    ("path", "last"),
    [("/runs/{first}", "#findings"), ("/predict", ".answer dl"), ("/new", "#devices input:not([disabled])")],
)
def test_nothing_jumps_when_the_rest_of_a_page_arrives(page, wide, path, last, width):
    page.set_viewport_size({"width": width, "height": 800})
    page.add_init_script(SHIFTS)
    page.goto(path.format(**wide))
    page.locator(last).first.wait_for()
    page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert page.evaluate("window.shifted") < 0.1  # what browsers call good
