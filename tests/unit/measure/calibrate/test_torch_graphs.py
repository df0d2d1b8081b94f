"""Probes as PyTorch modules made from their graphs. Needs torch."""

import importlib
from contextlib import closing
from pathlib import Path

import pytest

from inferometer.core.binding import Binding
from inferometer.core.errors import EngineError
from inferometer.core.workload import Precision
from inferometer.engines.base import Target
from inferometer.measure.calibrate.probes.models import Probe, ProbeRun, graph_of, read_probes
from inferometer.measure.calibrate.probes.points import ops_of
from inferometer.measure.run.child import runtime_named
from inferometer.predict.work.count import op_works

torch = pytest.importorskip("torch", reason="torch is not installed: its probes are not made")

from inferometer.measure.calibrate.torch.graphs import module_of, open_graph, open_probe  # noqa: E402 - needs torch

SEEN = [probe for probe in read_probes() if probe.kind == "image"]
FAMILIES = list({probe.config["model_type"]: probe for probe in SEEN}.values())
SMALL = 64


def side_of(probe: Probe) -> int:
    """Patches have places for as many as their config says."""
    return int(probe.config["image_size"]) if probe.config["model_type"] == "vit" else SMALL


def floats_in(graph, side: int) -> float:
    """Operations of products, as the cost model counts them."""
    sizes = {"batch": 2, "image": side, "query": 1, "context": 0, "logits": 1}
    binding = Binding(sizes=sizes, precision=Precision(weights="f32", activations="f32", kv="f32"))
    kinds = {"convolution", "linear"}
    return sum(
        block.count * float(sum(work.flops.values()))
        for block, op, work in op_works(graph, binding)
        if op.kind in kinds
    )


@pytest.mark.parametrize("probe", SEEN, ids=lambda probe: probe.name)
def test_every_probe_that_sees_is_made_with_all_its_weights_and_ops(probe: Probe):
    graph, side = graph_of(probe), side_of(probe)
    module = module_of(torch, graph, {"image": side}).eval()
    with torch.inference_mode():
        found = module(torch.rand(2, 3, side, side))
    assert tuple(found.shape) == (2, 100)
    names = dict(module.named_modules())
    wanted = {block.full_name(op.name, number) for block, op in graph.ops() for number in range(block.count)}
    assert wanted <= set(names)
    products = [
        names[name].weight.numel() for name in wanted if isinstance(names[name], torch.nn.Conv2d | torch.nn.Linear)
    ]
    counted = sum(
        block.count * op.weights[0].elements for block, op in graph.ops() if op.kind in {"convolution", "linear"}
    )
    assert sum(products) == counted


@pytest.mark.parametrize("probe", FAMILIES, ids=lambda probe: probe.name)
def test_it_computes_as_many_operations_as_the_graph_says(probe: Probe):
    counting = importlib.import_module("torch.utils.flop_counter").FlopCounterMode
    graph, side = graph_of(probe), side_of(probe)
    module = module_of(torch, graph, {"image": side}).eval()
    with torch.no_grad(), counting(display=False) as counter:
        module(torch.rand(2, 3, side, side))
    products = {
        name: count for name, count in counter.get_flop_counts()["Global"].items() if "attention" not in str(name)
    }
    assert sum(products.values()) == pytest.approx(floats_in(graph, side), rel=0.02)  # biases are in the graph's alone


@pytest.mark.parametrize("probe", FAMILIES, ids=lambda probe: probe.name)
def test_what_is_written_in_place_is_read_by_nothing_else(probe: Probe):
    """The same numbers as with every op on memory of its own, and the input as it was."""
    graph, side = graph_of(probe), side_of(probe)
    torch.manual_seed(1)
    module = module_of(torch, graph, {"image": side}).eval()
    x = torch.rand(1, 3, side, side)
    before = x.clone()
    with torch.inference_mode():
        found = module(x)
        assert torch.equal(x, before)
        for each in module.modules():
            if hasattr(each, "inplace"):
                each.inplace = False
            if hasattr(each, "over"):
                each.over = (False, False)
        apart = module(x)
    assert torch.allclose(found, apart, rtol=1e-4, atol=1e-5)


def test_a_session_tells_the_ops_by_their_own_names(tmp_path: Path):
    probe = next(probe for probe in SEEN if probe.name == "probe-tiny-windows")
    target = Target(path=tmp_path, format="config", threads=1, instrument=True)
    with closing(open_graph(target, graph_of(probe), {"image": 32})) as session:
        session.feed({"pixel_values": torch.rand(2, 3, 32, 32).numpy()})
        session.step()
        layers = {name for kernel in session.kernels()["forward"] for name in kernel.layers}
        assert session.outputs()["output"].shape == (2, 100)
    assert {"conv1", "bn1", "bn1.act", "maxpool", "layer1.0.conv1", "layer4.1.add", "fc"} <= layers


def test_texts_are_left_to_the_runtime(tmp_path: Path):
    class Asked:
        name = "torch-eager"

        def open(self, target: Target) -> str:
            return f"opened {target.path.name}"

    reads = next(probe for probe in read_probes() if probe.kind == "encoder")
    target = Target(path=tmp_path / "encoder", format="config")
    assert open_probe(Asked(), target, reads, ProbeRun(prompt=8)) == "opened encoder"


def test_an_op_that_nobody_has_made_for_torch_is_an_error_that_names_it():
    reads = next(probe for probe in read_probes() if probe.kind == "encoder")
    with pytest.raises(EngineError, match="embed"):
        module_of(torch, graph_of(reads), {"query": 8})


def test_the_engine_opens_probes_of_every_image_size(tmp_path: Path):
    from inferometer.known import device
    from inferometer.measure.calibrate.engines import ProbedEngine, engine_provider

    if runtime_named("torch-eager").probe().__class__.__name__ != "Ready":
        pytest.skip("PyTorch cannot run here")
    engine = ProbedEngine(
        runtime=runtime_named("torch-eager"), device=device("intel-emerald-rapids-1-vcpu"), dtype="f32", threads=1,
        journal=tmp_path / "journal", folder=tmp_path / "probes", limit_s=0.01,
    )  # fmt: skip
    provider = engine_provider(engine)
    with closing(provider):
        assert provider.candidates()
        small, large = (list(works_that_ran(provider, side)) for side in (128, 240))
    assert {work.classes[-1] for work in small} == {"convolution", "depthwise", "vector", "linear"}
    flops = [max(work.axes["flops"] for work in found) for found in (small, large)]
    assert flops[1] > 3 * flops[0]


def works_that_ran(provider, side):
    """What the engine's kernels are known to compute, however long they took."""
    probe, run = provider._cases[f"probe-mobile-plain 1 x image {side}"]
    graph = provider._graph(probe, run)
    works = provider._priced(graph, run).works
    for op in ops_of(graph, run.workload(provider._precision), {"batch": 1}, provider._run(probe, run)):
        yield from (works[name] for name in op.layers or (op.name,) if name in works)


@pytest.mark.parametrize("side", [128, 240])
def test_a_session_takes_images_of_the_size_of_the_run(tmp_path: Path, side: int):
    probe = next(probe for probe in SEEN if probe.name == "probe-mobile-plain")
    target = Target(path=tmp_path, format="config", threads=1)
    with closing(open_probe(runtime_named("torch-eager"), target, probe, ProbeRun(image=side))) as session:
        assert [port.shape for port in session.opened.inputs] == [("batch", 3, side, side)]
