"""Networks as OpenVINO writes them, from a few words a layer."""

import struct

PRECISIONS = {"f32": "FP32", "i64": "I64", "f16": "FP16", "i8": "I8", "u8": "U8", "boolean": "BOOL"}


def port(number, dims, kind="f32", names=""):
    sizes = "".join(f"<dim>{dim}</dim>" for dim in dims)
    named = f' names="{names}"' if names else ""
    return f'<port id="{number}" precision="{PRECISIONS[kind]}"{named}>{sizes}</port>'


class Ir:
    """Layers are added one by one; each gives the address of its first output."""

    def __init__(self):
        self.layers, self.edges, self.data, self.ids = [], [], b"", 0

    def layer(self, kind, inputs, outputs, *, name="", extra="", kinds=(), **data):
        """`inputs` are (address, shape), `outputs` shapes or (shape, type); `kinds` the inputs' types."""
        number, self.ids = self.ids, self.ids + 1
        attributes = "".join(f' {key}="{value}"' for key, value in data.items())
        forms = kinds or ["f32"] * len(inputs)
        read = "".join(port(place, dims, forms[place]) for place, (_, dims) in enumerate(inputs))
        made = [entry if isinstance(entry[-1], str) else (entry, "f32") for entry in map(tuple, outputs)]
        names = name if kind == "Parameter" else ""
        written = "".join(port(len(inputs) + place, dims, form, names) for place, (dims, form) in enumerate(made))
        self.layers.append(
            f'<layer id="{number}" name="{name or f"{kind}_{number}"}" type="{kind}" version="opset1">'
            f"<data{attributes}/><input>{read}</input><output>{written}</output>{extra}</layer>"
        )
        for place, ((source, out), _) in enumerate(inputs):
            self.edges.append(f'<edge from-layer="{source}" from-port="{out}" to-layer="{number}" to-port="{place}"/>')
        return number, len(inputs)

    def parameter(self, name, dims, kind="f32"):
        shape = ",".join("?" if dim < 0 else str(dim) for dim in dims)
        return self.layer("Parameter", [], [(dims, kind)], name=name, shape=shape, element_type=kind)

    def const(self, dims, kind="f32", values=None, name=""):
        """Zeros, or the numbers given."""
        letter = {"f32": "f", "i64": "q", "f16": "e", "i8": "b", "u8": "B"}[kind]
        count = 1
        for dim in dims:
            count *= dim
        raw = struct.pack(f"<{count}{letter}", *(values or (0,) * count))
        offset, self.data = len(self.data), self.data + raw
        shape = ", ".join(map(str, dims))
        return self.layer(
            "Const", [], [(dims, kind)], name=name, element_type=kind, shape=shape, offset=offset, size=len(raw)
        )

    def result(self, source, dims):
        return self.layer("Result", [(source, dims)], [])

    def text(self):
        layers, edges = "".join(self.layers), "".join(self.edges)
        return (
            f'<?xml version="1.0"?>\n<net name="by hand" version="11"><layers>{layers}</layers><edges>{edges}</edges>'
            "<rt_info><anything/></rt_info></net>"
        )


def convolution_ir():
    ir = Ir()
    x, w = ir.parameter("x", (-1, 3, 8, 8)), ir.const((4, 3, 3, 3))
    pads = {"pads_begin": "1,1", "pads_end": "1,1", "auto_pad": "explicit"}
    y = ir.layer(
        "Convolution", [(x, (-1, 3, 8, 8)), (w, (4, 3, 3, 3))], [(-1, 4, 8, 8)], name="conv", strides="1, 1",
        dilations="1, 1", **pads,
    )  # fmt: skip
    ir.result(y, (-1, 4, 8, 8))
    return ir.text()
