"""From a file to a shared run page, in a real browser; and whatever can go wrong on the way."""

import hashlib
import re
import time
import zipfile
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial

import pytest

from fakes.fleet import a_result, proof_of, submitted
from fakes.fleet_processes import agent_process, hub_here, hub_process
from fakes.places import QUICK, dense_layers, one_layer
from inferometer.core.codec import document
from inferometer.core.job import JobEvent, JobFile
from inferometer.hub.web.api import new_runs
from inferometer.known import device as device_named
from inferometer.measure.run.model import MeasureRequest
from inferometer.store import open_store
from inferometer.store.queue.fleet import Fleet
from inferometer.store.queue.values import LeaseTiming, NewDevice, Wanted
from unit.hub.web.samples import emptied, hub, network

pytestmark = pytest.mark.slow
PIECES = re.compile("/api/v1/fleet/artifacts/[0-9a-f]{64}")
MADE = b"eight bits"
LONG = 20_000_000  # bytes of a model that is sent in three pieces
CLICKS = """addEventListener("click", (event) => {
    if (event.isTrusted) sessionStorage.clicks = Number(sessionStorage.clicks || 0) + 1;
}, true)"""
HASHES = """async () => {
    const { Sha256 } = await import("/static/hashing.js");
    const bytes = Uint8Array.from({ length: 200 }, (_, place) => (7 * place) % 256);
    const parts = (length) => [bytes.slice(0, length >> 1), bytes.slice(length >> 1, length)];
    const hashed = (length) => parts(length).reduce((hash, part) => hash.update(part), new Sha256()).hex();
    return [...bytes].map((_, length) => hashed(length));
}"""


@contextmanager
def visiting(browser, address, width=1280):
    """A new visitor's page, and what its scripts complained of; refusals are told on the page itself."""
    context = browser.new_context(base_url=address, viewport={"width": width, "height": 900})
    page, troubles = context.new_page(), []
    page.set_default_timeout(200_000)
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("console", lambda said: troubles.append(said.text) if said.type in {"error", "warning"} else None)
    yield page
    context.close()
    assert [text for text in troubles if "Failed to load resource" not in text] == []


@pytest.fixture
def net(tmp_path):
    return one_layer(tmp_path)


def described(net, count):
    """The beginning of a model with a very long description: field 6 of an ONNX file is text."""
    length = b""
    while count:
        length, count = length + bytes([(count & 0x7F) | (0x80 if count > 0x7F else 0)]), count >> 7
    return net.read_bytes() + b"\x32" + length


@pytest.fixture
def long_net(net):
    net.write_bytes(described(net, LONG) + b"a" * LONG)
    return net


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """A hub with devices that no agent speaks for: their jobs wait."""
    folder = tmp_path_factory.mktemp("lab")
    with hub_here(folder) as address, open_store(folder / "runs.db") as store:
        for name in ("pi", "phone"):
            registered(store, name)
        yield store, address


def registered(store, name):
    labels, facts = {"runtime": ("onnxruntime",)}, {"device": document(device_named("nvidia-t4"))}
    Fleet.of(store).register(NewDevice(name=name, labels=labels, facts=facts))


@pytest.fixture
def page(browser, lab):
    emptied(lab[0])  # other tests leave jobs that wait and devices that would be chosen
    for name in ("pi", "phone"):
        registered(lab[0], name)
    with visiting(browser, lab[1]) as opened:
        yield opened


def ready(page):
    page.locator("#measure:not([disabled])").wait_for()


def measured(page):
    ready(page)
    page.locator("#measure").click()
    page.wait_for_url(re.compile("/fleet/jobs/"))
    return re.search("/fleet/jobs/([0-9a-z]+)", page.url)[1]


