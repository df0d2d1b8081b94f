"""Programs by hand: calls, shapes, and what is held."""

from inferometer.formats.torch.program import HeldInput, Program, ProgramBody, ProgramCall, ProgramValue, Ref


def value(*shape, dtype="f32", strides="regular"):
    if strides == "regular":
        regular, step = [], 1
        for size in reversed(shape):
            regular.insert(0, step)
            step = step * size
        strides = tuple(regular)
    return ProgramValue(shape=shape, dtype=dtype, strides=strides)


def call(target, outputs, path="", **arguments):
    """`aten.` is left out of targets; arguments that are Refs are tensors."""
    names = outputs.split()
    full = target if target.startswith(("higher_order", "quantized", "mylib")) else f"aten.{target}"
    return ProgramCall(
        name=names[0] if names else target, target=full, arguments=arguments, outputs=tuple(names), path=path
    )


def body(inputs, outputs, calls, values):
    return ProgramBody(inputs=tuple(inputs.split()), outputs=tuple(outputs.split()), calls=tuple(calls), values=values)


def program(calls, values, *, inputs="x", outputs="y", weights="", buffers="", mutated=""):
    held = {name: HeldInput(name=name, role="weight") for name in weights.split()}
    held |= {name: HeldInput(name=name, role="constant") for name in buffers.split()}
    return Program(
        name="p",
        body=body(inputs, outputs, calls, values),
        held=held,
        mutated=frozenset(mutated.split()),
    )


X, Y, W, B = Ref("x"), Ref("y"), Ref("w"), Ref("b")
