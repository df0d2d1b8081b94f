"""`inferometer hub` and `inferometer export`, as somebody types them."""

import json
import re
import signal
import subprocess
import sys
import time
import urllib.request

import pytest
from click.testing import CliRunner

from inferometer.cli.commands.export import command as export
from inferometer.cli.commands.hub import command as hub_command
from inferometer.core.codec import decode, encode
from inferometer.core.errors import DomainError, MissingDependencyError, UnknownNameError
from inferometer.core.profile import Profile
from inferometer.store import open_store
from unit.hub.web.samples import network

START = "from inferometer.cli.commands.hub import command; command()"


@pytest.fixture
def place(tmp_path):
    with open_store(tmp_path / "runs.db") as store:
        store.add(network(), name="one")
    return tmp_path / "runs.db"


def run(command, *arguments):
    return CliRunner().invoke(command, [str(word) for word in arguments], catch_exceptions=False)


def test_the_hub_says_where_it_is_and_serves_until_it_is_told_to_end(place):
    words = [sys.executable, "-c", START, "--port", "0", "--store", str(place)]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as hub:
        try:
            link = re.search(r"http://127\.0\.0\.1:\d+/", hub.stderr.readline())[0]
            with urllib.request.urlopen(link) as page:  # noqa: S310 - our own address
                assert b"one" in page.read()
        finally:
            hub.terminate()
        assert hub.wait(240) in {0, -15, 143}
        assert "Traceback" not in hub.stderr.read()


@pytest.mark.parametrize("absent", ["jwt", "cryptography"])
def test_without_its_packages_a_provider_is_refused_with_what_to_install(place, monkeypatch, absent):
    for name in [name for name in sys.modules if name.partition(".")[0] in {"jwt", "cryptography"}]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, absent, None)
    asked = ("--port", "0", "--store", place, "--oidc-issuer", "https://id.example", "--oidc-client-id", "hub")
    with pytest.raises(MissingDependencyError, match="needs PyJWT with cryptography") as refused:
        run(hub_command, *asked)
    assert refused.value.remedy == "pip install 'inferometer[oidc]'"


