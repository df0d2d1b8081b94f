"""A network that was traced at a batch of its own, with the batch left open: in shapes, attributes and bodies."""

from inferometer.core import Block, Graph, Op, Symbol, Tensor
from inferometer.formats.networks.read import MARK, traced

BATCH = Symbol("batch")


def linear(name, size, **attributes):
    return Op(
        name=name, kind="linear", inputs=(Tensor(name="x", shape=(size, 7), dtype="f32"),),
        outputs=(Tensor(name="y", shape=(size, 2 * size), dtype="i64"),), attributes=attributes,
    )  # fmt: skip


def test_the_batch_is_open_wherever_it_stands():
    def trace(_module, inputs, *, name):
        body = linear("inner", MARK, rows=MARK, flag=True)
        loop = linear("loop", 3 * MARK, bodies=((body,),), shape=(MARK, 5), words="same", none=0)
        image = Tensor(name="x", shape=(*inputs, 7), dtype="f32")
        return Graph(name=name, blocks=(Block(name="b", ops=(loop,)),), inputs=(image,), precision="f32")

    graph = traced(None, (MARK,), name="net", trace=trace)
    (loop,) = graph.blocks[0].ops
    ((body,),) = loop["bodies"]
    assert graph.inputs[0].shape == (BATCH, 7)
    assert (loop.inputs[0].shape, loop.outputs[0].shape) == ((BATCH * 3, 7), (BATCH * 3, BATCH * 6))
    assert (loop["shape"], loop["words"], loop["none"]) == ((BATCH, 5), "same", 0)
    assert (body.inputs[0].shape, body["rows"], body["flag"]) == ((BATCH, 7), BATCH, True)
    assert [tensor.dtype for tensor in (body.inputs[0], body.outputs[0])] == [None, "i64"]  # its own format is left out


def test_a_convolution_with_a_kernel_for_each_image_has_the_channels_of_one():
    def trace(_module, _inputs, *, name):
        sizes = {"in_channels": 4 * MARK, "out_channels": 6 * MARK, "groups": 2 * MARK}
        own = Op(name="own", kind="convolution", attributes=sizes)
        usual = Op(name="usual", kind="convolution", attributes={"in_channels": 4, "out_channels": 6, "groups": 2})
        return Graph(name=name, blocks=(Block(name="b", ops=(own, usual)),))

    own, usual = traced(None, (), name="net", trace=trace).blocks[0].ops
    assert own.attributes == usual.attributes == {"in_channels": 4, "out_channels": 6, "groups": 2}
