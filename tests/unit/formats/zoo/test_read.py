"""`timm:NAME` and its like: found in what is shipped, at the size that is asked for, or refused with what there is."""

from collections import Counter

import pytest

from inferometer.core.dims import evaluate
from inferometer.core.errors import DomainError, MissingDependencyError, UnknownNameError
from inferometer.core.sizes import bind
from inferometer.core.workload import Workload
from inferometer.formats.networks import read as reading
from inferometer.formats.networks.named import read_net, shipped_nets
from inferometer.formats.networks.shipped import index, networks
from inferometer.formats.resolve import read
from inferometer.known.zoo import network_named
from inferometer.predict.ask import ask, model_graph
from inferometer.predict.work.count import graph_work


@pytest.fixture
def bare(monkeypatch):
    """As where neither timm nor torch is installed."""
    monkeypatch.setattr(reading, "installed", lambda _package: False)


@pytest.mark.parametrize(
    ("name", "parameters", "gigaflops"),
    [
        # timm's own counts of parameters; 2 × its MACs, with what normalising and adding cost beside.
        ("timm:resnet18", 11_689_512, 3.64),
        ("timm:vit_base_patch16_224", 86_567_656, 35.3),
        ("timm:mobilenetv3_large_100", 5_483_032, 0.46),
        ("timm:efficientnet_b0", 5_288_548, 0.83),
        # Open Model Zoo and the networks' papers.
        ("openvino:ssd_mobilenet_v1_coco", 6_807_167, 2.50),
        ("ncnn:alexnet", 60_965_224, 1.45),
        ("ncnn:googlenet", 6_998_552, 3.19),
    ],
)
@pytest.mark.usefixtures("bare")
def test_a_shipped_network_has_the_published_counts(name, parameters, gigaflops):
    graph = read(name)
    assert graph.parameters == parameters
    assert graph_work(graph, bind(graph, Workload())).total_flops / 1e9 == pytest.approx(gigaflops, rel=0.02)


@pytest.mark.usefixtures("bare")
def test_the_same_network_of_the_catalog_and_of_timm_are_the_same_work():
    ours, theirs = read("resnet50"), read("timm:resnet50")
    assert ours.parameters == theirs.parameters
    works = [graph_work(graph, bind(graph, Workload(batch=8))) for graph in (ours, theirs)]
    assert works[0].total_flops == pytest.approx(works[1].total_flops, rel=0.002)
    assert _kinds(ours) == _kinds(theirs)


def _kinds(graph):
    """How many ops of each kind that does something run."""
    counts = {}
    for block, op in graph.ops():
        if op.kind not in {"view", "reduce", "pool"}:  # a global average is a pool to one and a mean to the other
            counts[op.kind] = counts.get(op.kind, 0) + block.count
    return counts


@pytest.mark.usefixtures("bare")
def test_the_batch_is_left_open():
    assert read("timm:resnet18").symbols == {"batch"}


@pytest.mark.usefixtures("bare")
def test_a_size_that_is_shipped_is_taken_and_named_in_the_question():
    network = next(name for name, entry in networks("timm").items() if len(entry.images) > 1)
    entry = networks("timm")[network]
    other = next(image for image in entry.images if image != entry.image)
    by_option = ask(f"timm:{network}", on="nvidia-h100-sxm", image=other).graph
    assert by_option is not model_graph(f"timm:{network}")
    assert by_option.inputs[0].shape[-1] == other == by_option.metadata["image"]
    assert read(f"timm:{network}@{other}").inputs == by_option.inputs


@pytest.mark.usefixtures("bare")
def test_a_size_that_is_not_shipped_needs_the_package():
    with pytest.raises(MissingDependencyError, match=r"timm:resnet18 is at hand for images of .*224.* and not of 97"):
        read("timm:resnet18", image=97)


@pytest.mark.usefixtures("bare")
def test_a_benchmarks_network_has_the_sizes_that_it_came_with():
    assert read("ncnn:mobilenet_ssd@416").inputs[0].shape[-2:] == (416, 416)
    with pytest.raises(DomainError, match=r"at hand for images of 160, .* and not of 97.* one of these sizes"):
        read("ncnn:mobilenet_ssd", image=97)


