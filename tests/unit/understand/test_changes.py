"""What changed between two runs and why: pieces of the model, matched by their place."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferometer import predict
from inferometer.core.profile import OpTime
from inferometer.core.structure import Structure, StructureBlock
from inferometer.understand.changes import BETWEEN, changes_between, sentence_of
from unit.hub.web.samples import network

LAYERS = tuple(f"layers.{block}.{name}" for block in range(4) for name in ("conv", "relu", "add"))


def run(*ops, rest_s=0.0, structure=LAYERS):
    """A run of these ops, with so much time between them."""
    profile = network(1)
    phase = replace(profile.phases[-1], ops=ops, time_s=sum(op.time_s for op in ops) + rest_s)
    kinds = tuple("convolution" if name.endswith("conv") else "elementwise" for name in structure)
    known = Structure(names=structure, kinds=kinds, blocks=(StructureBlock(name="all", ops=len(structure)),))
    return replace(profile, phases=(phase,), structure=known)


def op(name, ms, **more):
    return OpTime(name=name, kind="convolution", time_s=ms / 1e3, **more)


def moved(a, b):
    return {piece.name: round(1e3 * piece.change_s, 6) for piece in changes_between(a, b, "forward").moved}


def test_a_fused_kernel_is_compared_with_all_that_it_stands_for():
    apart = run(op("layers.0.conv", 5), op("layers.0.relu", 2), op("layers.1.conv", 5))
    fused = run(op("convRelu", 4, layers=("layers.0.conv", "layers.0.relu")), op("layers.1.conv", 5))
    changes = changes_between(apart, fused, "forward")
    assert [piece.name for piece in changes.moved] == ["layers.0.conv and 1 layer with it"]
    assert changes.moved[0].change_s == pytest.approx(-3e-3)
    assert "2 kernels became 1" in changes.moved[0].why


def test_a_layer_that_another_unit_ran_says_so():
    changes = changes_between(
        run(op("layers.0.conv", 1, unit="npu")), run(op("layers.0.conv", 9, unit="cpu")), "forward"
    )
    assert changes.moved[0].why == ("moved from npu to cpu",)
    assert "8 ms more in layers.0.conv (moved from npu to cpu)" in sentence_of(changes, "old", "new")


def test_layers_of_another_export_are_matched_by_their_order():
    theirs = tuple(f"Conv_{number}" for number in range(4))
    a = run(*(op(name, 1) for name in LAYERS if name.endswith("conv")))
    b = run(*(op(name, 1 + 3 * (name == "Conv_2")) for name in theirs), structure=theirs)
    renamed = replace(b, structure=replace(b.structure, kinds=("convolution",) * 4))
    assert moved(a, renamed) == {"layers.2.conv": 3}


def test_repetitions_that_changed_alike_are_one_line_and_the_one_that_did_not_is_its_own():
    a = run(*(op(name, 1) for name in LAYERS if name.endswith("conv")))
    alike = run(*(op(name, 2) for name in LAYERS if name.endswith("conv")))
    assert moved(a, alike) == {"layers.*.conv": 4}
    alone = run(*(op(name, 9 if ".2." in name else 1.1) for name in LAYERS if name.endswith("conv")))
    assert moved(a, alone) == {"layers.2.conv": 8, "layers.*.conv": 0.3}


def test_time_between_the_layers_is_a_piece_of_its_own():
    assert moved(run(op("layers.0.conv", 1)), run(op("layers.0.conv", 1), rest_s=0.004)) == {BETWEEN: 4}


def test_a_prediction_is_compared_with_another_block_by_block():
    a, b = (predict("llama-3.1-8b", on="nvidia-h100-sxm", weights=weights) for weights in ("bf16", "int8"))
    changes = changes_between(a, b, "decode")
    largest = changes.moved[0]
    assert (largest.count, largest.why[-1]) == (32, "0.5 times the bytes")


@given(
    a=st.lists(st.tuples(st.integers(0, 11), st.integers(1, 3), st.floats(0.01, 10)), min_size=1, max_size=12),
    b=st.lists(st.tuples(st.integers(0, 11), st.integers(1, 3), st.floats(0.01, 10)), min_size=1, max_size=12),
    rest_s=st.floats(0, 0.01),
)
def test_the_pieces_add_up_to_the_whole_change_however_either_side_fuses(a, b, rest_s):
    first, second = (
        run(*(op(LAYERS[at], ms, layers=LAYERS[at : at + many]) for at, many, ms in side), rest_s=rest_s)
        for side in (a, b)
    )
    changes = changes_between(first, second, "forward")
    assert sum(piece.change_s for piece in changes.moved) + changes.rest_s == pytest.approx(changes.change_s, abs=1e-12)


def test_a_phase_without_layers_has_no_pieces():
    assert changes_between(network(4), network(4), "load") is None
