"""Where files go, what is said of a run that was stored, and names that commands share."""

import socket
from types import SimpleNamespace

import pytest

from inferometer.cli.commands import profile
from inferometer.cli.run import run
from inferometer.cli.storing import print_run_link


def test_a_file_that_can_be_written_again_makes_no_folders(tmp_path, capsys):
    assert run(["export", "last", "-o", str(tmp_path / "no" / "such" / "x.html")]) == 2
    assert "there is no folder" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def listening():
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_a_run_is_linked_where_a_hub_listens_and_else_it_is_said_how_to_see_it(listening, capsys):
    def told(link):
        print_run_link(SimpleNamespace(id="r1", link=link, skipped=None))
        return capsys.readouterr().err

    with socket.create_server(("127.0.0.1", 0)) as other:
        free = other.getsockname()[1]
    here, nobody, others = (
        f"http://{place}/runs/r1" for place in (f"127.0.0.1:{listening}", f"localhost:{free}", "hub")
    )
    assert told(here) == f"Run r1: {here}\n"
    assert told(nobody) == f"Run r1: `inferometer hub` shows it at {nobody}\n"
    assert told(others) == f"Run r1: {others}\n"  # of another machine it is believed


def test_a_measurement_takes_the_format_to_compute_in_by_the_name_that_a_prediction_has_for_it():
    asked = [option for option in profile.command.params if "--activations" in option.opts]
    assert [option.name for option in asked] == ["precision"]
