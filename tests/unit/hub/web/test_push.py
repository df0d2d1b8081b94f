"""Runs on their way to a hub: sent once, kept while it is away, refused where another run has the id."""

import json
import zipfile

import click
import pytest
from click.testing import CliRunner

from inferometer.cli.commands.export import command as push_command
from inferometer.cli.storing import print_run_link, recording_from, storing_options
from inferometer.core.errors import PlaceError
from inferometer.hub.places.hub_client import HubAddress, HubAwayError, HubClient, push
from inferometer.store import open_store
from inferometer.store.recording import hub_link
from unit.hub.web.samples import hub, network

AWAY = "http://127.0.0.1:9"  # nobody listens there


@pytest.fixture
def mine(tmp_path):
    with open_store(tmp_path / "mine.db") as store:
        yield store


@pytest.fixture(scope="module")
def team(tmp_path_factory):
    with hub(tmp_path_factory.mktemp("team"), tokens=True, url="https://bench.example/") as (store, client):
        store.create_user("ann")
        texts = {scope: store.create_token("ann", scopes=(scope,)).text for scope in ("read", "write")}
        yield store, str(client.base_url).rstrip("/"), texts


def client_of(team, scope="write"):
    return HubClient(HubAddress(url=team[1], token=team[2][scope]))


def test_a_run_arrives_whole_with_its_author_and_a_link_that_others_can_open(mine, team):
    run = mine.begin("phones", name="before", tags=["nightly"], author="somebody else")
    mine.add_metrics(run, {"loss": 0.5})
    mine.finish(run, network(), log="said\n")
    below = mine.add(network(), "phones", parent=run)
    answers = push(mine, client_of(team), [run])
    assert [(each.run, each.link) for each in answers] == [
        (run, f"https://bench.example/runs/{run}"), (below, f"https://bench.example/runs/{below}")
    ]  # fmt: skip
    there = team[0].get(run)
    assert (there.profile, there.tags, [a.name for a in there.artifacts]) == (network(), ("nightly",), ["log.txt"])
    assert (team[0].row(run).author, team[0].row(below).parent) == ("ann", run)  # whose token it was, not whose word
    assert push(mine, client_of(team)) == []


def test_what_a_hub_missed_is_sent_later_and_once(mine, team, monkeypatch):
    run, before = mine.add(network(), name="kept"), team[0].count()
    client = client_of(team)
    answered = HubClient.call

    def lost(*given, **options):
        answered(*given, **options)
        raise HubAwayError("The connection was lost.")

    monkeypatch.setattr(HubClient, "call", lost)  # it has the run, and nobody here heard of it
    assert [(each.run, each.waits) for each in push(mine, client, [run])] == [(run, True)]
    monkeypatch.undo()
    assert [each.link is not None for each in push(mine, client)] == [True]
    assert (push(mine, client), team[0].count()) == ([], before + 1)


def test_another_run_under_the_same_id_is_refused_and_not_sent_again(mine, team, tmp_path):
    run = mine.add(network())
    push(mine, client_of(team), [run])
    mine.add_metrics(run, {"loss": 0.1})
    (refused,) = push(mine, client_of(team), [run])
    assert (refused.link, refused.waits) == (None, False)
    assert "with other metrics" in refused.reason
    assert push(mine, client_of(team)) == []
    changed = tmp_path / "changed.zip"
    with zipfile.ZipFile(mine.export(run, tmp_path / "run.zip")) as old, zipfile.ZipFile(changed, "w") as new:
        for name in old.namelist():
            text = old.read(name)
            new.writestr(name, text.replace(b'"threads":2', b'"threads":3') if name == "run.json" else text)
    with pytest.raises(Exception, match="with another profile"):
        team[0].import_(changed)


def test_a_token_that_may_not_write_is_told_and_the_run_waits(mine, team):
    run = mine.add(network())
    (refused,) = push(mine, client_of(team, "read"), [run])
    assert refused.waits
    assert "scope write" in refused.reason
    assert [each.link is not None for each in push(mine, client_of(team))] == [True]


@click.command()
@storing_options
def measuring(**options):
    recorder = recording_from(options, kind="bench", model="resnet50")
    with recorder:
        recorder.keep(network())
    print_run_link(recorder)


def run(command, *words):
    return CliRunner().invoke(command, [str(word) for word in words], catch_exceptions=False)


def test_a_measuring_command_does_not_fail_for_a_hub_that_is_away(mine, team, monkeypatch):
    place = mine.location.file
    away = run(measuring, "--store", place, "--hub", AWAY)
    assert away.exit_code == 0
    assert "No hub answers at http://127.0.0.1:9." in away.stderr
    assert "1 run waiting" in away.stderr
    monkeypatch.setenv("INFEROMETER_PUSH", team[1])
    monkeypatch.setenv("INFEROMETER_TOKEN", team[2]["write"])
    sent = run(measuring, "--store", place)
    assert "is at https://bench.example/runs/" in sent.stderr
    with pytest.raises(PlaceError, match="1 run waiting"):  # for the other hub
        run(push_command, "--hub", AWAY, "--store", place)
    listed = run(push_command, "last", "--store", place, "--format", "json")
    assert json.loads(listed.stdout)[0]["state"] == "sent"


def test_links_have_the_address_that_others_use(monkeypatch):
    monkeypatch.setenv("INFEROMETER_URL", "https://bench.example/hub/")
    assert hub_link("574p191w9czk") == "https://bench.example/hub/runs/574p191w9czk"
