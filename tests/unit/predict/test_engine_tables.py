"""Operator tables of an installed package: read, turned into shares of the floor, and kept."""

from dataclasses import replace

import numpy as np
import pytest

from inferometer.core import Sourced
from inferometer.core.calibration import KernelShares
from inferometer.known import device, devices
from inferometer.known.engines import costs_of, engine, version_numbers
from inferometer.predict.ask import ask
from inferometer.predict.basis.calibrations import higher_rates
from inferometer.predict.basis.engine_tables import calibrating, reading
from inferometer.predict.basis.engine_tables.calibrating import engine_calibration, form_calibration, system_of
from inferometer.predict.basis.engine_tables.reading import read_tables, version_distance
from inferometer.predict.fitting import memory_fit
from inferometer.predict.price import kernels
from inferometer.predict.price.kernel_floors import PeakRates, floor_of, gemm_ideals
from inferometer.predict.served.question import served, serving_answer

RATES = PeakRates(peaks={"bf16": 1e15, "f8e4m3": 2e15}, memory=3e12, link=4e11)
pyarrow = pytest.importorskip("pyarrow")


def write(path, columns):
    from pyarrow import parquet

    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pyarrow.table(columns), path)


def products(folder, version, milliseconds, names=("bfloat16",)):
    rows = [(name, m, 1024, 2048) for name in names for m in (1, 64)]
    write(
        folder / "gemm" / "vllm" / version / "gemm_perf.parquet",
        {
            "gemm_dtype": [name for name, *_ in rows], "m": [m for _, m, *_ in rows], "n": [1024] * len(rows),
            "k": [2048] * len(rows), "latency": [milliseconds] * len(rows),
        },
    )  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    products(tmp_path, "0.14.0", 0.02, ("bfloat16", "fp8"))
    products(tmp_path, "0.24.0", 0.01)
    write(
        tmp_path / "comm" / "vllm" / "0.24.0" / "custom_allreduce_perf.parquet",
        {
            "kernel_source": ["vLLM_custom_graph", "vLLM_custom_eager"], "num_gpus": [2, 2],
            "message_size": [1024, 1024], "latency": [0.005, 0.05],
        },
    )  # fmt: skip
    return tmp_path


def test_seconds_become_shares_of_the_floor_and_back(folder):
    table = read_tables(folder, "vllm", None, RATES).kernels["gemm"]
    chosen = (table.texts["format"] == "bfloat16") & (table.sizes["rows"] == 64)
    sizes = {"rows": 64, "out_features": 1024, "in_features": 2048}
    floor = floor_of(gemm_ideals(RATES, sizes, arithmetic="bf16", weight_bytes=2.0))
    assert floor / table.shares[chosen][0] == pytest.approx(0.01e-3)
    assert np.all((table.shares > 0) & (table.shares <= 1))


def test_the_nearest_version_is_read_and_lends_the_formats_it_lacks_from_the_next(folder):
    newest = read_tables(folder, "vllm", None, RATES)
    assert newest.versions["gemm"] == "0.24.0"
    assert set(newest.kernels["gemm"].texts["format"]) == {"bfloat16", "fp8"}
    assert read_tables(folder, "vllm", "0.15.1", RATES).versions["gemm"] == "0.14.0"


def test_messages_are_those_of_a_captured_step_in_bytes(folder):
    table = read_tables(folder, "vllm", None, RATES).kernels["all_reduce"]
    assert table.sizes["bytes"].tolist() == [2048]  # elements of two bytes, and no eager row


def test_versions_are_compared_by_their_numbers():
    assert version_numbers("1.3.0rc20") > version_numbers("1.3.0rc9")
    assert version_distance("0.24.0", "0.19.0") < version_distance("1.0.0", "0.19.0")