def test_without_a_browser_the_hub_says_where_the_run_is_and_serves_on(place, monkeypatch):
    for name in ("PATH", "BROWSER", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    words = [sys.executable, "-c", START, "--port", "0", "--store", str(place), "--show", "one"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as hub:
        try:
            hub.stderr.readline()
            link = re.search(r"http://127\.0\.0\.1:\d+/runs/\w{12}$", hub.stderr.readline().strip())[0]
            with urllib.request.urlopen(link) as page:  # noqa: S310 - our own address
                assert b"<h1>one</h1>" in page.read()
        finally:
            hub.send_signal(signal.SIGINT)
        assert hub.wait(240) == 0
        assert "Traceback" not in hub.stderr.read()


def test_a_run_that_is_not_there_is_told_before_anything_is_served(place):
    with pytest.raises(UnknownNameError, match="two"):
        run(hub_command, "--show", "two", "--port", 0, "--store", place)


def test_a_hub_for_others_asks_for_a_token_first(place):
    with pytest.raises(DomainError, match="token"):
        run(hub_command, "--host", "0.0.0.0", "--port", 0, "--store", place)  # noqa: S104 - it refuses before it serves


def test_an_expired_token_is_listed_as_expired(place):
    run(hub_command, "token", "create", "ann", "--days", 1e-9, "--store", place)
    assert ",expired," in run(hub_command, "token", "list", "--format", "csv", "--store", place).stdout


def test_tokens_are_made_listed_without_their_text_and_revoked(place):
    made = run(hub_command, "token", "create", "ann", "--scope", "write", "--days", 1, "--store", place)
    text = made.stdout.strip()
    with open_store(place) as store:
        assert store.admitted(text, "write").user == "ann"
    listed = run(hub_command, "token", "list", "--format", "json", "--store", place).stdout
    (known,) = json.loads(listed)
    assert (
        time.strftime("%Y-%m-%d", time.localtime(known["expires"]))
        in run(hub_command, "token", "list", "--store", place).stdout
    )
    assert (known["user"], known["scopes"]) == ("ann", ["write"])
    assert text not in listed
    run(hub_command, "token", "revoke", known["id"], "--store", place)
    with open_store(place) as store:
        assert store.admitted(text) is None


@pytest.mark.parametrize(
    ("name", "begins"),
    [("report.html", b"<!doctype html>"), ("notes.md", b"## one"), ("layers.csv", b"phase,name"), ("p.json", b"{"),
     ("trace.json", b'{"displayTimeUnit"'), ("my.trace.json", b'{"displayTimeUnit"'), ("flow.svg", b"<svg")],
)  # fmt: skip
def test_the_ending_says_what_is_saved(place, tmp_path, name, begins):
    run(export, "one", "-o", tmp_path / name, "--store", place)
    assert (tmp_path / name).read_bytes().startswith(begins)


def test_a_chart_is_saved_by_name(place, tmp_path):
    run(export, "last", "-o", tmp_path / "k.json", "--chart", "kinds-count", "--store", place)
    spec = json.loads((tmp_path / "k.json").read_text())
    assert {row["value"] for row in spec["data"]["values"]} == {3}
    with pytest.raises(UnknownNameError, match="roofline-forward"):
        run(export, "last", "-o", tmp_path / "k.json", "--chart", "roofs", "--store", place)


def test_a_profile_in_a_file_is_exported_without_a_store(tmp_path):
    (tmp_path / "profile.json").write_bytes(encode(network()))
    run(export, tmp_path / "profile.json", "-o", tmp_path / "copy.json")
    assert decode((tmp_path / "copy.json").read_bytes(), Profile) == network()


@pytest.mark.parametrize(
    "words", [["-o", "x.exe"], ["-o", "x.png"], ["-o", "x.html", "--chart", "layers"], ["-o", "x"]]
)
def test_what_cannot_be_saved_is_said_before_anything_is_read(words, tmp_path):
    with pytest.raises(DomainError):
        run(export, "last", *words, "--store", tmp_path / "runs.db")
    assert not (tmp_path / "runs.db").exists()


def test_a_hub_is_backed_up_checked_restored_and_copied(place, tmp_path):
    taken = run(hub_command, "backup", tmp_path / "hub.zip", "--verify", "--store", place)
    assert re.search(r"has 1 run with \d files?, and 0 jobs, .*B in all\.\nIt was read again.*the same", taken.stderr)
    assert "can be restored: 1 run" in run(hub_command, "restore", tmp_path / "hub.zip", "--check").stderr
    restored = run(hub_command, "restore", tmp_path / "hub.zip", "--store", tmp_path / "new.db")
    assert f"is restored to {tmp_path / 'new.db'}: 1 run" in restored.stderr
    run(hub_command, "copy", "--to", tmp_path / "copy.db", "--store", tmp_path / "new.db")
    with open_store(tmp_path / "copy.db") as copied, open_store(place) as first:
        assert copied.get("one") == first.get("one")


def test_a_backup_that_is_ended_by_a_signal_leaves_no_half_of_it(place, tmp_path):
    """The program itself, stopped in the middle of a table: SIGTERM ends it as Ctrl-C does."""
    words = (
        "import os, signal, sys\n"
        "from inferometer.store import backup\n"
        "backup._pack_files = lambda *_: os.kill(os.getpid(), signal.SIGTERM)\n"
        "sys.argv = ['inferometer', 'hub', 'backup', sys.argv[1], '--store', sys.argv[2]]\n"
        "from inferometer.cli import main\n"
        "main()\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", words, str(tmp_path / "hub.zip"), str(place)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stderr.strip()) == (143, "inferometer: Ended by SIGTERM.")
    assert not list(tmp_path.glob("*hub.zip*"))
    assert not list(tmp_path.glob(".hub.zip*"))


def test_rules_of_retention_are_set_shown_and_applied(place):
    with open_store(place) as store:
        project = store.row("one").project
    chosen = run(hub_command, "retention", "set", project, "--runs", "1y", "--keep-tagged", "best", "--store", place)
    assert chosen.stderr == f"The rules of {project} are set. Nothing would go now.\n"
    with open_store(place, clock=lambda: time.time() - 400 * 86_400) as store:
        store.add(network(), project, name="old")
    assert (
        run(hub_command, "retention", "apply", "--dry-run", "--store", place).stderr
        == f"1 run of {project} would go.\n"
    )
    assert run(hub_command, "retention", "apply", "--store", place).stderr == f"1 run of {project} went.\n"
    shown = run(hub_command, "retention", "show", "--store", place)
    assert re.search(rf"{project} +365 d +for ever +for ever +best", shown.stdout)
    assert f"1 run of {project} went." in shown.stderr
    document = json.loads(run(hub_command, "retention", "show", "--store", place, "--format", "json").stdout)
    assert [(gone["rule"], gone["count"]) for gone in document["deletions"]] == [("runs", 1)]
    with pytest.raises(DomainError, match="12h, 90d, 8w or 1y"):
        run(hub_command, "retention", "set", project, "--runs", "soon", "--store", place)
