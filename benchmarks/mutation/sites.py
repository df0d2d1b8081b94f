"""Every place of a package that an operator can change, and a sample of them."""

import ast
import random
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import islice
from pathlib import Path

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from operators import CLASSES, GUARDS

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "inferometer"
# Words, not numbers: what a log line, a warning or a help text says is no rule that a test should hold.
SAID_BY = {"log", "logger", "logging", "warnings", "say", "told", "tell"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    file: str  # relative to src/inferometer
    line: int
    kind: str
    operator: str
    before: str
    after: str
    source: str  # of the whole module

    @property
    def key(self):
        """The same through edits elsewhere in the file."""
        return self.file, self.before, self.after


def annotation(node, parent):
    if parent.type == "annassign":
        return node is parent.children[1]
    if parent.type not in {"tfpdef", "funcdef"}:
        return False
    place = next((i for i, child in enumerate(parent.children) if child is node), 0)
    before = parent.children[place - 1]
    return before.type == "operator" and before.value == (":" if parent.type == "tfpdef" else "->")


def types_joined(node):
    """`A | B` in an isinstance or an alias."""
    if node.type != "operator" or node.value != "|":
        return False
    sides = [child.get_code().strip() for child in node.parent.children if child is not node]
    return any(side[:1].isupper() or side in {"int", "float", "str", "bool", "bytes", "|"} for side in sides)


def meant(node):
    """Whether a change here is one of what the module does: not of a type, a message, a decorator or a log line."""
    guard = node.parent.type == "argument" and node.parent.children[0].get_code().strip() in GUARDS
    if guard or types_joined(node) or (node.type == "operator" and node.parent.type == "parameters"):
        return False
    while node.parent is not None:
        parent = node.parent
        if parent.type in {"fstring", "raise_stmt", "decorator", "import_from", "import_name", "assert_stmt"}:
            return False
        if parent.type == "if_stmt" and "TYPE_CHECKING" in parent.children[1].get_code():
            return False
        if parent.type == "atom_expr" and parent.get_first_leaf().value in SAID_BY:
            return False
        if annotation(node, parent):
            return False
        node = parent
    return True


def chosen(node):
    """A number of a constant or a table: a choice (how often, how long, which sizes), not a rule."""
    while node.parent is not None:
        if node.type in {"funcdef", "lambdef"}:
            return False
        node = node.parent
    return True


def changed(source, mutated):
    """The line, what it said and what it says."""
    old, new = source.splitlines(), mutated.splitlines()
    for tag, i1, i2, j1, j2 in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag != "equal":
            return i1 + 1, " ".join(map(str.strip, old[i1:i2])), " ".join(map(str.strip, new[j1:j2]))
    return None


def other_program(source, mutated):
    try:
        return ast.dump(ast.parse(source)) != ast.dump(ast.parse(mutated))
    except SyntaxError:
        return False


def places(file):
    """(class, operator, occurrence) of every change that can be made in a file."""
    tree = get_ast(file.read_text(encoding="utf-8"))
    nodes = [(node, meant(node)) for node in ast_nodes(tree) if node.parent is not None]
    for kind, operators in CLASSES.items():
        for operator in operators:
            occurrence = 0
            for node, counted in nodes:
                for _ in operator().mutation_positions(node):
                    if counted and not (kind == "number" and chosen(node)):
                        yield kind, operator, occurrence
                    occurrence += 1


def mutant(file, kind, operator, occurrence):
    source = file.read_text(encoding="utf-8")
    mutated = mutate_code(source, operator(), occurrence)
    if mutated is None or not other_program(source, mutated):
        return None
    line, before, after = changed(source, mutated)
    return Mutant(
        file=file.relative_to(SOURCE).as_posix(),
        line=line,
        kind=kind,
        operator=operator.__name__,
        before=before,
        after=after,
        source=mutated,
    )


def sample(package, count, seed):
    """`count` mutants of a package: a class of mistakes at random, then one of its places."""
    chance = random.Random(f"{package} {seed}")  # noqa: S311 - a sample, no secret
    by_kind = {}
    for file in sorted((SOURCE / package).rglob("*.py")):
        for kind, operator, occurrence in places(file):
            by_kind.setdefault(kind, []).append((file, operator, occurrence))
    for found in by_kind.values():
        chance.shuffle(found)
    mutants = {}
    while by_kind and len(mutants) < count:
        kind = chance.choice(sorted(by_kind))
        if not by_kind[kind]:
            del by_kind[kind]
            continue
        file, operator, occurrence = by_kind[kind].pop()
        made = mutant(file, kind, operator, occurrence)
        if made is not None:
            mutants[made.key] = made
    return list(mutants.values())


def found_again(package, rows):
    """The mutants that a file of results lists, wherever they stand by now: whatever else of the package changed."""
    for row in rows:
        file = SOURCE / row["at"].partition(":")[0]
        if file.exists() and file.is_relative_to(SOURCE / package):
            made = (mutant(file, *place) for place in places(file) if place[0] == row["kind"])
            wanted = (row["before"], row["after"])
            yield from islice((each for each in made if each and (each.before, each.after) == wanted), 1)