def test_what_was_read_is_kept_and_a_missing_version_is_named(folder, tmp_path, monkeypatch):
    root = tmp_path / "tables"
    (root / "h100_sxm").parent.mkdir()
    folder_of = root / "h100_sxm"
    products(folder_of, "0.24.0", 0.01)
    monkeypatch.setattr(calibrating, "tables_folder", lambda: root)
    monkeypatch.setattr(calibrating, "cache_folder", lambda: tmp_path / "cache")
    calibrating._calibrations.clear()
    first = engine_calibration(device("nvidia-h100-sxm"), "vllm", "0.11.0")
    assert any("0.11.0" in note and "0.24.0" in note for note in first.notes)
    calibrating._calibrations.clear()
    (folder_of / "gemm" / "vllm" / "0.24.0" / "gemm_perf.parquet").write_bytes(b"no table any more")
    again = engine_calibration(device("nvidia-h100-sxm"), "vllm", "0.11.0")
    np.testing.assert_allclose(
        again.calibration.kernels["gemm"].shares, first.calibration.kernels["gemm"].shares, rtol=1e-6
    )
    other = engine_calibration(device("nvidia-h100-pcie"), "vllm", "0.11.0")
    assert any("nvidia-h100-pcie" in note for note in other.notes)
    assert other.calibration.kernels["gemm"].residual > first.calibration.kernels["gemm"].residual
    calibrating._calibrations.clear()


def test_tables_are_kept_apart_by_every_peak_that_their_shares_are_of(tmp_path, monkeypatch):
    """A message's share is of the link: kept shares must not answer for another link."""
    products(tmp_path / "h100_sxm", "0.24.0", 0.01)
    monkeypatch.setattr(calibrating, "tables_folder", lambda: tmp_path)
    monkeypatch.setattr(calibrating, "cache_folder", lambda: tmp_path / "cache")
    for rates in (RATES, replace(RATES, link=8e11), replace(RATES, memory=6e12), replace(RATES, peaks={"bf16": 2e15})):
        calibrating._calibrations.clear()
        monkeypatch.setattr(calibrating, "peak_rates", lambda _, rates=rates: rates)
        engine_calibration(device("nvidia-h100-sxm"), "vllm")
    calibrating._calibrations.clear()
    assert len([*(tmp_path / "cache" / "engine-tables").iterdir()]) == 4


def test_what_a_step_costs_comes_with_its_own_spreads_and_with_no_other_engines(tmp_path, monkeypatch):
    products(tmp_path / "h100_sxm", "0.24.0", 0.01)
    monkeypatch.setattr(calibrating, "tables_folder", lambda: tmp_path)
    monkeypatch.setattr(calibrating, "cache_folder", lambda: tmp_path / "cache")
    calibrating._calibrations.clear()
    card, (costs, *_) = device("nvidia-h100-sxm"), engine("vllm").serving.costs
    slower = replace(costs, step_s=replace(costs.step_s, value=costs.step_s.value + 1.0))
    made, other = (engine_calibration(card, "vllm", costs=each).calibration for each in (costs, slower))
    assert made.residuals == {"step": costs.tpot_spread.value, "step.prefill": costs.batch_spread.value}
    assert costs.tpot_spread.value != costs.batch_spread.value
    assert other.overheads["step"].value == pytest.approx(made.overheads["step"].value + 1.0)
    assert engine_calibration(card, "vllm").calibration.overheads == {}
    calibrating._calibrations.clear()


def test_without_the_package_the_forms_answer_and_say_what_would_be_better(monkeypatch):
    monkeypatch.setattr(calibrating, "tables_folder", lambda: None)
    found = engine_calibration(device("nvidia-h100-sxm"), "vllm")
    assert "inferometer[engines]" in found.notes[0]
    assert "experts" in found.calibration.forms
    unlike = engine_calibration(device("google-tpu-v3"), "vllm")
    assert unlike.calibration.device == "ten GPUs"
    assert unlike.notes == ()  # no tables would change it
    assert engine_calibration(device("raspberry-pi-5"), "vllm").calibration is None


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
def test_no_form_is_faster_than_the_peaks_or_free(engine):
    for system in (*calibrating.systems(), None):
        for table in form_calibration(engine, system, "any").forms.values():
            for form in table.by_format.values():
                assert 0 < form.compute_share <= 1
                assert 0 < form.memory_share <= 1
                assert 1e-6 <= form.ramp_s < 1e-3
                assert form.each_s >= 0
                assert 0 <= form.uneven <= 1


