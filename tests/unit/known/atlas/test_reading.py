"""Each published form, read: golden lines worked out by hand, and lines that must be set aside."""

import gzip
import importlib.util
from pathlib import Path

import pytest

from inferometer.core.errors import FormatError
from inferometer.known.atlas.reading import forms, read_atlas
from inferometer.known.atlas.sources.ncnn import is_older

_SPEC = importlib.util.spec_from_file_location("atlas_lines", Path(__file__).parent / "lines.py")
_LINES = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_LINES)
GOLDEN, TIMM = _LINES.GOLDEN, _LINES.TIMM
TIDY = "device,model,engine,quantity,figure,figure_unit,batch,prompt,weights\n"


def _read(tmp_path, text):
    path = tmp_path / "file.csv"
    path.write_text(text, encoding="utf-8")
    return read_atlas(path)


@pytest.mark.parametrize("form", GOLDEN)
def test_a_line_means_what_a_person_makes_of_it(form, tmp_path):
    text, expected = GOLDEN[form]
    reading = _read(tmp_path, text)
    assert reading.form == form
    assert not reading.set_aside
    rows = list(reading.table.rows())
    assert len(rows) == len(expected)
    for row, facts in zip(rows, expected, strict=True):
        assert (row.file, row.line) == ("file.csv", 2)
        for name, value in facts.items():
            wanted = pytest.approx(value, rel=1e-9) if isinstance(value, float) else value
            assert getattr(row, name) == wanted, name


def test_every_form_has_a_golden_line():
    assert {form.name for form in forms()} == set(GOLDEN)


def test_a_list_of_ncnn_is_of_an_older_release_where_it_is_whole_and_lacks_the_net_that_was_added():
    nets = [f"net{number}" for number in range(12)]
    assert is_older(nets) is True
    assert is_older(nets[1:]) is None
    assert is_older([*nets, "vision_transformer"]) is False
    assert is_older(["vision_transformer"]) is False


def test_a_gzipped_file_is_read_by_its_content_and_not_its_name(tmp_path):
    path = tmp_path / "table.csv"
    path.write_bytes(gzip.compress(GOLDEN["rknn"][0].encode()))
    assert len(read_atlas(path).table) == 1


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("pi,resnet50,litert,forward,12,kg,1,,", "'kg' is neither a time nor a rate"),
        ("pi,resnet50,litert,forward,12,tokens/s,1,,", "A forward cannot be published in tokens/s"),
        ("pi,resnet50,litert,forward,-3,ms,1,,", "figure is -3, and should be above zero"),
        ("pi,resnet50,litert,forward,fast,ms,1,,", "figure is 'fast', which is no number"),
        ("pi,resnet50,litert,forward,nan,ms,1,,", "figure is nan, which is no number"),
        ("pi,resnet50,litert,forward,9e12,s,1,,", "which cannot be"),
        ("pi,resnet50,litert,forwrd,12,ms,1,,", "Did you mean forward?"),
        ("pi,resnet50,litert,prefill,12,tokens/s,1,,", "a prefill needs `prompt`"),
        ("pi,resnet50,litert,forward,12,ms,1.5,,", "batch is 1.5, which is no whole number"),
        ("pi,resnet50,litert,forward,12,ms,1,,q4_z", "There is no number format named 'q4_z'"),
        (",resnet50,litert,forward,12,ms,1,,", "device is empty"),
    ],
)
def test_a_wrong_line_is_set_aside_with_its_reason_and_the_rest_is_taken(line, reason, tmp_path):
    reading = _read(tmp_path, f"{TIDY}pi,resnet50,litert,forward,11,ms,1,,\n{line}\n")
    assert len(reading.table) == 1
    (aside,) = reading.set_aside
    assert (aside.file, aside.line) == ("file.csv", 3)
    assert reason in aside.reason


@pytest.mark.parametrize(("days", "taken"), [(29, 2), (31, 1)])
def test_a_step_takes_less_than_a_month(tmp_path, days, taken):
    reading = _read(
        tmp_path, f"{TIDY}pi,resnet50,litert,forward,{days * 86400},s,1,,\npi,resnet50,litert,forward,1,s,1,,\n"
    )
    assert len(reading.table) == taken


def test_the_same_figure_published_twice_counts_once(tmp_path):
    row = "pi,resnet50,litert,forward,11,ms,1,,\n"
    reading = _read(tmp_path, f"{TIDY}{row}pi,resnet50,litert,forward,12,ms,1,,\n{row}")
    assert reading.table["figure"].tolist() == [11, 12]
    assert str(reading.set_aside[0]) == "file.csv, line 4: the same figures as line 2."


def test_a_step_that_contradicts_its_rate_is_set_aside(tmp_path):
    text = f"{TIMM}x.csv,NVIDIA RTX 3090,amp,nchw,pt113,cu117,eager,resnet50,1024,224,1000,20.77,,\n"
    assert "take another time" in _read(tmp_path, text).set_aside[0].reason