def test_four_clicks_from_a_file_to_a_shared_run(browser, page, net, lab):
    """What its device answers is given: that an agent takes a job and brings its result is tested with one."""
    page.add_init_script(CLICKS)
    page.goto("/")
    page.get_by_role("link", name="New run").click()
    with page.expect_file_chooser() as choosing:
        page.locator("#drop").click()
    choosing.value.set_files(net)
    ready(page)
    assert "ONNX" in page.locator("#card").inner_text()
    row = page.locator("#devices tr", has=page.locator("input:checked")).inner_text()
    assert re.search("phone|pi", row)
    assert re.search(r"[\d.]+ [nµm]?s", row)  # predicted, before anything runs
    page.get_by_role("button", name="Measure").click()
    page.wait_for_url(re.compile("/fleet/jobs/"))
    brings(page, Fleet.of(lab[0]), {"verb": "profile"}, network(name="net"))
    page.wait_for_url(re.compile("/runs/"))  # by itself
    page.locator("#share").click()
    page.locator("#shared").wait_for()
    assert int(page.evaluate("sessionStorage.clicks")) - 1 <= 4  # a label's click counts for its input once more
    shared = page.locator("#shared input").input_value()
    with visiting(browser, lab[1]) as other:
        other.goto(shared)
        assert "net" in other.locator("h1").inner_text()


def test_four_clicks_from_a_dropped_file_to_a_shared_int8_model_with_its_proof(page, lab, tmp_path):
    """What its device answers is given: that it is made and proven there is the contract of boxed engines."""
    page.add_init_script(CLICKS)
    page.goto("/")
    page.get_by_role("link", name="New run").click()
    drop(page, dense_layers(tmp_path / "dense.onnx"))
    ready(page)
    choice = page.locator("#formats label", has=page.locator("input[value=i8]"))
    assert re.search(r"predicted [\d.]+ × \([\d.]+ to [\d.]+\)", choice.inner_text())  # before anything is made
    choice.locator("input").click()
    page.locator("#measure:not([disabled])", has_text="Prepare and measure").click()
    page.wait_for_url(re.compile("/fleet/jobs/"))
    brings(page, Fleet.of(lab[0]), {"verb": "prepare", "options": {"quantise": "i8"}}, network(name="dense-i8"), MADE)
    page.wait_for_url(re.compile("/runs/"))  # by itself
    assert "dense.onnx as i8" in page.locator("h1").inner_text()
    assert "Prepared as i8 for onnxruntime" in page.locator("#proof").inner_text()
    assert "outputs right" in page.locator("#proof").inner_text()
    with page.expect_download() as downloading:
        page.locator("#proof a.download").dispatch_event("click")  # not one of the four
    assert downloading.value.suggested_filename == "dense-i8.onnx"
    assert downloading.value.path().read_bytes() == MADE
    page.locator("#share").click()
    page.locator("#shared").wait_for()
    assert int(page.evaluate("sessionStorage.clicks")) <= 4
    page.goto(page.locator("#shared input").input_value())
    assert "outputs right" in page.locator("#proof").inner_text()
    assert page.locator("#proof a").count() == 0  # whoever reads takes nothing away


def brings(page, fleet, asked, profile, made=None):
    """As the agent of the job's device does it: it takes the job, sends what it made, and tells the result."""
    api, number = "/api/v1/fleet/agent", page.url.rpartition("/")[2]
    device, job = fleet.job(number).wanted.device, fleet.document(number)
    assert asked.items() <= document(job).items()
    agent = {"device": device, "lease": page.request.post(f"{api}/poll", data={"device": device}).json()["lease"]}
    result = a_result(job, replace(profile, runtime=job.runtime, workload=job.workload))
    if made is not None:
        file = JobFile(path="dense-i8.onnx", sha256=hashlib.sha256(made).hexdigest(), size_bytes=len(made))
        piece = {**agent, "offset": 0, "size": len(made)}
        assert page.request.put(f"{api}/jobs/{number}/files/{file.sha256}", params=piece, data=made).ok
        result = replace(result, made=(file,), prepared=proof_of(file.path, "dense"))
    told = page.request.post(f"{api}/jobs/{number}/result", data={**agent, "result": document(result)}).json()
    assert told["stored"], told


@pytest.fixture(scope="module")
def measuring(tmp_path_factory, roofs):
    """The address of a hub whose jobs have few runs, and that has a real agent."""
    folder = tmp_path_factory.mktemp("measuring")
    with pytest.MonkeyPatch.context() as patch, hub_here(folder) as address:
        patch.setattr(new_runs, "MeasureRequest", partial(MeasureRequest, plan=QUICK, threads=1, shape=False))
        with agent_process(address, "lab", folder / "device"):
            yield address


