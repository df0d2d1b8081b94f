"""Looking things up, tables of one's own, and the figure nearest to a prediction."""

from dataclasses import replace

import numpy as np
import pytest

import inferometer
from inferometer.core.errors import DomainError, UnknownNameError
from inferometer.known.atlas import reading
from inferometer.known.atlas.looking import (
    AtlasComparison,
    atlas,
    count_published,
    nearest_published,
    of_device,
    of_model,
)
from inferometer.known.atlas.measurement import PublishedMeasurement
from inferometer.known.atlas.shipped import load, own_folder, write_table
from inferometer.known.atlas.table import table_of

TIDY = "device,model,engine,quantity,figure,figure_unit,batch,weights,date\n"


@pytest.fixture(autouse=True)
def _data_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("INFEROMETER_DATA", str(tmp_path / "data"))


def _file(tmp_path, *lines, name="Mine table.csv"):
    path = tmp_path / name
    path.write_text(TIDY + "".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def test_the_package_is_the_verb():
    table = inferometer.atlas(model="resnet101", device="nvidia-rtx-4090")
    assert len(table) == 20
    assert set(table.distinct("dataset")) == {"timm"}
    assert np.all(table["seconds"] > 0)


def test_a_catalog_name_a_published_name_and_words_of_it_find_the_same_rows():
    rows = [len(atlas(model="llama-3.2-1b", device=name)) for name in ("galaxy s25", "Samsung Galaxy S25", "Q-8750")]
    assert rows[0] > 0
    assert set(rows) == {rows[0]}
    assert len(atlas(model="vit-b-16")) == len(atlas(model="timm:vit_base_patch16_224"))
    assert len(atlas(model="mediapipe_pose")) == 198


def test_filters_narrow_and_the_newest_comes_first():
    table = atlas(model="phi-3-mini", runtime="openvino", quantity="decode", unit="gpu", weights="i4")
    assert len(table) > 10
    dates = [date or "" for date in table["date"]]
    assert dates == sorted(dates, reverse=True)
    assert table.distinct("weights") == ("i4",)


@pytest.mark.parametrize(
    ("asked", "suggested"),
    [({"model": "restnet50"}, "resnet50"), ({"device": "rasbery"}, "Raspberry"), ({"runtime": "openvin"}, "openvino"),
     ({"quantity": "decod"}, "decode"), ({"dataset": "tim"}, "timm"), ({"weights": "q4_9"}, "q4_")],
)  # fmt: skip
def test_a_typo_suggests(asked, suggested):
    with pytest.raises(UnknownNameError, match=suggested):
        atlas(**asked)


def test_a_few_names_are_listed_and_hundreds_are_not():
    with pytest.raises(UnknownNameError, match=r"There are: .*decode, .*ttft"):
        atlas(quantity="zzz")
    with pytest.raises(UnknownNameError) as refused:
        atlas(dataset="zzz")
    assert ("There are:" in str(refused.value)) == (len(load().distinct("dataset")) < 40)


def test_names_that_are_known_but_not_together_give_an_empty_table():
    assert len(atlas(model="llama-3.2-1b", device="nvidia-rtx-3090")) == 0
    assert len(atlas(model="resnet101", device="galaxy s25", runtime="vllm")) == 0


def test_a_table_of_ones_own_joins_and_leaves(tmp_path):
    path = _file(
        tmp_path, "my board,my net,my engine,forward,80,ms,1,i8,2026-11-01", "my board,my net,,stream,9,kg,1,,"
    )
    added = reading.add(path)
    assert (added.dataset, added.rows, len(added.set_aside)) == ("mine-table", 1, 1)
    (row,) = atlas(model="my net").rows()
    assert (row.dataset, row.file, row.line, row.seconds) == ("mine-table", "Mine table.csv", 2, 0.08)
    reading.remove("mine-table")
    with pytest.raises(UnknownNameError):
        atlas(model="my net")


def test_a_table_needs_a_free_name(tmp_path):
    path = _file(tmp_path, "my board,my net,my engine,forward,80,ms,1,i8,2026-11-01")
    reading.add(path, name="a")
    with pytest.raises(DomainError, match="--again"):
        reading.add(path, name="a")
    with pytest.raises(DomainError, match="has a dataset timm already"):
        reading.add(path, name="timm")
    with pytest.raises(DomainError, match="small letters"):
        reading.add(path, name="../a")
    assert reading.add(path, name="a", again=True).rows == 1
    with pytest.raises(UnknownNameError, match="Yours are: a"):
        reading.remove("b")


def test_a_figure_that_the_atlas_has_and_one_that_cannot_be_are_set_aside(tmp_path):
    first = _file(tmp_path, "my board,my net,my engine,forward,80,ms,1,i8,2026-11-01")
    reading.add(first, name="a")
    second = _file(
        tmp_path, "my board,my net,my engine,forward,80,ms,1,i8,2026", "my board,my net,my engine,forward,1,ms,1,i8,",
        "my board,my net,my engine,forward,90,ms,1,i8,", name="b.csv",
    )  # fmt: skip
    added = reading.add(second, doubts=(lambda row: "too fast." if row.seconds < 0.01 else None,))
    assert added.rows == 1
    assert [str(aside) for aside in added.set_aside] == [
        "b.csv, line 2: the atlas has this figure already: a, line 2.",
        "b.csv, line 3: too fast.",
    ]


# the nearest


def _measured(**facts):
    shared = {"dataset": "mine", "source": "mine", "file": "f", "line": 2, "device_published": "d",
              "model_published": "m", "model": "my-net", "device": "my-board", "quantity": "forward", "figure": 10.0,
              "figure_unit": "ms", "batch": 1, "image": 224, "weights": "f16", "activations": "f16"}  # fmt: skip
    return PublishedMeasurement(**{**shared, **facts})


def _nearest(rows, **asked):
    own_folder().mkdir(parents=True)
    write_table(own_folder() / "mine.json.gz", table_of(rows))
    question = AtlasComparison(
        model="my-net", device="my-board", quantity="forward", engine="torch-compile", weights="f16",
        computed=frozenset({"f16"}), image=224,
    )  # fmt: skip
    return nearest_published(replace(question, **asked))


def _lines(table):
    return [row.line for row in table.rows()]


def test_rows_of_a_catalog_name_are_those_that_were_found_to_mean_it_and_not_all_that_have_its_words():
    table = table_of([
        _measured(line=2, model="resnet50", model_published="ResNet-50 v1.5"),
        _measured(line=3, model=None, model_published="resnet50-like"),
        _measured(line=4, device="nvidia-l4", device_published="NVIDIA L4"),
        _measured(line=5, device=None, device_published="nvidia-l4 or so"),
    ])  # fmt: skip
    assert _lines(of_model(table, "resnet50")) == [2]
    assert _lines(of_device(table, "nvidia-l4")) == [4]


def test_one_of_two_spellings_is_enough_and_comes_before_names_that_have_the_words():
    spelt = ("Galaxy Zed|ZX-8750", "Galaxy Zed Ultra", None)
    table = table_of([_measured(line=2 + place, device_spelling=name) for place, name in enumerate(spelt)])
    assert [_lines(of_device(table, asked)) for asked in ("galaxy-zed", "zx_8750", "zed galaxy")] == [[2], [2], [2, 3]]


@pytest.mark.parametrize(("published", "found"), [(1000, True), (1049, True), (951, True), (1051, False), (949, False)])
def test_prompts_within_a_twentieth_are_one_size(published, found):
    rows = [_measured(quantity="prefill", prompt=published, image=None)]
    nearest = _nearest(rows, quantity="prefill", prompt=1000, image=None)
    assert (nearest is not None) is found


def test_the_same_engine_comes_first_then_its_family_then_the_newest():
    rows = [
        _measured(engine="qnn", date="2026-10", line=2),
        _measured(engine="torch-eager", version="2.9", line=3),
        _measured(engine="torch-eager", version="2.10", line=4),
    ]
    assert _nearest(rows).line == 4


@pytest.mark.parametrize(
    "other",
    [{"batch": 8}, {"image": 256}, {"weights": "i8"}, {"weights": None}, {"activations": "f32"}, {"count": 2},
     {"part": "encoder"}, {"quantity": "stream", "figure_unit": "ms"}, {"device": "other"}, {"input": "1x3x9"},
     {"model": "other"}],
)  # fmt: skip
def test_what_cannot_be_compared_is_not_shown(other):
    assert _nearest([_measured(**other)]) is None


def test_what_an_engine_converts_to_is_what_was_published():
    rows = [_measured(engine="qnn")]
    assert _nearest(rows, engine="qnn", weights="f32", computed=frozenset({"f16", "f32"})).line == 2


@pytest.mark.parametrize("asked", [{"engine": "litert"}, {"engine": "qnn", "computed": frozenset({"f32"})}])
def test_another_format_of_another_engine_is_not_shown(asked):
    other = {"weights": "f32", "computed": frozenset({"f16", "f32"}), **asked}
    assert _nearest([_measured(engine="qnn")], **other) is None


def test_a_part_of_a_chip_is_shown_where_nobody_measured_all_of_it(monkeypatch, tmp_path):
    one, two = (_measured(line=cores, settings={"cores": str(cores)}, unit="npu") for cores in (1, 2))
    assert _nearest([one, two]).line == 2
    monkeypatch.setenv("INFEROMETER_DATA", str(tmp_path / "other"))
    assert _nearest([one, two, _measured(line=9, unit="npu")]).line == 9
    assert count_published("my-net", "my-board") == 3


LLM = {"image": None, "prompt": 1000, "generate": 100}


@pytest.mark.parametrize(
    ("row", "asked", "comparable"),
    [
        # a prompt within 5 %, counted from what is asked
        ({"quantity": "prefill", **LLM}, {"prompt": 1050}, True),
        ({"quantity": "prefill", **LLM}, {"prompt": 1060}, False),
        ({"quantity": "prefill", **LLM, "context": 9}, {"prompt": 1000}, False),
        ({"quantity": "prefill", **LLM}, {"prompt": None}, False),
        ({"quantity": "request", **LLM}, {"prompt": 1000, "generate": 95.3}, True),
        ({"quantity": "request", **LLM}, {"prompt": 1000, "generate": 90}, False),
        ({"quantity": "request", **LLM}, {"prompt": 900, "generate": 100}, False),
        ({"quantity": "tpot", **LLM}, {"prompt": 1000, "generate": 100}, True),
        ({"quantity": "ttft", **LLM}, {"prompt": 1000, "generate": 200}, False),
        ({"image": None, "prompt": 1000}, {"image": None, "prompt": 990}, True),
        ({"image": None, "prompt": 1000}, {"image": None, "prompt": 900}, False),
        # a cache whose mean over the steps is within 512 tokens, or a quarter of a long one
        ({"quantity": "decode", **LLM, "context": 0}, {"context": 562}, True),
        ({"quantity": "decode", **LLM, "context": 0}, {"context": 563}, False),
        ({"quantity": "decode", **LLM, "context": 7950}, {"context": 6400}, True),
        ({"quantity": "decode", **LLM, "context": 7951}, {"context": 6400}, False),
        ({"quantity": "decode", **LLM, "context": 7951}, {"context": None}, True),
        ({"quantity": "tpot", **LLM}, {"context": 0}, False),
        # weights within 15 % of the bits, 4.5 for q4_0
        ({"weights": "q4_0"}, {"weights": "q4_k"}, True), ({"weights": "q4_0"}, {"weights": "i4"}, True),
        ({"weights": "q5_0"}, {"weights": "q4_0"}, False), ({}, {"weights": None}, False),
        ({"activations": None}, {"computed": frozenset({"i8"})}, True), ({}, {"computed": frozenset()}, True),
        ({}, {"computed": frozenset({"bf16"})}, True),
        ({"activations": "f32"}, {"computed": frozenset({"tf32"})}, True),
        ({}, {"count": 2}, False), ({"count": 2}, {"count": 2}, True), ({"batch": 4}, {"batch": 4}, True),
    ],
)  # fmt: skip
def test_how_near_is_near_enough(row, asked, comparable):
    quantity = {"quantity": row.get("quantity", "forward")} | ({"image": None} if "quantity" in row else {})
    found = _nearest([_measured(**{"figure_unit": "ms", **row})], **{**quantity, **asked})
    assert (found is not None) == comparable


@pytest.mark.parametrize(
    ("nearer", "farther"),
    [
        ({"engine": "torch-compile"}, {"engine": "torch-eager", "date": "2026-12"}),
        ({"engine": "torch-eager"}, {"engine": "qnn", "date": "2026-12"}),
        ({"engine": "qnn"}, {"engine": None, "date": "2025"}),
        ({"weights": "f16"}, {"weights": "bf16", "date": "2026-12"}),
        ({"date": "2026-12"}, {"date": "2026-9"}), ({"date": "2026-12"}, {"date": None, "version": "9"}),
        ({"version": "2.10.1"}, {"version": "2.9"}), ({"version": "b10"}, {"version": None}),
    ],
)  # fmt: skip
def test_of_two_rows_the_nearer_is_shown_whichever_comes_first(nearer, farther, tmp_path, monkeypatch):
    for place, order in enumerate(((nearer, farther), (farther, nearer))):
        monkeypatch.setenv("INFEROMETER_DATA", str(tmp_path / str(place)))
        found = _nearest([_measured(**{"date": "2026-01", **facts}) for facts in order])
        assert {key: getattr(found, key) for key in nearer} == nearer


def test_bf16_stands_for_f16_and_autocast_is_judged_by_what_it_computes_in():
    assert _nearest([_measured(weights="bf16", activations="bf16")]) is not None


def test_autocast_is_judged_by_what_it_computes_in():
    assert _nearest([_measured(weights="f32", settings={"autocast": "f16"})]) is not None


def test_a_cpu_is_compared_with_all_of_its_threads():
    rows = [_measured(unit="cpu", settings={"threads": str(n)}, line=n) for n in (1, 4, 2)]
    assert _nearest(rows).line == 4


def test_a_decode_step_is_compared_near_its_context():
    facts = {"quantity": "decode", "image": None, "generate": 128}
    asked = {"quantity": "decode", "image": None}
    rows = [_measured(context=8192, line=2, **facts), _measured(context=512, line=3, **facts)]
    assert _nearest(rows, context=576, **asked).line == 3


def test_a_model_that_nobody_measured_reads_no_table():
    assert nearest_published(AtlasComparison(model="no-such", device="nvidia-rtx-4090", quantity="forward")) is None


def test_a_model_that_was_measured_in_parts_is_found_by_its_name():
    found = atlas(model="whisper-base", dataset="qai-hub")
    assert set(found["part"]) == {"encoder", "decoder"}
    assert {"whisper-base/encoder", "whisper-base/decoder"} == set(found["model"])


def test_of_rows_that_are_as_near_the_one_with_the_same_activations_counts():
    asked = AtlasComparison(
        model="llama-3.2-1b", device="qualcomm-snapdragon-8-elite-npu", quantity="decode", engine="genie", weights="i4",
        computed=frozenset({"f16", "i16"}),
    )  # fmt: skip
    found = {name: nearest_published(replace(asked, activations=name)) for name in ("f16", "i16")}
    assert {name: row.activations for name, row in found.items()} == {"f16": "f16", "i16": "i16"}