@pytest.mark.parametrize(("runtime", "kind"), [("trtllm", "fp8"), ("vllm", "fp8_block"), ("sglang", "fp8_block")])
def test_experts_of_8_bits_have_the_scales_of_their_engines_checkpoints(runtime, kind, monkeypatch):
    monkeypatch.setattr(calibrating, "tables_folder", lambda: None)
    answer = ask("mixtral-8x7b", on="nvidia-h200", runtime=runtime, weights="f8e4m3", prompt=8192).answer()
    experts = next(op for op in answer.phase("prefill").ops if op.name.endswith("experts"))
    form = form_calibration(runtime, "h200_sxm", "nvidia-h200").forms["experts"].by_format[kind]
    stretched = costs_of(engine(runtime).serving, None, "nvidia-h200").kernels_prompt.value  # of all that prompts take
    assert experts.floor_s / experts.time_s == pytest.approx(form.compute_share / stretched, rel=0.02)


@pytest.mark.parametrize(
    ("model", "tokens_per_s"),
    [("gpt-oss-120b", 89), ("qwen3-30b-a3b", 102)],  # vLLM on one A100 80GB, one user, as published
)
def test_a_mixture_on_an_a100_is_as_fast_as_published_whoever_asks(model, tokens_per_s, monkeypatch):
    monkeypatch.setattr(calibrating, "tables_folder", lambda: None)
    question = ask(model, on="nvidia-a100-80gb", runtime="vllm", prompt=512, generate=128)
    token = question.answer().phase("decode")
    assert 1 / token.high_s < tokens_per_s < 1 / token.low_s
    assert 1 / token.time_s == pytest.approx(tokens_per_s, rel=0.2)
    one = serving_answer(question, 1)
    assert one.tpot_s == pytest.approx(token.time_s, rel=0.01)


def test_every_device_that_tables_are_lent_to_is_in_the_catalog():
    systems = calibrating._systems()
    missing = [name for name in (*systems["systems"].values(), *systems["like"]) if name not in devices()]
    assert missing == []
    assert system_of("nvidia-h200") == ("h200_sxm", True)
    assert system_of("nvidia-gh200-96gb") == ("h100_sxm", False)
    assert system_of("raspberry-pi-5") is None


def test_products_take_the_fastest_of_all_engines_and_mixtures_that_of_their_own(folder):
    fast = folder / "gemm" / "sglang" / "0.5.0" / "gemm_perf.parquet"
    columns = {"gemm_dtype": ["fp8"], "m": [1], "n": [1024], "k": [2048]}
    write(fast, {**columns, "latency": [0.004]})  # vLLM's own takes 0.02 ms, the host's launch with it
    table = read_tables(folder, "vllm", None, RATES).kernels["gemm"]
    chosen = (table.texts["format"] == "fp8") & (table.sizes["rows"] == 1)
    sizes = {"rows": 1, "out_features": 1024, "in_features": 2048}
    floor = floor_of(gemm_ideals(RATES, sizes, arithmetic="f8e4m3", weight_bytes=1))
    assert floor / table.shares[chosen][0] == pytest.approx(0.004e-3)

    def experts(engine, version, milliseconds):
        sizes = {"num_tokens": [8], "hidden_size": [64], "inter_size": [32], "topk": [2], "num_experts": [8],
                 "moe_tp_size": [1], "moe_ep_size": [1]}  # fmt: skip
        path = folder / "moe" / engine / version / "moe_perf.parquet"
        texts = {"moe_dtype": ["bfloat16"], "distribution": ["power_law_1.01"], "kernel_source": ["own"]}
        write(path, {**sizes, **texts, "latency": [milliseconds]})

    experts("vllm", "0.19.0", 0.5)
    experts("vllm", "0.24.0", 0.2)
    experts("sglang", "0.5.0", 0.1)
    shares = {
        engine: read_tables(folder, engine, "0.19.0", RATES).kernels["experts"].shares for engine in ("vllm", "sglang")
    }
    assert shares["sglang"][0] / shares["vllm"][0] == pytest.approx(2)  # 0.1 ms against the better of 0.5 and 0.2 ms


