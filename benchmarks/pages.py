"""The hub's pages as Lighthouse and a browser see them, over a store of 100,000 runs.

`npm install --no-save lighthouse` somewhere, then `LIGHTHOUSE=path/to/lighthouse python benchmarks/pages.py` writes
`benchmarks/recorded/pages.json`: the scores of the five main pages, the first contentful paint as the browser itself
tells it, what a page weighs on the wire, and how long an interaction takes until its frame is painted. Lighthouse is
not ours and is not kept here. On a busy machine every time is too long: the file has the load, and what an empty page
took in turns with ours.
"""

import json
import os
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urljoin

import store as store_benchmark
from playwright.sync_api import sync_playwright

from inferometer.hub.web.guard.rules import Rules
from inferometer.hub.web.serving import hub_in_thread
from inferometer.store import open_store

RECORDED = Path(__file__).parent / "recorded" / "pages.json"
CHROMIUM = "/usr/bin/chromium"
LIGHTHOUSE = os.environ.get("LIGHTHOUSE")  # noqa: TID251 - a setting of this script alone
EMPTY = "/static/icon.svg"  # 1 kB that the same hub gives
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu"]
CATEGORIES = ("performance", "accessibility", "best-practices")
PAGES = {
    "runs": "/runs", "run": "/runs/{one}", "new": "/new", "compare": "/compare?run={one}&run={other}",
    "predict": "/predict?model=yolov8n&on=raspberry-pi-5",
}  # fmt: skip
LOADS = 5  # of a page, of which the median counts
# A click on each page, and what it opens: the time from the event until the frame after it.
CLICKS = {"runs": "th input", "run": "#theme", "new": "#theme", "compare": "#theme", "predict": "#theme"}
PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
WIRE = """performance.getEntriesByType('navigation').concat(performance.getEntriesByType('resource'))
    .reduce((total, entry) => total + entry.transferSize, 0)"""
INTERACTION = """(selector) => new Promise((done) => {
    const target = document.querySelector(selector), from = performance.now();
    target.click();
    requestAnimationFrame(() => setTimeout(() => done(performance.now() - from)));
})"""


def lighthouse(url):
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        command = [
            LIGHTHOUSE, url, "--preset=desktop", "--quiet", "--output=json", f"--output-path={out.name}",
            f"--only-categories={','.join(CATEGORIES)}", f"--chrome-flags={' '.join(FLAGS)}",
        ]  # fmt: skip
        os.putenv("CHROME_PATH", CHROMIUM)
        subprocess.run(command, check=True)
        told = json.loads(Path(out.name).read_text())
    scores = {name: round(100 * told["categories"][name]["score"]) for name in CATEGORIES}
    audits = (ref["id"] for name in CATEGORIES for ref in told["categories"][name]["auditRefs"] if ref["weight"])
    lost = {one: told["audits"][one]["score"] for one in audits if (told["audits"][one]["score"] or 1) < 0.9}
    return {"version": told["lighthouseVersion"], **scores, "below_90": lost}


def in_browser(browser, url, selector):
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(url, wait_until="networkidle")  # once: what the server keeps is kept now
    wire, paints, clicks, empty = page.evaluate(WIRE), [], [], []
    for _ in range(LOADS):
        page.goto(urljoin(url, EMPTY), wait_until="networkidle")
        empty.append(page.evaluate(PAINT) or 0.0)
        page.goto(url, wait_until="networkidle")
        paints.append(page.evaluate(PAINT))
        clicks.append(page.evaluate(INTERACTION, selector))
    page.close()
    middle = LOADS // 2
    return {
        "first_contentful_paint_ms": round(sorted(paints)[middle]), "wire_bytes": wire,
        "interaction_ms": round(sorted(clicks)[middle]), "empty_page_paint_ms": round(sorted(empty)[middle]),
    }  # fmt: skip


def main():
    found = {"made": datetime.now(UTC).date().isoformat(), "runs": store_benchmark.RUNS, "pages": {}}
    with tempfile.TemporaryDirectory() as folder, open_store(Path(folder) / "runs.db") as store:
        store_benchmark.fill(store)
        store_benchmark.analyse(store)
        names = {
            name: store.add(store_benchmark.profile(number), "demo") for number, name in enumerate(("one", "other"))
        }
        with hub_in_thread(store, Rules()) as address, sync_playwright() as player:
            browser = player.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
            found["load_average"] = round(os.getloadavg()[0], 1)
            for name, path in PAGES.items():
                url = f"{address}{path.format(**names)}"
                found["pages"][name] = in_browser(browser, url, CLICKS[name])
                if LIGHTHOUSE:
                    found["pages"][name] |= lighthouse(url)
                print(name, found["pages"][name], flush=True)
            browser.close()
    RECORDED.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
