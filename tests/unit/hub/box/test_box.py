"""What a box shows, what is said of it, and how a cgroup counts: without a kernel that has any of it."""

import sys
from pathlib import Path

import pytest

from inferometer.core.box import Ceiling, Means, parse_ceiling
from inferometer.core.errors import DomainError, UnitError
from inferometer.hub.box import found, view
from inferometer.hub.box import found as cgroups
from inferometer.hub.box.found import place_here, scope_of
from inferometer.hub.box.view import BoxView, environment_in, view_of


@pytest.mark.parametrize(
    ("means", "said", "real"),
    [
        (Means(bubblewrap="/usr/bin/bwrap", landlock=4, seccomp=True, memory="cgroup"),
         "bubblewrap and seccomp, memory by a cgroup", True),
        (Means(landlock=4, seccomp=True, memory="systemd"),
         "Landlock 4 and seccomp, memory by a systemd scope", True),
        (Means(seccomp=True), "none: neither bubblewrap nor Landlock works here; memory is watched", False),
        (Means(landlock=4), "none: system calls cannot be filtered here; memory is watched", False),
        (Means(system="win32"), "none: Windows has no way that is used here; memory is watched", False),
    ],
)  # fmt: skip
def test_what_a_system_has_is_said(means, said, real):
    assert (means.said, means.real) == (said, real)


def test_a_ceiling_is_an_amount_or_a_share_of_what_is_free():
    assert parse_ceiling("4 GB", "--memory-limit").of(10**12) == 4 * 10**9
    share = parse_ceiling("80 %", "--memory-limit")
    assert share.of(21_500_000_000) == 17_200_000_000
    assert share.said(17_200_000_000, "memory that was free") == "17.2 GB, 80 % of the memory that was free"
    assert Ceiling(amount=300_000_000).said(300_000_000, "memory that was free") == "300 MB"


@pytest.mark.parametrize("text", ["0 %", "120%", "half %", "50 % of it", "much"])
def test_a_ceiling_that_is_none_is_refused(text):
    with pytest.raises((DomainError, UnitError)):
        parse_ceiling(text, "--memory-limit")


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A small system, with Python in its owner's home."""
    for name in ("usr/lib", "usr/sbin", "etc", "dev", "sys", "home/me/.ssh", "home/me/venv/lib", "srv/site/secret"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("etc/passwd", "etc/shadow", "dev/null", "dev/nvidia0", "dev/sda", "srv/site/token", "srv/site/module"):
        (tmp_path / name).touch()
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "home" / "me")
    monkeypatch.setattr(sys, "path", [str(tmp_path / name) for name in ("home/me/venv/lib", "home/me", "srv/site")])
    for name in ("prefix", "base_prefix", "exec_prefix"):
        monkeypatch.setattr(sys, name, str(tmp_path / "home/me/venv"))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "home/me/venv/python"))
    return tmp_path


def test_a_job_is_shown_the_system_and_python_and_neither_a_home_nor_what_is_hidden(root):
    shown = view_of(
        root / "job", root / "job" / "own", hide=[root / "srv/site/token", root / "srv/site/secret"], root=root
    )
    names = [Path(path).relative_to(root).as_posix() for path in shown.readable]
    assert names == ["etc/passwd", "home/me/venv", "srv/site/module", "sys", "usr", "job"]
    assert [Path(path).name for path in shown.devices] == ["null", "nvidia0"]
    assert shown.writable == (str(root / "job" / "own"),)


def test_a_home_among_the_systems_folders_is_left_out_alone(root, monkeypatch):
    monkeypatch.setattr(Path, "home", lambda: root / "usr" / "sbin")
    names = [
        Path(path).relative_to(root).as_posix() for path in view_of(root / "job", root / "own", root=root).readable
    ]
    assert "usr/lib" in names
    assert "usr/sbin" not in names