@pytest.mark.usefixtures("bare")
def test_two_sizes_are_one_too_many():
    with pytest.raises(DomainError, match="Give one size"):
        read("timm:resnet18@224", image=288)


@pytest.mark.usefixtures("bare")
def test_an_unknown_network_is_answered_with_near_names():
    with pytest.raises(UnknownNameError, match=r"timm:resnet18\b"):
        read("timm:resnet118")


def test_only_known_prefixes_are_names_of_networks():
    assert network_named("TIMM:ResNet50@288") == network_named("timm:resnet50@288")
    assert str(network_named("timm:resnet50@288")) == "timm:resnet50"
    assert network_named("resnet50") is None
    assert network_named("C:model.onnx") is None


def test_every_file_of_the_index_is_there_and_holds_what_it_says():
    from inferometer.formats.networks.shipped import DATA, ENDING

    files = {entry.file for package in index().networks.values() for entry in package.values()}
    assert {f"{file}{ENDING}" for file in files} == {path.name for path in DATA.glob(f"*{ENDING}")}
    assert all(entry.image in entry.images for package in index().networks.values() for entry in package.values())


def test_a_network_is_not_run_because_only_its_graph_is_known():
    from inferometer.core.errors import FormatError
    from inferometer.hub.places.artifacts import model_files
    from inferometer.measure.run.model_file import choose_runtime

    for run in (choose_runtime, model_files):
        with pytest.raises(FormatError, match=r"predicted and not run\..*torch\.onnx\.export"):
            run("timm:resnet18")


def test_the_hub_answers_for_shipped_networks_alone():
    from inferometer.hub.web.guard.catalog_names import catalog_model

    assert catalog_model("timm:resnet18") == "timm:resnet18"
    for name in ("timm:resnet18@97", "timm:not_there", "../resnet18.onnx"):
        with pytest.raises(UnknownNameError):
            catalog_model(name)


def test_networks_are_listed_where_their_package_is_asked_for():
    from click.testing import CliRunner

    from inferometer.cli.commands.models import command

    listed = CliRunner().invoke(command, ["--where", "family=ncnn", "--format", "csv"]).output
    assert "ncnn:alexnet" in listed
    assert "60965224" in listed
    assert "ncnn:" not in CliRunner().invoke(command, ["--where", "family=resnet"]).output


@pytest.mark.parametrize(
    ("name", "gigaflops"),
    [
        # 2 × the GMACs that torchvision gives with its weights, at the crop that they were made for.
        ("torchvision:efficientnet_b7", 75.5),
        ("torchvision:efficientnet_v2_s", 16.7),
        ("torchvision:swin_v2_t", 11.9),
        ("torchvision:vit_b_16", 35.1),
        ("lraspp-mobilenet-v3-large", 4.17),
        ("deeplabv3-mobilenet-v3-large", 20.9),
    ],
)
@pytest.mark.usefixtures("bare")
def test_torchvisions_networks_are_at_the_image_their_weights_were_made_for(name, gigaflops):
    graph = read(name)
    assert graph_work(graph, bind(graph, Workload())).total_flops / 1e9 == pytest.approx(gigaflops, rel=0.06)


def test_what_is_computed_grows_with_the_image_in_every_network_whose_image_is_open():
    """A plane that kept the side it was traced with would be as large at any image."""
    growth = {}
    for name in shipped_nets():
        graph = read_net(name)
        if "image" in graph.symbols:
            side = graph.metadata["default_sizes"]["image"]
            planes = Counter(one.elements for _, op in graph.ops() for one in op.outputs)  # few are unlike the others
            once, twice = (
                sum(count * evaluate(plane, {"batch": 1, "image": size}) for plane, count in planes.items())
                for size in (side, 2 * side)
            )
            growth[name] = twice / once
    assert len(growth) > 100
    # Four times for planes, up to sixteen where positions attend to each other.
    assert {name: ratio for name, ratio in growth.items() if not 3.8 < ratio < 8} == {}
