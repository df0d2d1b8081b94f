"""Every layer's work is counted once, whatever a compiler says about what its kernels touch."""

import pytest

from inferometer.core.profile import OpTime, Phase
from inferometer.core.sizes import bind
from inferometer.core.workload import Workload
from inferometer.engines.base import Kernel
from inferometer.formats.resolve import read
from inferometer.measure.run.correct import Corrected, correct
from inferometer.measure.run.layers import graph_layers
from inferometer.measure.run.ops import claims_of, measured_ops, with_steps

# The kernels of two decoder layers as torch.compile 2.11 names them on an H200, with the microseconds that they took.
# A fused kernel names every module whose values it reads, back through the residuals.
BLOCK = [
    (15.8, "aten::mm", "L.self_attn.q_proj"),
    (8.8, "aten::mm", "L.self_attn.k_proj"),
    (9.0, "aten::mm", "L.self_attn.v_proj"),
    (1.5, "triton_poi_fused_view_index_put", "L.self_attn L.self_attn.v_proj"),
    (12.0, "triton_poi_fused__scaled_dot_product_cudnn_attention", "L.self_attn L.self_attn.q_proj L.self_attn.k_proj"),
    (18.9, "aten::_scaled_dot_product_cudnn_attention", "L.self_attn"),
    (15.5, "aten::mm", "L.self_attn.o_proj"),
    (3.8, "triton_red_fused_add_mean", "L.post_attention_layernorm L model.embed_tokens L.self_attn.o_proj"),
    (34.7, "aten::mm", "L.mlp.gate_proj"),
    (36.9, "aten::mm", "L.mlp.up_proj"),
    (6.1, "triton_poi_fused_mul_silu", "L.mlp.act_fn L.mlp L.mlp.gate_proj L.mlp.up_proj"),
    (34.0, "aten::mm", "L.mlp.down_proj"),
]


def kernels():
    first = (4.1, "triton_red_fused_embedding_mean", "model.layers.0.input_layernorm model.embed_tokens")
    second = (
        4.9,
        "triton_red_fused_add_mean",
        "model.layers.1.input_layernorm model.layers.0 model.embed_tokens model.layers.0.self_attn.o_proj",
    )
    rows = [first, *_of(0), second, *_of(1), (185.0, "aten::mm", "lm_head")]
    return tuple(
        Kernel(
            name=f"{kind}#{number}", kind=kind, samples_s=(9e-5,), device_s=(micros * 1e-6,), waited_s=(1e-6,),
            unit="gpu", layers=tuple(names.split()),
        )
        for number, (micros, kind, names) in enumerate(rows)
    )  # fmt: skip


def _of(layer):
    return [(micros, kind, names.replace("L", f"model.layers.{layer}")) for micros, kind, names in BLOCK]


@pytest.fixture
def two_layers():
    graph = read("llama-3.2-3b")
    layers = graph_layers(graph, bind(graph, Workload(prompt=512)))
    kept = {name: layer for name, layer in layers.by_name.items() if not _later(name)}
    return type(layers)(by_name=kept, by_weight=layers.by_weight, parts=layers.parts)


def _later(name):
    parts = name.split(".")
    return parts[0] == "layers" and int(parts[1]) > 1


def test_times_and_work_of_fused_kernels_add_up_to_the_phase(two_layers):
    made = kernels()
    ops = measured_ops(made, correct(made, clean_s=1e-3), two_layers)
    claimed = [name for op in ops for name in (op.layers or (op.name,)) if name in two_layers.by_name]
    assert sorted(claimed) == sorted(name for name, layer in two_layers.by_name.items() if layer.flops or layer.bytes)
    assert sum(op.flops or 0 for op in ops) == pytest.approx(sum(each.flops for each in two_layers.by_name.values()))
    assert sum(op.bytes or 0 for op in ops) == pytest.approx(sum(each.bytes for each in two_layers.by_name.values()))


def test_a_product_belongs_to_the_kernel_that_computes_it_and_not_to_one_that_reads_it(two_layers):
    made = kernels()
    ops = {op.name: op for op in measured_ops(made, correct(made, clean_s=1e-3), two_layers)}
    for name, micros in (("attn.v_proj", 9.0), ("attn.q_proj", 15.8), ("mlp.gate_proj", 34.7), ("mlp.down_proj", 34.0)):
        assert ops[f"layers.0.{name}"].layers == ()
        assert ops[f"layers.0.{name}"].device_s == pytest.approx(micros * 1e-6)
    # What prepares attention is in its row, beside the kernel that computes it.
    assert ops["layers.1.attn.attention"].device_s == pytest.approx((12.0 + 18.9) * 1e-6)
    assert ops["layers.1.attn.attention"].layers == ("layers.1.attn.rotary", "layers.1.attn.attention")


