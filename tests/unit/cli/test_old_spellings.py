"""Words that commands had before go on working, with one line of advice on stderr."""

from contextlib import suppress

import pytest
from click.testing import CliRunner

from inferometer.cli import COMMANDS, old_spellings
from inferometer.cli.commands import simulate
from inferometer.cli.old_spellings import modern
from inferometer.cli.run import cli
from inferometer.core.errors import DomainError, InferometerError
from inferometer.predict.fields import FIELDS
from inferometer.serving.asked import service_plan
from inferometer.serving.load.plan import LoadPlan

OLD = [
    (command, old, new)
    for command, words in old_spellings._OPTIONS.items()
    for old, new in words.items()
    if command in COMMANDS
]
GROUPS = {"bundle": ("create",), "runs": ("export",)}


def command_of(*words):
    found = cli
    for word in words:
        found = found.get_command(None, word)
    return found


@pytest.mark.parametrize(("command", "old", "new"), OLD)
def test_an_old_word_is_no_option_any_more_and_the_new_one_is(command, old, new):
    options = {word for each in command_of(command, *GROUPS.get(command, ())).params for word in each.opts}
    assert old not in options
    assert new in options


def test_an_option_is_called_what_it_is_called_now_and_what_follows_two_dashes_is_the_users(capsys):
    assert modern(["sweep", "--devices", "a,b", "--runtimes=ideal", "--batch", "1"]) == [
        "sweep", "--on", "a,b", "--runtime=ideal", "--batch", "1",
    ]  # fmt: skip
    assert capsys.readouterr().err == (
        "inferometer: --devices is called --on now.\ninferometer: --runtimes is called --runtime now.\n"
    )
    assert modern(["bench", "--", "tool", "--output", "x"]) == ["bench", "--", "tool", "--output", "x"]
    assert modern([]) == []
    assert capsys.readouterr().err == ""


def test_an_option_of_a_command_that_moved_is_called_what_it_is_called_there(capsys):
    assert modern(["verify", "m", "--against=x", "--precision", "f16"]) == [
        "profile", "--outputs-only", "m", "--verify=x", "--activations", "f16",
    ]  # fmt: skip
    assert "verify is called profile --outputs-only now" in capsys.readouterr().err
    assert modern(["profile", "m", "--against", "x"]) == ["profile", "m", "--against", "x"]


SWEEP = ("sweep", "--models", "resnet50", "--batch", "1,2", "--format", "csv")
PREDICT = ("predict", "resnet50", "--format", "csv")


@pytest.mark.parametrize(("one", "other"), [
    ((*SWEEP, "--devices", "nvidia-t4,nvidia-l4"), (*SWEEP, "--on", "nvidia-t4,nvidia-l4")),
    ((*SWEEP, "--on", "nvidia-t4", "--on", "nvidia-l4"), (*SWEEP, "--on", "nvidia-t4,nvidia-l4")),
    ((*SWEEP, "--on", "nvidia-l4", "--runtimes", "ideal"), (*SWEEP, "--on", "nvidia-l4", "--runtime", "ideal")),
    ((*SWEEP, "--on", "nvidia-l4", "--weights", "f16", "--weights", "i8"),
     (*SWEEP, "--on", "nvidia-l4", "--weights", "f16,i8")),
    ((*PREDICT, "--on", "nvidia-t4", "--on", "nvidia-l4"), (*PREDICT, "--on", "nvidia-t4,nvidia-l4")),
    ((*PREDICT, "--on", "nvidia-l4", "--weights", "fp16", "--weights", "int8"),
     (*PREDICT, "--on", "nvidia-l4", "--weights", "f16,i8")),
])  # fmt: skip
def test_two_spellings_of_one_question_have_one_answer(one, other):
    first, second = (CliRunner().invoke(cli, [*words]) for words in (one, other))
    assert first.exit_code == second.exit_code == 0, first.output + second.output
    assert first.stdout == second.stdout
    assert len(first.stdout.splitlines()) > 1


def test_a_file_to_write_is_out_everywhere():
    for name in COMMANDS:
        command = command_of(name)
        for inner in (command, *getattr(command, "commands", {}).values()):
            for option in inner.params:
                if "--out" in option.opts or "-o" in option.opts:
                    assert option.opts == ["-o", "--out"], f"{name} {inner.name}"


def test_the_same_field_has_the_same_option_in_every_command_that_predicts():
    for name in ("predict", "simulate", "sweep", "plan"):
        for option in command_of(name).params:
            if option.name in FIELDS:
                assert f"--{option.name.replace('_', '-')}" in option.opts, f"{name} {option.opts}"


def test_taking_in_is_one_command():
    for group in ("runs", "bundle"):
        listed = CliRunner().invoke(cli, [group, "--help"]).stdout.partition("Commands:")[2]
        assert "import" not in listed


@pytest.mark.parametrize(("old", "now"), old_spellings.MOVED.items())
def test_a_command_that_moved_is_found_where_it_is_now(old, now, capsys):
    assert old not in COMMANDS
    assert modern([old, "--x"]) == [*now.split(), "--x"]
    assert capsys.readouterr().err == f"inferometer: {old} is called {now} now.\n"
    found = command_of(*(word for word in now.split() if not word.startswith("-")))
    options = {name for each in found.params for name in each.opts}
    assert {word for word in now.split() if word.startswith("-")} <= options


@pytest.mark.parametrize(("words", "refused"), [
    (("prepare", "resnet18", "-o", "m.onnx", "--quantise", "i8"), "--quantise is for an engine."),
    (("prepare", "resnet18", "--for", "onnxruntime", "--weights", "f16"), "--weights is of a file with random"),
    (("simulate", "smollm2-135m", "--on", "nvidia-l4", "--rate", "1", "--port", "1"), "--port is of a server."),
    (("simulate", "smollm2-135m", "--on", "nvidia-l4", "--serve", "--rate", "1"), "--rate is not for --serve"),
    (("predict", "smollm2-135m", "--on", "nvidia-l4", "--fit", "--users", "4"), "does not depend on --users"),
    (("predict", "smollm2-135m", "--on", "nvidia-l4", "--fit", "--why"), "does not depend on --why"),
])  # fmt: skip
def test_an_option_of_another_form_of_a_command_is_refused(words, refused):
    with pytest.raises(DomainError, match=refused):
        cli.main([*words], standalone_mode=False)


def test_each_option_of_a_simulation_is_of_the_service_or_refused_by_a_server():
    """What serves is asked of `service_plan`; a new option about requests has to be named in `_OF_LOADS`."""

    class Asked(dict):
        seen = frozenset()

        def __getitem__(self, name):
            self.seen |= {name}
            return super().__getitem__(name)

        def get(self, name, other=None):
            self.seen |= {name}
            return super().get(name, other)

    words = "smollm2-135m --on nvidia-l4 --prefill-on nvidia-l4 --autoscale 1:2:3 --lora 2"
    context = simulate.command.make_context("simulate", words.split())
    options = Asked(context.params)
    with suppress(InferometerError):
        service_plan("smollm2-135m", "nvidia-l4", options, LoadPlan(url="mock"))
    left = {*context.params} - options.seen - simulate._OF_LOADS
    assert left == {"model", "device", "serving", "host", "port", "speed"}
