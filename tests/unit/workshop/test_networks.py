"""The networks that are defined here, traced now, are those that are shipped, op by op; and how the archive is made."""

from types import SimpleNamespace

import pytest

from inferometer.core.graph import Block, Graph, Op, Tensor
from inferometer.formats.networks import shipped
from unit.formats.listing import graph_lines

pytest.importorskip("torch", reason="torch is not installed: modules are not traced")

from inferometer.formats.networks.read import MARK, NetworkPackage, built, traced, usual_image
from workshop.networks import packages as build
from workshop.networks.benchmarked import NETWORKS
from workshop.networks.packages import PACKAGES
from workshop.networks.recording import recorded
from workshop.networks.sketch import Sketch


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_is_the_one_that_is_shipped(name):
    torch = pytest.importorskip("torch")
    package, _, network = name.partition(":")
    image = usual_image(PACKAGES[package], network)
    module, shape = built(PACKAGES[package], network, image)
    assert (image, shape) == (NETWORKS[name][1][1], (3, *NETWORKS[name][1]))
    entry = shipped.networks(package)[network]
    other = next(side for side in entry.images if side != image)
    for side, pixels in ((image, shape), (other, (3, other, other))):
        found = traced(module, (torch.empty(MARK, *pixels, device="meta"),), name=name, trace=recorded)
        assert (entry.image, entry.parameters) == (image, found.parameters)
        kept = shipped.shipped_graph(package, network, side)
        # Some were traced when the image was called x.
        now, then = ([line.replace(" x None[", " image None[") for line in graph_lines(one)] for one in (found, kept))
        assert now == then
        assert [one.shape for one in (*found.inputs, *found.outputs)] == [
            one.shape for one in (*kept.inputs, *kept.outputs)
        ]


def test_a_sketch_keeps_channels_and_repeats_steps_with_their_weights():
    """What the networks that are shipped have none of, or cannot show: the order of halves, of a shuffle, of a sum."""
    torch = pytest.importorskip("torch")
    net = Sketch(4)
    first = net.conv(0, 6, 3, act=None)
    last = net.sum(first, first)
    again = net.again(first, last, net.add(lambda x: x + 1, 4, 0))
    ends = (net.halved(0, 0), net.halved(0, 1), net.shuffle(0, 2), net.pad_channels(0, 5), net.cat(0, last), again)
    assert [net.width(step) for step in ends] == [2, 2, 4, 5, 10, 6]
    image = torch.arange(4.0).reshape(1, 4, 1, 1).expand(1, 4, 2, 2)
    low, high, mixed, padded, joined, twice = net.ends(*ends)(image)
    channels = [x[0, :, 0, 0].tolist() for x in (low, high, mixed, padded, joined[:, :4])]
    assert channels == [[0, 1], [2, 3], [0, 2, 1, 3], [0, 1, 2, 3, 0], [0, 1, 2, 3]]
    layer = net.layers["conv0"]
    assert torch.allclose(twice, 2 * layer(image + 1))
    assert torch.allclose(joined[:, 4:], 2 * layer(image))


# The archive


def graph(name, features):
    x = Tensor(name="x", shape=(1, 3))
    weight = Tensor(name="w", shape=(features, 3), role="weight")
    op = Op(name="fc", kind="linear", inputs=(x,), outputs=(Tensor(name="y", shape=(1, features)),), weights=(weight,))
    return Graph(name=name, blocks=(Block(name="b", ops=(op,)),), inputs=(x,))


@pytest.fixture
def making(monkeypatch, tmp_path):
    """Two packages of networks, one of which cannot be made; what is shipped goes to a folder of the test's own."""
    usual = {"a": (3, 8, 9), "b": (3, 8, 8), "c.tag": (3, 8, 8)}

    def make(name, image):
        if name == "b":
            raise ValueError("no such thing")
        return SimpleNamespace(eval=lambda: (name, image))

    def package(name):
        return NetworkPackage(
            name=name, needs=("torch",), names=lambda: usual, build=make, usual=lambda network: usual[network]
        )

    monkeypatch.setattr(build, "PACKAGES", {"timm": package("timm"), "ncnn": package("ncnn"), "gone": package("gone")})
    monkeypatch.setattr(build, "_installed", lambda name: name != "gone")
    seen = []

    def trace(module, pixels, *, name, trace):
        seen.append((module, tuple(pixels[0].shape), name, trace))
        return graph(name, module[1])

    monkeypatch.setattr(build, "traced", trace)
    data = tmp_path / "data"
    data.mkdir()
    monkeypatch.setattr(build, "DATA", data)
    monkeypatch.setattr(build, "INDEX", data / "index.json")
    return SimpleNamespace(seen=seen, data=data, folder=tmp_path / "traced")