def test_a_product_whose_weights_a_cache_holds_is_no_faster_than_one_from_memory(tmp_path):
    """Measured again and again, 34 MB lie in the cache: 4 TB/s of 3. In a step they come from memory."""
    sizes = {"m": [1, 1], "n": [4096, 65536], "k": [4096, 4096]}
    floors = [2 * 4096 * 4096 / 3e12, 2 * 65536 * 4096 / 3e12]
    write(
        tmp_path / "gemm" / "vllm" / "0.24.0" / "gemm_perf.parquet",
        {"gemm_dtype": ["bfloat16"] * 2, **sizes, "latency": [1e3 * floors[0] * 0.75, 1e3 * floors[1] / 0.9]},
    )
    table = read_tables(tmp_path, "vllm", None, RATES).kernels["gemm"]
    assert table.shares == pytest.approx([0.9, 0.9], rel=1e-3)


# The reading itself, family by family

PLAIN = reading.TableFamily(
    name="gemm", folder="gemm", file="t.parquet", sizes={"rows": "m"}, texts={"format": "dtype"},
    only={"kind": frozenset({"wanted"})},
)  # fmt: skip


def table_of(path, rows, columns=("dtype", "m", "latency", "kind")):
    write(path, {name: [row[place] for row in rows] for place, name in enumerate(columns)})
    return path


def test_a_row_without_a_time_or_of_another_kind_is_left_out(tmp_path):
    rows = [("fp8", 1, 5.0, "wanted"), ("sq", 2, 0.0, "wanted"), ("sq", 3, float("nan"), "wanted"),
            ("sq", 4, 2.0, "wanted"), ("sq", 5, 9.0, "other"), (None, 6, -1.0, "wanted")]  # fmt: skip
    found = reading._read(PLAIN, table_of(tmp_path / "t.parquet", rows))
    assert found["seconds"].tolist() == pytest.approx([5e-3, 2e-3])
    assert (found["rows"].tolist(), found["format"].tolist()) == ([1.0, 4.0], ["fp8", "int8"])  # `sq` is int8
    others = [("fp8", 1, 5.0, "other")]
    path = table_of(tmp_path / "o.parquet", others)
    assert reading._read(PLAIN, path)["rows"].tolist() == [1.0]  # a restriction that no row meets does not hold
    assert reading._read(PLAIN, path, strict=True) is None
    bare = table_of(tmp_path / "b.parquet", [(1.0, 3)], ("latency", "unknown"))
    assert {name: values.tolist() for name, values in reading._read(PLAIN, bare).items()} == {
        "seconds": [1e-3], "rows": [0.0], "format": ["bfloat16"],
    }  # fmt: skip


def test_a_further_version_adds_only_formats_that_none_before_it_has(tmp_path):
    def file(number, *formats):
        return table_of(tmp_path / f"{number}.parquet", [(name, number, 1.0, "wanted") for name in formats])

    empty = table_of(tmp_path / "0.parquet", [("fp8", 9, 0.0, "wanted")])
    files = [empty, file(1, "fp8"), file(2, "nvfp4", "fp8"), file(3, "nvfp4", "int8", "fp8")]
    found = reading._columns(PLAIN, files)
    assert list(zip(found["format"].tolist(), found["rows"].tolist(), strict=True)) == [
        ("fp8", 1.0), ("nvfp4", 2.0), ("int8", 3.0),
    ]  # fmt: skip
    assert reading._columns(PLAIN, [empty]) is reading._columns(PLAIN, []) is None
    formless = reading.TableFamily(name="x", folder="", file="", sizes={"rows": "m"})
    assert reading._columns(formless, files[1:])["rows"].tolist() == [1.0]  # without formats one file is all


