"""What the page of a new run asks: what was chosen, what it is, and what each device would need for it."""

import base64
import hashlib
import json
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from fakes.places import dense_layers, one_layer
from fakes.waiting import until
from inferometer.core.codec import decode, document
from inferometer.core.errors import FormatError
from inferometer.core.job import Job
from inferometer.hub.fleet import forecasting, own_agent
from inferometer.hub.fleet.forecast import answer
from inferometer.hub.fleet.forecasting import Forecaster
from inferometer.hub.fleet.own_agent import OwnAgent
from inferometer.hub.places.requests import Calibrating, Judging, pack_calibration, pack_measurement
from inferometer.hub.web.answers import HubError
from inferometer.hub.web.api.new_runs import ChosenFile, sorted_out
from inferometer.hub.web.guard.rules import Rules
from inferometer.known import device as device_named
from inferometer.measure.run.model import MeasureRequest
from inferometer.store.queue.fleet import Fleet
from inferometer.store.queue.values import NewDevice
from unit.hub.web.samples import HOSTILE, emptied, hub
from unit.hub.web.world import World

API = "/api/v1/fleet"
GGUF = b"GGUF" + bytes(60)


def chosen(*named):
    """Files by path and first bytes."""
    return [ChosenFile(path=path, size_bytes=len(head), head=base64.b64encode(head)) for path, head in named]


def kept(*named):
    found = sorted_out(chosen(*named))
    return found["entry"], [file["path"] for file in found["files"]]


@pytest.fixture
def net(tmp_path):
    return one_layer(tmp_path).read_bytes()


def test_one_file_is_a_model_whatever_it_is_called(net):
    assert sorted_out(chosen(("picture.png", net)))["format"] == "onnx"
    assert kept(("any name.bin", GGUF)) == ("any name.bin", ["any name.bin"])


def test_a_file_travels_with_what_lies_beside_it(net):
    assert kept(("net.onnx.data", bytes(64)), ("net.onnx", net)) == ("net.onnx", ["net.onnx.data", "net.onnx"])
    assert kept(("b-00002-of-00002.gguf", GGUF), ("b-00001-of-00002.gguf", GGUF))[0] == "b-00001-of-00002.gguf"


def test_a_folder_is_opened_as_a_whole_where_a_config_says_so():
    entry, paths = kept(("m/config.json", b"{}"), ("m/model.safetensors", b"x"), ("m/train.py", b"import os"))
    assert (entry, paths) == ("m", ["m/config.json", "m/model.safetensors"])
    assert kept(("config.json", b"{}"), ("model.safetensors", b"x"))[0] == "model"  # chosen without their folder


def test_code_and_what_tools_hide_stay_where_they_are(net):
    assert kept(("m/net.onnx", net), ("m/.git/config", b"x"), ("m/run.py", b"x")) == ("net.onnx", ["net.onnx"])


def test_no_model_is_a_sentence_that_names_the_file():
    with pytest.raises(FormatError, match=r"notes\.txt"):
        sorted_out(chosen(("notes.txt", b"These are no layers.")))
    with pytest.raises(FormatError, match="an empty file"):
        sorted_out(chosen(("net.onnx", b"")))


# Asking the hub


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    with hub(tmp_path_factory.mktemp("hub")) as found:
        yield found


@pytest.fixture
def here(shared, monkeypatch):
    """Models are read in this process: a box takes longer than all else, and has tests of its own."""
    monkeypatch.setattr(forecasting, "in_a_process", lambda asked, *_: answer(asked))
    store, client = shared
    emptied(store)
    labels = {"unit": ("cpu",), "runtime": ("onnxruntime",)}
    fleet = Fleet.of(store)
    fleet.register(NewDevice(name="t4", labels=labels, facts={"device": document(device_named("nvidia-t4"))}))
    fleet.register(NewDevice(name="bare", labels={"runtime": ("llamacpp",)}))
    return client


def sent(client, data):
    sha256 = hashlib.sha256(data).hexdigest()
    assert client.put(f"{API}/artifacts/{sha256}?offset=0&size={len(data)}", content=data).is_success
    return {"path": "net.onnx", "sha256": sha256, "size_bytes": len(data)}


def preview(client, **wish):
    response = client.post(f"{API}/preview", json=wish)
    return response.status_code, response.json()


