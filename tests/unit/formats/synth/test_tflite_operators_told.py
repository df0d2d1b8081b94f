"""The TFLite operators that each kind of op becomes, with their constants in place.

`tflite_operators_told.txt` has the cases, in the words of `unit/formats/listing.py`; `python
tests/unit/formats/synth/test_tflite_operators_told.py` writes the lines below the cases anew (with src and tests on the
path).
"""

from pathlib import Path

from inferometer.formats.tflite.write.lowering import lower
from unit.formats.listing import holds, rewrite
from unit.formats.synth.cases import graph_of

TOLD = Path(__file__).parent / "tflite_operators_told.txt"


def read(case):
    graph, said = graph_of(case, "sizes", "epsilon")
    network = lower(graph, said.get("sizes", {}), epsilon=said.get("epsilon", 1e-5), seed=0)

    def told(place):
        tensor = network.tensors[place]
        if tensor.name.startswith("constants/") and "zeros" not in tensor.name:
            return f"{tensor.dtype} {tensor.make().tolist()}"
        return f"{tensor.name}[{','.join(map(str, tensor.shape))}]{' open' * tensor.open}"

    for operator in network.operators:
        words = "".join(f" {key}={value}" for key, value in sorted(operator.options.items()))
        (result,) = operator.outputs
        yield f"{operator.kind}({', '.join(map(told, operator.inputs))}) -> {told(result)}{words}"
    yield f"{', '.join(map(told, network.inputs))} -> {', '.join(map(told, network.outputs))}"


test_every_op_becomes_the_operators_that_are_written_below_it = holds(TOLD, read)

if __name__ == "__main__":
    rewrite(TOLD, read)