def test_a_model_that_no_card_can_hold_ran_on_the_cpu_too(tmp_path):
    text = GOLDEN["llamacpp"][0].replace("qwen3moe 30B.A3B Q8_0,30.25,30.53", "deepseek2 671B Q4_K,376.65,671.03")
    (row,) = _read(tmp_path, text).table.rows()
    assert (row.unit, row.device, row.model) == ("cpu+gpu", None, "deepseek-v3")
    text = GOLDEN["llamacpp"][0].replace("NVIDIA RTX 4090", "Tesla P100-PCIE-16GB")
    (row,) = _read(tmp_path, text).table.rows()
    assert (row.unit, row.device) == ("cpu+gpu", None)  # 30 GiB on a card of 16


@pytest.mark.parametrize(
    ("form", "old", "new", "facts"),
    [
        ("geerling", "Intel 13900K (Nvidia 5090),GPU", "Raspberry Pi CM5 Cluster (10x 16GB),CPU", {"count": 10}),
        ("geerling", "DeepSeek R1 14b", "gpt-oss 20b", {"weights": "mxfp4", "model": "gpt-oss-20b"}),
        ("llamacpp-batched", "gpt-oss-20b", "gemma-3-4b-it-qat", {"weights": "q4_0", "model": "gemma-3-4b"}),
        ("llamacpp-batched", "gpt-oss-20b", "Qwen3-8B", {"weights": "q4_k"}),
        ("argonne", "128,16,2.330946,109.826672", "128,1,4,64", {"settings": {"chunk": "1"}, "batch": 1}),
        ("jetson", "orin", "thor", {"weights": "nvfp4", "device": "nvidia-jetson-agx-thor"}),
        ("phones", "executorch README.md", "LiteRT-LM README (pp1024/tg256)", {"prompt": 1024, "engine": "litert-lm"}),
    ],
)
def test_what_a_source_leaves_unsaid_is_known_from_how_it_measures(form, old, new, facts, tmp_path):
    row = next(iter(_read(tmp_path, GOLDEN[form][0].replace(old, new)).table.rows()))
    assert {name: getattr(row, name) for name in facts} == facts


def test_a_file_of_no_form_says_what_our_own_would_need(tmp_path):
    with pytest.raises(FormatError, match=r"its columns are a, b.*lacks device, figure, figure_unit, model, quantity"):
        _read(tmp_path, "a,b\n1,2\n")


@pytest.mark.parametrize("content", [b"", b"\x1f\x8b\x08broken", b"\xff\xfe\x00"])
def test_a_broken_file_is_an_error_and_no_traceback(content, tmp_path):
    path = tmp_path / "broken.csv"
    path.write_bytes(content)
    with pytest.raises(FormatError):
        read_atlas(path)


def test_a_missing_file_and_a_folder_are_errors(tmp_path):
    for path in (tmp_path / "none.csv", tmp_path):
        with pytest.raises(FormatError):
            read_atlas(path)


def test_a_quantised_net_of_ncnn_ran_on_the_cpu_whatever_adapter_was_asked_for(tmp_path):
    """ncnn's Vulkan has no layers of whole numbers: `mobilenet_int8` takes as long with an adapter as without."""
    header = "device,num_threads,powersave,gpu_device,loop_count,model,min_ms,max_ms,avg_ms\n"
    board = '"Raspberry Pi 5 Broadcom BCM2712, Cortex-A76 (ARMv8) (2.4GHz x 4)",4,0,0,10,'
    reading = _read(tmp_path, f"{header}{board}mobilenet_int8,10.2,10.5,10.4\n{board}mobilenet,147.6,147.7,147.7\n")
    quantised, float_ = reading.table.rows()
    assert (quantised.unit, quantised.device) == ("cpu", "raspberry-pi-5")
    assert (float_.unit, float_.device) == ("gpu", "raspberry-pi-5-gpu")


def test_plans_that_a_file_multiplies_are_read_as_they_were_run(tmp_path):
    def line(identity, version, measured, plan):
        source = f"source_file=2026-04-06.csv; silicon_concurrency=64; measured={measured}"
        shared = "deepseek-ai/DeepSeek-R1,b200_sxm,fp4,agg,1024,1024,nvfp4,nvfp4"
        return f"{identity},{source},trtllm,{version},{shared},{plan},,,,,,,,,,,,,,,100,10\n"

    text = _LINES.AIC + "".join((
        line("c64_tp8_ep8_1", "1.2.0rc6.post2", "2026-02-03", "64,64,1,1,8,8"),  # tp 64 is 8 times 8
        line("c64_tp8_ep8_2", "1.2.0rc6.post3", "2026-02-06", "1,1,1,64,8,8"),  # attention copied on 8 devices
        line("cfg635", "1.3.0", "2026-03-01", "8,4,1,4,1,16"),  # four devices, stated as tp and as dp
    ))  # fmt: skip
    rows = [row for row in _read(tmp_path, text).table.rows() if row.quantity == "tpot"]
    plans = [{name: row.settings.get(name) for name in ("tp", "dp", "ep")} for row in rows]
    assert plans == [{"tp": "8", "dp": None, "ep": "8"}, {"tp": None, "dp": "8", "ep": "8"},
                     {"tp": None, "dp": "4", "ep": "4"}]  # fmt: skip
    assert [row.count for row in rows] == [8, 8, 4]
    assert [row.batch for row in rows] == [64, 8, 8]
    assert [row.settings.get("drafts") for row in rows] == [None, "mtp", None]