def test_a_job_is_followed_through_a_real_agent_to_its_run_on_a_desk_and_on_a_phone(browser, net, measuring):
    with visiting(browser, measuring) as desk, visiting(browser, measuring, width=390) as phone:
        desk.goto("/new")
        desk.locator("#file").set_input_files(net)
        number = measured(desk)
        phone.goto(f"/fleet/jobs/{number}")
        for page in (desk, phone):
            page.wait_for_url(re.compile("/runs/"))  # by itself
            assert "net" in page.locator("h1").inner_text()
            assert re.search(r"[\d.]+ [nµm]?s", page.locator("main").inner_text())
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "nothing is wider than the page"
        assert desk.url == phone.url


def drop(page, path):
    """As a hand does it: the file comes from outside the browser, and no script of the page has made it."""
    box = page.locator("#drop").bounding_box()
    data = {"items": [], "files": [str(path)], "dragOperationsMask": 1}
    devtools = page.context.new_cdp_session(page)
    for kind in ("dragEnter", "dragOver", "drop"):
        place = {"x": box["x"] + box["width"] / 2, "y": box["y"] + box["height"] / 2}
        devtools.send("Input.dispatchDragEvent", {"type": kind, "data": data, **place})


def test_an_empty_hub_measures_something_in_one_click(browser, tmp_path, roofs):
    """Until its agent has the job: how long it waits for a quiet machine then is another matter."""
    with hub_process(tmp_path) as address, visiting(browser, address) as page:
        page.goto("/")
        page.get_by_role("button", name="Measure mobilenet-v2 here").click()
        page.wait_for_url(re.compile("/fleet/jobs/"))
        page.locator("#log", has_text="preparing").wait_for()
        page.locator("#state .badge", has_text=re.compile("preparing|running")).wait_for()  # and not only in the log
        assert "mobilenet-v2" in page.locator("h1").inner_text()


def test_no_model_is_told_before_a_byte_is_sent(page, tmp_path):
    sent = []
    page.on("request", lambda request: sent.append(request.url) if PIECES.search(request.url) else None)
    page.goto("/new")
    (tmp_path / "notes.txt").write_text("These are no layers.")
    page.locator("#file").set_input_files(tmp_path / "notes.txt")
    page.locator("#problem", has_text="notes.txt").wait_for()
    assert page.locator("#measure").is_disabled()
    assert sent == []


def test_a_name_with_quotes_and_markup_is_text(page, net, lab):
    name = "\"><img src=x onerror=window.hacked=1>'.onnx"
    page.goto("/new")
    page.locator("#file").set_input_files({"name": name, "mimeType": "", "buffer": net.read_bytes()})
    ready(page)
    assert name in page.locator("#card").inner_text()
    page.locator("#same summary").click()
    assert "onerror" in page.locator("#command").inner_text()
    measured(page)
    assert name in page.locator("h1").inner_text()
    page.goto("/fleet/queue")
    assert page.evaluate("window.hacked") is None


class FirstPiece:
    """Lets the first piece of an upload through and holds the others: it can then be cut off in its middle."""

    def __init__(self, page):
        self.held, self.open = [], False
        page.route(PIECES, self._asked)

    def _asked(self, route):
        if self.open or "offset=0&" in route.request.url:
            route.continue_()
        else:
            self.held.append(route)

    def let_go(self):
        self.open = True
        for route in self.held:
            route.continue_()


def test_an_upload_goes_on_where_a_closed_browser_left_it(page, long_net):
    page.goto("/new")
    FirstPiece(page)
    with page.expect_response(PIECES):
        page.locator("#file").set_input_files(long_net)
    again = page.context.new_page()
    page.close()
    again.goto("/new")
    assert "net.onnx was sent as far as" in again.locator("#left").inner_text()
    with again.expect_request(PIECES) as first:
        again.locator("#file").set_input_files(long_net)
    assert "offset=0" not in first.value.url
    ready(again)
    assert again.locator("#card").inner_text().count("20") >= 1