def test_the_fastest_of_every_point_is_taken(tmp_path):
    for owner, version, milliseconds in (("vllm", "1.0", (5.0, 1.0)), ("vllm", "2.0", (4.0, 2.0)),
                                          ("trtllm", "1.0", (3.0, 9.0)), ("sglang", "1.0", (8.0, 8.0))):  # fmt: skip
        kernel = "sglang_flashinfer_trtllm_moe" if owner == "sglang" else "own"
        rows = [("fp8", place, time, "wanted", kernel) for place, time in enumerate(milliseconds)]
        columns = ("dtype", "m", "latency", "kind", "kernel_source")
        table_of(tmp_path / "gemm" / owner / version / "t.parquet", rows, columns)

    def fastest(best, engine="vllm"):
        found = reading._fastest(replace(PLAIN, best=best), tmp_path, engine)
        return dict(zip(found["rows"].tolist(), (1e3 * found["seconds"]).round(6).tolist(), strict=True))

    assert fastest("engine") == {0.0: 3.0, 1.0: 1.0}
    assert fastest("version") == {0.0: 4.0, 1.0: 1.0}
    assert fastest("version", "trtllm") == {0.0: 3.0, 1.0: 8.0}  # lent what SGLang calls of its own kernels
    assert reading._fastest(replace(PLAIN, best="engine"), tmp_path / "none", "vllm") is None


def test_a_file_that_others_contradict_is_not_believed_of_that_format(tmp_path):
    """Not even at points that it alone has: there it would be as wrong."""
    older = [("int4_wo", place, 9.0, "wanted") for place in range(40)] + [
        ("fp8", place, 3.0, "wanted") for place in range(40)
    ]
    newer = [(name, place, 2.0, "wanted") for name in ("int4_wo", "fp8") for place in range(25)]
    table_of(tmp_path / "gemm" / "vllm" / "1.0" / "t.parquet", older)
    table_of(tmp_path / "gemm" / "vllm" / "2.0" / "t.parquet", newer)
    found = reading._fastest(replace(PLAIN, best="version"), tmp_path, "vllm")
    known = {name: sorted(found["rows"][found["format"] == name].tolist()) for name in ("int4_wo", "fp8")}
    assert known == {"int4_wo": [*range(25)], "fp8": [*range(40)]}
    assert set(found["seconds"][found["format"] == "int4_wo"]) == {2e-3}


def test_the_nearest_version_comes_first_and_without_one_the_newest(tmp_path):
    for version in ("0.9.0", "0.14.0", "0.19.0"):
        table_of(tmp_path / version / "t.parquet", [("fp8", 1, 1.0, "wanted")])
    (tmp_path / "1.0.0").mkdir()

    def order(version):
        return [name for name, _ in reading._by_nearness(tmp_path, "t.parquet", version)]

    assert order(None) == ["0.19.0", "0.14.0", "0.9.0"]
    assert order("0.10.0") == ["0.9.0", "0.14.0", "0.19.0"]
    assert order("0.14.0") == ["0.14.0", "0.19.0", "0.9.0"]  # of two as near the newer one
    assert reading._by_nearness(tmp_path / "none", "t.parquet", None) == []
    assert version_distance("1.2.3", "1.2") == pytest.approx(3 / 2500)
    assert version_numbers("v1.2.3rc4.5") == (1, 2, 3, 4)


def sizes(**given):
    return {name: np.array(values, float) for name, values in given.items()}


def test_tables_names_of_sizes_become_ours():
    decode = reading._our_sizes("attention.decode", sizes(heads=[8, 8], kv_heads=[0, 2], query=[1, 1], step=[100, 7]))
    assert {name: values.tolist() for name, values in decode.items()} == {
        "heads": [8, 8], "kv_heads": [8, 2], "keys": [101, 8],
    }  # fmt: skip
    prefill = reading._our_sizes("mla.prefill", sizes(heads=[8], query=[5], step=[3]))
    assert {name: values.tolist() for name, values in prefill.items()} == {"heads": [8], "query": [5], "context": [3]}
    assert reading._our_sizes("all_reduce", sizes(elements=[6]))["bytes"].tolist() == [12]


