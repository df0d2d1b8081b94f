"""`inferometer hub`."""

import click

from inferometer.cli.options import format_option, print_document, print_table, say
from inferometer.cli.storing import open_chosen, store_option
from inferometer.cli.subcommands import Listing

_SCOPES = ("read", "write", "admin")


@click.group("hub", cls=Listing, invoke_without_command=True)
@click.option("--port", default=8077, show_default=True, type=click.IntRange(0, 65535), help="0 takes a free one.")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen at.")
@click.option("--allow-host", "names", multiple=True, metavar="NAME", help="A further name the hub is called by.")
@click.option("--require-token", is_flag=True, help="Ask for tokens on this machine too, as behind a proxy.")
@click.option("--open", "opened", is_flag=True, help="Open it in the browser.")
@click.option("--show", "run", metavar="RUN", help="Open the page of this run: an id, a name, or last.")
@store_option
@click.pass_context
def command(
    context: click.Context,
    /,
    port: int,
    host: str,
    names: tuple[str, ...],
    require_token: bool,
    opened: bool,
    run: str | None,
    store: str | None,
) -> None:
    """Show runs, predictions, devices and formulas as pages in the browser, and serve them as an API.

    \b
    inferometer hub
    inferometer hub --port 9000 --open
    inferometer hub --show last
    inferometer hub token create me --scope write
    inferometer hub --host 0.0.0.0 --allow-host bench-box

    Only this machine reaches it, unless --host says otherwise: then everyone needs a token. The API is under /api/v1,
    and described at /api/v1/openapi.json. Ctrl-C ends it.
    """
    if context.invoked_subcommand is not None:
        return
    from inferometer.hub.serving import bound, require_tokens, require_web, serve

    require_web()
    from inferometer.hub.rules import Rules, is_loopback

    with open_chosen(store) as runs, bound(host, port) as listening:
        taken = listening.getsockname()[1]
        rules = Rules(host=host, port=taken, names=names, tokens=require_token or not is_loopback(host))
        require_tokens(runs, rules)
        shown = "127.0.0.1" if rules.everywhere else host
        link = f"http://{f'[{shown}]' if ':' in shown else shown}:{taken}/"

        page = link if run is None else f"{link}runs/{runs.resolve(run)}"

        def ready() -> None:
            say(f"The hub is at {link} with the runs of {runs.location}. Ctrl-C ends it.")
            if run is not None:
                say(f"The run is at {page}")
            if opened or run is not None:
                click.launch(page)

        serve(runs, rules, listening, ready=ready)


@command.group("token")
def token() -> None:
    """Make, list and revoke the tokens that a hub beyond this machine asks for."""


@token.command("create")
@click.argument("user")
@click.option("--name", default="token", show_default=True, help="What it is for.")
@click.option("--scope", "scopes", multiple=True, type=click.Choice(_SCOPES), help="[default: read]")
@click.option("--days", type=click.FloatRange(min=0, min_open=True), help="How long it lasts.  [default: for good]")
@store_option
def create(user: str, name: str, scopes: tuple[str, ...], days: float | None, store: str | None) -> None:
    """Make a token for a user, who is made too. Its text is printed once and kept nowhere."""
    with open_chosen(store) as opened:
        if user not in {known.name for known in opened.users()}:
            opened.create_user(user)
        lasts = None if days is None else days * 86400
        secret = opened.create_token(user, name=name, scopes=scopes or ("read",), lasts_s=lasts)  # type: ignore[arg-type] # click checked them
    say(f"Token {secret.token.id} of {user}, for {', '.join(secret.token.scopes)}. It is not shown again:")
    click.echo(secret.text)


@token.command("list")
@store_option
@format_option
def list_(store: str | None, form: str) -> None:
    """List tokens: whose, for what, until when. Never the token itself."""
    from dataclasses import asdict

    from inferometer.report.table import Column, ReportTable

    with open_chosen(store) as opened:
        found = opened.tokens()
    if form == "json":
        print_document([asdict(each) for each in found])
        return
    rows = tuple(
        {"id": each.id, "user": each.user, "name": each.name, "scopes": ", ".join(each.scopes),
         "state": "revoked" if each.revoked else "holds"}
        for each in found
    )  # fmt: skip
    columns = tuple(Column(key=key, heading=key) for key in ("id", "user", "name", "scopes", "state"))
    print_table(ReportTable(columns=columns, rows=rows), form)


@token.command("revoke")
@click.argument("token")
@store_option
def revoke(token: str, store: str | None) -> None:
    """End a token, by its id, at once."""
    with open_chosen(store) as opened:
        opened.revoke_token(token)
    say(f"Token {token} is revoked.")