def test_an_upload_outlives_a_hub_that_is_started_again(browser, long_net, tmp_path):
    """Both in this process, of which the second knows no more than what the first left on the disk."""
    with open_store(tmp_path / "runs.db") as store:
        registered(store, "pi")
    with ExitStack() as second:
        with ExitStack() as first:
            address = first.enter_context(hub_here(tmp_path))
            page = second.enter_context(visiting(browser, address))
            page.goto("/new")
            offsets = []
            page.on("request", lambda request: offsets.append(request.url) if PIECES.search(request.url) else None)
            pieces = FirstPiece(page)
            with page.expect_response(PIECES):
                page.locator("#file").set_input_files(long_net)
        pieces.let_go()
        page.locator("#told", has_text="does not answer").wait_for()
        second.enter_context(hub_here(tmp_path, port=int(address.rpartition(":")[2])))
        ready(page)
        assert sum("offset=0&" in url for url in offsets) == 1  # what had arrived was not sent again


def test_two_tabs_that_ask_the_same_get_the_same_job(page, net):
    other = page.context.new_page()
    for tab in (page, other):
        tab.goto("/new")
        tab.locator("#file").set_input_files(net)
    assert measured(page) == measured(other)


def test_what_was_measured_before_is_measured_again(page, net, lab):
    fleet, jobs = Fleet.of(lab[0]), []
    for name in ("before", "after"):
        page.goto("/new")
        page.locator("#file").set_input_files(net)
        ready(page)
        page.locator("#run-name").fill(name)
        jobs.append(measured(page))
        row = fleet.job(jobs[-1])
        assert row.name == name
        fleet.finish(row.id, fleet.lease(row.wanted.device).id, a_result(fleet.document(row.id)))
    assert jobs[0] != jobs[1]


def test_several_devices_are_followed_side_by_side(page, net):
    page.goto("/new")
    page.locator("#file").set_input_files(net)
    ready(page)
    for name in ("pi", "phone"):
        page.get_by_label(name, exact=True).check()
    measured(page)
    assert page.locator("#others tbody tr").count() == 1
    assert re.search("begin|Waits", page.locator("#stage").inner_text())


def test_a_device_that_goes_away_costs_nothing(page, net, lab):
    registered(lab[0], "gone")
    page.goto("/new")
    page.locator("#file").set_input_files(net)
    ready(page)
    for box in page.locator("#devices input:checked").all():
        box.uncheck()
    page.get_by_label("gone", exact=True).check()
    Fleet.of(lab[0]).remove("gone")
    page.locator("#measure").click()
    page.locator("#problem", has_text="gone").wait_for()
    page.get_by_label("pi", exact=True).check()
    page.get_by_label("gone", exact=True).uncheck()
    assert measured(page)


class Watched:
    """A job that a device has for which no agent speaks, and its page; `ends` is what the device brings."""

    def __init__(self, page, store, device):
        registered(store, device)
        self.page, self.device, self.store, self.fleet = page, device, store, Fleet.of(store)
        self.job = submitted(self.fleet, seed=device, wanted=Wanted(device=device))
        page.goto(f"/fleet/jobs/{self.job}")
        self.lease = self.fleet.lease(device).id
        running = JobEvent(job=self.job, number=1, at=time.time(), kind="state", state="running")
        self.fleet.tell(self.job, self.lease, [(1, running)])
        self.shows("running")

    def shows(self, word):
        self.page.locator("#state .badge", has_text=re.compile(f"^{word}$")).first.wait_for()

    def ends(self, ended, **timing):
        result = a_result(self.fleet.document(self.job), ended=ended)
        Fleet.of(self.store, LeaseTiming(**timing)).finish(self.job, self.lease, result)

    def ended(self, word):
        """Also after the log was read once more from its beginning, and when it is loaded anew."""
        self.page.locator("#log", has_text=word).wait_for()
        self.page.locator("#again").wait_for()
        for _ in range(2):
            self.shows(word)
            assert self.page.locator("#state").inner_text().strip() == word
            self.page.reload(wait_until="networkidle")


