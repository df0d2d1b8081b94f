"""`inferometer compare`."""

from typing import TYPE_CHECKING

import click

from inferometer.cli.options import ALPHA, format_option, print_document, print_table, print_text, say, together
from inferometer.cli.storing import profile_named, store_option
from inferometer.core.errors import GateError
from inferometer.core.units import parse_quantity

if TYPE_CHECKING:
    from inferometer.measure.bench.compare import Comparison
    from inferometer.measure.bench.gate import Gate
    from inferometer.measure.bench.verdict import Criteria

_THRESHOLD = "1%"
_ALPHA = 0.005


# What counts as a difference, and what makes the command fail: for every command that gives a verdict.
verdict_options = together(
    click.option("--threshold", default=_THRESHOLD, metavar="X", help="The smallest difference that counts."),
    click.option("--alpha", type=ALPHA, default=_ALPHA, metavar="P", help="Risk of taking noise for a difference."),
    click.option(
        "--fail-if", multiple=True, metavar="CONDITION", help='Exit with 1 if this holds: "latency>5%", "ops>10%".'
    ),
)


@click.command("compare")
@click.argument("results", nargs=-1, metavar="A B …")
@click.option("--all", "every", is_flag=True, help="Show every op, not only those that changed most.")
@verdict_options
@store_option
@format_option
def command(
    results: tuple[str, ...],
    every: bool,
    threshold: str,
    alpha: float,
    fail_if: tuple[str, ...],
    store: str | None,
    form: str,
) -> None:
    """Compare stored runs or saved results: faster, slower, same, or no difference shown, with the reason.

    \b
    inferometer compare last~1 last
    inferometer compare before after --fail-if "latency>5%"
    inferometer compare old.json new.json --format md

    A and B are stored runs (an id, part of it, a name, `last`, `last~1`) or files that `profile -o` and `bench -o`
    wrote. A is the baseline; every other result is compared with it. The verdict is a rank test of the raw samples,
    with the ratio and its interval, for each metric and each op, corrected for their number. B is faster or slower if
    the interval excludes 1; if it does not, no difference is shown, and the reason says how many runs would do.
    Results measured in turns (`inferometer profile --against`, `inferometer bench --against`) are compared pair by
    pair, which detects smaller differences.

    Conditions for --fail-if: METRIC>5% (B is worse than A by more than that, beyond doubt), METRIC>20ms (B's own
    value), and the words slower, undecided, disturbed. Metrics: latency, the phases, memory, energy, energy_per_token,
    energy_per_input, tokens_per_s, ops, op:NAME.
    """
    from inferometer.measure.bench.compare import compare
    from inferometer.measure.bench.gate import parse_gate

    if len(results) < 2:
        raise click.UsageError("Give two or more runs or files.", ctx=click.get_current_context())
    gates = tuple(parse_gate(text) for text in fail_if)
    criteria = criteria_from(threshold, alpha)
    first, *others = [(result, profile_named(result, store)) for result in results]
    comparisons = [
        compare(first[1], profile, criteria=criteria, names=(first[0], name)) for name, profile in others
    ]  # fmt: skip
    print_comparisons(comparisons, form, every=every)
    hold_gates(gates, comparisons)


def criteria_from(threshold: str, alpha: float) -> "Criteria":
    from inferometer.measure.bench.verdict import Criteria

    return Criteria(threshold=parse_quantity(threshold, "1"), alpha=alpha)


def print_comparisons(comparisons: "list[Comparison]", form: str, *, every: bool = False) -> None:
    """One comparison by itself, several below each other; as JSON, several are a list, as CSV they are one table."""
    from inferometer.measure.bench.compare import comparison_document
    from inferometer.understand.view.measured import comparison_markdown, comparison_numbers, comparison_table, headline

    if form == "json":
        documents = [comparison_document(comparison) for comparison in comparisons]
        print_document(documents[0] if len(documents) == 1 else {"comparisons": documents})
        return
    if form == "csv":
        print_table(comparison_numbers(comparisons), form)
        return
    for number, comparison in enumerate(comparisons):
        if number:
            print_text("")
        if form == "md":
            print_text(comparison_markdown(comparison))
            continue
        print_text(headline(comparison))
        print_table(comparison_table(comparison, **{"most": None} if every else {}), form)


def hold_gates(gates: "tuple[Gate, ...]", comparisons: "list[Comparison]") -> None:
    """Report what is undecided, and fail if a condition holds."""
    from inferometer.measure.bench.gate import failed

    for comparison in comparisons if gates else []:
        if comparison.main.verdict == "undecided" or not comparison.main.sure:
            say(f"inferometer: {comparison.b}: not sure, so conditions on {comparison.metric} were not checked.")
    failures = [failure for comparison in comparisons for failure in failed(gates, comparison)]
    if failures:
        raise GateError(f"{'; '.join(failures).removesuffix('.')}.")  # some end with a sentence of the profile's
