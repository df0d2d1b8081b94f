"""From token ids to the residual stream."""

from inferometer.core.graph import Op, Tensor
from inferometer.readers.huggingface.config import Config
from inferometer.readers.huggingface.family import Family
from inferometer.readers.huggingface.parts import add, elementwise, embedding, linear, norm, output, tensor
from inferometer.readers.huggingface.place import Place

__all__ = ["embedded"]


def embedded(family: Family, config: Config, ids: Tensor, place: Place) -> list[Op]:
    """Words, with what the family adds to them: positions, token types, a scale, a norm, a projection."""
    names, hidden = family.names, config.whole("hidden_size")
    at, prefix = f"{place.at}embed", place.body
    narrow = config.whole("word_embed_proj_dim", hidden) if "project_in" in names else hidden
    ops = [embedding(at, ids, config.whole("vocab_size"), narrow, f"{prefix}{names['embed']}.weight")]
    if narrow != hidden:
        ops.append(linear(f"{at}.project", output(ops), hidden, f"{prefix}{names['project_in']}"))
    if family.embed_scale or config.get("embedding_multiplier", 1.0) != 1.0:
        ops.append(elementwise(f"{at}.scale", "multiply", output(ops)))
    added = [output(ops)]
    for part, rows in _tables(family, config):
        shape = ids.shape if part == "types" else ids.shape[-1:]  # every sequence has the same positions
        places = tensor(f"{at}.{part}.ids", *shape, role="index")
        ops.append(embedding(f"{at}.{part}", places, rows, hidden, f"{prefix}{names[part]}.weight"))
        added.append(output(ops))
    if len(added) > 1:
        ops.append(add(f"{at}.add", *added))
    if module := names.get("embed_norm"):
        ops.append(norm(f"{at}.norm", output(ops), family.norm, f"{prefix}{module}", bias=family.norm_bias))
    return ops


def _tables(family: Family, config: Config) -> list[tuple[str, int]]:
    """The tables that are added to the words, with their rows."""
    tables = []
    if family.names.get("types"):
        tables.append(("types", config.whole("type_vocab_size")))
    if family.positions == "learned":
        tables.append(("positions", config.whole("context") + family.position_offset))
    return tables
