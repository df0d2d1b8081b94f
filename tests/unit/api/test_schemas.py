"""The published schemas hold for what the commands print: real outputs, not examples."""

import copy
import json
import sys

import pytest
from jsonschema import Draft202012Validator, ValidationError
from jsonschema_rs import meta

import inferometer as im
from inferometer.api.schemas import SCHEMAS, schema_of
from inferometer.core.errors import UnknownNameError

COMMANDS = {
    "predict llama-3.2-1b --on nvidia-l4": "profile",
    "predict resnet18 --on raspberry-pi-5": "profile",
    "predict llama-3.1-70b --on nvidia-h100-sxm --tp 4": "profile",
    "predict llama-3.1-8b --on nvidia-h100-sxm --runtime vllm --users 8": "serving",
    "fit llama-3.1-8b --on nvidia-l4": "fit",
    "can-i-run qwen3-30b-a3b --on nvidia-rtx-4060-ti --host amd-ryzen-ai-9-365-cpu": "can-i-run",
    "can-i-run llama-3.1-8b --on raspberry-pi-5": "can-i-run",
    "atlas --model yolov8n --runtime rknn": "atlas",
    "atlas --model llama-3.2-1b": "atlas",
    "devices show nvidia-h200": "device",
    "devices show raspberry-pi-5": "device",
    "models show resnet18": "model",
    "models show deepseek-v3": "model",
    "simulate llama-3.1-8b --on nvidia-h100-sxm --rate 2,5 --requests 40 --no-store": "simulation",
    "plan llama-3.1-8b --rate 2 --slo ttft_p95<=2s --on nvidia-h100-sxm --engine local": "plan",
    "plan resnet18 --frames 5 --on raspberry-pi-5": "plan",
    "compare {a} {b}": "comparison",
    "explain {a}": "explanation",
    "explain {m}": "explanation",
    "sweep {spec}": "sweep",
    "runs show {run}": "run",
    "watch {run}": "alarm",
    "bench --runs 3 --seconds 0 --no-guard --no-store -- {python} -c 1": "profile",
}


@pytest.fixture(scope="module")
def names(tmp_path_factory):
    """Files and a run that the commands speak of."""
    from inferometer.store.recording import recording

    folder = tmp_path_factory.mktemp("schemas")
    for name, device in (("a", "nvidia-l4"), ("b", "nvidia-h200")):
        (folder / f"{name}.json").write_bytes(im.encode(im.predict("llama-3.2-1b", on=device)))
    measured = im.bench(lambda: sum(range(1000)), plan=im.Plan(runs=5, seconds=0.0, warmup=1), guard=im.NoGuard())
    (folder / "m.json").write_bytes(im.encode(measured.profile))
    with recording(kind="bench") as recorder:
        recorder.keep(measured.profile)
    (folder / "spec.toml").write_text('models = ["llama-3.2-1b"]\ndevices = ["nvidia-l4"]\nbatch = [1, 8]\n')
    files = {name: str(folder / f"{name}.json") for name in ("a", "b", "m")}
    return {**files, "spec": str(folder / "spec.toml"), "run": recorder.id, "python": sys.executable}


@pytest.mark.parametrize(("command", "name"), COMMANDS.items(), ids=COMMANDS)
def test_what_a_command_prints_is_what_its_schema_says(answered, names, command, name):
    words = [word.format(**names) for word in command.split()]
    at = words.index("--") if "--" in words else len(words)
    done = answered(*words[:at], "--format", "json", *words[at:])
    assert done.returncode == 0, done.stderr
    printed, schema = json.loads(done.stdout), schema_of(name)
    Draft202012Validator(schema).validate(printed)
    row, declared = (printed[0], schema["items"]) if isinstance(printed, list) else (printed, schema)
    assert set(row) <= set(declared["properties"]), "printed, and not in the schema"


def test_every_schema_is_one_and_names_its_draft():
    for name in SCHEMAS:
        schema = schema_of(name)
        meta.validate(schema)  # a second implementation's, and it takes no seconds
        assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"


def test_every_schema_of_a_command_is_tried_on_a_real_output():
    assert set(SCHEMAS) - set(COMMANDS.values()) == {"calibration", "job", "job-result", "load", "trace"}


# What a document may come without; whatever else a schema names is promised.
MAY_LACK = {
    "profile": {"published"},
    "run": {"kind", "started", "ended", "author", "note", "reason", "link", "metrics"},
    "serving": {"published"},
    "explanation": {"residual", "tried"},
    "plan": {"candidates", "simulated", "rejected", "by_device", "front", "notes", "edge", "apart"},
}
OF_A_FIGURE = {"device", "model", "runtime", "version", "weights", "batch", "metric", "value", "unit", "source", "date"}


@pytest.mark.parametrize("name", SCHEMAS)
def test_all_that_a_schema_names_is_promised_but_for_what_is_written_here(name):
    schema = schema_of(name)
    whole = schema["items"] if name == "sweep" else schema
    assert set(whole["properties"]) - set(whole["required"]) == MAY_LACK.get(name, set())
    assert set(whole["required"]) <= set(whole["properties"])
    if name == "atlas":
        assert set(whole["properties"]["rows"]["items"]["required"]) == OF_A_FIGURE


def test_a_document_that_lacks_what_is_promised_is_refused():
    printed = json.loads(im.encode(im.predict("resnet18", on="nvidia-l4")))
    validator = Draft202012Validator(schema_of("profile"))
    validator.validate(printed)
    for broken in (
        {**printed, "schema": "inferometer.profile/2"},
        {key: value for key, value in printed.items() if key != "summary"},
        {**printed, "kind": "guessed"},
    ):
        with pytest.raises(ValidationError):
            validator.validate(broken)
    wrong = copy.deepcopy(printed)
    wrong["phases"][0]["time_s"] = "0.1 s"
    with pytest.raises(ValidationError):
        validator.validate(wrong)


def test_the_command_prints_a_schema_lists_all_and_knows_no_other(answered):
    assert json.loads(answered("schema", "fit").stdout) == schema_of("fit")
    assert set(SCHEMAS) == {row["name"] for row in json.loads(answered("schema", "--format", "json").stdout)}
    with pytest.raises(UnknownNameError, match="Did you mean profile"):
        schema_of("profil")
    assert answered("schema", "profil").returncode == 2