def test_what_no_kernel_names_ran_in_a_fused_neighbour(two_layers):
    made = kernels()
    ops = {op.name: op for op in measured_ops(made, correct(made, clean_s=1e-3), two_layers)}
    assert ops["layers.0.mlp.norm"].layers == ("layers.0.attn.residual", "layers.0.mlp.norm")
    assert ops["layers.0.mlp.act"].layers == ("layers.0.mlp.act", "layers.0.mlp.mul")
    assert ops["layers.1.attn.norm"].layers == ("layers.0.mlp.residual", "layers.1.attn.norm")
    assert ops["layers.0.attn.norm"].layers == ("embed", "layers.0.attn.norm")


def test_a_product_that_no_kernel_computes_is_claimed_by_none(two_layers):
    made = tuple(each for each in kernels() if each.layers[0] != "model.layers.0.mlp.up_proj")
    without = [each for each in made if "mlp.up_proj" not in " ".join(each.layers) or "layers.1" in each.layers[0]]
    claims = claims_of(without, [1e-6] * len(without), two_layers)
    assert "layers.0.mlp.up_proj" not in {layer.name for claim in claims for layer in claim.layers}


def test_kernels_keep_their_times_on_the_devices_clock_and_waits_share_the_rest():
    device = {"samples_s": (1.0, 1.0), "kind": "k", "unit": "gpu"}
    made = (
        Kernel(name="a", device_s=(2e-3, 2e-3), waited_s=(1e-3, 1e-3), **device),
        Kernel(name="b", device_s=(3e-3, 3e-3), waited_s=(4e-3, 4e-3), **device),
    )
    # 12 ms with instruments: 5 at work, 5 before kernels, 2 after them. A µs of each wait is the device's own. Of the
    # clean 8.5 ms, half of the time that it waited for the host is left.
    begin = 1e-6
    corrected = correct(made, clean_s=8.5e-3 + begin, walls_s=(12e-3, 12e-3), paired_s=(9e-3, 9e-3), cost_s=1.0)
    waits = (1e-3 - begin, 4e-3 - begin)
    assert corrected.times_s == pytest.approx((2e-3 + begin + waits[0] / 2, 3e-3 + begin + waits[1] / 2))
    assert corrected.unattributed_s == pytest.approx(1e-3)
    full = correct(made, clean_s=4e-3, walls_s=(12e-3, 12e-3))  # a clean run that is shorter than its kernels
    assert full.times_s == pytest.approx((1.6e-3, 2.4e-3), rel=1e-3)
    assert full.unattributed_s == 0
    assert isinstance(full, Corrected)


def test_a_layer_on_a_device_grows_by_its_own_clock_and_the_hosts_waits_take_the_rest():
    """Attention takes a millisecond more at each step, the product does not; the steps grow by two."""
    ops = (
        OpTime(name="attention", kind="attention", time_s=4e-3, device_s=3e-3, samples_s=(2e-3, 3e-3, 4e-3)),
        OpTime(name="product", kind="linear", time_s=5e-3, device_s=5e-3, samples_s=(5e-3, 5e-3, 5e-3)),
        OpTime(name="launch", kind="launch", time_s=1e-3, device_s=0.0, samples_s=(0.0, 0.0, 0.0)),
    )
    phase = Phase(
        name="decode", time_s=10e-3, samples_s=(8e-3, 10e-3, 12e-3), context=(7, 8, 9), op_context=(7, 8, 9),
    )  # fmt: skip
    attention, product, launch = with_steps(phase, ops, (1.0, 1.0, 1.0))
    assert product.samples_s == pytest.approx((5e-3, 5e-3, 5e-3))
    for step, step_s in enumerate(phase.samples_s):
        together = attention.samples_s[step] + product.samples_s[step] + launch.samples_s[step]
        assert together == pytest.approx(step_s)
    assert launch.samples_s[0] < launch.samples_s[2]  # the host was slower in the last step
    assert attention.samples_s[2] - attention.samples_s[0] > 2e-3
