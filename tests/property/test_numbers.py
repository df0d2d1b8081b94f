"""Whatever number is given to whatever option: an answer, or one sentence with the limit.

Never a traceback, a hang, or a number that is none.
"""

import re
import signal
from contextlib import contextmanager
from types import NoneType

import click
import pytest
from click.testing import CliRunner

from inferometer.cli.options import Amount, Number, Whole
from inferometer.cli.run import cli
from inferometer.core.errors import InferometerError
from inferometer.predict.fields import FIELDS
from inferometer.serving.plans import search

WRONG = ("1e23", "-1", "-1e23", "nan", "inf", "-inf", "1e999", "9" * 400, "0x10", "1_0__0", "")
EDGE = ("0", "1e-30", "1e18")
SECONDS = 30  # a question takes a tenth of one: who needs this long does what nobody would wait for


def every_option():
    """(command's words, option) of every command and of those below it."""

    def below(command, words, context):
        yield from ((words, option) for option in command.params)
        if isinstance(command, click.Group):
            for name in command.list_commands(context):
                if (inner := command.get_command(context, name)) is not None:
                    yield from below(inner, (*words, name), context)

    yield from below(cli, (), click.Context(cli))


OPTIONS = [(words, option) for words, option in every_option() if option.opts[0].startswith("-")]


def named(pair):
    return " ".join((*pair[0], pair[1].opts[0]))


def test_every_number_is_read_with_its_limits():
    """Click's own numbers take NaN and any size. Limits of a question's fields are the question's own."""
    plain = (click.types.IntParamType, click.types.FloatParamType)
    assert [named(pair) for pair in OPTIONS if isinstance(pair[1].type, plain)] == []
    open_ended = {
        option.opts[0]
        for _, option in OPTIONS
        if isinstance(option.type, Whole | Number) and (option.type.least is None or option.type.most is None)
    }
    assert {name[2:].replace("-", "_") for name in open_ended} <= FIELDS.keys()


def test_every_time_and_size_is_read_with_its_limits():
    """Unless it may also be a date, or a share."""
    texts = [
        named(pair)
        for pair in OPTIONS
        if pair[1].metavar in {"TIME", "SIZE"} and not isinstance(pair[1].type, Amount)
    ]  # fmt: skip
    assert sorted(texts) == sorted([
        "hub agent --memory-limit", "hub agent --disk-limit", "plan --by", "hub retention set --runs",
        "hub retention set --artifacts", "hub retention set --jobs", *(f"{way} --{name}" for way in ("predict", "sweep")
        for name in ("tokenise", "sampling", "detokenise", "audio")),
    ])  # fmt: skip


@pytest.mark.parametrize(
    "kind", [Whole(1, 100), Number(0, 1), Number(0, 100, between=True), Amount("TIME", "s", 0, 60)]
)
@pytest.mark.parametrize("text", WRONG)
def test_a_refusal_of_a_wrong_number_is_a_sentence_with_the_limit(kind, text):
    with pytest.raises(click.BadParameter) as caught:
        kind.convert(text, None, None)
    assert len(caught.value.message) < 200
    assert re.search(r"from .* to|between .* and|within .* to|Accepted", caught.value.message)


@contextmanager
def in_time():
    """An error, where what is within takes too long."""

    def ended(*_):
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, ended)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


DECODER, SERVED = ("llama-3.2-1b", "--on", "nvidia-l4"), ("llama-3.2-1b", "--on", "nvidia-h100-sxm")
# A question of each command that answers from what is known, as quick as can be.
ASKED = {
    ("predict",): DECODER,
    ("fit",): DECODER,
    ("can-i-run",): ("llama-3.2-1b",),
    ("models", "show"): ("llama-3.2-1b",),
    ("sweep",): ("llama-3.2-1b", "--on", "nvidia-l4"),
    ("simulate",): (*SERVED, "--requests", "3", "--rate", "5"),
    ("plan",): ("llama-3.2-1b", "--on", "nvidia-l4", "--slo", "tpot_p95<=1s", "--rate", "1", "--tp", "1"),
    ("traffic",): ("--agents", "2"),
    ("load",): ("http://127.0.0.1:9", "--requests", "1", "--timeout", "1s"),
}  # fmt: skip
WITH = {"--think": ("--turns", "2"), "--acceptance": ("--draft-length", "2"), "--encoder": ("--images", "1:64")}
NAMES = {"--on", "--runtime", "--weights", "--activations", "--kv"}  # lists of them
# Texts in which numbers stand among other things, by their words for it.
NUMERIC = re.compile(r"[NXRKPWJ]\b|SHARE|TIME|SIZE|RATE|POWER|ENERGY|LENGTH|LIST|A:B", re.ASCII)


def asked_of(words):
    return [
        option
        for path, option in OPTIONS
        if path == words
        and option.opts[0] not in NAMES
        and not option.is_flag
        and (isinstance(option.type, Whole | Number | Amount)
             or (option.metavar and NUMERIC.match(option.metavar) and option.type is click.STRING))
    ]  # fmt: skip


TEXTS = (*WRONG, *EDGE, "1e23s", "-1s", "1e300GB", "nan:1s", "1:1e23", "1:2:1e23", "1,1e23", "1,nan")
NO_NUMBER = re.compile(r"(?<![\w-])(nan|inf)(?!\w)|\de\+\d")


@pytest.mark.parametrize(
    ("words", "option"), [(words, option) for words in ASKED for option in asked_of(words)],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else value.opts[0],
)  # fmt: skip
def test_any_number_is_answered_or_refused(words, option, tmp_path, monkeypatch):
    """Each as it is, with a unit, and among others."""
    monkeypatch.setenv("INFEROMETER_STORE", f"sqlite:///{tmp_path / 'runs.db'}")
    monkeypatch.setattr(search, "_MOST_REQUESTS", 50)  # simulated for a plan: what is asked is read before that
    name, wrong = option.opts[0], []
    for text in TEXTS:
        with in_time():
            found = CliRunner().invoke(cli, [*words, *ASKED[words], *WITH.get(name, ()), name, text])
        refused = isinstance(found.exception, InferometerError | SystemExit | click.ClickException | NoneType)
        if not refused or NO_NUMBER.search(found.stdout):
            wrong.append((text, repr(found.exception), NO_NUMBER.search(found.stdout)))
    assert wrong == []
