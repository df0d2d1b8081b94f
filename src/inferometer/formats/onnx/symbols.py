"""Names of sizes: what the file calls them, and what we call them.

A file's own names become symbols. Those that are usual for a batch, a sequence, a cache or an image become ours, so
that a workload binds them; a nameless size gets a name from where it stands. Which is which is kept in the metadata.
"""

import re
from dataclasses import dataclass, field

from inferometer.core.dims import Dim, Symbol
from inferometer.formats.onnx import algebra
from inferometer.formats.onnx.messages import Axis, TypeDef, is_float

_NAMES = {
    "batch": ("batch", "batchsize", "bs", "nbatch", "n", "b", "batchdim", "dynamicbatch"),
    "query": (
        "query", "sequence", "sequencelength", "seq", "seqlen", "seqlength", "maxseqlen", "s", "querylength",
        "decodersequence", "decodersequencelength", "tokens", "numtokens",
    ),
    "context": (
        "context", "pastsequencelength", "pastsequence", "pastseqlen", "pastlength", "pastdecodersequencelength",
        "pastdecodersequence", "pastkvlen", "kvlen",
    ),
    "encoder": ("encoder", "encodersequencelength", "encodersequence", "encoderlength", "encoderseqlen"),
    "frames": ("frames", "nframes", "numframes"),
    "height": ("height", "h", "imageheight", "imgheight"),
    "width": ("width", "w", "imagewidth", "imgwidth"),
}  # fmt: skip
_OURS = {spelling: ours for ours, spellings in _NAMES.items() for spelling in spellings}
_TOTAL = frozenset({
    "totalsequencelength", "totalseqlen", "totallength", "attentionmasklength", "totalsequence", "totalslidinglength",
})  # fmt: skip

_WINDOWED = "pastslidinglength"  # cached tokens of layers with a window, in ONNX Runtime GenAI's files

# Names that exporters give to sizes which have none.
_NAMELESS = re.compile(
    r"unk__\d+|(?:p2o\.)?DynamicDimension\.\d+|\?|None|-1|dim_\d+|.*_dim_\d+|.*dynamic_axes_\d+", re.DOTALL
)
# Names that torch gives: the number is all there is to them, and equal names are equal sizes.
_TORCH = re.compile(r"[su]\d+")
_TOKEN = re.compile(r"\s*(?:(\d{1,18})|([A-Za-z_][\w.]*)|([-+*()]))")
_STATE = re.compile(r"(^|_)(state|hidden|cell|h|c|h0|c0|hn|cn|h_0|c_0)s?(_|$)", re.IGNORECASE)
_LENGTHS = re.compile(r"(len|length)s?$", re.IGNORECASE)
_UNNAMED = frozenset({"?", "None", "-1"})
_CHANNELS = frozenset({1, 3, 4})


@dataclass(slots=True)
class Symbols:
    """`ours` maps the file's names to sizes; `explained` says where each of our names comes from."""

    ours: dict[str, Dim] = field(default_factory=dict)
    explained: dict[str, str] = field(default_factory=dict)
    nameless: dict[tuple[str, int], Dim] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)  # the file's names of sizes that have ours from their place

    @property
    def file_names(self) -> dict[str, str]:
        """Our name for each of the file's, where it is a name and no sum or product."""
        ours = {name: dim.name for name, dim in self.ours.items() if isinstance(dim, Symbol)}
        return self.places | ours

    def dim(self, axis: Axis) -> Dim | None:
        """A size as declared; None where the declaration says nothing."""
        if axis is None or isinstance(axis, int):
            return axis
        if axis in self.ours:
            return self.ours[axis]
        return None if _NAMELESS.fullmatch(axis) else self._of_name(axis)

    def input_dim(self, name: str, index: int, axis: Axis) -> Dim:
        known = self.dim(axis)
        if known is None:
            known = self.nameless.get((name, index))
        if known is None:
            known = Symbol(f"{name}.{index}")
        if isinstance(axis, str) and axis not in _UNNAMED and isinstance(known, Symbol):
            self.places.setdefault(axis, known.name)
        return known

    def _of_name(self, name: str) -> Dim:
        """A name that no input has: an expression over known ones, or a symbol of its own."""
        size = _evaluate(name, self.ours)
        self.ours[name] = Symbol(name) if size is None else size
        return self.ours[name]


def read_symbols(inputs: list[tuple[str, TypeDef]]) -> Symbols:
    """Decide on names from the graph's inputs."""
    symbols = Symbols()
    named: dict[str, list[TypeDef]] = {}
    for _, kind in inputs:
        for axis in kind.axes or ():
            if isinstance(axis, str) and not _NAMELESS.fullmatch(axis):
                named.setdefault(axis, []).append(kind)
    taken = _take_usual(symbols, named)
    # Layers with a window may name their cache's length apart: the window stands in their attention already.
    for name in named:
        if _plain(name) == _WINDOWED:
            taken.add("context")
            symbols.ours[name] = Symbol("context")
            symbols.explained.setdefault("context", f"named {name!r} in the file")
    _take_torch(symbols, inputs, taken)
    for name in named:
        if name not in symbols.ours and _plain(name) not in _TOTAL and _evaluate(name, symbols.ours) is None:
            symbols.ours[name] = Symbol(name)
    _take_totals(symbols, named, taken)
    for name, kind in inputs:
        _name_by_place(symbols, name, kind, taken)
    return symbols


def _plain(name: str) -> str:
    return re.sub(r"[^a-z]", "", name.casefold())


