"""What a job in a box must not reach: a server of the network, and one behind a file."""

import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def listening() -> Iterator[tuple[socket.socket, Path]]:
    """The second in a short folder: the path of a socket may have a hundred characters, and that of a test has more."""
    with (
        tempfile.TemporaryDirectory(prefix="ifm-", dir="/tmp") as folder,
        socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as local,
    ):  # fmt: skip
        place = Path(folder, "docker.sock")
        local.bind(str(place))
        local.listen()
        yield server, place