def test_a_file_is_read_and_priced_before_anything_is_submitted(here, net):
    status, found = preview(here, model="net.onnx", entry="net.onnx", files=[sent(here, net)])
    assert status == 200
    assert found["model"]["format"] == "onnx"
    assert found["model"]["inputs"] == [{"name": "x", "dtype": "f32", "shape": ["1", "4"]}]
    rows = {row["name"]: row for row in found["devices"]}
    assert rows["t4"]["predicted"]["step_s"] > 0
    assert rows["t4"]["engines"] == ["onnxruntime"]
    assert rows["bare"]["engines"] == []  # llama.cpp opens no ONNX
    assert rows["bare"]["predicted"]["error"] == "Its agent has not said what it can do."
    assert here.get(f"{API}/jobs").json() == []


def test_the_page_and_the_command_submit_the_same_job(here, net, tmp_path):
    found = preview(here, model="net.onnx", entry="net.onnx", files=[sent(here, net)], runtime="onnxruntime")[1]
    asked = MeasureRequest(model=str(tmp_path / "net.onnx"), runtime="onnxruntime")
    typed = pack_measurement("profile", asked, Judging()).job
    shown = decode(json.dumps(found["job"]), Job)
    assert replace(shown, created="") == replace(typed, created="")
    assert here.post(f"{API}/jobs", json={"job": found["job"], "device": "t4"}).status_code == 201


def test_formats_are_foretold_for_a_device_and_make_a_job_that_prepares(here, tmp_path):
    file = sent(here, dense_layers(tmp_path / "dense.onnx").read_bytes())
    asked = {"model": "net.onnx", "entry": "net.onnx", "files": [file], "device": "t4"}
    told = preview(here, **asked)[1]
    formats = {row["quantise"]: row for row in told["prepared"]["formats"]}
    assert told["job"]["verb"] == "profile"
    assert formats["i8"]["low"] < formats["i8"]["gain"] < formats["i8"]["high"]
    job = preview(here, **asked, quantise="i8")[1]
    assert (job["job"]["verb"], job["job"]["runtime"], job["job"]["options"]) == (
        "prepare",
        "onnxruntime",
        {"quantise": "i8"},
    )
    command = "inferometer prepare net.onnx --for onnxruntime --quantise i8 -o net-i8.onnx"
    assert next(row["command"] for row in job["devices"]) == command
    assert here.post(f"{API}/jobs", json={"job": job["job"], "device": "t4"}).status_code == 201
    status, refused = preview(here, **asked, quantise="i3")
    assert (status, "cannot be prepared as i3" in refused["error"]) == (400, True)


def test_open_sizes_have_their_usual_value_or_none(here):
    model = preview(here, model="whisper-tiny")[1]["model"]
    assert {size["name"]: size["value"] for size in model["open"]} == {"batch": 1, "frames": 3000, "query": 448}
    assert model["writes"]
    assert model["engines"] is None  # made with random weights, for whatever engine


def test_sizes_change_what_is_predicted_and_what_is_typed(here):
    small, large = (preview(here, model="resnet50", sizes={"batch": batch})[1] for batch in (1, 64))
    times = [found["devices"][1]["predicted"]["step_s"] for found in (small, large)]
    assert times[0] < times[1]
    assert "--size batch=64" in large["devices"][1]["command"]
    assert large["python"].endswith("im.profile('resnet50', sizes={'batch': 64})")


def test_a_size_that_the_model_does_not_have_is_said_by_each_device(here):
    row = preview(here, model="resnet50", sizes={"frames": 3})[1]["devices"][1]
    assert "has no size 'frames'" in row["predicted"]["error"]


@pytest.mark.parametrize("name", [HOSTILE, "../../etc/passwd", "a'b\"; rm -rf /", "no such model"])
def test_a_name_from_anywhere_is_refused_as_text(here, name):
    status, found = preview(here, model=name)
    assert status in {400, 404}
    assert found["error"]


def test_a_command_can_be_pasted_whatever_the_file_is_called(here, net):
    file = {**sent(here, net), "path": "my 'net' $(x).onnx"}
    found = preview(here, model="n", entry=file["path"], files=[file])[1]
    command = found["devices"][0]["command"]
    printed = command.replace("inferometer", "printf '%s|'", 1)
    echoed = subprocess.run(["sh", "-c", printed], capture_output=True, text=True, check=True)
    assert echoed.stdout.split("|")[1] == file["path"]


def test_a_file_that_cannot_be_read_says_so(here):
    status, found = preview(here, model="net.onnx", entry="net.onnx", files=[sent(here, b"nonsense")])
    assert status == 400
    assert found["error"].startswith("This model cannot be read: ")


def test_a_hash_is_no_key_to_a_model(tmp_path, net):
    with hub(tmp_path, tokens=True) as (store, client):
        world = World(store, client)
        file = {"path": "net.onnx", "sha256": hashlib.sha256(net).hexdigest(), "size_bytes": len(net)}
        place = f"{API}/artifacts/{file['sha256']}?offset=0&size={len(net)}"
        assert world.ask("writer", "PUT", place, content=net).is_success
        wish = {"model": "net.onnx", "entry": "net.onnx", "files": [file], "project": "cars"}
        refused = world.ask("outsider", "POST", f"{API}/preview", json=wish)
        assert (refused.status_code, "is not here" in refused.json()["error"]) == (400, True)


