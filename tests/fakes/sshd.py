"""A real sshd on the loopback: its own keys, a free port, and nothing of the user's ssh or shell."""

import getpass
import os
import shutil
import signal
import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import psutil

from fakes.waiting import until

SSHD = shutil.which("sshd") or shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/sbin")
WHY_NOT = None if SSHD and shutil.which("ssh-keygen") else "there is no sshd: apt-get install openssh-server"


@dataclass
class Sshd:
    folder: Path
    port: int
    process: subprocess.Popen

    def address(self, **options):
        """An `ssh://` address with everything that a user's own ssh would know."""
        known = {
            "key": self.folder / "user",
            "known_hosts": self.folder / "known_hosts",
            "config": self.folder / "config",
        }
        query = "&".join(f"{name}={quote(str(value), safe='/')}" for name, value in {**known, **options}.items())
        return f"ssh://{getpass.getuser()}@127.0.0.1:{self.port}?{query}"

    def drop_connections(self):
        """Cut every connection, as a cable or a router does; what runs detached is not touched."""
        for child in psutil.Process(self.process.pid).children(recursive=True):
            if "sshd" in child.name():
                child.kill()

    def stop(self):
        self.drop_connections()
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(240)

    def start(self):
        self.process = _started(self.folder, self.port)


def start_sshd(folder):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    for name in ("host", "user", "stranger"):
        made = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
        subprocess.run(made, check=True, stdin=subprocess.DEVNULL)
    key = (folder / "host.pub").read_text().split()
    (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {key[0]} {key[1]}\n")
    shutil.copy(folder / "user.pub", folder / "authorized_keys")
    (folder / "authorized_keys").chmod(0o600)
    (folder / "config").write_text("")
    (folder / "sshd_config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\nAuthorizedKeysFile {folder}/authorized_keys\n"
        f"PidFile {folder}/pid\nStrictModes no\nUsePAM no\nPasswordAuthentication no\nPermitRootLogin yes\n"
        "KbdInteractiveAuthentication no\nSubsystem sftp internal-sftp\nAllowTcpForwarding yes\n"
        f"SetEnv HOME={folder}\n"  # bash reads a user's .bashrc for every command by ssh, which may take a second
    )
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # where sshd separates its privileges
    return Sshd(folder=folder, port=port, process=_started(folder, port))


def _started(folder, port):
    log = (folder / "log").open("ab")
    process = subprocess.Popen([SSHD, "-D", "-e", "-f", str(folder / "sshd_config")], stderr=log, stdout=log)
    log.close()

    def answers():
        assert process.poll() is None, (folder / "log").read_text()
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    until(answers, "an answer of sshd")
    return process
