"""`inferometer hub`."""

import re
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from inferometer.cli.commands import agent, mcp
from inferometer.cli.hub_people import audit_command, device_group, doing, member_group, project_command
from inferometer.cli.options import PORT, ListingGroup, Number, format_option, print_document, print_rows, say
from inferometer.cli.progress import progress_line
from inferometer.cli.storing import open_chosen, store_option
from inferometer.core.errors import DomainError
from inferometer.core.settings import value_of
from inferometer.core.units import counted, format_quantity
from inferometer.understand.view.table import Column

if TYPE_CHECKING:
    from inferometer.hub.web.guard.rules import OidcRules
    from inferometer.store.backup import Manifest
    from inferometer.store.retention import Deletion
    from inferometer.store.values import Token

_SCOPES = ("read", "write", "admin", "agent")


@click.group("hub", cls=ListingGroup, invoke_without_command=True)
@click.option("--port", default=8077, type=PORT, help="Port to listen on; 0 takes a free one.")
@click.option("--host", default="127.0.0.1", metavar="ADDRESS", help="Address to listen on.")
@click.option("--allow-host", "names", multiple=True, metavar="NAME", help="Another name the hub is reached by.")
@click.option(
    "--url", metavar="URL", help="Address that others open the hub by; links have it.  [default: INFEROMETER_URL]"
)
@click.option("--require-token", is_flag=True, help="Require a token on this machine too, for use behind a proxy.")
@click.option(
    "--behind-proxy",
    "proxies",
    multiple=True,
    metavar="ADDRESS",
    help="Address of a proxy that is trusted to say who asks (X-Forwarded-For).",
)
@click.option(
    "--cert", type=click.Path(path_type=Path), metavar="FILE", help="Certificate, to speak https; with --key."
)
@click.option("--key", type=click.Path(path_type=Path), metavar="FILE", help="Its private key.")
@click.option(
    "--oidc-issuer",
    metavar="URL",
    help="Provider of identities (OpenID Connect) to sign in through.  [default: INFEROMETER_OIDC_ISSUER]",
)
@click.option(
    "--oidc-client-id", metavar="ID", help="What it knows this hub by.  [default: INFEROMETER_OIDC_CLIENT_ID]"
)
@click.option(
    "--oidc-client-secret-file",
    metavar="FILE",
    help="File with the hub's secret there.  [default: INFEROMETER_OIDC_CLIENT_SECRET_FILE]",
)
@click.option(
    "--oidc-allow",
    multiple=True,
    metavar="DOMAIN|ADDRESS",
    help="Whose people may sign in, beside those invited.  [default: INFEROMETER_OIDC_ALLOW]",
)
@click.option(
    "--models-from", "sources", multiple=True, metavar="URL",
    help="Let people have models fetched from addresses that begin like this; repeatable.",
)  # fmt: skip
@click.option("--open", "opened", is_flag=True, help="Open the hub in a browser.")
@click.option("--show", "run", metavar="RUN", help="Open the page of this run: an id, a name, or last.")
@store_option
@click.pass_context
def command(
    context: click.Context,
    /,
    port: int,
    host: str,
    names: tuple[str, ...],
    url: str | None,
    require_token: bool,
    proxies: tuple[str, ...],
    cert: Path | None,
    key: Path | None,
    sources: tuple[str, ...],
    opened: bool,
    run: str | None,
    store: str | None,
    **oidc: Any,
) -> None:
    """Show runs, predictions, devices and formulas as web pages, and serve them as an API.

    \b
    inferometer hub
    inferometer hub --port 9000 --open
    inferometer hub --show last
    inferometer hub token create me --scope write
    inferometer hub member add phones me --role owner
    inferometer hub --host 0.0.0.0 --allow-host bench-box

    Only this machine can reach it, unless --host says otherwise: then everyone needs a token. The API is under /api/v1
    and described at /api/v1/openapi.json. Stop it with Ctrl-C.
    """
    if context.invoked_subcommand is not None:
        return
    from inferometer.hub.web import require_web
    from inferometer.hub.web.serving import listen, require_certificate, require_tokens, serve

    require_web()
    from inferometer.hub.web.guard.rules import Rules, bracketed, is_loopback

    with open_chosen(store) as runs, listen(host, port) as listening:
        actual_port = listening.getsockname()[1]  # differs from --port 0
        tokens = require_token or not is_loopback(host)
        rules = Rules(
            host=host, port=actual_port, names=names, tokens=tokens, proxies=proxies, certificate=cert, key=key,
            url=url or value_of("INFEROMETER_URL"), oidc=_oidc_rules(**oidc),
            sources=sources,
        )  # fmt: skip
        require_certificate(rules)
        require_tokens(runs, rules)
        shown = "127.0.0.1" if rules.everywhere else host
        link = f"{'http' if cert is None else 'https'}://{bracketed(shown)}:{actual_port}/"
        page = link if run is None else f"{link}runs/{runs.resolve(run)}"

        def ready() -> None:
            say(f"The hub is at {link} with the runs in {runs.location}. Stop it with Ctrl-C.")
            if run is not None:
                say(f"The run is at {page}")
            if opened or run is not None:
                click.launch(page)

        serve(runs, rules, listening, ready=ready)