def test_a_hub_that_reads_many_models_says_so_and_goes_on(monkeypatch):
    forecaster, leave = Forecaster(desk=None), threading.Event()
    monkeypatch.setattr(forecaster, "_in_a_box", lambda *_: {"read": leave.wait(60)})
    with ThreadPoolExecutor(forecasting._OUTLOOKS) as crowd:
        waiting = [crowd.submit(forecaster.outlook, None, ()) for _ in range(forecasting._OUTLOOKS)]
        until(lambda: forecaster._asking._value == 0, "a crowd")
        with pytest.raises(HubError, match="reading many other models"):
            forecaster.outlook(None, ())
        leave.set()
        assert [each.result(60) for each in waiting] == [{"read": True}] * forecasting._OUTLOOKS
    assert forecaster.outlook(None, ()) == {"read": True}


# What a form starts


def begun(client, verb, **texts):
    response = client.post(f"{API}/start/{verb}", json=texts)
    return response.status_code, response.json()


def test_a_calibration_is_asked_for_as_the_command_would(here):
    status, made = begun(here, "calibrate", on="t4", runtime="onnxruntime", dtype=" i8 ", budget="2min", unit="")
    typed = pack_calibration("onnxruntime", Calibrating(budget_s=120.0, dtype="i8")).job
    assert (status, made["device"], made["project"]) == (200, "t4", "default")
    assert made["job"]["id"] == typed.id
    assert here.post(f"{API}/jobs", json={"job": made["job"], "device": "t4"}).status_code == 201


@pytest.mark.parametrize(
    ("verb", "texts", "says"),
    [
        ("calibrate", {"on": "t4", "budget": "2h"}, "60 min at most"),
        ("calibrate", {"on": "nowhere"}, "nowhere"),
        ("calibrate", {"on": "t4", "unit": "/dev/mem"}, "no name that a device has"),
        ("load", {"url": "--hub=http://elsewhere"}, "no address of a server"),
        ("load", {"url": "file:///etc/passwd"}, "no address of a server"),
        ("load", {"url": "http://h", "prompt": "file:/etc/passwd"}, "read on your own machine"),
    ],
)
def test_a_form_starts_nothing_that_the_machine_s_owner_would_not(here, verb, texts, says):
    status, told = begun(here, verb, **texts)
    assert (status in {400, 404}, says in told["error"]) == (True, True), told


def test_a_hub_that_others_reach_sends_no_requests_of_theirs():
    with pytest.raises(HubError, match="sends no requests of theirs"):
        OwnAgent(Rules(tokens=True)).load("http://127.0.0.1:1", [], store=None)


def test_whoever_may_only_read_is_told_so_and_starts_nothing(tmp_path):
    with hub(tmp_path, tokens=True) as (store, client):
        store.create_user("ann")
        headers = {"authorization": f"Bearer {store.create_token('ann', scopes=('read',)).text}"}
        for verb in ("load", "calibrate"):
            assert "signed in to read" in client.get(f"/{verb}", headers=headers).text
            assert client.post(f"{API}/start/{verb}", json={}, headers=headers).status_code == 403


# The hub's own machine


def test_only_a_hub_that_nobody_else_reaches_measures_on_its_own_machine():
    assert OwnAgent(Rules()).offered
    assert not OwnAgent(Rules(tokens=True)).offered
    assert not OwnAgent(Rules(host="0.0.0.0")).offered  # noqa: S104 - nothing is bound


class Started:
    """A process that runs until it is told to end."""

    def __init__(self, command, **_how):
        self.command, self.ended = command, None

    def poll(self):
        return self.ended

    def terminate(self):
        self.ended = 0

    def wait(self, _seconds=None):
        return self.ended


def test_an_agent_is_started_once_and_ends_with_the_hub(monkeypatch):
    started = []
    monkeypatch.setattr(own_agent.subprocess, "Popen", lambda *a, **k: started.append(Started(*a, **k)) or started[-1])
    agent = OwnAgent(Rules())
    names = {agent.start("http://127.0.0.1:1"), agent.start("http://127.0.0.1:1")}
    assert (len(names), len(started)) == (1, 1)
    assert started[0].command[-4:-1] == ["--hub", "http://127.0.0.1:1", "--name"]
    agent.stop()
    assert started[0].ended == 0
    agent.stop()  # once more: nothing is left to end
