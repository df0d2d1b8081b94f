"""`inferometer hub mcp` as its clients see it: the SDK's own client, and what the command serves at the other end.

A process is started where it matters that it is one; what is answered is asked of the same server in this process.
"""

import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from fakes.in_process import measured_here
from inferometer.hub.mcp.access import Access
from inferometer.hub.mcp.tools import TOOLS
from inferometer.measure.run import model as running

if find_spec("mcp") is None:  # it is imported where it is used: else every worker would wait for it
    pytest.skip("needs the SDK: pip install 'inferometer[mcp]'", allow_module_level=True)

DOCS = Path(__file__).parents[2] / "docs"


def environment():
    """The child's: asked for when one starts, because the folders of this test run are set after the import."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}  # noqa: TID251 - as said


def command(*options):
    from mcp import StdioServerParameters

    words = ["-m", "inferometer", "hub", "mcp", *options]
    return StdioServerParameters(command=sys.executable, args=words, env=environment())


def here(**access):
    from inferometer.hub.mcp.server import create_server

    return create_server(lambda _: Access(**access))


def conversation(calls, server, **client):
    """The answers to some calls, one after the other, of one server."""
    import anyio
    from mcp import Client

    async def talk():
        async with Client(server, **client) as connected:
            return [await connected.call_tool(name, arguments) for name, arguments in calls]

    return anyio.run(talk)


@pytest.mark.parametrize("mode", ["auto", "legacy"])  # today's protocol, and the one with a handshake
def test_a_client_lists_the_tools_and_gets_numbers_and_sentences(mode):
    import anyio
    from mcp import Client

    async def talk():
        async with Client(here(), mode=mode) as connected:
            listed = await connected.list_tools()
            return listed.tools, await connected.call_tool("predict", {"model": "llama-3.2-1b", "on": "nvidia-h200"})

    tools, answer = anyio.run(talk)
    assert {tool.name for tool in tools} == set(TOOLS) - {"profile", "submit"}
    assert all(tool.input_schema["type"] == "object" and tool.annotations.read_only_hint for tool in tools)
    assert answer.structured_content["schema"] == "inferometer.profile/1"
    assert json.loads(answer.content[1].text) == answer.structured_content
    assert "each token" in answer.content[0].text


def test_bad_questions_are_answered_in_sentences_and_the_server_goes_on():
    bad = [
        ("devices", {"limit": 1_000_000}),
        ("predict", {"model": "/etc/passwd", "on": "nvidia-l4"}),
        ("profile", {"model": "resnet18"}),
        ("predict", {"model": "resnet18", "on": "nvidia-l4", "batch": {}}),
        ("frobnicate", {}),
    ]
    *refused, good = conversation([*bad, ("fit", {"model": "resnet18", "on": "nvidia-l4"})], here())
    assert all(answer.is_error for answer in refused)
    told = [answer.content[0].text for answer in refused]
    for sentence, words in zip(
        told, ["at most 1,000", "is a path", "measures nothing", "Expected `int`", "no tool named"], strict=True
    ):
        assert words in sentence
    assert not good.is_error
    assert good.structured_content["fits"] is True


def answered(action, **more):
    """What a user says when asked."""
    from mcp_types import ElicitResult

    return ElicitResult(action=action, **more)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_nothing_is_measured_before_the_user_agrees(mode):
    asked = []

    async def refuse(_context, params):
        asked.append(params.message)
        return answered("decline")

    (answer,) = conversation(
        [("profile", {"model": "resnet18"})], here(profiling=True), mode=mode, elicitation_callback=refuse
    )
    assert asked == ["Measure resnet18 on this machine and store the run?"]
    assert answer.is_error
    assert "nothing was run" in answer.content[0].text


def test_a_client_that_cannot_ask_its_user_starts_no_measurement():
    (answer,) = conversation([("profile", {"model": "resnet18"})], here(profiling=True))
    assert answer.is_error
    assert "this client cannot ask" in answer.content[0].text


@pytest.mark.slow
@pytest.mark.installed
def test_an_agreed_measurement_is_stored_and_can_be_looked_at(tmp_path, roofs, monkeypatch):
    if find_spec("onnxruntime") is None:
        pytest.skip("needs ONNX Runtime")

    async def agree(_context, _params):
        return answered("accept", content={})

    monkeypatch.setattr(running, "isolated", measured_here)
    measured = {"model": "squeezenet1.1", "runtime": "onnxruntime", "image": 64, "seconds_at_most": 0.1}
    store = here(profiling=True, store=str(tmp_path / "runs.db"))
    profile, listed = conversation([("profile", measured), ("runs", {})], store, elicitation_callback=agree)
    assert profile.structured_content["kind"] == "measured", profile.content[0].text
    assert [row["id"] for row in listed.structured_content["rows"]] == [profile.structured_content["run"]]


def test_a_process_that_may_measure_asks_its_client_and_has_the_store_it_was_given(tmp_path):
    async def refuse(_context, _params):
        return answered("decline")

    started = command("--allow-profile", "--store", str(tmp_path / "runs.db"))
    refused, listed = conversation(
        [("profile", {"model": "resnet18"}), ("runs", {})], started, elicitation_callback=refuse
    )
    assert "nothing was run" in refused.content[0].text
    assert "runs.db" in listed.content[0].text


def test_a_line_that_is_no_json_is_answered_and_does_not_end_the_server():
    hello = {
        "jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
    }  # fmt: skip
    asked = f"this is no JSON\n{{\n{json.dumps(hello)}\n"
    done = subprocess.run(
        [sys.executable, "-m", "inferometer", "hub", "mcp"], input=asked, capture_output=True, text=True, timeout=120,
        check=False, env=environment(),
    )  # fmt: skip
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [each["result"]["serverInfo"]["name"] for each in answers if each.get("id") == 1] == ["inferometer"]
    refused = [each["error"] for each in answers if each.get("id") is None]
    assert [(each["code"], each["message"][:36]) for each in refused] == [
        (-32700, "A line was no message of JSON-RPC. S")
    ] * 2
    assert done.returncode == 0, done.stderr


def test_over_http_it_answers_who_has_the_token_and_nobody_else(tmp_path):
    import anyio
    import httpx2
    from mcp import Client
    from mcp.client.streamable_http import streamable_http_client

    (tmp_path / "token").write_text("secret\n", encoding="utf-8")
    started = [
        sys.executable,
        "-m",
        "inferometer",
        "hub",
        "mcp",
        "--http",
        "0",
        "--token-file",
        str(tmp_path / "token"),
    ]
    with subprocess.Popen(started, stderr=subprocess.PIPE, text=True, env=environment()) as process:
        try:
            url = re.search(r"http://127\.0\.0\.1:\d+/mcp", process.stderr.readline())[0]

            async def talk():
                headers = {"authorization": "Bearer secret"}
                async with (
                    httpx2.AsyncClient(headers=headers, timeout=60) as http,
                    Client(streamable_http_client(url, http_client=http)) as connected,
                ):
                    return await connected.call_tool("fit", {"model": "resnet18", "on": "nvidia-l4"})

            assert httpx2.post(url, json={}).status_code == 401
            assert httpx2.post(url, json={}, headers={"authorization": "Bearer wrong"}).status_code == 401
            foreign = {"authorization": "Bearer secret", "host": "evil.example"}
            assert httpx2.post(url, json={}, headers=foreign).status_code == 421
            assert anyio.run(talk).structured_content["fits"] is True
        finally:
            process.terminate()


def test_the_conversation_in_the_documentation_can_be_had():
    """Every call of the page is answered as it says, but for the figures, which become better."""
    page = (DOCS / "agents.md").read_text(encoding="utf-8")
    turns = re.findall(r"^→ (\w+) (\{.*\})\n← (error: )?(.*)$", page, re.MULTILINE)
    assert len(turns) >= 5
    answers = conversation([(name, json.loads(arguments)) for name, arguments, *_ in turns], here())
    for answer, (_, _, error, text) in zip(answers, turns, strict=True):
        assert answer.is_error == bool(error)
        assert _words(answer.content[0].text) == _words(text)


def _words(text):
    return re.sub(r"[\d.,]+ ?[munkMG]?(?=s|B|J)|[\d.,]+", "#", text)
