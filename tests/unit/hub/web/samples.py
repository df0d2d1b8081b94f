"""Profiles and hubs for the tests of the hub: small, large, of a language model, and hostile."""

import random
import shutil
from contextlib import contextmanager

import httpx

from inferometer.core.finding import Finding
from inferometer.core.profile import (
    DeviceFacts,
    Environment,
    Headline,
    ModelFacts,
    OpTime,
    Phase,
    Profile,
    Provenance,
    Verification,
)
from inferometer.core.workload import Workload
from inferometer.hub.fleet.desk import FleetDesk
from inferometer.hub.web.guard.rules import Rules
from inferometer.hub.web.serving import hub_in_thread
from inferometer.store import open_store
from inferometer.store.tables import metadata

HOSTILE = '<img src=x onerror="window.hacked=1">'
ENDING = "</script><script>window.hacked=2</script>"
KINDS = ("convolution", "activation", "linear", "norm")


def network(layers=12, *, seed=1, slower=1.0, samples=12, name="tiny-cnn"):
    """A measured network: every fourth layer fell back to the CPU."""
    draw = random.Random(seed)  # noqa: S311 - test data
    ops = tuple(
        OpTime(
            name=f"stage.{n // 4}.op_{n}",
            kind=KINDS[n % 4],
            unit="cpu" if n % 4 == 3 else "gpu",
            block=f"stage{n // 4}",
            time_s=slower * draw.uniform(1e-4, 9e-4),
            flops=2e8 + n,
            bytes=1e6 + n,
            bound="memory",
            predicted_s=4e-4,
            floor_s=5e-5,
            kernel=f"kernel_{n}",
        )
        for n in range(layers)
    )
    inside = sum(op.time_s for op in ops)
    whole = inside * 1.05
    readings = tuple(whole * draw.uniform(0.99, 1.01) for _ in range(samples))
    forward = Phase(
        name="forward", time_s=whole, low_s=whole * 0.98, high_s=whole * 1.02, floor_s=5e-5 * layers,
        predicted_s=4e-4 * layers, ops=ops, statistic="median", samples_s=readings, clean_s=whole,
        unattributed_s=whole - inside, bound="memory",
    )  # fmt: skip
    return Profile(
        kind="measured",
        model=ModelFacts(name=name, weight_bytes=10_000_000),
        device=DeviceFacts(name="nvidia-t4", title="NVIDIA T4"),
        workload=Workload(batch=2),
        phases=(Phase(name="load", time_s=0.5), forward),
        summary=Headline(latency_s=whole, peak_memory_bytes=30_000_000, top_unit="gpu", top_unit_by_count="gpu"),
        runtime="onnxruntime",
        environment=Environment(threads=2, load_before=0.1, load_after=3.0, disturbed=True, reasons=("the load rose",)),
        provenance=Provenance(tool="inferometer profile", version="0.1.0", created="2026-11-15T06:34:37+00:00"),
        verification=Verification(status="verified", reference="openvino f32"),
        findings=(Finding(code="memory.does-not-fit", severity="critical", title="A finding it carries", gain=1.5),),
    )


def decoder():
    """A measured language model: layers in two phases, and a time for each token; one layer grows with the context."""
    names = ("embed", "layers.0.attn.q_proj", "layers.0.mlp.up_proj", "head")
    prefill = tuple(OpTime(name=n, kind="linear", unit="cpu", time_s=0.004) for n in names)
    grown = [2e-6 * (c - 39.5) for c in range(32, 48)]
    decode = tuple(
        OpTime(
            name=n, kind="linear", unit="cpu", time_s=0.001,
            samples_s=tuple(0.001 + (more if "attn" in n else 0.0) for more in grown),
        )
        for n in names[1:]
    )  # fmt: skip
    contexts = tuple(range(32, 48)) * 2
    steps = tuple(0.0031 + more for more in (*grown, *grown))
    return Profile(
        kind="measured",
        model=ModelFacts(name="tiny-llm", weight_bytes=1_000_000, kv_bytes_per_token=1024),
        device=DeviceFacts(name="a board nobody knows"),
        workload=Workload(prompt=32, generate=17),
        phases=(
            Phase(name="prefill", time_s=0.017, ops=prefill, unattributed_s=0.001, statistic="median"),
            Phase(
                name="decode",
                time_s=0.0031,
                ops=decode,
                samples_s=steps,
                context=contexts,
                unattributed_s=0.0001,
                statistic="median over generations of the mean step",
                op_context=contexts[:16],
                parts={"run": 0.003, "sample": 6e-5, "read": 4e-5},
            ),
        ),
        summary=Headline(ttft_s=0.017, tpot_s=0.0031, e2e_s=0.0666, tokens_per_s=322.0, peak_memory_bytes=2_000_000),
        runtime="llamacpp",
    )


def hostile():
    """Every text that a model file can bring, as markup."""
    op = OpTime(name=HOSTILE, kind=HOSTILE, unit=HOSTILE, kernel=HOSTILE, provider=HOSTILE, block=HOSTILE, time_s=0.001)
    other = OpTime(name=ENDING, kind=ENDING, unit="cpu", time_s=0.002)
    return Profile(
        kind="measured",
        model=ModelFacts(name=HOSTILE, source=HOSTILE),
        device=DeviceFacts(name=HOSTILE, title=ENDING),
        workload=Workload(),
        phases=(Phase(name=HOSTILE, time_s=0.003, ops=(op, other), samples_s=(0.003,) * 8, statistic=HOSTILE),),
        summary=Headline(latency_s=0.003, top_unit=HOSTILE),
        runtime=ENDING,
        environment=Environment(
            versions={HOSTILE: ENDING}, disturbed=True, reasons=(HOSTILE,), host={HOSTILE: HOSTILE}
        ),
        provenance=Provenance(tool=HOSTILE, version="1", created=ENDING, command=HOSTILE, notes=(ENDING,)),
        findings=(Finding(code=HOSTILE, severity="warning", title=HOSTILE, advice=ENDING, evidence={HOSTILE: 1.0}),),
    )


@contextmanager
def hub(folder, *, port=0, **rules):
    """A store in a folder, a hub over it (on a free port unless one is given), and a client that asks it."""
    with (
        open_store(folder / "runs.db") as store,
        hub_in_thread(store, Rules(**rules), port=port) as address,
        httpx.Client(base_url=address, timeout=120, verify=False) as client,  # noqa: S501 - no TLS, whose roots take a while
    ):
        yield store, client


def emptied(store):
    """As it was when it was new, for tests that share a hub: starting one takes longer than most of them."""
    tables = reversed(metadata.sorted_tables)
    store.database.write(lambda connection: [connection.execute(table.delete()) for table in tables])
    shutil.rmtree(FleetDesk(store, Rules()).root, ignore_errors=True)
    return store
