"""The tools without the protocol: what they take, what they refuse, and that their answers are the commands'."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import inferometer as im
from inferometer.core.errors import DomainError, InferometerError, TrustError, UnknownNameError
from inferometer.hub.mcp.access import MOST_ROWS, Access, paged
from inferometer.hub.mcp.tools import TOOLS, call_tool, tools_for
from inferometer.predict.fields import FIELDS
from inferometer.store.recording import recording

KEYS = st.sampled_from("abcd")
PLAIN = st.recursive(
    st.integers(0, 9), lambda inner: st.lists(inner, max_size=9) | st.dictionaries(KEYS, inner), max_leaves=12
)


@given(document=st.dictionaries(KEYS, PLAIN), limit=st.integers(1, 5))
def test_no_list_of_a_page_is_longer_than_it_and_short_documents_stay_as_they_are(document, limit):
    shown = paged(document, offset=0, limit=limit)
    cut = shown.pop("pages", [])

    def lists(plain):
        if isinstance(plain, list):
            yield plain
        for inner in plain.values() if isinstance(plain, dict) else plain if isinstance(plain, list) else ():
            yield from lists(inner)

    assert all(len(rows) <= limit for rows in lists(shown))
    assert cut or shown == document


@given(rows=st.lists(st.integers(), max_size=40), limit=st.integers(1, 7))
def test_the_pages_of_a_list_are_the_list(rows, limit):
    pages = [paged({"rows": rows}, offset=offset, limit=limit)["rows"] for offset in range(0, len(rows) or 1, limit)]
    assert ([row for page in pages for row in page] if len(rows) > limit else pages[0]) == rows


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "../secret.json", "a/b.onnx", "a\\b.onnx", "file.onnx", "link.onnx", "x" * 5000]
)
def test_a_path_outside_the_folders_is_refused_for_every_argument_that_could_be_one(tmp_path, monkeypatch, path):
    """Also one that lies in the current folder, and a link in a folder of the user's that leads out of it."""
    (tmp_path / "models").mkdir()
    (tmp_path / "file.onnx").write_bytes(b"")
    (tmp_path / "models" / "link.onnx").symlink_to(tmp_path / "file.onnx")
    (tmp_path / "link.onnx").write_bytes(b"")
    monkeypatch.chdir(tmp_path)
    access = Access(folders=(tmp_path / "models",), profiling=True)
    for name, arguments in {
        "predict": {"model": path, "on": "nvidia-l4"},
        "fit": {"model": "resnet50", "on": path},
        "can_i_run": {"model": path},
        "compare": {"a": path, "b": path},
        "explain": {"what": path},
        "devices": {"name": path},
        "models": {"name": path},
        "profile": {"model": path},
        "sweep": {"models": [path], "devices": ["nvidia-l4"]},
        "simulate": {"model": "llama-3.1-8b", "on": "nvidia-l4", "trace": path},
        "plan": {"model": "llama-3.1-8b", "rate": 1, "slo": "ttft_p95<=1s", "prompt": f"file:{path}"},
    }.items():
        with pytest.raises(TrustError, match="not in a folder that this server may read"):
            call_tool(name, arguments, access)
    for field in ("draft", "prefill_on", "calibration"):
        assert FIELDS[field].catalog
        with pytest.raises(TrustError, match="not in a folder that this server may read"):
            call_tool("predict", {"model": "llama-3.2-1b", "on": "nvidia-l4", field: path}, access)


def test_a_file_in_a_folder_that_the_user_named_is_read(tmp_path):
    profile = im.predict("resnet50", on="nvidia-l4")
    (tmp_path / "p.json").write_bytes(im.encode(profile))
    answer = call_tool("explain", {"what": "p.json"}, Access(folders=(tmp_path,)))
    assert answer.document["model"] == "resnet50"


def test_a_catalog_name_is_never_taken_for_a_file(tmp_path, monkeypatch):
    (tmp_path / "resnet50").mkdir()
    monkeypatch.chdir(tmp_path)
    assert Access(folders=(tmp_path,)).model("resnet50") == "resnet50"


@pytest.mark.parametrize(
    ("name", "arguments", "told"),
    [
        ("devices", {"limit": 1_000_000}, "1,000,000 rows were asked for; one call takes at most 1,000"),
        ("devices", {"limit": 0}, "a limit of 1 or more"),
        ("devices", {"offset": -1}, "an offset of 0 or more"),
        ("simulate", {"model": "m", "on": "d", "rate": 1, "requests": 10**6}, "1,000,000 requests"),
        ("sweep", {"models": ["m"] * 200, "devices": ["d"] * 200}, "40,000 configurations"),
        ("predict", {"model": "resnet50"}, "missing required field `on`"),
        ("predict", {"model": "resnet50", "on": "nvidia-l4", "batch": "eight"}, "Expected `int`, got `str`"),
        ("predict", {"model": "resnet50", "on": "nvidia-l4", "trust": ["x"]}, "unknown field `trust`"),
        ("atlas", {}, "Name a model or a device"),
    ],
)
def test_what_cannot_be_asked_is_told_in_a_sentence(name, arguments, told):
    with pytest.raises(DomainError, match=told):
        call_tool(name, arguments, Access())


