"""What a mutant changes: the realistic ones of Cosmic Ray's operators, and those mistakes of ours that it has none for.

`CLASSES` groups them by the mistake they imitate, so that a sample has some of each.
"""

import builtins

from cosmic_ray.operators import (
    binary_operator_replacement,
    boolean_replacer,
    break_continue,
    comparison_operator_replacement,
    number_replacer,
    unary_operator_replacement,
    zero_iteration_for_loop,
)
from cosmic_ray.operators.operator import Operator
from parso.python.tree import IfStmt, Name, Number

NEIGHBOURS = {
    "min": "max",
    "max": "min",
    "any": "all",
    "all": "any",
    "ceil": "floor",
    "floor": "ceil",
    "minimum": "maximum",
    "maximum": "minimum",
    "startswith": "endswith",
    "endswith": "startswith",
    "removeprefix": "removesuffix",
    "partition": "rpartition",
    "rpartition": "partition",
    "mean": "median",
    "median": "mean",
    "keys": "values",
}
# Their arguments are of two kinds, so that a swap is no mistake anybody makes, or of one, so that it changes nothing.
FIXED_ORDER = {"isinstance", "issubclass", "getattr", "setattr", "hasattr", "cast", "field", "replace", "sub", "match"}
# (Columns of a table are filled and read by their names.)
ANY_ORDER = {
    "min", "max", "hypot", "gcd", "lcm", "minimum", "maximum", "larger", "smaller", "isclose", "union", "create_table",
    "Table", "suppress",
}  # fmt: skip

# Keywords that guard against what cannot happen, say how something is kept, or only describe.
GUARDS = {"strict", "maxsize", "encoding", "exist_ok", "slots", "kw_only", "help", "metavar"}


class Rewrite(Operator):
    """An operator that writes other code in a node's place: `rewrites(node)` gives the codes."""

    @staticmethod
    def rewrites(node):
        raise NotImplementedError

    def mutation_positions(self, node):
        for _ in self.rewrites(node):
            yield node.start_pos, node.end_pos

    def mutate(self, node, index):
        return Name(self.rewrites(node)[index], node.start_pos, prefix=node.get_first_leaf().prefix)

    @classmethod
    def examples(cls):
        return ()


def codes(nodes):
    return "".join(node.get_code() for node in nodes).strip()


def without_each(children):
    """The codes that are left when one operand goes, with the operator at its side: a + b - c gives three."""
    yield codes(children[2:])
    for i in range(2, len(children), 2):
        yield codes(children[: i - 1] + children[i + 1 :])


class DropTerm(Rewrite):
    """A + b → a; a * b → b."""

    @staticmethod
    def rewrites(node):
        if node.type not in {"arith_expr", "term"} or any(
            child.type in {"string", "fstring"} for child in node.children
        ):
            return []
        return list(without_each(node.children))


class DropCondition(Rewrite):
    """A and b → a; x or default → x."""

    @staticmethod
    def rewrites(node):
        return list(without_each(node.children)) if node.type in {"and_test", "or_test"} else []


class OneBranch(Rewrite):
    """A if c else b → a, or b."""

    @staticmethod
    def rewrites(node):
        if node.type not in {"test", "ternary"} or len(node.children) != 5:
            return []
        return [f"({codes([node.children[0]])})", f"({codes([node.children[4]])})"]


class Neighbour(Rewrite):
    """min → max, any → all, ceil → floor, startswith → endswith."""

    @staticmethod
    def rewrites(node):
        other = NEIGHBOURS.get(node.value) if node.type == "name" else None
        if other is None or node.get_next_leaf() is None:
            return []
        called = node.get_next_leaf().value == "("
        key = node.parent.type == "argument" and node.parent.children[0] is not node
        method = node.get_previous_leaf() is not None and node.get_previous_leaf().value == "."
        known = method or hasattr(builtins, other) or other in node.get_root_node().get_used_names()
        return [other] if (called or key) and known else []


def arguments_of(node):
    """A call's arguments, without the commas between them."""
    if node.type != "arglist" or node.parent.type != "trailer":
        return []
    return [child for child in node.children if child.type != "operator"]


def literal(node):
    return node.type in {"string", "number", "keyword", "lambdef", "fstring"}


class SwapArguments(Rewrite):
    """f(a, b) → f(b, a), and the values of two keywords: f(m=a, n=b) → f(m=b, n=a)."""

    @staticmethod
    def rewrites(node):
        arguments = arguments_of(node)
        if not arguments or node.parent.get_previous_leaf().value in FIXED_ORDER | ANY_ORDER:
            return []
        values = [
            argument.children[2]
            if argument.type == "argument" and len(argument.children) == 3 and argument.children[1].value == "="
            else argument
            for argument in arguments
        ]
        plain = [value.type != "argument" and not literal(value) for value in values]
        swaps = []
        for i in range(len(arguments) - 1):
            alike = (values[i] is arguments[i]) == (values[i + 1] is arguments[i + 1])
            if plain[i] and plain[i + 1] and alike and codes([values[i]]) != codes([values[i + 1]]):
                other = {id(values[i]): values[i + 1], id(values[i + 1]): values[i]}
                swaps.append(", ".join(swapped(argument, other) for argument in arguments))
        return swaps


