"""What is built is documented, and what is documented holds."""

import ast
import importlib.util
import re
import runpy
import shlex
import tomllib
from functools import cache
from pathlib import Path

import click
import pytest

from fakes.every import every
from fakes.in_process import measured_here
from inferometer.cli import COMMANDS
from inferometer.cli.commands.doctor import command
from inferometer.cli.run import cli
from inferometer.core import settings
from inferometer.core.finding import CODES
from inferometer.core.plugins import GROUPS
from inferometer.known.formulas.registry import SECTIONS, all_formulas
from inferometer.known.machine.health import CHECKS
from inferometer.measure.run import model as running

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def text_of(name):
    return (ROOT / name).read_text(encoding="utf-8")


@cache
def generator():
    spec = importlib.util.spec_from_file_location("docs_generate", ROOT / "docs" / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# The page of accuracy is compared in golden/test_accuracy.py, which has made the predictions.
@pytest.mark.parametrize("name", [name for name in generator().pages() if name != "accuracy.md"])
def test_a_generated_page_is_what_the_code_says_today(name):
    assert text_of(f"docs/{name}") == generator().pages()[name](), f"docs/{name} is stale: run `make docs`"


def test_the_readme_shows_what_commands_print_today():
    assert text_of("README.md") == generator().readme(text_of("docs/accuracy.md")), (
        "README.md is stale: run `make docs`"
    )


def test_a_page_does_not_depend_on_where_a_command_was_used_before():
    command._help_option = None
    assert "-h, --help" not in command.get_help(click.Context(command))  # alone, it has click's own names
    assert generator().commands_page() == text_of("docs/commands.md")


@every(COMMANDS)
def test_every_command_is_documented(command):
    assert f"## `inferometer {command}`" in text_of("docs/commands.md")


@pytest.mark.parametrize("group", GROUPS)
def test_every_plug_in_group_is_declared_and_documented(group):
    assert group in PROJECT["project"]["entry-points"]
    assert f"## `{group}`" in text_of("docs/plugins.md")


def options_of(command, context):
    """Every option of a command and of those below it."""
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    if isinstance(command, click.Group):
        inner = click.Context(command, parent=context)
        known |= {option for name in command.commands for option in options_of(command.commands[name], inner)}
    return known | {"--help"}


def test_options_that_a_page_or_a_docstring_gives_a_command_are_there():
    context = click.Context(cli, info_name="inferometer", **cli.context_settings)
    known = {name: options_of(cli.get_command(context, name), context) for name in COMMANDS}
    files = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "src").rglob("*.py")]
    shown = re.compile(r"`(?:inferometer )?([a-z-]+)( [^`\n]*)`|^\$ inferometer ([a-z-]+)( [^\n|]*)$", re.MULTILINE)
    missing, seen = [], 0
    for file in files:
        for inline, rest, line, whole in shown.findall(file.read_text(encoding="utf-8")):
            name, words = inline or line, (rest or whole).partition(" -- ")[0]  # behind it is a command of the reader's
            options = re.findall(r"(?<![\w-])--[a-z][a-z-]*", words) if name in known else []
            missing += [f"{file.relative_to(ROOT)}: {name} {option}" for option in options if option not in known[name]]
            seen += len(options)
    assert missing == []
    assert seen > 500


def test_no_group_is_declared_that_is_not_known():
    assert set(PROJECT["project"]["entry-points"]) == {*GROUPS, "pytest11"}  # pytest's own group, for our fixture


def test_every_setting_is_documented():
    for setting in settings.SETTINGS:
        assert f"`{setting.name}`" in text_of("docs/settings.md")


def test_every_finding_code_is_known_and_documented():
    used = {
        keyword.value.value
        for file in (ROOT / "src").rglob("*.py")
        if "Finding(" in (text := file.read_text(encoding="utf-8"))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and getattr(node.func, "id", None) == "Finding"
        for keyword in node.keywords
        if keyword.arg == "code"
    }
    assert used
    assert used <= set(CODES)
    for code in CODES:
        assert f"## `{code}`" in text_of("docs/findings.md")


def test_every_check_code_is_documented():
    for code in CHECKS:
        assert f"## `{code}`" in text_of("docs/checks.md")


