"""Whole pipelines that make pictures or videos: text encoders, a denoiser at every step, and the decoder.

A pipeline is one graph of parts that are models themselves: rows of the catalog, or graphs that come with us. What runs
once a picture is marked so; the question's steps repeat the rest.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from inferometer.core.dims import Dim, Expression, Symbol, evaluate, symbols_in
from inferometer.core.frozen import frozen
from inferometer.core.graph import Block, Graph, Op, Tensor
from inferometer.formats.huggingface import nn
from inferometer.formats.huggingface.config import Config
from inferometer.formats.huggingface.graph import graph_from_config
from inferometer.formats.networks.named import net_named, read_net
from inferometer.known.files import row_named
from inferometer.known.zoo import model


def pipeline(config: Config) -> nn.Body:
    """With guidance a step runs the denoiser for the prompt and for none, as one batch of twice as many.

    `tokens` of a part are those of its prompt; `pixels` are those on a side of one unit of its `image`, which is a
    latent to an autoencoder's decoder. A video's `frames` and sides are those of its parts.
    """
    guided = config.whole("guidance", 1, most=2) * nn.BATCH
    texts, denoiser, decoder = config.tables("text_encoders"), config.table("denoiser"), config.table("decoder")
    parts = [nn.once_only(_part(f"text_{index + 1}", table, guided)) for index, table in enumerate(texts)]
    parts += [_part("denoiser", denoiser, guided), nn.once_only(_part("decoder", decoder, nn.BATCH))]
    blocks = tuple(block for part in parts for block in part)
    return nn.Body(
        blocks=blocks,
        inputs=tuple(tensor for part in parts for tensor in part[0].ops[0].inputs),
        outputs=blocks[-1].ops[-1].outputs,
        metadata={**_made(config), "steps": config.whole("steps", most=1000)},
    )


def _made(config: Config) -> dict[str, Any]:
    """The side of a picture that it makes unless told otherwise, or the frames of a video."""
    if "frames" in config.values:
        return {"frames": config.whole("frames")}
    return {"default_sizes": {"image": config.whole("image")}}


def _part(name: str, table: Config, batch: Dim) -> tuple[Block, ...]:
    """The blocks of a part. What it suggests itself for other sizes than the image holds: nobody can ask for them."""
    graph = _graph(table)
    sizes: dict[str, Dim] = {**graph.metadata.get("default_sizes", {}), "batch": batch, "context": 0}
    sizes["image"] = nn.IMAGE // table.whole("pixels", 1)
    if "tokens" in table.values:
        sizes |= dict.fromkeys(("query", "encoder"), table.whole("tokens"))
    return _Part(name=name, sizes=sizes).blocks(graph)


def _graph(table: Config) -> Graph:
    """The graph of a part, by a name that is known here: what a config from elsewhere says is never a path."""
    name = table.text("model")
    if (net := net_named(name)) is not None:
        return read_net(net)
    if row_named("models", name) is None:
        raise table.error("model", f"must be a model of the catalog, and is {name[:80]!r}")
    row = model(name)
    named = {"architectures": [table.text("class")]} if "class" in table.values else {}
    return graph_from_config({**row.config, **named}, name=row.name)


@frozen
class _Part:
    """A model as a part of another: its sizes said in those of the whole, and its name before every other."""

    name: str
    sizes: Mapping[str, Dim]

    def blocks(self, graph: Graph) -> tuple[Block, ...]:
        return tuple(
            replace(block, name=f"{self.name}.{block.name}", ops=tuple(map(self._op, block.ops)))
            for block in graph.blocks
        )

    def _op(self, op: Op) -> Op:
        return replace(
            op,
            name=f"{self.name}.{op.name}",
            inputs=tuple(map(self._tensor, op.inputs)),
            outputs=tuple(map(self._tensor, op.outputs)),
            weights=tuple(map(self._tensor, op.weights)),
            attributes={key: self._value(value) for key, value in op.attributes.items() if key != "cached"},
        )

    def _tensor(self, tensor: Tensor) -> Tensor:
        shape = tuple(map(self._value, tensor.shape))
        # a language model that reads a prompt for the denoiser keeps nothing for a next token
        role = "activation" if tensor.role in {"kv", "state"} else tensor.role
        return replace(tensor, name=f"{self.name}.{tensor.name}", shape=shape, role=role)

    def _value(self, value: Any) -> Any:
        if isinstance(value, Op):
            return self._op(value)
        if isinstance(value, tuple):
            return tuple(map(self._value, value))
        if isinstance(value, Symbol | Expression):
            return evaluate(value, {name: self.sizes.get(name, Symbol(name)) for name in symbols_in(value)})
        return value