def test_runs_that_one_answer_cannot_hold_are_counted_and_said(tmp_path, monkeypatch):
    monkeypatch.setattr("inferometer.hub.mcp.tools.MOST_ROWS", 2)
    access = Access(store=str(tmp_path / "runs.db"))
    for number in range(3):
        with recording(store=access.store, name=f"run-{number}"):
            pass
        assert ("newest" in call_tool("runs", {"limit": 2}, access).text) is (number == 2)
    answer = call_tool("runs", {"limit": 2}, access)
    assert len(answer.document["rows"]) == 2
    assert answer.text.startswith("The newest 2 of 3 runs: name a project")


def test_a_name_that_nobody_has_comes_with_the_nearest():
    with pytest.raises(UnknownNameError, match=r"Did you mean .*nvidia-h200"):
        call_tool("predict", {"model": "resnet50", "on": "nvidia-h20o"}, Access())
    with pytest.raises(UnknownNameError, match="There is no tool named 'predcit'"):
        call_tool("predcit", {}, Access())


def test_a_measurement_is_neither_offered_nor_made_unless_the_user_allows_it():
    assert "profile" not in {tool.name for tool in tools_for(Access())}
    assert "profile" in {tool.name for tool in tools_for(Access(profiling=True))}
    with pytest.raises(DomainError, match="This server measures nothing"):
        call_tool("profile", {"model": "resnet18"}, Access())


@pytest.mark.parametrize(
    ("tool", "arguments", "command"),
    [
        ("predict", {"model": "llama-3.2-1b", "on": "nvidia-l4"}, "predict llama-3.2-1b --on nvidia-l4"),
        ("fit", {"model": "llama-3.2-1b", "on": "nvidia-l4"}, "fit llama-3.2-1b --on nvidia-l4"),
        ("devices", {"name": "nvidia-l4"}, "devices show nvidia-l4"),
        ("models", {"name": "resnet18"}, "models show resnet18"),
        ("atlas", {"model": "yolov8n", "runtime": "rknn"}, "atlas --model yolov8n --runtime rknn"),
    ],
)
def test_an_answer_is_the_json_of_the_command_of_the_same_name(answered, tool, arguments, command):
    answer = call_tool(tool, {**arguments, "limit": MOST_ROWS}, Access())
    ours, theirs = (
        json.loads(json.dumps(answer.document)),
        json.loads(answered(*command.split(), "--format", "json").stdout),
    )
    for document in (ours, theirs):
        document.get("provenance", {}).pop("created", None)  # the second may have changed in between
    assert ours == theirs
    assert answer.text.endswith(".")


@pytest.mark.parametrize("name", TOOLS)
def test_every_argument_of_a_tool_is_one_of_its_verb_or_says_which_page(name):
    """So that what one learns of the one holds for the other; lists have their filters instead."""
    import inspect

    fields = set(TOOLS[name].arguments.__struct_fields__) - {"limit", "offset"}
    extra = {
        "predict": {"users"}, "devices": {"name", "where"}, "models": {"name", "where"}, "sweep": {"pareto"},
        "runs": {"run", "project", "model", "device", "runtime", "search"}, "profile": {"seconds_at_most"},
        "submit": {"model", "device", "project", "runtime", "precision", "generate"},  # as the page of a new run
    }.get(name, set())  # fmt: skip
    verb = getattr(im, name, None)
    assert fields - extra <= (set(inspect.signature(verb).parameters) if verb else set())


@given(
    arguments=st.dictionaries(st.sampled_from(["model", "on", "batch", "what", "a", "b", "limit"]), PLAIN | st.text())
)
def test_no_arguments_make_anything_but_an_answer_or_a_sentence(arguments):
    for name in ("fit", "compare", "explain", "devices"):
        try:
            call_tool(name, arguments, Access(store=str(Path("no-such-store.db"))))
        except InferometerError as error:
            assert str(error).rstrip().endswith((".", "?", "`"))


@pytest.mark.parametrize("trace", ["hf:squad", "hf:..", "hf:", "trace.jsonl"])
def test_a_trace_is_a_file_and_never_a_dataset_to_fetch(trace, tmp_path, monkeypatch):
    monkeypatch.setattr("inferometer.core.traffic.traces.dataset_rows", lambda name: pytest.fail(f"fetched {name}"))
    with pytest.raises(TrustError, match="no file in a folder"):
        call_tool("simulate", {"model": "llama-3.2-1b", "on": "nvidia-l4", "trace": trace}, Access(folders=(tmp_path,)))
    kept = tmp_path / "own.jsonl"
    kept.write_text("{}")
    assert Access(folders=(tmp_path,)).file("own.jsonl") == str(kept.resolve())
