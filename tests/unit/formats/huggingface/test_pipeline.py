"""A pipeline is its parts: text encoders and the image's decoder once, the denoiser at every step."""

import pytest

from inferometer.core.errors import DomainError, FormatError
from inferometer.core.sizes import bind
from inferometer.core.workload import Workload
from inferometer.formats.huggingface.graph import graph_from_config
from inferometer.formats.resolve import read
from inferometer.known.zoo import model, models
from inferometer.predict.ask import ask
from inferometer.predict.options import Options
from inferometer.predict.work.count import graph_work
from inferometer.understand.view.predictions import prediction_card

PIPELINES = sorted(name for name, row in models().items() if row.family == "diffusion_pipeline")
VIDEOS = [name for name in PIPELINES if "frames" in model(name).config]


def _flops(graph, **asked):
    return graph_work(graph, bind(graph, Workload(**asked))).total_flops


@pytest.mark.parametrize("name", PIPELINES)
def test_a_pipeline_holds_the_weights_of_all_of_its_parts(name):
    config = model(name).config
    whole, parts = read(name), [*config["text_encoders"], config["denoiser"], config["decoder"]]
    assert whole.parameters == sum(read(part["model"]).parameters for part in parts)


@pytest.mark.parametrize("name", sorted({*PIPELINES} - {*VIDEOS}))
def test_a_larger_picture_is_more_work_and_every_op_is_counted(name):
    graph = read(name)
    assert graph.symbols == {"batch", "image"}
    side = graph.metadata["default_sizes"]["image"]
    assert 2 < _flops(graph, image=2 * side) / _flops(graph, image=side) < 17


@pytest.mark.parametrize("name", VIDEOS)
def test_a_video_has_its_own_frames_and_sides_and_every_further_one_is_as_much_work_again(name):
    graph = read(name)
    assert graph.symbols == {"batch"}
    assert _flops(graph, batch=2) == pytest.approx(2 * _flops(graph))
    with pytest.raises(DomainError, match="no size of an image"):
        ask(name, on="nvidia-h200", image=512).answer()


def test_videos_are_counted_as_videos_and_pictures_as_pictures():
    shown = {name: prediction_card(ask(name, on="nvidia-h200").answer()) for name in ("wan2.1-1.3b", "sdxl")}
    labels = {name: {label for label, *_ in card.facts} for name, card in shown.items()}
    assert "videos/s" in labels["wan2.1-1.3b"]
    assert "pictures/s" in labels["sdxl"]
    assert "pictures/s" not in labels["wan2.1-1.3b"]


def test_guidance_runs_the_denoiser_and_the_text_encoders_twice_and_the_decoder_once():
    def parts(guidance):
        graph = graph_from_config({**model("sd-1.5").config, "guidance": guidance}, name="sd")
        work = {"text_1": 0.0, "denoiser": 0.0, "decoder": 0.0}
        for block in graph.blocks:
            one = graph_work(type(graph)(name="part", blocks=(block,)), bind(graph, Workload()))
            work[block.name.partition(".")[0]] += one.total_flops
        return work

    alone, guided = parts(1), parts(2)
    grown = {name: guided[name] / alone[name] for name in alone}
    assert grown == {"text_1": pytest.approx(2), "denoiser": pytest.approx(2), "decoder": 1}


def test_a_picture_takes_its_own_steps_unless_others_are_asked_for():
    own = ask("sdxl", on="nvidia-l4").answer()
    few = ask("sdxl", on="nvidia-l4", options=Options(steps=20)).answer()
    around, forward = own.phase("around").time_s, own.phase("forward")
    assert (forward.repeats, few.phase("forward").repeats) == (50, 20)
    assert own.summary.latency_s == pytest.approx(around + 50 * forward.time_s)
    assert few.summary.latency_s == pytest.approx(around + 20 * forward.time_s)
    assert own.summary.inputs_per_s == pytest.approx(1 / own.summary.latency_s)


@pytest.mark.parametrize("name", ["/etc/hostname", "../model.onnx", "timm:resnet50", ""])
def test_a_part_from_elsewhere_is_a_name_of_ours_and_never_a_path(name):
    config = {**model("sd-1.5").config, "decoder": {"model": name}}
    with pytest.raises(FormatError, match=r"decoder\.model must be a model of the catalog"):
        graph_from_config(config, name="sd")
