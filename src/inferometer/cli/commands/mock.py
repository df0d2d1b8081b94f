"""`inferometer mock`."""

from __future__ import annotations

from typing import Any

import click

from inferometer.cli.commands.simulate import service_options
from inferometer.cli.options import PORT, SPEED, say


@click.command("mock")
@click.argument("model", metavar="MODEL")
@click.option("--on", "device", required=True, metavar="DEVICE", help="The device.")
@service_options
@click.option("--host", default="127.0.0.1", metavar="ADDRESS", help="Address to listen on.")
@click.option("--port", type=PORT, default=8000, help="Port to listen on; 0 takes a free one.")
@click.option("--speed", type=SPEED, default=1.0, help="How many times as fast to answer as it would be.")
def command(model: str, device: str, host: str, port: int, speed: float, **options: Any) -> None:
    """Serve a model without a GPU: OpenAI's interface, with the times that the simulator gives.

    \b
    inferometer mock llama-3.1-8b --on nvidia-h100-sxm --port 8000
    inferometer load http://localhost:8000 --rate 4 --slo "ttft_p95<=500ms"

    For tests of routers, clients and load generators: chat and completions, streamed or not, models, health and vLLM's
    metrics. A word counts as a token; answers are words without meaning, as long as was asked for. Batching, caches,
    queues and refusals are those of `simulate`. Ctrl-C ends it.
    """
    import asyncio

    from inferometer.core.errors import DomainError
    from inferometer.serving.asked import service_plan
    from inferometer.serving.load.plan import LoadPlan
    from inferometer.serving.simulate.building import service_of

    if not speed > 0:
        raise DomainError(f"--speed must be greater than 0, and is {speed:g}.")
    plan = service_plan(model, device, options, LoadPlan(url="mock"))
    if plan.readers is not None or plan.scaling is not None:
        raise DomainError(
            "The mock server has one pool of replicas that stay.", remedy="Leave --prefill-on and --autoscale out."
        )
    service, notes = service_of(plan)
    for note in notes:
        say(note)
    asyncio.run(_serve(service, plan.question.graph.name, (host, port), speed))


async def _serve(service: Any, model: str, address: tuple[str, int], speed: float) -> None:
    import asyncio
    import time

    from inferometer.serving.mock.engine import MockEngine
    from inferometer.serving.mock.server import MockServer

    engine = MockEngine(service, time.perf_counter, speed=speed)
    server = await MockServer(engine, model).serve(*address)
    host, port = server.sockets[0].getsockname()[:2]
    say(f"{model} is at http://{host}:{port}.")
    async with server, asyncio.TaskGroup() as tasks:
        tasks.create_task(engine.run())
        tasks.create_task(server.serve_forever())
