"""Measured kernels without the package that has them: floors by hand, and curves over tables with known shares."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from inferometer.core import Binding, Precision, Tensor
from inferometer.core.calibration import KernelForm, KernelForms, KernelShares
from inferometer.predict.basis.engine_tables import calibrating
from inferometer.predict.basis.engine_tables.reading import ReadTables
from inferometer.predict.parallel import Scale
from inferometer.predict.price import kernel_floors as floors
from inferometer.predict.price.kernel_floors import PeakRates
from inferometer.predict.price.kernels import kernel_curve, kernel_sizes, stored_format
from unit.predict.decoders import QUERY, attend, project, tokens, weight
from unit.predict.examples import experts, mla, op

RATES = PeakRates(peaks={"bf16": 100.0, "f8e4m3": 200.0}, memory=10.0, link=5.0)
CHUNK = {"batch": 2, "heads": 6, "kv_heads": 2, "head_dim": 8, "query": 3, "context": 4, "keys": 9}
MIXTURE = {"rows": 5, "top_k": 2, "experts": 8, "tp": 2, "ep": 4, "hidden": 16, "intermediate": 24}


# Floors


@pytest.mark.parametrize(
    ("floor", "sizes", "more", "operations", "moved"),
    [
        ("gemm", {"rows": 3, "out_features": 5, "in_features": 7}, {"weight_bytes": 0.5},
         2 * 3 * 5 * 7, 5 * 7 * 0.5 + 2 * 3 * (5 + 7)),
        # the tokens at places 4, 5 and 6 meet 5, 6 and 7; with a window 4 each
        ("attention_prefill", CHUNK, {"kv_bytes": 1}, 4 * 2 * 6 * 8 * 18, 2 * (2 * 2 * 3 * 6 * 8 + 2 * 7 * 2 * 8)),
        ("attention_prefill", CHUNK | {"window": 4}, {"kv_bytes": 1},
         4 * 2 * 6 * 8 * 12, 2 * (2 * 2 * 3 * 6 * 8 + 2 * 7 * 2 * 8)),
        ("attention_decode", CHUNK, {"kv_bytes": 1}, 4 * 2 * 6 * 8 * 9, 2 * (2 * 9 * 2 * 8 + 2 * 2 * 6 * 8)),
        ("attention_decode", CHUNK | {"window": 4}, {"kv_bytes": 2}, 4 * 2 * 6 * 8 * 4, 2 * (2 * 2 * 4 * 2 + 24) * 8),
        ("attention_decode", CHUNK | {"window": 10}, {"kv_bytes": 2}, 4 * 2 * 6 * 8 * 9, 2 * (2 * 2 * 9 * 2 + 24) * 8),
        ("mla_prefill", CHUNK, {"kv_bytes": 1}, 2 * 2 * 6 * 320 * 18, 2 * (2 * 2 * 3 * 6 * 320 + 7 * 576)),
        ("mla_decode", CHUNK, {"kv_bytes": 1}, 2 * 2 * 6 * 1088 * 9, 2 * (9 * 576 + 2 * 6 * 1088)),
        # 5 tokens of 2 experts each, a quarter of which are here; each expert is half as wide
        ("experts", MIXTURE, {"weight_bytes": 0.5}, 2 * 3 * 2.5 * 16 * 12,
         (1 - 0.75**5) * 8 / 4 * 3 * 16 * 12 * 0.5 + 2 * 2.5 * (2 * 16 + 3 * 12)),
        ("experts", MIXTURE | {"matrices": 2, "tp": 1}, {"weight_bytes": 2}, 2 * 2 * 2.5 * 16 * 24,
         (1 - 0.75**5) * 8 / 4 * 2 * 16 * 24 * 2 + 2 * 2.5 * (2 * 16 + 2 * 24)),
    ],
)  # fmt: skip
def test_the_operations_and_the_bytes_of_a_kernel_are_those_counted_by_hand(floor, sizes, more, operations, moved):
    count = getattr(floors, f"{floor}_ideals")
    for arithmetic, peak in (("bf16", 100), ("f8e4m3", 200)):
        expected = (operations / peak, moved / 10)
        assert count(RATES, sizes, arithmetic=arithmetic, **more) == pytest.approx(expected)
        columns = {name: np.array([size, size], float) for name, size in sizes.items()}
        for found, one in zip(count(RATES, columns, arithmetic=arithmetic, **more), expected, strict=True):
            assert found == pytest.approx([one, one])


@pytest.mark.parametrize(
    ("function", "share"), [("all_reduce", 2), ("reduce_scatter", 1), ("all_gather", 1), ("all_to_all", 1 / 4)]
)
def test_a_message_sends_its_share_of_the_bytes_over_the_link_or_else_over_memory(function, share):
    for rates, rate in ((RATES, 5), (replace(RATES, link=None), 10)):
        found = floors.message_bytes_ideals(rates, {"devices": 4, "bytes": 100.0}, function=function)
        assert found == pytest.approx((0, share * 3 / 4 * 100 / rate))


def test_a_format_without_units_of_its_own_runs_on_those_of_the_next():
    peaks = {"f32": 1.0, "f16": 2.0, "bf16": 3.0, "f8e4m3": 4.0, "i8": 5.0, "mxfp4": 6.0, "nvfp4": 7.0}

    def found(*without):
        rates = PeakRates(peaks={name: peak for name, peak in peaks.items() if name not in without}, memory=1.0)
        return {name: rates.operations(name) for name in ("nvfp4", "mxfp4", "i8", "f8e4m3", "f64")}

    assert found() == {"nvfp4": 7, "mxfp4": 6, "i8": 5, "f8e4m3": 4, "f64": 3}
    assert found("nvfp4", "mxfp4", "i8") == {"nvfp4": 4, "mxfp4": 4, "i8": 3, "f8e4m3": 4, "f64": 3}
    assert set(found("nvfp4", "mxfp4", "i8", "f8e4m3", "bf16").values()) == {2}
    assert PeakRates(peaks={"i4": 8.0, "u8": 9.0}, memory=1.0).operations("bf16") == 9


def test_a_form_takes_its_ideals_together_its_launch_and_its_pieces():
    terms = {
        "gemm": ({"rows": 3, "in_features": 7}, 21, 1),
        "experts": ({"hidden": 16, "intermediate": 24, "tp": 2, "ep": 4}, 28, 4),
        "attention.decode": ({"batch": 5, "kv_heads": 3}, 15, 1),
        "mla.decode": ({"batch": 5}, 5, 1),
        "attention.prefill": ({"batch": 5, "kv_heads": 3}, 0, 1),
    }
    form = KernelForm(compute_share=0.5, memory_share=0.25, ramp_s=7.0, each_s=0.1, uneven=0.5, residual=0.2)
    for family, (sizes, pieces, sharing) in terms.items():
        assert floors.form_terms(family, (3.0, 2.0), sizes) == (3.0, 2.0, pieces, sharing)
        expected = ((3 * sharing**0.5 / 0.5) ** 2 + (2 / 0.25) ** 2) ** 0.5 + 7 + 0.1 * pieces
        assert form.seconds(3.0, 2.0, pieces, sharing) == pytest.approx(expected)


# Curves


def row(graph_op, op_class="linear", **scale):
    return SimpleNamespace(op=graph_op, op_class=op_class, part="layers", offloaded=False, scale=Scale(**scale))


def binding(**formats):
    sizes = {"batch": 2, "query": 3, "context": 4}
    return Binding(
        sizes=sizes, precision=Precision(**{"weights": "bf16", "activations": "bf16", "kv": "bf16"} | formats)
    )


def table(family, points, shares, residual=0.11, **texts):
    """Points by the names of their sizes; what is no number is a text."""
    count = len(shares)
    sizes = {name: np.array(values, float) for name, values in points.items()}
    words = {name: np.array([text] * count if isinstance(text, str) else text) for name, text in texts.items()}
    return KernelShares(family=family, sizes=sizes, texts=words, shares=np.array(shares), residual=residual)


ROWS, OUT, INSIDE = (1.0, 16.0), (64.0, 1024.0), (32.0, 512.0)


def share_of(rows, out, inside):
    """A share that is straight between the points, in logarithms, and level outside of them."""
    at = [np.clip(size, *ends) for size, ends in zip((rows, out, inside), (ROWS, OUT, INSIDE), strict=True)]
    return 0.2 * at[0] ** 0.25 * (at[1] / 1024) ** 0.125 * (at[2] / 512) ** 0.0625


def products(name="bfloat16", times=1.0, hole=None):
    grid = [axis.ravel() for axis in np.meshgrid(ROWS, OUT, INSIDE, indexing="ij")]
    kept = [place for place in range(8) if place != hole]
    points = dict(zip(("rows", "out_features", "in_features"), (axis[kept] for axis in grid), strict=True))
    return table("gemm", points, times * share_of(*grid)[kept], format=name)


def seconds(curve, **sizes):
    return curve.seconds(RATES, sizes)


def both(one, other):
    return replace(
        one,
        sizes={key: np.concatenate([one.sizes[key], other.sizes[key]]) for key in one.sizes},
        texts={key: np.concatenate([one.texts[key], other.texts[key]]) for key in one.texts},
        shares=np.concatenate([one.shares, other.shares]),
    )


def gemm_s(rows, out, inside, weight_bytes=2.0, peak=100):
    return max(2 * rows * out * inside / peak, (out * inside * weight_bytes + 2 * rows * (out + inside)) / 10)


@pytest.mark.parametrize("rows", [0.5, 1, 3, 16, 99])
@pytest.mark.parametrize(("inside", "out"), [(128, 256), (32, 1024), (8, 4096), (2048, 16)])
def test_a_product_takes_its_floor_over_the_share_between_the_points(rows, inside, out):
    curve = kernel_curve(row(project("p", "x", "y", inside, out)), "decode", {"gemm": products()}, binding())
    assert seconds(curve, rows=rows) == pytest.approx(gemm_s(rows, out, inside) / share_of(rows, out, inside))
    assert (curve.residual, curve.exact) == (0.11, True)


def test_a_product_that_is_shared_is_narrower_or_less_deep():
    tables, asked = {"gemm": products()}, project("p", "x", "y", 128, 512)
    outer = kernel_curve(row(asked, flops=0.25, weights=0.25, writes=0.25), "decode", tables, binding())
    inner = kernel_curve(row(asked, flops=0.25, weights=0.25, reads=0.25), "decode", tables, binding())
    assert seconds(outer, rows=2) == pytest.approx(gemm_s(2, 128, 128) / share_of(2, 128, 128))
    assert seconds(inner, rows=2) == pytest.approx(gemm_s(2, 512, 32) / share_of(2, 512, 32))


def test_a_router_is_a_product_with_a_column_for_each_expert_in_bf16():
    routed = op("moe_router", [tokens("x", 128)], [tokens("scores", 6)], [weight("w", 64, 128)], experts=64, top_k=6)
    curve = kernel_curve(row(routed), "decode", {"gemm": products()}, binding(weights="f8e4m3"))
    assert seconds(curve, rows=3) == pytest.approx(gemm_s(3, 64, 128, 1.0) / share_of(3, 64, 128))


@pytest.mark.parametrize("hole", range(8))
def test_a_point_that_nobody_measured_takes_its_neighbours_share(hole):
    grid = [axis.ravel() for axis in np.meshgrid(ROWS, OUT, INSIDE, indexing="ij")]
    rows, out, inside = (int(axis[hole]) for axis in grid)
    other = ROWS[0] if rows == ROWS[1] else ROWS[1]  # along the first axis, whichever side it lies on
    asked = row(project("p", "x", "y", inside, out))
    found = seconds(kernel_curve(asked, "decode", {"gemm": products(hole=hole)}, binding()), rows=rows)
    assert found == pytest.approx(gemm_s(rows, out, inside) / share_of(other, out, inside))


@pytest.mark.parametrize(
    ("weights", "measured", "taken", "exact", "peak", "weight_bytes"),
    [
        ("f16", ["bfloat16"], "bfloat16", True, 100, 2),
        ("f8e4m3", ["fp8", "fp8_block", "bfloat16"], "fp8", True, 200, 1),
        ("f8e4m3", ["bfloat16", "fp8_block"], "fp8_block", False, 200, 1),
        ("i8", ["bfloat16", "fp8"], "fp8", False, 100, 1),
        ("i4", ["fp8", "bfloat16", "int4_wo"], "int4_wo", True, 100, 0.5),
        ("f32", ["fp8"], "fp8", False, 100, 4),
    ],
)
def test_a_format_that_was_not_measured_has_a_substitute_and_says_so(  # noqa: PLR0917 - a row of the table
    weights, measured, taken, exact, peak, weight_bytes
):
    tables, times = None, {name: 0.5**number for number, name in enumerate(measured)}
    for name in measured:
        some = products(name, times[name])
        tables = some if tables is None else both(tables, some)
    asked = row(project("p", "x", "y", 128, 256))
    curve = kernel_curve(asked, "decode", {"gemm": tables}, binding(weights=weights))
    expected = gemm_s(300, 256, 128, weight_bytes, peak) / (times[taken] * share_of(300, 256, 128))
    assert seconds(curve, rows=300) == pytest.approx(expected)
    assert curve.exact == exact
    assert kernel_curve(asked, "decode", {"gemm": products("nvfp4")}, binding(weights=weights)) is None


def test_scales_for_blocks_launch_no_slower_than_one_scale_but_compute_as_they_were_measured():
    blocks = weight("p.weight", 256, 128, dtype="f8e4m3")
    scaled = project("p", "x", "y", 128, 256, stored=blocks)
    scaled = replace(scaled, weights=(blocks, Tensor(name="s", shape=(2, 1), role="weight", dtype="f32")))
    assert stored_format(scaled, binding(weights=None)) == "f8e4m3.block"
    wide = {"rows": (256.0, 257.0)}

    def of(name, share):
        grid = [axis.ravel() for axis in np.meshgrid(wide["rows"], OUT, INSIDE, indexing="ij")]
        points = dict(zip(("rows", "out_features", "in_features"), grid, strict=True))
        return table("gemm", points, [share] * 8, format=name)

    for own, other, few in ((0.1, 0.4, 0.4), (0.4, 0.1, 0.4)):
        tables = {"gemm": both(of("fp8_block", own), of("fp8", other))}
        curve = kernel_curve(row(scaled), "decode", tables, binding(weights=None))
        assert seconds(curve, rows=256) == pytest.approx(gemm_s(256, 256, 128, 1.0, 200) / few)
        assert seconds(curve, rows=257) == pytest.approx(gemm_s(257, 256, 128, 1.0, 200) / own)


# Mixtures of experts

OWN = {"hidden": 32.0, "intermediate": 48.0, "top_k": 6.0, "experts": 64.0, "tp": 1.0, "ep": 1.0}


def mixtures(*given, **texts):
    """Points of (what differs from OWN, rows, share)."""
    points = {name: [differs.get(name, size) for differs, _, _ in given] for name, size in OWN.items()}
    points["rows"] = [rows for _, rows, _ in given]
    return {"experts": table("experts", points, [share for *_, share in given], **{"format": "bfloat16"} | texts)}


def experts_s(rows, ep=1, tp=1, weight_bytes=2.0):
    sizes = {"rows": rows, "top_k": 6, "experts": 64, "tp": tp, "ep": ep, "hidden": 32, "intermediate": 48}
    return max(floors.experts_ideals(RATES, sizes, arithmetic="bf16", weight_bytes=weight_bytes))


def of_experts(tables, formats=None, byte_experts="", stored=None, **scale):
    asked = row(experts(**(stored or {})), "experts", **scale)
    return kernel_curve(asked, "decode", tables, binding(**formats or {}), byte_experts=byte_experts)


def test_experts_are_those_of_the_nearest_mixture_and_of_several_kernels_the_fastest():
    tables = mixtures(({}, 4, 0.2), ({}, 4, 0.3), ({}, 16, 0.1), ({"hidden": 40.0}, 4, 0.9), ({"top_k": 5.0}, 4, 0.8))
    curve = of_experts(tables)
    assert curve.exact
    assert [seconds(curve, rows=rows) for rows in (1, 4, 8, 99)] == pytest.approx(
        [experts_s(1) / 0.3, experts_s(4) / 0.3, experts_s(8) / 0.03**0.5, experts_s(99) / 0.1]
    )
    for name, near in (("hidden", 40.0), ("intermediate", 64.0), ("top_k", 8.0), ("experts", 128.0)):
        other = of_experts(mixtures(({name: near}, 4, 0.5), ({name: 3 * near}, 4, 0.9)))
        assert (seconds(other, rows=4), other.exact) == (pytest.approx(experts_s(4) / 0.5), False), name


def test_devices_share_experts_by_their_number_and_by_their_width():
    """Four devices: two share each half of the experts, or each has a quarter, or all have a part of each."""
    points = [({"tp": float(tp), "ep": float(4 // tp)}, 4, share) for tp, share in ((1, 0.2), (2, 0.4), (4, 0.8))]
    for tp, share in ((1, 0.2), (2, 0.4), (4, 0.8)):
        ep = 4 // tp
        curve = of_experts(mixtures(*points), flops=1 / 4, weights=1 / 4, reads=1 / ep, writes=1 / ep)
        assert (seconds(curve, rows=4), curve.exact) == (pytest.approx(experts_s(4, ep, tp) / share), True), tp


def test_a_split_that_was_measured_of_others_only_changes_the_share_as_it_does_theirs():
    split = {"ep": 2.0}
    tables = mixtures(
        ({}, 4, 0.4), ({}, 64, 0.4),
        ({"hidden": 900.0}, 4, 0.5), ({"hidden": 900.0, **split}, 4, 0.25),
        ({"hidden": 800.0}, 4, 0.5), ({"hidden": 800.0, **split}, 4, 0.2), ({"hidden": 800.0, **split}, 4, 0.1),
        ({"hidden": 700.0}, 4, 0.5), ({"hidden": 700.0, **split}, 4, 0.3),
        ({"hidden": 700.0}, 64, 0.5), ({"hidden": 700.0, **split}, 64, 0.5),
    )  # fmt: skip
    curve = of_experts(tables, flops=1 / 2, weights=1 / 2, reads=1 / 2, writes=1 / 2)
    assert not curve.exact
    # by half, by 0.4 and by 0.6: half in the middle; with 64 rows by nothing
    assert seconds(curve, rows=4) == pytest.approx(experts_s(4, 2) / 0.2)
    assert seconds(curve, rows=64) == pytest.approx(experts_s(64, 2) / 0.4)
    assert seconds(curve, rows=16) == pytest.approx(experts_s(16, 2) / (0.4 * 0.5**0.5))


def test_experts_of_few_bits_are_widened_where_nothing_else_was_measured():
    plain = mixtures(({}, 4, 0.5))
    assert seconds(of_experts(plain, {"weights": "i4"}), rows=4) == pytest.approx(experts_s(4) / 0.5)
    packed = of_experts(mixtures(({}, 4, 0.5), format="int4_wo"), {"weights": "i4"})
    assert seconds(packed, rows=4) == pytest.approx(experts_s(4, weight_bytes=0.5) / 0.5)
    byte = mixtures(({}, 4, 0.5), ({}, 4, 0.25), format=["fp8", "fp8_block"])
    for preferred, share in (("", 0.5), ("fp8_block", 0.25)):
        curve = of_experts(byte, {"weights": "f8e4m3"}, preferred)
        sizes = MIXTURE | {name: int(size) for name, size in OWN.items()} | {"rows": 4}
        least = max(floors.experts_ideals(RATES, sizes, arithmetic="f8e4m3", weight_bytes=1.0))
        assert (seconds(curve, rows=4), curve.exact) == (pytest.approx(least / share), not preferred)


def test_a_model_in_mxfp4_has_the_kernels_that_were_measured_with_it():
    names = ["w4a8_mxfp4_mxfp8", "w4a16_mxfp4", "w4a16_mxfp4"]
    mixed = mixtures(({"hidden": 99.0}, 4, 0.9), ({}, 4, 0.5), ({"experts": 8.0}, 4, 0.7), format=names)
    curve = of_experts(mixed, {"weights": None}, stored={"dtype": "mxfp4"})
    bits = binding(weights=None).format(weight("w", 32, dtype="mxfp4")).bits
    assert seconds(curve, rows=4) == pytest.approx(experts_s(4, weight_bytes=float(bits) / 8) / 0.5)


# Attention

HEADS = {"heads": 8.0, "kv_heads": 2.0, "head_dim": 16.0, "window": 0.0}


def attending(way, *given, **texts):
    length = "keys" if way == "decode" else "query"
    points = {name: [differs.get(name, size) for differs, *_ in given] for name, size in HEADS.items()}
    points |= {"batch": [batch for _, batch, _, _ in given], length: [size for _, _, size, _ in given]}
    found = table(f"attention.{way}", points, [share for *_, share in given], **{"kv": "bfloat16"} | texts)
    return {found.family: found}


def of_attention(tables, phase="decode", cache="bf16", window=None, **scale):
    asked = attend("a", heads=8, kv_heads=2, head_dim=16, window=window)
    return kernel_curve(row(asked, "attention", **scale), phase, tables, binding(kv=cache))


def decode_s(batch, keys, heads=8, kv_heads=2, *, window=0.0, kv_bytes=2.0):
    sizes = {"batch": batch, "keys": keys, "heads": heads, "kv_heads": kv_heads, "head_dim": 16, "window": window}
    return max(floors.attention_decode_ideals(RATES, sizes, arithmetic="bf16", kv_bytes=kv_bytes))


PLANE = [({}, 1, 64, 0.1), ({}, 1, 1024, 0.4), ({}, 16, 64, 0.2), ({}, 16, 1024, 0.8)]


def test_attention_is_read_between_sequences_and_keys():
    curve = of_attention(attending("decode", *PLANE))
    assert curve.exact
    for batch, keys, share in ((1, 64, 0.1), (4, 256, 0.1 * 2**0.5 * 2), (99, 9999, 0.8), (4, 1, 0.1 * 2**0.5)):
        assert seconds(curve, batch=batch, keys=keys) == pytest.approx(decode_s(batch, keys) / share)
    columns = curve.seconds(RATES, {"batch": np.array([1.0, 4.0]), "keys": np.array([64.0, 256.0])})
    assert columns == pytest.approx([decode_s(1, 64) / 0.1, decode_s(4, 256) / (0.2 * 2**0.5)])


def test_what_is_too_large_to_measure_takes_the_larger_share_of_its_neighbours():
    for fewer, shorter in ((0.4, 0.2), (0.2, 0.4)):
        curve = of_attention(attending("decode", ({}, 1, 64, 0.1), ({}, 1, 1024, fewer), ({}, 16, 64, shorter)))
        assert seconds(curve, batch=16, keys=1024) == pytest.approx(decode_s(16, 1024) / 0.4)


def test_a_device_attends_with_its_part_of_the_heads_and_one_of_the_caches_at_least():
    parts = [({"heads": 2.0, "kv_heads": 1.0}, 4, 64, 0.5), ({"heads": 8.0}, 4, 64, 0.1)]
    curve = of_attention(attending("decode", *parts), flops=0.25, kv=0.25)
    assert (seconds(curve, batch=4, keys=64), curve.exact) == (pytest.approx(decode_s(4, 64, 2, 1) / 0.5), True)


def test_the_width_of_a_head_counts_four_times_and_shared_caches_twice():
    nearer = {"heads": 8.0 * 3}
    for other in ({"head_dim": 16.0 * 1.4}, {"kv_heads": 2.0 * 2}):
        curve = of_attention(attending("decode", (nearer, 4, 64, 0.5), (other, 4, 64, 0.1)))
        assert (seconds(curve, batch=4, keys=64), curve.exact) == (pytest.approx(decode_s(4, 64) / 0.5), False)
    for other in ({"head_dim": 16.0 * 1.2}, {"kv_heads": 2.0 * 1.5}):
        curve = of_attention(attending("decode", (nearer, 4, 64, 0.1), (other, 4, 64, 0.5)))
        assert seconds(curve, batch=4, keys=64) == pytest.approx(decode_s(4, 64) / 0.5)


def test_a_window_is_that_of_the_row_where_any_was_measured():
    tables = attending("decode", ({}, 4, 64, 0.1), ({"window": 8.0}, 4, 64, 0.3), ({"window": 99.0}, 4, 64, 0.6))
    for window, share in ((None, 0.1), (9, 0.3), (90, 0.6)):
        found = seconds(of_attention(tables, window=window), batch=4, keys=64)
        assert found == pytest.approx(decode_s(4, 64, window=float(window or 0)) / share)
    without = of_attention(attending("decode", ({}, 4, 64, 0.1)), window=9)
    assert seconds(without, batch=4, keys=64) == pytest.approx(decode_s(4, 64, window=9.0) / 0.1)


def test_the_kernels_are_those_of_the_cache_and_prompts_have_queries_in_bf16():
    tables = attending("decode", ({}, 4, 64, 0.1), ({}, 4, 64, 0.3), kv=["bfloat16", "fp8"])
    for kv, kv_bytes, share in (("bf16", 2, 0.1), ("f8e4m3", 1, 0.3), ("f32", 4, 0.1)):
        found = seconds(of_attention(tables, cache=kv), batch=4, keys=64)
        assert found == pytest.approx(decode_s(4, 64, kv_bytes=kv_bytes) / share)
    only = attending("decode", ({}, 4, 64, 0.3), kv="fp8")
    assert seconds(of_attention(only), batch=4, keys=64) == pytest.approx(decode_s(4, 64) / 0.3)
    points = [({}, 4, 64, 0.1), ({}, 4, 64, 0.3), ({}, 4, 64, 0.6)]
    reading = attending("prefill", *points, kv=["fp8", "fp8", "bfloat16"], format=["fp8", "bfloat16", "bfloat16"])
    sizes = {"batch": 4, "query": 64, "context": 0, "length": 64.0}
    known = {**HEADS, **sizes}
    for kv, kv_bytes, share in (("f8e4m3", 1, 0.3), ("bf16", 2, 0.6)):
        least = max(floors.attention_prefill_ideals(RATES, known, arithmetic="bf16", kv_bytes=kv_bytes))
        assert seconds(of_attention(reading, "prefill", kv), **sizes) == pytest.approx(least / share)


@pytest.mark.parametrize("phase", ["decode", "prefill"])
def test_latent_attention_has_kernels_of_its_own_and_an_index_none(phase):
    points = {"heads": [64.0, 128.0], "batch": [1, 1], "keys": [64, 64], "query": [64, 64]}
    tables = {f"mla.{phase}": table(f"mla.{phase}", points, [0.9, 0.5], kv="bfloat16")}
    curve = kernel_curve(row(mla(absorbed=True), "attention"), phase, tables, binding())
    sizes = {"batch": 3, "keys": 64, "query": 64, "context": 0, "length": 64.0}
    count = floors.mla_decode_ideals if phase == "decode" else floors.mla_prefill_ideals
    least = max(count(RATES, {**sizes, "heads": 128}, arithmetic="bf16", kv_bytes=2.0))
    assert (seconds(curve, **sizes), curve.exact) == (pytest.approx(least / 0.5), True)
    chooses = mla(absorbed=True)
    chooses = replace(chooses, attributes={**chooses.attributes, "index": True})
    assert kernel_curve(row(chooses, "attention"), phase, tables, binding()) is None


# Messages, forms and sizes


def test_a_message_is_that_of_the_nearest_number_of_devices():
    points = {"devices": [2, 2, 8, 8], "bytes": [64, 4096, 64, 4096]}
    tables = {"all_reduce": table("all_reduce", points, [0.1, 0.4, 0.2, 0.8])}
    for devices, size, share, exact in (
        (2, 512, 0.2, True),
        (3, 64, 0.1, False),
        (5, 64, 0.2, False),
        (8, 9999, 0.8, True),
    ):
        told = op("collective", [tokens("x", 96)], [tokens("y", 96)], function="all_reduce", devices=devices)
        curve = kernel_curve(row(told, "collective"), "decode", tables, binding())
        least = 2 * (devices - 1) / devices * size / 5
        assert (seconds(curve, bytes=size), curve.exact) == (pytest.approx(least / share), exact), devices
    alone = op("collective", [tokens("x", 96)], [tokens("y", 96)], function="all_reduce", devices=1)
    assert kernel_curve(row(alone, "collective"), "decode", tables, binding()) is None


def test_a_form_stands_in_for_a_table_with_the_same_sizes():
    form = KernelForm(compute_share=0.5, memory_share=0.25, ramp_s=7.0, each_s=0.0, uneven=0.0, residual=0.2)
    other = replace(form, ramp_s=100.0)

    def of(family, asked, names=("fp8", "bfloat16", "int8"), **sizes):
        forms = KernelForms(family=family, by_format={name: form if name == names[1] else other for name in names})
        curve = kernel_curve(asked, "decode", {family: forms}, binding())
        ideals = curve.ideals(RATES, {**curve.fixed, **sizes})
        assert curve.seconds(RATES, sizes) == pytest.approx(
            ((ideals[0] / 0.5) ** 2 + (ideals[1] / 0.25) ** 2) ** 0.5 + 7.0
        )
        return max(ideals)

    assert of("gemm", row(project("p", "x", "y", 128, 256)), rows=3) == gemm_s(3, 256, 128)
    assert of("experts", row(experts(), "experts"), rows=4) == pytest.approx(experts_s(4))
    attention = row(attend("a", heads=8, kv_heads=2, head_dim=16), "attention")
    assert of("attention.decode", attention, batch=4, keys=64) == decode_s(4, 64)
    told = op("collective", [tokens("x", 96)], [tokens("y", 96)], function="all_gather", devices=4)
    assert of("all_gather", row(told, "collective"), names=("2", "5", "8"), bytes=100.0) == pytest.approx(
        3 / 4 * 100 / 5
    )


def test_cached_tokens_take_their_own_seconds_up_to_the_window():
    curve = replace(of_attention(attending("decode", *PLANE), window=32), cached_s=0.25)
    for context, met in ((20, 20), (63, 32)):
        plain = replace(curve, cached_s=0.0).seconds(RATES, {"batch": 3, "keys": 64, "context": context})
        assert seconds(curve, batch=3, keys=64, context=context) == pytest.approx(plain + 0.25 * 3 * met)


def test_the_sizes_that_change_are_rows_and_what_attention_meets():
    bound = binding()
    assert kernel_sizes(row(project("p", "x", "y", 8, 8), batch=4), bound) == {"rows": 4 * 2 * 3}
    sizes = kernel_sizes(row(attend("a", heads=8, kv_heads=2, head_dim=16), "attention"), bound)
    assert sizes == {"batch": 2, "query": 3, "context": 4, "keys": 7, "length": pytest.approx((9 + 2 * 3 * 4) ** 0.5)}
    few = kernel_sizes(row(attend("a", heads=8, kv_heads=2, head_dim=16, top_k=2), "attention"), bound)
    assert (few["context"], few["keys"]) == (2, 5)


def test_what_lies_in_the_hosts_memory_or_is_of_no_family_has_no_kernel():
    tables = {"gemm": products(), **mixtures(({}, 4, 0.5)), **attending("decode", *PLANE)}
    product = row(project("p", "x", "y", 128, 256))
    assert kernel_curve(product, "decode", tables, binding()) is not None
    product.offloaded = True
    assert kernel_curve(product, "decode", tables, binding()) is None
    product.offloaded, product.part = False, None
    assert kernel_curve(product, "decode", tables, binding()) is None
    open_width = row(project("p", "x", "y", QUERY, 256))
    assert kernel_curve(open_width, "decode", tables, binding()) is None
    pool = row(op("pool", [tokens("x", 8)], [tokens("y", 8)]), "vector")
    assert kernel_curve(pool, "decode", tables, binding()) is None
    assert kernel_curve(row(attend("a", heads=8, kv_heads=2, head_dim=16, cached=False), "attention"), "decode",
                        tables, binding()) is None  # fmt: skip
    for asked, kind in ((project("p", "x", "y", 128, 256), "linear"), (experts(), "experts"),
                        (attend("a", heads=8, kv_heads=2, head_dim=16), "attention")):  # fmt: skip
        assert kernel_curve(row(asked, kind), "decode", {}, binding()) is None


@pytest.mark.parametrize("count", [1, 3, 8, 17])
def test_tables_that_are_kept_come_back_as_they_were_however_long_their_names_are(tmp_path, count):
    """Arrays lie one behind the other in a file, each from a place that its numbers may be read at."""
    points = {"rows": range(count), "devices": range(5, 5 + count)}
    words = [("a", "bfloat16", "w4a8_mxfp4_mxfp8")[place % 3] for place in range(count)]
    made = table("gemm", points, [0.1 + 0.01 * place for place in range(count)], format=words, kv="fp8")
    other = table("all_reduce", {"bytes": [7] * count}, [0.5] * count, residual=0.3)
    tables = ReadTables(kernels={"gemm": made, "all_reduce": other}, versions={"gemm": "1"}, points=2 * count)
    calibrating._keep(tmp_path / "x", tables)
    found = calibrating._kept(tmp_path / "x")
    assert (found.versions, found.points, [*found.kernels]) == ({"gemm": "1"}, 2 * count, ["gemm", "all_reduce"])
    for name, one in tables.kernels.items():
        back = found.kernels[name]
        assert (back.family, back.residual, [*back.sizes], [*back.texts]) == (
            one.family, one.residual, [*one.sizes], [*one.texts],
        )  # fmt: skip
        for part in ("sizes", "texts"):
            for axis, values in getattr(one, part).items():
                assert getattr(back, part)[axis].tolist() == values.tolist()
        assert back.shares == pytest.approx(one.shares, rel=1e-6)
