"""Take the pictures of the hub's pages for the documentation: `make screenshots`.

Everything in them is real and made here: two measured runs of MobileNet-v2, a predicted one of Llama 3.1, a load test
of `inferometer simulate --serve`, a job that an agent on this machine takes. It needs Debian's chromium and the Python
package playwright. A page is taken at 1280 pixels, light and dark, and at 390 as on a phone; one that is wider than the
screen, or whose scripts complain, ends it. `python docs/take_screenshots.py NAME…` takes some of them, and
`--data FOLDER` keeps what was measured for the next time.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from playwright.sync_api import sync_playwright

import inferometer as im
from inferometer.store import open_store

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = Path(__file__).parent / "screenshots"
# {names} are runs. Of a page come NAME.png, and of those in FOUR NAME-dark.png, NAME-phone.png and NAME-phone-dark.png.
PAGES = {
    "run": "/runs/{measured}",
    "graph": "/runs/{predicted}",
    "compare": "/compare?run={measured}&run={other}",
    "list": "/runs",
    "new-run": "/new",
    "job": "/new",
    "fleet": "/fleet",
    "predict": "/predict?model=yolov8n&on=raspberry-pi-5",
    "load": "/runs/{loaded}",
    "start-load": "/load",
    "calibrate": "/calibrate",
    "plan": "/plan?model=llama-3.1-8b&rate=20&slo=ttft_p95%3C%3D1s&devices=nvidia-l4%2Cnvidia-h100-sxm",
    "sweep": "/sweep",
    "atlas": "/atlas?model=resnet-101",
    "timeline": "/timeline?run={measured}",
}
FOUR = ("run", "graph", "compare", "list", "new-run", "job")
LOOKS = {"": (1280, "light"), "-dark": (1280, "dark"), "-phone": (390, "light"), "-phone-dark": (390, "dark")}
HEIGHTS = {1280: 1000, 390: 844}
FLAGS = ["--no-sandbox", "--disable-gpu", "--hide-scrollbars"]


def main(arguments: list[str]) -> int:
    data = Path(arguments[arguments.index("--data") + 1]) if "--data" in arguments else None
    wanted = [name for name in arguments if name in PAGES] or list(PAGES)
    with tempfile.TemporaryDirectory() as temporary:
        folder = (data or Path(temporary)).resolve()
        folder.mkdir(exist_ok=True)
        os.environ["INFEROMETER_DATA"] = str(folder)  # noqa: TID251 - of the commands that are run here
        runs = made(folder)
        with hub() as address, sync_playwright() as player:
            browser = player.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
            for name in wanted:
                for look in LOOKS if name in FOUR else ("",):
                    with opened(browser, address, *LOOKS[look]) as page:
                        show(page, name, PAGES[name].format(**runs), folder / "mobilenet-v2.onnx")
                        taken = page.screenshot()
                    (FOLDER / f"{name}{look}.png").write_bytes(taken)  # of a page that is right
                    sys.stdout.write(f"{name}{look}.png\n")
                    sys.stdout.flush()
            browser.close()
    return 0


def inferometer(*words: object) -> str:
    """What a command says, for people and for programs."""
    command = [sys.executable, "-m", "inferometer", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603 - a command of ours
    return done.stderr + done.stdout


def made(folder: Path) -> dict[str, str]:
    """The runs that the pages show, by what they are for; those of an earlier call are found again."""
    with open_store(folder / "runs.db") as store:
        found = {row.name: row.id for row in store.list().rows}
        if "llama-3.1-8b" not in found:
            answer = im.predict("llama-3.1-8b", on="nvidia-h200", prompt=512, generate=64)
            found["llama-3.1-8b"] = store.add(answer, "demo", name="llama-3.1-8b")
    model = folder / "mobilenet-v2.onnx"
    if not model.exists():
        inferometer("prepare", "mobilenet-v2", "-o", model)
    for name, runtime in (("mobilenet-v2", "onnxruntime"), ("in OpenVINO", "openvino")):
        if name not in found:
            said = inferometer("profile", model, "--runtime", runtime, "--name", name, "--project", "demo")
            found[name] = re.findall(r"/runs/(\w+)", said)[-1]
    if "loaded" not in found:
        with process("simulate", "llama-3.1-8b", "--serve", "--on", "nvidia-h100-sxm", "--port", "0") as server:
            url = until(server, r"(http://\S+:\d+)")
            words = ("--concurrency", "1,4,16", "--requests", "24", "--name", "loaded", "--project", "demo")
            found["loaded"] = re.findall(r"/runs/(\w+)", inferometer("load", url, *words))[-1]
    names = {"measured": "mobilenet-v2", "other": "in OpenVINO", "predicted": "llama-3.1-8b", "loaded": "loaded"}
    return {use: found[name] for use, name in names.items()}


@contextmanager
def process(*words: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "inferometer", *words]
    started = subprocess.Popen(  # noqa: S603 - a command of ours
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        yield started
    finally:
        started.terminate()
        started.wait()


def until(started: subprocess.Popen[str], pattern: str) -> str:
    assert started.stdout is not None  # noqa: S101 - it was asked for
    for line in started.stdout:
        if found := re.search(pattern, line):
            return found[1]
    raise SystemExit(f"{started.args} ended.")


@contextmanager
def hub() -> Iterator[str]:
    """A hub and an agent on this machine, each as a user starts it."""
    with process("hub", "--port", "0") as server:
        address = until(server, r"The hub is at (https?://\S+[^/])/ ")
        with process("hub", "agent", "--hub", address, "--name", "lab", "--no-reference") as agent:
            until(agent, r"(lab)")
            yield address


@contextmanager
def opened(browser: Any, address: str, width: int, scheme: str) -> Iterator[Any]:
    """A page of this look. What its scripts complain of, and what sticks out of it, is an error."""
    size = {"width": width, "height": HEIGHTS[width]}
    context = browser.new_context(base_url=address, viewport=size, color_scheme=scheme, is_mobile=width < 600)
    page, troubles = context.new_page(), []
    page.set_default_timeout(120_000)
    page.on("console", lambda said: troubles.append(said.text) if said.type in {"error", "warning"} else None)
    page.on("pageerror", lambda error: troubles.append(str(error)))
    yield page
    if page.evaluate("document.documentElement.scrollWidth") > width:
        troubles.append(f"{page.url} is wider than {width} pixels")
    context.close()
    if troubles:
        raise SystemExit("\n".join(troubles))


def show(page: Any, name: str, path: str, model: Path) -> None:
    """Bring a page to where its picture is taken."""
    page.goto(path, wait_until="networkidle")
    if name in {"new-run", "job"}:
        page.locator("#file").set_input_files(model)
        page.locator("#measure:not([disabled])").wait_for()
    if name == "job":
        page.locator("#measure").click()
        page.wait_for_url(re.compile("/fleet/jobs/"))
        page.locator("#log", has_text="Waiting").wait_for()
    if name == "graph":
        page.locator("#graph-panel").scroll_into_view_if_needed()
        page.locator("#model-graph canvas[data-boxes]").wait_for()
        page.locator("#graph-panel").evaluate("(panel) => panel.scrollIntoView()")
        page.locator("#unfold").click()
        page.locator("#find-box").fill("layers.0.mlp")  # brings the first block into sight
    page.wait_for_timeout(700)  # charts that are below the fold are drawn a moment later


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