def test_the_page_of_a_job_that_fails_says_so_by_itself(page, lab):
    job = Watched(page, lab[0], "breaks")
    job.ends("crashed")
    job.ended("failed")
    assert page.locator("#reason").inner_text() == "It was crashed."


def test_the_page_of_a_job_that_is_cancelled_says_so_by_itself(page, lab):
    job = Watched(page, lab[0], "stops")
    page.locator("#cancel").click()
    job.shows("stopping")
    job.ends("stopped")
    job.ended("cancelled")


def test_the_page_of_a_job_that_is_lost_says_so_by_itself(page, lab):
    job = Watched(page, lab[0], "loses")
    job.ends("lost", attempts=1)
    job.ended("inconclusive")


def test_the_page_of_a_job_says_that_its_device_has_gone_away(page, lab):
    job = Watched(page, lab[0], "leaves")
    Fleet(lab[0].database, clock=lambda: time.time() - 100).beat("leaves")
    job.shows("device is silent")
    Fleet(lab[0].database, clock=lambda: time.time() + 1000).look_after()
    job.shows("queued")
    page.locator("#reason", has_text="leaves gave no sign of life any more.").wait_for()
    assert page.locator("#progress").evaluate("(bar) => bar.value") == 0


def test_a_page_that_waits_says_that_the_hub_is_away_and_goes_on_when_it_is_back(page, lab):
    job = Watched(page, lab[0], "waits")
    page.context.set_offline(True)
    page.locator("#problem", has_text="The hub does not answer").wait_for()
    job.ends("crashed")
    page.context.set_offline(False)
    job.ended("failed")


def test_a_hub_without_room_says_so(browser, net, tmp_path):
    with hub(tmp_path, fleet_bytes=50) as (_, client), visiting(browser, str(client.base_url).rstrip("/")) as page:
        page.goto("/new")
        page.locator("#file").set_input_files(net)
        page.locator("#problem", has_text="more than the 50 B that this hub keeps").wait_for()
        assert page.locator("#measure").is_disabled()


def test_a_file_of_twenty_gigabytes_is_refused_before_it_is_read(browser, net, tmp_path):
    """By the size that it says it has: reading it for its hash alone would take minutes. Another is taken at once."""
    with (tmp_path / "huge.onnx").open("wb") as file:
        file.write(described(net, 20_000_000_000) + b"a" * 100_000)
        file.truncate(20_000_000_000)  # the rest is a hole, which takes no room
    with hub(tmp_path, fleet_bytes=10**9) as (_, client), visiting(browser, str(client.base_url).rstrip("/")) as page:
        page.goto("/new")
        page.locator("#file").set_input_files(tmp_path / "huge.onnx")
        page.locator("#problem", has_text="A file of 20 GB is more than the 1 GB that this hub keeps").wait_for()
        assert page.locator("#sending").is_hidden()
        page.locator("#file").set_input_files(net)
        page.locator("#card h3", has_text="net.onnx").wait_for()


def test_who_may_only_read_is_told_why(browser, tmp_path):
    with hub(tmp_path, tokens=True) as (store, client), visiting(browser, str(client.base_url).rstrip("/")) as page:
        store.create_user("ann")
        page.goto("/new")
        page.locator("input[name=token]").fill(store.create_token("ann", scopes=("read",)).text)
        page.locator("main button").click()
        page.locator("#why-not", has_text="scope write").wait_for()
        assert page.locator("#measure").is_disabled()
        assert page.locator("#file").is_disabled()


def test_the_hash_of_a_file_is_the_one_that_others_compute(page):
    page.goto("/new")
    found = page.evaluate(HASHES)
    data = bytes(7 * place % 256 for place in range(200))
    assert found == [hashlib.sha256(data[:length]).hexdigest() for length in range(200)]


def test_a_zip_is_taken_apart_where_it_lies(page, net, tmp_path):
    for packed in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        with zipfile.ZipFile(tmp_path / "model.zip", "w", packed) as archive:
            archive.write(net, "folder/net.onnx")
            archive.writestr("folder/.hidden", "x")
        page.goto("/new")
        page.locator("#file").set_input_files(tmp_path / "model.zip")
        ready(page)
        assert page.locator("#card h3").inner_text() == "net.onnx"