def swapped(argument, other):
    if id(argument) in other:
        return codes([other[id(argument)]])
    if argument.type == "argument" and id(argument.children[-1]) in other:
        return f"{codes([argument.children[0]])}={codes([other[id(argument.children[-1])]])}"
    return codes([argument])


class DropKeyword(Rewrite):
    """f(a, k=v) → f(a), but for keywords that only guard."""

    @staticmethod
    def rewrites(node):
        arguments = arguments_of(node)
        named = [
            argument
            for argument in arguments
            if argument.type == "argument"
            and argument.children[1].type == "operator"
            and argument.children[1].value == "="
            and argument.children[0].value not in GUARDS
        ]
        return [", ".join(codes([other]) for other in arguments if other is not gone) for gone in named]


def last_statement(suite):
    """The last simple statement of an if's body, whether in a line of its own or beside the colon."""
    lines = [child for child in suite.children if child.type != "newline"] if suite.type == "suite" else [suite]
    return lines[-1].children[0] if lines[-1].type == "simple_stmt" else lines[-1]


class DropCheck(Rewrite):
    """If wrong: raise … → if False: raise …; so for an early return or continue."""

    @staticmethod
    def rewrites(node):
        parent = node.parent
        if not isinstance(parent, IfStmt) or node is not parent.children[1]:
            return []
        last = last_statement(parent.children[3])
        leaving = last.type in {"raise_stmt", "return_stmt"} or getattr(last, "value", "") in {
            "continue",
            "break",
            "return",
        }
        return ["False"] if leaving else []


class DropStatement(Rewrite):
    """A call made for its effect is not made; a += b → a = b."""

    @staticmethod
    def rewrites(node):
        if node.type == "operator" and node.value in {"+=", "*=", "-=", "|="} and node.parent.type != "param":
            return ["="]
        alone = node.parent is not None and node.parent.type == "simple_stmt" and node.type == "atom_expr"
        return ["pass"] if alone and node.children[-1].type == "trailer" else []


class DropFilter(Rewrite):
    """[x for x in y if wanted(x)] → [x for x in y]."""

    @staticmethod
    def rewrites(node):
        return ["if True"] if node.type == "comp_if" else []


class ScaleNumber(Rewrite):
    """0.05 → 0.1: a unit added to a float is either nothing or absurd."""

    @staticmethod
    def rewrites(node):
        number = isinstance(node, Number) and isinstance(value_of(node), float) and value_of(node)
        return [repr(value_of(node) * 2)] if number else []


def value_of(node):
    return float(node.value) if set(node.value) & set(".e") and not node.value.startswith("0x") else 0


class NextNumber(number_replacer.NumberReplacer):
    """A whole number one off; 2**40 or 1e9 one off is no mistake that anybody makes."""

    def mutation_positions(self, node):
        if isinstance(node, Number) and node.value.replace("_", "").isdigit() and int(node.value) <= 1024:
            yield from super().mutation_positions(node)


def of_cosmic_ray(module, *names):
    return [getattr(module, f"Replace{name}") for name in names]


CLASSES = {
    "arithmetic": of_cosmic_ray(
        binary_operator_replacement,
        *("BinaryOperator_Add_Sub", "BinaryOperator_Sub_Add", "BinaryOperator_Mul_Div", "BinaryOperator_Div_Mul"),
        *("BinaryOperator_FloorDiv_Div", "BinaryOperator_Mod_FloorDiv", "BinaryOperator_Pow_Mul"),
        *("BinaryOperator_BitOr_BitAnd", "BinaryOperator_BitAnd_BitOr"),
    ),
    "comparison": of_cosmic_ray(
        comparison_operator_replacement,
        *("ComparisonOperator_Lt_LtE", "ComparisonOperator_LtE_Lt", "ComparisonOperator_Gt_GtE"),
        *("ComparisonOperator_GtE_Gt", "ComparisonOperator_Eq_NotEq", "ComparisonOperator_NotEq_Eq"),
        *("ComparisonOperator_Is_IsNot", "ComparisonOperator_IsNot_Is", "ComparisonOperator_Lt_Gt"),
    ),
    "boolean": [
        boolean_replacer.ReplaceAndWithOr,
        boolean_replacer.ReplaceOrWithAnd,
        boolean_replacer.ReplaceTrueWithFalse,
        boolean_replacer.ReplaceFalseWithTrue,
        unary_operator_replacement.ReplaceUnaryOperator_Delete_Not,
        unary_operator_replacement.ReplaceUnaryOperator_Delete_USub,
    ],
    "number": [NextNumber, ScaleNumber],
    "neighbour": [Neighbour],
    "dropped term": [DropTerm],
    "dropped condition": [DropCondition],
    "one branch": [OneBranch],
    "swapped arguments": [SwapArguments],
    "dropped keyword": [DropKeyword],
    "dropped check": [DropCheck],
    "dropped statement": [DropStatement],
    "dropped filter": [DropFilter],
    "loop": [
        break_continue.ReplaceBreakWithContinue,
        break_continue.ReplaceContinueWithBreak,
        zero_iteration_for_loop.ZeroIterationForLoop,
    ],
}
