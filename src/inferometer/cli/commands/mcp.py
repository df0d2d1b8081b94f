"""`inferometer hub mcp`."""

from pathlib import Path

import click

from inferometer.cli.options import PORT, say
from inferometer.cli.storing import read_token, store_option
from inferometer.core.errors import DomainError


@click.command("mcp")
@click.option("--http", "port", type=PORT, metavar="PORT", help="Serve on 127.0.0.1:PORT instead.")
@click.option(
    "--token-file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="With --http: a file with the token to ask for.  [default: a new one, printed]",
)
@click.option(
    "--files",
    "folders",
    multiple=True,
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    metavar="FOLDER",
    help="Let models, profiles and traces in this folder be read; may be repeated.",
)
@click.option("--allow-profile", is_flag=True, help="Let it measure here; each time, you are asked first.")
@store_option
def command(
    port: int | None, token_file: Path | None, folders: tuple[Path, ...], allow_profile: bool, store: str | None
) -> None:
    """Offer the verbs to programs that use language models, by the Model Context Protocol.

    \b
    inferometer hub mcp
    inferometer hub mcp --files ~/models --allow-profile
    inferometer hub mcp --http 8765 --token-file token.txt

    A client starts the first form itself and talks to it on stdin and stdout; docs/agents.md has its configuration.
    Tools only read: catalog names and stored runs, and files in folders that you name. Nothing is measured without
    --allow-profile, and then only after the client has asked you.
    """
    from inferometer.hub.mcp.access import Access
    from inferometer.hub.mcp.server import http_app, serve_stdio

    access = Access(folders=folders, store=store, profiling=allow_profile)
    if port is None:
        if token_file is not None:
            raise DomainError("A token is for --http: who starts a server on stdin owns it.", remedy="Leave it out.")
        serve_stdio(access)
        return
    import secrets
    import socket

    import uvicorn

    token = read_token(token_file) or secrets.token_urlsafe(24)
    app = http_app(access, token)
    with socket.create_server(("127.0.0.1", port)) as listening:
        say(f"Listening on http://127.0.0.1:{listening.getsockname()[1]}/mcp")
        if token_file is None:
            say(f"Authorization: Bearer {token}")
        uvicorn.Server(uvicorn.Config(app, log_config=None, log_level="warning")).run(sockets=[listening])