def _take_usual(symbols: Symbols, named: dict[str, list[TypeDef]]) -> set[str]:
    """Give each of our names to one of the file's: the same one first, then the first usual one."""
    taken: set[str] = set()
    for name in sorted(named, key=lambda n: n not in _NAMES):
        ours = _OURS.get(_plain(name)) if re.fullmatch(r"[\w.\-]+", name) else None
        if ours is None or ours in taken or not _believable(name, ours, named[name]):
            continue
        if name != ours and ours in named:
            continue
        taken.add(ours)
        symbols.ours[name] = Symbol(ours)
        symbols.explained[ours] = f"named {name!r} in the file"
    return taken


def _take_torch(symbols: Symbols, inputs: list[tuple[str, TypeDef]], taken: set[str]) -> None:
    """Torch's own symbols (`s6`) say nothing: custom names the first that stands in each usual place."""
    for name, kind in inputs:
        for index, axis in enumerate(kind.axes or ()):
            if not isinstance(axis, str) or not _TORCH.fullmatch(axis) or axis in symbols.ours:
                continue
            usual = _usual_at(name, kind, index)
            if usual is not None and usual not in taken:
                taken.add(usual)
                symbols.ours[axis] = Symbol(usual)
                symbols.explained[usual] = f"axis {index} of input {name!r}, {axis!r} in the file"


def _believable(name: str, ours: str, kinds: list[TypeDef]) -> bool:
    """Whether a name means what it usually does. A single letter needs more evidence than a word, and no digits."""
    # Whether a sequence is one of tokens: ids, or vectors. A plain signal keeps its own name.
    if ours == "query" and not any(not is_float(kind.dtype) or len(kind.axes or ()) > 2 for kind in kinds):
        return False
    if len(_plain(name)) > 2:
        return True
    if _plain(name) != name.casefold():
        return False
    if ours == "batch":
        return any((kind.axes or ())[:1] == (name,) for kind in kinds)
    if ours in {"height", "width"}:
        return any(len(kind.axes or ()) > 2 for kind in kinds)
    return any(not is_float(kind.dtype) for kind in kinds)


def _take_totals(symbols: Symbols, named: dict[str, list[TypeDef]], taken: set[str]) -> None:
    """A name for all tokens, cached and new, is their sum where both have names; a sum of names is one."""
    for name in named:
        if name in symbols.ours:
            continue
        if _plain(name) in _TOTAL and {"query", "context"} <= taken:
            symbols.ours[name] = algebra.add(Symbol("context"), Symbol("query"))
            symbols.explained.setdefault("context + query", f"named {name!r} in the file")
        else:
            symbols.dim(name)


def _name_by_place(symbols: Symbols, name: str, kind: TypeDef, taken: set[str]) -> None:
    axes = kind.axes or ()
    for index, axis in enumerate(axes):
        if isinstance(axis, int) or (isinstance(axis, str) and not _NAMELESS.fullmatch(axis)):
            continue
        if isinstance(axis, str) and axis in symbols.ours and not axis.startswith("?"):
            continue
        usual = _usual_at(name, kind, index)
        if usual is None:
            continue
        if usual not in taken:
            symbols.explained.setdefault(usual, f"nameless in the file: axis {index} of input {name!r}")
        elif not symbols.explained[usual].startswith("nameless") and usual != "batch":
            continue  # two sizes of one kind, and the file names the other
        taken.add(usual)
        if isinstance(axis, str) and axis not in _UNNAMED:
            symbols.ours[axis] = Symbol(usual)
        symbols.nameless[name, index] = Symbol(usual)


def _usual_at(name: str, kind: TypeDef, index: int) -> str | None:
    """What stands at an axis by custom: the batch first, an image's sides where its channels show, tokens of ids.

    A recurrent layer's state has the batch second; lengths have nothing else.
    """
    axes, rank = kind.axes or (), len(kind.axes or ())
    if index == 0:
        return "batch" if rank > 1 or (not is_float(kind.dtype) and _LENGTHS.search(name)) else None
    if index == 1 and rank == 3 and isinstance(axes[0], int) and isinstance(axes[2], int) and _STATE.search(name):
        return "batch"
    if rank == 4 and is_float(kind.dtype):
        if axes[1] in _CHANNELS and index in {2, 3}:
            return "height" if index == 2 else "width"
        if axes[3] in _CHANNELS and index in {1, 2}:
            return "height" if index == 1 else "width"
    return "query" if rank == 2 and kind.dtype in {"i32", "i64"} else None


def _evaluate(text: str, known: dict[str, Dim]) -> Dim | None:
    """A sum or product of known names and numbers, as exporters write `past_sequence_length + 1`; else None."""
    if len(text) > 200 or not re.search(r"[-+*]", text):
        return None
    tokens: list[str] = []
    position = 0
    while position < len(text.rstrip()):
        match = _TOKEN.match(text, position)
        if match is None:
            return None
        tokens.append(match.group().strip())
        position = match.end()
    # Without parentheses: products, added and subtracted
    if len(tokens) % 2 == 0:
        return None
    terms: list[Dim] = []
    for operator, operand in zip(("+", *tokens[1::2]), tokens[::2], strict=True):
        value = int(operand) if operand.isdecimal() else known.get(operand)
        if value is None or operator not in {"+", "-", "*"}:
            return None
        if operator == "*":
            terms[-1] = algebra.mul(terms[-1], value)
        else:
            terms.append(value if operator == "+" else algebra.mul(value, -1))
    total: Dim = 0
    for term in terms:
        total = algebra.add(total, term)
    return total