@pytest.mark.parametrize(
    ("family", "formats", "function", "given"),
    [
        ("gemm", {"format": "fp8"}, "gemm_ideals", {"arithmetic": "f8e4m3", "weight_bytes": 1.0}),
        ("gemm", {}, "gemm_ideals", {"arithmetic": "bf16", "weight_bytes": 2.0}),
        ("experts", {"format": "w4afp8"}, "experts_ideals", {"arithmetic": "f8e4m3", "weight_bytes": 0.53125}),
        ("attention.decode", {"kv": "fp8"}, "attention_decode_ideals", {"arithmetic": "bf16", "kv_bytes": 1.0}),
        ("attention.prefill", {}, "attention_prefill_ideals", {"arithmetic": "bf16", "kv_bytes": 2.0}),
        ("mla.decode", {"kv": "bfloat16"}, "mla_decode_ideals", {"arithmetic": "bf16", "kv_bytes": 2.0}),
        ("mla.prefill", {"kv": "fp8"}, "mla_prefill_ideals", {"arithmetic": "bf16", "kv_bytes": 1.0}),
        ("all_gather", {}, "message_bytes_ideals", {"function": "all_gather"}),
    ],
)
def test_every_family_has_its_own_floor(family, formats, function, given):
    found = reading.ideals_of(family, formats)
    assert (found.func.__name__, found.keywords) == (function, given)


def test_latent_attention_is_its_module_less_the_products(monkeypatch):
    asked = []
    monkeypatch.setattr(reading, "_measured_gemm", lambda _gemm, rows, n, k: asked.append((rows.tolist(), n, k)) or 0.5)
    part = {**sizes(batch=[2, 4], query=[10, 1], heads=[16, 16], step=[0, 0], seconds=[8.0, 2.4]),
            "kv": np.array(["bfloat16"] * 2), "format": np.array(["bfloat16", "bfloat16"])}  # fmt: skip
    for way, tokens in (("prefill", [20.0, 4.0]), ("decode", [2.0, 4.0])):
        raw = {f"mla_module.{way}": part, "gemm": {}}
        versions = {f"mla_module.{way}": "1.0"}
        asked.clear()
        reading._take_latent_from_modules(raw, versions)
        assert raw[f"mla.{way}"]["seconds"].tolist() == pytest.approx([6.0, 0.8])  # less 4 × 0.5, and a third at least
        assert [rows for rows, _, _ in asked] == [tokens] * 4
        assert [(np.max(n), np.max(k)) for _, n, k in asked] == [
            (2112.0, 7168.0), (3072.0, 1536.0), (4096.0, 512.0), (7168.0, 2048.0),
        ]  # fmt: skip
        assert versions[f"mla.{way}"] == "1.0"
    for formats, seconds in ((np.array(["fp8", "bfloat16"]), [0.8]), (np.array(["fp8", "fp8"]), [6.0, 0.8])):
        raw = {"mla_module.decode": {**part, "format": formats}, "gemm": {}}
        reading._take_latent_from_modules(raw, {"mla_module.decode": "1.0"})
        assert raw["mla.decode"]["seconds"].tolist() == pytest.approx(seconds), "those in bf16, where there are any"
    kept = {"mla_module.decode": part, "mla.decode": "own", "gemm": {}}
    reading._take_latent_from_modules(kept, {})
    assert kept["mla.decode"] == "own"


def test_a_product_is_as_long_as_the_nearest_one_that_was_measured():
    gemm = {**sizes(rows=[1, 16, 1], out_features=[64, 64, 64], in_features=[32, 32, 32], seconds=[1.0, 2.0, 9.0]),
            "format": np.array(["bfloat16", "bfloat16", "fp8"])}  # fmt: skip
    assert reading._measured_gemm(gemm, [1, 3, 5, 1000], 64.0, 1.0).tolist() == [1.0, 1.0, 2.0, 2.0]


# What fits