def _oidc_rules(
    oidc_issuer: str | None,
    oidc_client_id: str | None,
    oidc_client_secret_file: str | None,
    oidc_allow: tuple[str, ...],
) -> "OidcRules | None":
    """The provider of identities, as the options or the settings name it."""
    from inferometer.hub.web.guard.rules import OidcRules

    issuer = oidc_issuer or value_of("INFEROMETER_OIDC_ISSUER")
    if issuer is None:
        return None
    from inferometer.hub.web.guard.oidc import require_oidc

    require_oidc()
    client = oidc_client_id or value_of("INFEROMETER_OIDC_CLIENT_ID")
    if client is None:
        raise DomainError(
            f"People are to sign in through {issuer}, and it is not said what that knows this hub by.",
            remedy="Register the hub there, and give its --oidc-client-id.",
        )
    file = oidc_client_secret_file or value_of("INFEROMETER_OIDC_CLIENT_SECRET_FILE")
    listed = (value_of("INFEROMETER_OIDC_ALLOW") or "").split(",")
    allow = oidc_allow or tuple(entry.strip() for entry in listed if entry.strip())
    try:
        secret = None if file is None else Path(file).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise DomainError(f"The secret in {file} cannot be read: {error.strerror or error}.") from None
    return OidcRules(issuer=issuer, client_id=client, client_secret=secret, allow=allow)


for each in (member_group, project_command, device_group, audit_command):
    command.add_command(each)


@command.group("token")
def token_group() -> None:
    """Create, list and revoke access tokens."""


@token_group.command("create")
@click.argument("user")
@click.option("--name", default="token", help="What the token is for.")
@click.option("--scope", "scopes", multiple=True, type=click.Choice(_SCOPES), help="May be repeated.  [default: read]")
@click.option("--days", type=Number(0, 36_600, between=True), help="Days until it expires.  [default: never]")
@click.option("--project", metavar="NAME", help="For an agent: it gets the jobs of this project only.")
@store_option
def create(
    user: str, name: str, scopes: tuple[str, ...], days: float | None, project: str | None, store: str | None
) -> None:
    """Create a token for a user.

    The user is created too if new. The token is printed once and stored nowhere.
    """
    with open_chosen(store, create=True) as opened:
        if user not in {known.name for known in opened.users()}:
            opened.create_user(user)
        if project is not None and project not in {known.name for known in opened.projects()}:
            opened.create_project(project)
        lasts_s = None if days is None else days * 86400
        held: Any = scopes or ("read",)  # click checked them
        making = doing(
            opened, "token.create", project, subject=lambda made: made.token.id, detail=f"{user}: {', '.join(held)}"
        )
        secret = making.create_token(user, name=name, scopes=held, lasts_s=lasts_s, project=project)
    limits = "" if project is None else f" in project {project}"
    say(f"Token {secret.token.id} of {user}, for {', '.join(secret.token.scopes)}{limits}. It will not be shown again:")
    click.echo(secret.text)


@token_group.command("list")
@store_option
@format_option
def list_(store: str | None, form: str) -> None:
    """List tokens: user, name, scopes, state, when each expires and was last used; never the token itself."""
    with open_chosen(store) as opened:
        tokens = opened.tokens()
    if form == "json":
        print_document([asdict(token) for token in tokens])
        return
    rows = tuple(
        {"id": token.id, "user": token.user, "name": token.name, "scopes": ", ".join(token.scopes),
         "state": _token_state(token), "expires": _day(token.expires) or "never", "used": _day(token.used)}
        for token in tokens
    )  # fmt: skip
    shown = ("id", "user", "name", "scopes", "state", "expires", Column(key="used", heading="last used"))
    print_rows(rows, shown, form)


