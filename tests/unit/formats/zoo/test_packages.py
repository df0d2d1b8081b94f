"""How the networks of other packages are named, built and traced: which of them, and for which size of image."""

from types import SimpleNamespace

import pytest

from inferometer.formats.networks import read
from inferometer.formats.networks.read import built

pytest.importorskip("torch", reason="torch is not installed: no network is built")


def test_a_package_is_installed_where_all_it_needs_is(monkeypatch):
    there = set(read.PACKAGES["timm"].needs)
    assert len(there) > 1
    monkeypatch.setattr(read, "find_spec", lambda name: SimpleNamespace() if name in there else None)
    assert (read.installed("timm"), read.installed("nobody's")) == (True, False)
    there.pop()
    assert not read.installed("timm")


def test_timm_builds_for_a_size_where_it_takes_one(monkeypatch):
    def create(name, **given):
        if name == "fixed" and given:
            raise TypeError
        return name, given

    timm = SimpleNamespace(
        create_model=create, list_models=lambda: ["a"], list_pretrained=lambda: ["a.tag"],
        get_pretrained_cfg=lambda name: None if name == "a" else SimpleNamespace(input_size=(3, 5, 6)),
    )  # fmt: skip
    folded = SimpleNamespace(reparameterize_model=lambda module, inplace: (module, inplace))
    monkeypatch.setattr(read, "import_module", {"timm": timm, "timm.utils": folded}.__getitem__)
    assert read._timm_build("free", 7) == (("free", {"img_size": 7}), True)
    assert read._timm_build("free", None) == read._timm_build("free", None) == (("free", {}), True)
    assert read._timm_build("fixed", 7) == (("fixed", {}), True)
    assert read._timm_names() == ("a", "a.tag")
    assert [read._timm_usual(name) for name in ("a", "b")] == [(3, 224, 224), (3, 5, 6)]


def test_torchvisions_networks_are_those_of_images_that_look_once(monkeypatch):
    detection, segmentation = object(), object()
    known = {id(detection): ["ssd300_vgg16", "fasterrcnn", "fcos_resnet"], id(segmentation): ["fcn_resnet50"]}
    built_with = {}

    def get_model(name, **given):
        built_with[name] = given
        return SimpleNamespace(backbone=None, head=None)

    models = SimpleNamespace(
        list_models=lambda module: known.get(id(module), ["vit_b"]), get_model=get_model, detection=detection,
        segmentation=segmentation,
    )  # fmt: skip
    monkeypatch.setattr(read, "import_module", {"torchvision.models": models}.__getitem__)
    assert read._torchvision_names() == ("vit_b", "fcn_resnet50", "ssd300_vgg16", "fcos_resnet")
    for name in ("vit_b", "resnet18", "fcn_resnet50"):
        read._torchvision_build(name, 7)
    read._torchvision_build("vit_l", None)
    assert built_with == {
        "vit_b": {"weights": None, "image_size": 7}, "resnet18": {"weights": None}, "vit_l": {"weights": None},
        "fcn_resnet50": {"weights": None, "weights_backbone": None},
    }  # fmt: skip
    sides = {
        "resnet18": 224,
        "inception_v3": 299,
        "ssd300_vgg16": 300,
        "retinanet": 800,
        "deeplabv3": 520,
        "lraspp": 520,
    }
    assert {name: read._torchvision_usual(name) for name in sides} == {
        name: (3, side, side) for name, side in sides.items()
    }


def test_a_detector_is_its_backbone_and_its_head():
    torch = pytest.importorskip("torch")

    class Net(torch.nn.Module):
        def forward(self, x):
            return {"low": x, "high": x + 1} if not isinstance(x, list) else sum(x)

    made = read._detector(SimpleNamespace(backbone=Net(), head=Net()))
    assert made(torch.tensor(2)) == 5


def test_an_image_of_another_side_is_a_square():
    asked = read.NetworkPackage(
        name="p", needs=(), names=tuple, build=lambda _name, image: SimpleNamespace(eval=lambda: image),
        usual=lambda _: (3, 4, 6),
    )  # fmt: skip
    assert [built(asked, "n", image) for image in (None, 6, 9)] == [
        (None, (3, 4, 6)), (6, (3, 4, 6)), (9, (3, 9, 9)),
    ]  # fmt: skip
