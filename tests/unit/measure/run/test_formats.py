"""What a file's weights are stored as."""

from inferometer.core.graph import Block, Graph, Op, Tensor
from inferometer.measure.run.model_file import main_format, mixture_note


def weight(name, size, dtype):
    return Tensor(name=name, shape=(size,), dtype=dtype, role="weight")


def graph(*rows, count=1):
    """Rows of an op's kind, its weight's name, size and format."""
    ops = tuple(
        Op(name=f"op{place}", kind=kind, inputs=(), outputs=(), weights=(weight(name, size, dtype),))
        for place, (kind, name, size, dtype) in enumerate(rows)
    )
    return Graph(name="g", blocks=(Block(name="body", ops=ops, count=count),))


QUANTISED = graph(
    ("embedding", "embed", 900, "q8_0"), ("linear", "up", 700, "q4_1"), ("norm", "norm", 4, "f32"),
    ("linear", "embed", 900, "q8_0"),
)  # fmt: skip


def test_a_tied_head_counts_as_what_is_multiplied_with():
    assert main_format(QUANTISED) == "q8_0"
    assert main_format(graph(("embedding", "embed", 900, "q8_0"), ("linear", "up", 700, "q4_1"))) == "q4_1"


def test_shares_are_of_parameters_and_each_weight_counts_once():
    assert list(mixture_note(QUANTISED)) == ["The weights are stored as q8_0 56%, q4_1 44% (of the parameters)."]


def test_one_format_is_no_mixture_and_an_unknown_one_is_none():
    assert list(mixture_note(graph(("linear", "up", 700, "f32"), ("norm", "norm", 4, "f16")))) == []
    assert main_format(graph(("linear", "up", 700, None))) is None