def _day(seconds: float | None) -> str | None:
    return None if seconds is None else time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


def _token_state(token: "Token") -> str:
    if token.revoked is not None:
        return "revoked"
    return "valid" if token.holds(time.time()) else "expired"


@token_group.command("revoke")
@click.argument("token")
@store_option
def revoke(token: str, store: str | None) -> None:
    """Revoke a token by its id, at once."""
    with open_chosen(store) as opened:
        doing(opened, "token.revoke", subject=token).revoke_token(token)
    say(f"Token {token} is revoked.")


# `inferometer hub backup`, `restore` and `copy`.


def _line(text: str) -> str:
    return text


@click.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--with-models", is_flag=True, help="Also the models that the fleet's jobs brought along.")
@click.option("--verify", is_flag=True, help="Restore it into a store that is thrown away, and compare every row.")
@store_option
def backup(file: Path, with_models: bool, verify: bool, store: str | None) -> None:
    """Write everything in the store into one file, while the hub goes on.

    \b
    inferometer hub backup hub.zip --verify
    inferometer hub backup hub.zip --with-models --store postgresql://hub@db/runs

    All projects, runs and their files, jobs, users, and tokens as hashes, as they are when it begins. Whoever has the
    file can read all of it.
    """
    with open_chosen(store) as opened, progress_line(_line) as draw:
        from inferometer.store.backup import check_backup, write_backup

        manifest = write_backup(opened, file, models=with_models, tell=draw)
        if verify:
            check_backup(file, tell=draw)
    say(f"{file} has {_content(manifest)}, {format_quantity(file.stat().st_size, 'B')} in all.")
    _say_lost(manifest.lost)
    if verify:
        say("It was read again, and its rows restored into a store of their own: all are the same.")


@click.command()
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--check", is_flag=True, help="Only try it: read all of it, restore it nowhere.")
@store_option
def restore(file: Path, check: bool, store: str | None) -> None:
    """Write a backup into a store that is new or empty: all of it, or nothing.

    \b
    inferometer hub restore hub.zip --check
    inferometer hub restore hub.zip --store new.db

    A store that holds anything is never written over.
    """
    from inferometer.store.location import require_database

    require_database()
    from inferometer.store.backup import check_backup, restore_backup
    from inferometer.store.transfer import opened_to_fill

    with progress_line(_line) as draw:
        if check:
            manifest = check_backup(file, tell=draw)
        else:
            with opened_to_fill(store) as opened:
                manifest, place = restore_backup(file, opened, tell=draw), opened.location
    outcome = "can be restored" if check else f"is restored to {place}"
    say(f"{file} of {manifest.created} {outcome}: {_content(manifest)}.")
    _say_lost(manifest.lost)


@click.command()
@click.option("--to", required=True, metavar="FILE|URL", help="The new or empty store: a file, or postgresql://….")
@click.option("--with-models", is_flag=True, help="Also the models that the fleet's jobs brought along.")
@store_option
def copy(to: str, with_models: bool, store: str | None) -> None:
    """Copy the store into another database, from SQLite to PostgreSQL or back.

    \b
    inferometer hub copy --to postgresql://hub@db/runs

    What is written to the store while it is copied stays behind: stop the hub first, and start it with --store.
    """
    with open_chosen(store) as opened, progress_line(_line) as draw:
        from inferometer.store.backup import copy_store
        from inferometer.store.transfer import opened_to_fill

        with opened_to_fill(to) as target:
            lost = copy_store(opened, target, models=with_models, tell=draw)
            place, source = target.location, opened.location
    say(f"Everything in {source} is in {place} now.")
    _say_lost(lost)


def _content(manifest: "Manifest") -> str:
    files = manifest.artifacts.count
    models = f" and {counted(manifest.models.count, 'file')} of models" if manifest.models.count else ""
    jobs = counted(manifest.rows("fleet_jobs"), "job")
    return f"{counted(manifest.rows('runs'), 'run')} with {counted(files, 'file')}{models}, and {jobs}"


