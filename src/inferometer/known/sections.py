"""Split a TOML file into its tables as text, so that one row can be read without parsing the others.

Parsing a whole file takes longer than anything else one row is asked for. It needs a file in which every table starts
with its header at the beginning of a line, and nothing else has a bracket there. Our own files are so written, and the
tests hold them to it; a user's file may be any TOML, and is parsed whole.
"""


def tables(text: str) -> list[tuple[tuple[str, str], str]]:
    """The first two keys of each header (the second may be empty), with the table's text, in the file's order."""
    _, *parts = f"\n{text}".split("\n[")
    return [(_first_keys(part.partition("]")[0].lstrip("[")), f"[{part}\n") for part in parts]


def _first_keys(header: str) -> tuple[str, str]:
    first, rest = _key(header)
    return first, _key(rest)[0]


def _key(dotted: str) -> tuple[str, str]:
    """The first key of a dotted one, and the rest."""
    if dotted.startswith('"'):
        key, _, rest = dotted[1:].partition('"')
        return key, rest.removeprefix(".")
    key, _, rest = dotted.partition(".")
    return key, rest


def excerpt(text: str, table: str, word: str) -> str:
    """The rows `[table.NAME…]` whose text has the word in it, with every source they may cite."""
    parts = tables(text)
    named = {name for (first, name), part in parts if first == table and word in part}
    rows = [part for (first, name), part in parts if first == table and name in named]
    row_text = "".join(rows)
    sources = [part for (first, name), part in parts if first == "sources" and name in row_text]
    return "".join([*sources, *rows])
