"""The hub's /mcp: the tools that a token allows, with the runs that its owner sees and nothing of the hub's machine."""

from importlib.util import find_spec

import pytest

from unit.hub.web.samples import hub
from unit.hub.web.world import World

if find_spec("mcp") is None:  # it is imported where it is used: else every worker would wait for it
    pytest.skip("needs the SDK: pip install 'inferometer[mcp]'", allow_module_level=True)

HEADERS = {"accept": "application/json, text/event-stream", "mcp-protocol-version": "2025-06-18"}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    with hub(tmp_path_factory.mktemp("hub"), tokens=True) as (store, client):
        yield World(store, client)


def send(world, who, method, **params):
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return world.ask(who, "POST", "/mcp", json=body, headers=HEADERS)


def called(world, who, name, **arguments):
    return send(world, who, "tools/call", name=name, arguments=arguments).json()["result"]


def test_who_has_no_token_or_an_agents_one_gets_nothing(world):
    assert send(world, "nobody", "tools/list").status_code == 401
    assert send(world, "agent", "tools/list").status_code == 403


def test_a_token_that_reads_is_offered_nothing_that_writes(world):
    reading = world.store.create_token("writer", scopes=("read",)).text
    world.tokens["reading"] = reading
    listed = {who: send(world, who, "tools/list").json()["result"]["tools"] for who in ("reading", "writer")}
    offered = {who: {tool["name"] for tool in tools} for who, tools in listed.items()}
    assert offered["writer"] - offered["reading"] == {"submit"}
    assert "profile" not in offered["writer"], "the hub's own machine measures nothing for a client"
    refused = called(world, "reading", "submit", model="resnet18", device="pi")
    assert refused["isError"]
    assert "no tool named 'submit'" in refused["content"][0]["text"]


def test_runs_are_those_that_whoever_asks_may_see(world):
    run = world.run(project="phones")
    assert called(world, "reader", "runs", run=run)["structuredContent"]["id"] == run
    hidden = called(world, "outsider", "runs", run=run)
    assert hidden["isError"]
    assert called(world, "outsider", "runs")["structuredContent"]["rows"] == []
    assert called(world, "outsider", "compare", a=run, b=run)["isError"]
    assert not called(world, "reader", "compare", a=run, b=run)["isError"]


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("predict", {"model": "resnet18", "on": "local"}, "no device named 'local'"),
        ("predict", {"model": "/etc/passwd", "on": "nvidia-l4"}, "no model named"),
        ("explain", {"what": "/etc/passwd"}, "is a path"),
        ("devices", {"limit": 1_000_000}, "at most 1,000"),
        ("profile", {"model": "resnet18"}, "measures nothing"),
    ],
)
def test_a_clients_text_reaches_no_file_and_not_the_hubs_machine(world, name, arguments, words):
    answer = called(world, "owner", name, **arguments)
    assert answer["isError"]
    assert words in answer["content"][0]["text"]


def test_a_question_is_answered_as_anywhere(world):
    answer = called(world, "reader", "predict", model="llama-3.2-1b", on="nvidia-h200")
    assert answer["structuredContent"]["schema"] == "inferometer.profile/1"


def test_what_is_no_json_is_told_so(world):
    answer = world.ask(
        "reader", "POST", "/mcp", content=b"{no", headers={**HEADERS, "content-type": "application/json"}
    )
    assert answer.status_code == 400
    assert answer.json()["error"]


def test_a_measurement_needs_a_client_that_asks_its_user(world):
    answer = called(world, "writer", "submit", model="resnet18", device="pi", project="phones")
    assert answer["isError"]
    assert "needs the user's word" in answer["content"][0]["text"]
    assert world.fleet.jobs(project="phones") == ()


@pytest.mark.parametrize(
    ("who", "project", "told"), [("writer", "phones", "is queued"), ("reader", "phones", "Only a writer")]
)
def test_the_sdks_client_submits_for_who_may_once_the_user_agreed(world, who, project, told):
    import anyio
    import httpx2
    from mcp import Client
    from mcp.client.streamable_http import streamable_http_client
    from mcp_types import ElicitResult

    asked = []

    async def agree(_context, params):
        asked.append(params.message)
        return ElicitResult(action="accept", content={})

    async def talk():
        url = f"{world.client.base_url}/mcp".replace("//mcp", "/mcp")
        async with (
            httpx2.AsyncClient(headers=world.headers(who), timeout=60) as http,
            Client(streamable_http_client(url, http_client=http), elicitation_callback=agree) as connected,
        ):
            return await connected.call_tool("submit", {"model": "resnet18", "device": "pi", "project": project})

    answer = anyio.run(talk)
    assert told in answer.content[0].text
    assert asked == [f"Have resnet18 measured by the hub (device pi, project {project})?"]
    assert answer.is_error == (who == "reader")
    if who == "writer":
        assert world.fleet.job(answer.structured_content["id"]).user == "writer"