def _say_lost(lost: tuple[str, ...]) -> None:
    if lost:
        names = ", ".join(f"{sha256[:12]}…" for sha256 in lost[:3])
        say(f"inferometer: {counted(len(lost), 'file')} of runs gone or damaged on the disk: {names}")


# `inferometer hub retention`: what a project keeps, and for how long.

_DAYS = {"h": 1 / 24, "d": 1.0, "w": 7.0, "y": 365.0}
_DAY_S = 86_400.0


@click.group("retention")
def retention_group() -> None:
    """Say how long projects keep runs, files and jobs, and delete what is older."""


@retention_group.command("set")
@click.argument("project")
@click.option("--runs", metavar="TIME", help="Keep runs for this long: 90d, 8w, 1y.  [default: for ever]")
@click.option("--artifacts", metavar="TIME", help="Keep the files of runs for this long.  [default: as the runs]")
@click.option("--jobs", metavar="TIME", help="Keep the record of jobs that ended for this long.  [default: for ever]")
@click.option("--keep-tagged", "tags", multiple=True, metavar="TAG", help="Never delete runs with this tag.")
@store_option
def set_(
    project: str, runs: str | None, artifacts: str | None, jobs: str | None, tags: tuple[str, ...], store: str | None
) -> None:
    """Set a project's rules, in place of those it had; without options, it keeps everything.

    \b
    inferometer hub retention set nightly --runs 365d --artifacts 90d --jobs 30d --keep-tagged release

    Runs with the tags baseline and pinned, runs that a link shows, and runs that these belong to are always kept. The
    hub applies the rules once a day.
    """
    with open_chosen(store) as opened:
        from inferometer.store.retention import Retention

        opened.set_retention(
            Retention(
                project=project, runs_s=_seconds(runs), artifacts_s=_seconds(artifacts), jobs_s=_seconds(jobs),
                keep_tags=tags,
            )
        )  # fmt: skip
        would_go = [gone for gone in opened.apply_retention(dry_run=True) if gone.project == project]
    say(f"The rules of {project} are set. {_said(would_go, 'would go now')}")


def _seconds(text: str | None) -> float | None:
    if text is None:
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([hdwy])", text.strip())
    if found is None:
        raise DomainError(f"{text!r} is not how long something is kept.", remedy="Write 12h, 90d, 8w or 1y.")
    return float(found[1]) * _DAYS[found[2]] * _DAY_S


@retention_group.command("show")
@store_option
@format_option
def show(store: str | None, form: str) -> None:
    """Show each project's rules, and what went by them lately."""
    with open_chosen(store) as opened:
        rules, gone = opened.retentions(), opened.deletions()
    if form == "json":
        print_document({"rules": [asdict(rule) for rule in rules], "deletions": [asdict(each) for each in gone]})
        return
    rows = tuple(
        {"project": rule.project, "runs": _kept(rule.runs_s), "artifacts": _kept(rule.artifacts_s),
         "jobs": _kept(rule.jobs_s), "tags": ", ".join(rule.keep_tags)}
        for rule in rules
    )  # fmt: skip
    shown = ("project", "runs", "artifacts", "jobs", Column(key="tags", heading="keeps tagged"))
    print_rows(rows, shown, form)
    for each in gone:
        day = time.strftime("%Y-%m-%d %H:%M", time.localtime(each.at))
        say(f"{day}  {_counted(each)} of {each.project} went.")


def _kept(seconds: float | None) -> str:
    return "for ever" if seconds is None else f"{seconds / _DAY_S:g} d"


@retention_group.command("apply")
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@store_option
def apply(dry_run: bool, store: str | None) -> None:
    """Delete now what is older than the projects' rules allow."""
    with open_chosen(store) as opened:
        gone = opened.apply_retention(dry_run=dry_run)
    say(_said(gone, "would go" if dry_run else "went"))


def _said(gone: "list[Deletion] | tuple[Deletion, ...]", happens: str) -> str:
    if not gone:
        return f"Nothing {happens}."
    return "\n".join(f"{_counted(each)} of {each.project} {happens}." for each in gone)


def _counted(each: "Deletion") -> str:
    return counted(each.count, {"runs": "run", "artifacts": "file", "jobs": "job"}[each.rule])


for _subcommand in (backup, restore, copy, retention_group, agent.command, mcp.command):
    command.add_command(_subcommand)