@every(all_formulas().values(), name=lambda formula: formula.name)
def test_every_formula_says_what_it_is_why_in_which_units_and_what_it_leaves_out(formula):
    lines = formula.doc.splitlines()
    assert lines[0].strip()
    for part in ("Derivation:", "Units:", "Ignores:"):
        assert any(line.startswith(part) for line in lines), f"{formula.name} has no line that begins with {part}"
    assert f"### `{formula.name}`" in text_of("docs/formulas.md")


def test_every_section_has_formulas():
    assert {formula.section for formula in all_formulas().values()} == set(SECTIONS)


def test_the_extras_are_all_there():
    extras = set(PROJECT["project"]["optional-dependencies"])
    assert {"onnxruntime", "openvino", "litert", "torch", "llamacpp", "hub", "dask", "charts", "dev", "all"} <= extras


def test_every_package_that_a_test_run_needs_is_pinned():
    pinned = {line.partition("==")[0].lower() for line in text_of("constraints.txt").splitlines() if "==" in line}
    wanted = [*PROJECT["project"]["dependencies"], *PROJECT["project"]["optional-dependencies"]["dev"]]
    for requirement in wanted:
        assert re.match(r"[\w.-]+", requirement)[0].lower() in pinned


def test_every_lint_ignore_says_why():
    lines = text_of("pyproject.toml").splitlines()
    for line in lines:
        if re.match(r'\s+"[A-Z]+\d*",', line):
            assert "#" in line, line


BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
README_BLOCKS = BLOCK.findall(text_of("README.md"))
CONSOLE = [
    line.removeprefix("$ ")
    for language, block in README_BLOCKS
    if language == "console"
    for line in block.splitlines()
    if line.startswith("$ inferometer")
]


def test_the_readme_has_blocks_to_run():
    assert CONSOLE
    assert any(language == "python" for language, _ in README_BLOCKS)


SHOWN = [
    (page.name, line, expected)
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
    for language, block in BLOCK.findall(page.read_text(encoding="utf-8"))
    if language == "console"
    for line, _, rest in (shown.partition("\n") for shown in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:])
    if (expected := [text.rstrip() for text in rest.strip().splitlines() if text.strip() not in {"", "…"}])
    and line.startswith("inferometer")
]


def test_some_command_is_shown_with_what_it_prints():
    assert SHOWN


@pytest.mark.parametrize(("page", "line", "expected"), SHOWN, ids=[f"{page}: {line}" for page, line, _ in SHOWN])
def test_what_a_page_shows_is_what_the_command_prints(page, line, expected, answered):
    """Each `$ inferometer` line is followed by the first lines of its true output, or by none."""
    result = answered(*shlex.split(line, comments=True)[1:])
    printed = [row.rstrip() for row in (result.stdout + result.stderr).splitlines()]
    for text in expected:
        assert text in printed, f"{page}: `{line}` does not print {text!r}"


@pytest.fixture
def here(tmp_path, own_data, monkeypatch):
    """Where what a page shows is run, and measured: in this process, which has the catalog and the engines already."""
    monkeypatch.setattr(running, "isolated", measured_here)
    monkeypatch.chdir(tmp_path)
    return tmp_path


LONG = "inferometer demo"  # tests/e2e/test_commands.py runs it, and reads what it prints


@pytest.mark.parametrize(
    "line", [line for line in CONSOLE if line != LONG and line not in {shown for _, shown, _ in SHOWN}]
)
def test_every_command_in_the_readme_runs(line, answered, here):
    name, *arguments = shlex.split(line, comments=True)[1:]
    # While tests run no machine is quiet: do not wait for it, nor for as many runs as a sharp median takes.
    quick = ["--no-guard", "--seconds", "0", "--runs", "3", "--warmup", "1"]
    calm = quick if name in {"bench", "profile"} else []
    result = answered(name, *calm, *arguments)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("block", [block for language, block in README_BLOCKS if language == "python"])
def test_every_python_block_in_the_readme_runs(block, here):
    (here / "block.py").write_text(block, encoding="utf-8")
    runpy.run_path("block.py", run_name="__main__")


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.stem)
def test_every_example_runs(example, here, capsys):
    runpy.run_path(str(example), run_name="__main__")
    assert capsys.readouterr().out.strip()


LINKS = re.compile(r"\]\((?!https?:|#|mailto:)([^)#\s]+)")


@pytest.mark.parametrize(
    "page",
    sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "design").glob("*.md")]),
    ids=lambda p: p.name,
)
def test_no_link_leads_nowhere(page):
    for target in LINKS.findall(page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"
