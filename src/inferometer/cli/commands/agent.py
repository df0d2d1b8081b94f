"""`inferometer hub agent`."""

from pathlib import Path
from typing import Literal

import click

from inferometer.cli.options import Whole, say
from inferometer.core.errors import DomainError
from inferometer.core.settings import cache_folder

_BOX = "What holds a job: the best there is, only a real box, or nothing."


@click.command("agent")
@click.option("--hub", "url", metavar="URL", help="The hub.  [default: INFEROMETER_HUB, else the one of this machine]")
@click.option("--token", metavar="TOKEN", help="A token with the scope agent.  [default: INFEROMETER_TOKEN]")
@click.option("--token-file", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="A file with it.")
@click.option("--ca", metavar="FILE", help="Certificate authority of a hub with https.  [default: the system's]")
@click.option("--name", metavar="NAME", help="What to call this device.  [default: the machine's name]")
@click.option("--label", "labels", multiple=True, metavar="NAME=VALUE", help="Something to be chosen by; repeatable.")
@click.option("--root", type=click.Path(path_type=Path, file_okay=False), metavar="FOLDER", help="For models and jobs.")
@click.option("--jobs", type=Whole(1, 1_000_000_000), help="Stop after this many jobs.  [default: go on]")
@click.option(
    "--allow",
    multiple=True,
    type=click.Choice(["native-code"]),
    help="Let jobs bring compiled packages, which run code.",
)
@click.option("--box", type=click.Choice(["auto", "strict", "none"]), default="auto", help=_BOX)
@click.option("--memory-limit", default="80 %", metavar="SIZE", help="Of a job: 4 GB, or a share of what is free.")
@click.option("--disk-limit", default="80 %", metavar="SIZE", help="Of a job, likewise.")
@click.option("--no-guard", is_flag=True, help="Do not wait until the device is quiet and cool.")
@click.option("--no-reference", is_flag=True, help="Do not run the reference before and after each job.")
def command(
    url: str | None,
    token: str | None,
    token_file: Path | None,
    ca: str | None,
    name: str | None,
    labels: tuple[str, ...],
    root: Path | None,
    jobs: int | None,
    allow: tuple[str, ...],
    box: Literal["auto", "strict", "none"],
    memory_limit: str,
    disk_limit: str,
    no_guard: bool,
    no_reference: bool,
) -> None:
    """Let this device take jobs from a hub, one at a time.

    \b
    inferometer hub agent --hub https://bench-box:8077 --token-file token.txt
    inferometer hub agent --name jetson-orin-nx --label unit=npu --label room=lab

    It says what the device is (hardware, engines, calibrations), waits for jobs, and runs each in a process of its own.
    A job is data: what it may ask for is what `profile`, `bench`, `verify` and `calibrate` do, and it brings the files
    of its model and nothing that runs. It runs in a box without a network that sees nothing of yours; `inferometer
    doctor` says what holds it. Ctrl-C gives the job back to the hub; one that was killed goes on with its job when it
    is started again.
    """
    from inferometer.core.box import BoxOrder, parse_ceiling
    from inferometer.hub.agent.facts import device_name, parse_labels
    from inferometer.hub.agent.holding import Seams
    from inferometer.hub.agent.reference import measure_reference
    from inferometer.hub.agent.serving_hub import AgentPlan, HubAgent, serve_hub
    from inferometer.hub.box.found import means_here
    from inferometer.hub.box.process import set_oom_score
    from inferometer.hub.places.hub_client import HubClient, hub_address
    from inferometer.measure.bench.guard import Guard

    client = HubClient(hub_address(url, token or _read(token_file), ca))
    if client.in_the_clear:
        say(f"inferometer: the token goes to {client.url} unencrypted; https keeps it from others on the network.")
    if box == "strict" and not means_here().real:
        raise DomainError(
            f"--box strict wants a box, and this device has {means_here().said}.",
            remedy="Install bubblewrap, or choose --box auto.",
        )
    order = BoxOrder(
        wish=box,
        memory=parse_ceiling(memory_limit, "--memory-limit"),
        disk=parse_ceiling(disk_limit, "--disk-limit"),
        hide=() if token_file is None else (str(token_file.absolute()),),
    )
    set_oom_score(-500)  # where it is allowed: a job goes first when memory runs out, and the agent among the last
    seams = Seams(
        guard=None if no_guard else Guard, reference=None if no_reference else measure_reference, box=order,
        settings={"INFEROMETER_ALLOW": ",".join(allow)} if allow else {},
    )  # fmt: skip
    plan = AgentPlan(
        name=device_name(name), root=root or cache_folder() / "places", labels=parse_labels(labels), jobs=jobs
    )  # fmt: skip
    if box != "none":
        say(f"Jobs run in a box: {means_here().said}.")
    serve_hub(HubAgent(client, plan, say=say, seams=seams))


def _read(path: Path | None) -> str | None:
    if path is None:
        return None
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise DomainError(f"The token in {path} cannot be read: {error.strerror or error}.") from None