def test_variables_that_steer_engines_go_in_and_secrets_stay_outside(tmp_path):
    outside = {
        "PATH": "/usr/bin", "OMP_NUM_THREADS": "2", "INFEROMETER_TOKEN": "secret", "INFEROMETER_MACHINE": "pi",
        "HF_TOKEN": "secret", "AWS_SECRET_ACCESS_KEY": "secret", "SSH_AUTH_SOCK": "/run/agent", "HOME": "/home/me",
        "INFEROMETER_STORE": "postgresql://me:secret@host/runs",
    }  # fmt: skip
    inside = environment_in(outside, tmp_path, shared_memory=True)
    assert "secret" not in "".join(inside.values())
    assert "SSH_AUTH_SOCK" not in inside
    assert (inside["OMP_NUM_THREADS"], inside["INFEROMETER_MACHINE"]) == ("2", "pi")
    assert (inside["HOME"], inside["INFEROMETER_TOKEN"]) == (str(tmp_path / "home"), "")
    assert "TORCHINDUCTOR_COMPILE_THREADS" not in inside
    assert environment_in({}, tmp_path, shared_memory=False)["TORCHINDUCTOR_COMPILE_THREADS"] == "1"


def test_a_file_system_of_its_own_has_the_view_and_nothing_else(tmp_path):
    (tmp_path / "lib").symlink_to("usr/lib")
    shown = BoxView(readable=("/usr", str(tmp_path / "lib")), writable=("/job/own",), devices=("/dev/nvidia0",))
    words = found.in_bubblewrap("bwrap", shown, ["python", "x"], inside=Path("/job/own"))
    text = " ".join(words)
    assert "--ro-bind-try /usr /usr" in text
    assert f"--symlink usr/lib {tmp_path}/lib" in text
    assert "--dev-bind-try /dev/nvidia0 /dev/nvidia0 --bind /job/own /job/own" in text
    assert "--unshare-all" in words
    assert words[-3:] == ["--", "python", "x"]


def test_a_scope_of_systemd_has_the_limits_and_its_name():
    words = found.in_scope(["bwrap"], unit="inferometer-j1", memory_bytes=1000, processes=60)
    assert words[0] == "systemd-run"
    assert {"--unit=inferometer-j1.scope", "MemoryMax=1000", "MemorySwapMax=0", "TasksMax=60"} <= set(words)


@pytest.fixture
def second(tmp_path):
    """The folder of a cgroup file system of version 2, as far as it is looked at."""
    (tmp_path / "cgroup.subtree_control").write_text("cpu memory pids\n")
    return tmp_path


def test_a_group_of_version_2_is_made_with_its_limits(second):
    place = place_here(second)
    assert place.version == 2
    group = place.make("job", memory_bytes=1000, processes=60)
    folder = second / "job"
    limits = {name: (folder / name).read_text() for name in ("memory.max", "memory.swap.max", "pids.max")}
    assert limits == {"memory.max": "1000", "memory.swap.max": "0", "pids.max": "60"}
    assert not group.ran_out_of_memory()
    (folder / "memory.events").write_text("low 0\nmax 12\noom 1\noom_kill 1\n")
    (folder / "pids.events").write_text("max 3\n")
    assert group.ran_out_of_memory()
    assert group.ran_out_of_processes()


def test_no_group_is_made_where_nothing_is_counted(second):
    (second / "cgroup.subtree_control").write_text("cpu\n")
    assert place_here(second) is None
    assert place_here(second / "nowhere") is None


def test_only_a_scope_of_its_own_name_is_taken_for_the_jobs(second, monkeypatch):
    own = "0::/user.slice/user@1000.service/app.slice/inferometer-j1.scope\n"
    monkeypatch.setattr(cgroups.Path, "read_text", lambda *_args, **_words: own)
    assert scope_of(1, "inferometer-j1", second).folders["memory"].name == "inferometer-j1.scope"
    assert scope_of(1, "inferometer-j2", second) is None, "else everything of the user's would be ended with the job"


def test_every_variable_that_is_a_secret_would_else_go_in():
    assert all(name.startswith(view._VARIABLE_STARTS) for name in view._SECRET)


def test_a_python_behind_several_links_is_shown_and_its_neighbours_are_not(tmp_path, monkeypatch):
    """A job ended at once where an environment's Python was a link to a link: the one in between was not there."""
    real, between, own = (tmp_path / name for name in ("usr/python3.11", "links/python3", "venv/bin/python"))
    for path in (real, between, own):
        path.parent.mkdir(parents=True)
    real.write_text("")
    (between.parent / "secret").write_text("")
    between.symlink_to(real)
    own.symlink_to(between)
    monkeypatch.setattr(view.sys, "executable", str(own))
    shown = [*view._python()]
    assert {own.parent, between, real.parent} <= {*shown}
    assert between.parent not in shown
