"""No page breaks a rule of axe, wide or narrow, light or dark; none warns in the console, or is wider than its screen.

axe-core is not ours and is not kept here: `npm install --no-save axe-core` in the repository's root fetches it.
"""

from itertools import product
from pathlib import Path

import pytest

from e2e.test_model_graph import wired
from e2e.test_new_run import visiting
from fakes.fleet import DEVICES, submitted
from inferometer.known.formulas.registry import all_formulas
from inferometer.store.queue.fleet import Fleet
from unit.hub.web.samples import decoder, hub, network

pytestmark = pytest.mark.slow
AXE = Path(__file__).parents[2] / "node_modules" / "axe-core" / "axe.min.js"
SIMULATED = "/simulate?model=llama-3.1-8b&on=nvidia-h100-sxm&rate=5&requests=60"
CAN_RUN = "/can-i-run?model=llama-3.1-8b&on=nvidia-rtx-4090"
PAGES = (
    "/", "/new", "/runs/{network}", "/runs/{decoder}", "/compare", "/compare?run={network}&run={other}", "/live",
    "/timeline?run={decoder}", "/plan", SIMULATED, CAN_RUN, "/fit?model=llama-3.1-8b&on=nvidia-l4",
    "/load", "/calibrate", "/predict", "/sweep", "/atlas", "/devices",
    "/catalog/links", "/formulas", "/formulas/{formula}", "/fleet", "/fleet/queue", "/fleet/jobs/{job}",
    "/fleet/devices/pi", "/devices/nvidia-h200", "/settings", "/projects/phones", "/projects/phones/settings", "/gone",
)  # fmt: skip
BROKEN = """axe.run(document, { resultTypes: ["violations"] }).then((told) =>
    told.violations.map(({ id, nodes }) => `${id}: ${nodes[0].html.slice(0, 100)}`))"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    with hub(tmp_path_factory.mktemp("axe")) as (store, client):
        runs = {"network": wired(network(40)), "other": wired(network(40, slower=1.2)), "decoder": decoder()}
        made = {name: store.add(profile, "phones", name=name) for name, profile in runs.items()}
        fleet = Fleet.of(store)
        fleet.register(DEVICES[0])
        made |= {"job": submitted(fleet), "formula": next(iter(all_formulas()))}
        yield made, str(client.base_url).rstrip("/")


@pytest.mark.parametrize("path", PAGES)
def test_a_page_breaks_no_rule_of_axe(browser, lab, path):
    if not AXE.is_file():
        pytest.skip("NO AXE HERE: `npm install --no-save axe-core` in the repository's root fetches it.")
    with visiting(browser, lab[1]) as page:
        for wide, scheme in product((1280, 390), ("light", "dark")):
            page.set_viewport_size({"width": wide, "height": 844})
            page.emulate_media(color_scheme=scheme)
            page.goto(path.format(**lab[0]), wait_until="networkidle")
            # The page's own policy lets no script in: the browser's debugger may bring one.
            page.context.new_cdp_session(page).send("Runtime.evaluate", {"expression": AXE.read_text(encoding="utf-8")})
            assert page.evaluate(BROKEN) == []
            assert page.evaluate("document.documentElement.scrollWidth") <= wide