def test_attention_that_was_too_large_to_measure_reaches_no_less_than_what_was():
    """Many sequences were measured at short lengths alone, where they mostly start."""
    measured = {(1, 64): 0.02, (1, 4096): 0.6, (512, 64): 0.1, (1024, 64): 0.08}  # of the peak, by batch and length
    table = KernelShares(
        family="attention.decode",
        sizes={"batch": np.array([batch for batch, _ in measured]), "keys": np.array([long for _, long in measured])},
        texts={},
        shares=np.array([*measured.values()]),
        residual=0.1,
    )
    _, plane = kernels._plane(table, np.arange(4), "keys")
    assert np.exp(plane) == pytest.approx(np.array([[0.02, 0.6], [0.1, 0.6], [0.08, 0.6]]))
    # With a window length adds no work, and so many sequences reach at any length what they did at a short one.
    windowed = replace(table, shares=np.array([0.02, 0.02, 0.1, 0.2]))
    assert np.exp(kernels._plane(windowed, np.arange(4), "keys")[1])[:, 1] == pytest.approx([0.02, 0.1, 0.2])


def test_a_batch_fits_by_what_it_takes():
    found = memory_fit(ask("llama-3.2-1b", on="nvidia-l4", runtime="torch-compile", prompt=100, generate=28, batch=2))
    fit = ask("llama-3.2-1b", on="nvidia-l4", runtime="torch-compile", prompt=100, generate=28, batch=2).fit()
    assert (found.weights_bytes, found.reserve_bytes, found.tokens) == (fit.weights_bytes, fit.reserve_bytes or 0, 128)
    assert found.activations_bytes == fit.activations_bytes + fit.workspace_bytes
    assert found.kv_bytes_per_token == 2 * 16 * 8 * 64 * 2  # keys and values, 16 layers, 8 heads of 64, bf16
    left = found.usable_bytes - found.weights_bytes - found.activations_bytes - found.reserve_bytes
    assert found.kv_tokens == left // found.kv_bytes_per_token
    assert (found.max_batch, found.max_context, found.kv_blocks) == (fit.largest_batch, fit.longest_context, None)
    assert found.fits
    none = memory_fit(ask("resnet50", on="nvidia-l4", runtime="torch-compile"))
    assert (none.kv_tokens, none.tokens) == (0, 0)


def test_a_served_model_fits_by_its_engines_rules():
    def fit(**more):
        return memory_fit(ask("llama-3.2-1b", on="nvidia-l4", runtime="vllm", **more))

    one = fit(prompt=1000, generate=24)
    memory = served(ask("llama-3.2-1b", on="nvidia-l4", runtime="vllm")).memory
    assert (one.tokens, one.max_batch) == (1024, memory.sequences_of(1024))
    assert (one.kv_tokens, one.kv_blocks) == (memory.kv_tokens, memory.kv_blocks)
    assert one.max_context == min(131_072, memory.kv_tokens)
    assert fit(prompt=1000, generate=24, dp=2, batch=2).max_batch == 2 * one.max_batch
    assert fit(prompt=1000, generate=24, batch=one.max_batch).fits
    assert not fit(prompt=1000, generate=24, batch=one.max_batch + 1).fits
    assert one.devices_at_least == 1
    assert (
        memory_fit(ask("llama-3.1-70b", on="nvidia-l4", runtime="vllm", prompt=100, generate=28)).devices_at_least == 8
    )
    assert "notes" not in one.document()


def test_of_two_rates_the_higher_counts_where_an_engine_goes_beyond_peaks():
    def rate(value):
        return Sourced(value=value, origin="measured", source="a test", date="2026")

    found = higher_rates(
        {"f32": rate(5.0), "i8": rate(9.0), "f16": None}, {"f32": rate(6.0), "i8": rate(8.0), "f16": rate(1.0)}
    )
    assert {name: each.value for name, each in found.items()} == {"f32": 6.0, "i8": 9.0, "f16": 1.0}
    assert higher_rates({}, {"a": rate(1.0)})["a"].value == 1.0