def test_networks_of_the_tables_are_traced_first_and_at_their_images(making):
    assert list(build._wanted("ncnn", {"ncnn:c.tag": {8, 3}, "timm:a": {5}})) == [
        ("c.tag", 3), ("c.tag", 8), ("a", 9), ("b", 8),
    ]  # fmt: skip
    assert list(build._wanted("timm", {})) == [("a", 9), ("b", 8)]  # a tag is of weights


def test_every_network_is_traced_once_and_what_fails_leaves_its_reason(making, capsys):
    more = making.folder.parent / "more"
    more.write_text("ncnn:a 4\nncnn:a 5\n")
    words = [str(making.folder), "--package", "ncnn", "--package", "gone", "--images", str(more)]
    build.main([*words, "--part", "0/2"])
    assert [(module, shape) for module, shape, _, _ in making.seen] == [
        (("a", 4), (MARK, 3, 4, 4)), (("a", 9), (MARK, 3, 8, 9)), (("c.tag", 8), (MARK, 3, 8, 8)),
    ]  # fmt: skip
    assert {(name, how) for _, _, name, how in making.seen} == {("ncnn:a", recorded), ("ncnn:c.tag", recorded)}
    build.main([*words, "--part", "1/2"])
    build.main(words)
    names = sorted(path.name for path in making.folder.iterdir())
    assert names == [
        "ncnn~a@4.json.gz", "ncnn~a@5.json.gz", "ncnn~a@9.json.gz", "ncnn~b@8.failed", "ncnn~c.tag@8.json.gz",
    ]  # fmt: skip
    assert "no such thing" in (making.folder / "ncnn~b@8.failed").read_text()
    assert len(making.seen) == 4
    assert "ncnn~a@4: 12 parameters" in capsys.readouterr().out


def test_what_was_traced_is_written_family_by_family_and_unpacked_as_it_was(making, monkeypatch, capsys):
    (making.data / "old.json.gz").write_bytes(b"")
    build.trace_all(making.folder, ["ncnn"], part=0, parts=1, more={"ncnn:a": {4}})
    build.main([str(making.folder), "--write"])
    assert capsys.readouterr().out.splitlines()[-1].startswith("3 graphs of 2 networks, ")
    assert sorted(path.name for path in making.data.iterdir()) == ["index.json", "ncnn.json.gz"]
    made = shipped.msgspec.json.decode((making.data / "index.json").read_bytes(), type=shipped.Packages)
    assert made.networks == {"ncnn": {
        "a": shipped.ShippedNetwork(file="ncnn", image=9, images=(4, 9), parameters=27),
        "c.tag": shipped.ShippedNetwork(file="ncnn", image=8, images=(8,), parameters=24),
    }}  # fmt: skip
    assert made.releases == {"ncnn": "as defined in Inferometer"}
    monkeypatch.setattr(build, "shipped_packages", lambda: made)
    build.main([str(making.folder.parent / "again"), "--unpack"])
    assert {path.name: build.graph_in(build.read_tables(path), path.name[5:-8]) for path in
            (making.folder.parent / "again").iterdir()} == {
        "ncnn~a@4.json.gz": (graph("ncnn:a", 4), 4), "ncnn~a@9.json.gz": (graph("ncnn:a", 9), 9),
        "ncnn~c.tag@8.json.gz": (graph("ncnn:c.tag", 8), 8),
    }  # fmt: skip


def test_a_network_without_its_usual_image_is_told_by_its_smallest(making):
    found = build._written("ncnn", {"a": {7: graph("a", 7), 5: graph("a", 5)}})
    assert found == {"a": shipped.ShippedNetwork(file="ncnn", image=5, images=(5, 7), parameters=15)}


def test_a_file_is_a_module_of_the_package(monkeypatch):
    modules = {
        "timm.models": SimpleNamespace(model_entrypoint=lambda _: SimpleNamespace(__module__="timm.models.vit")),
        "torchvision.models": SimpleNamespace(
            get_model_builder=lambda _: SimpleNamespace(__module__="torchvision.models.swin")
        ),
    }
    monkeypatch.setattr(build, "import_module", modules.__getitem__)
    assert [build._file(package, "n") for package in ("timm", "torchvision", "ncnn")] == [
        "timm-vit", "torchvision-swin", "ncnn",
    ]  # fmt: skip
