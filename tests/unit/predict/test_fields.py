"""The table of fields is what every door of a prediction is made from, and no other file spells it out."""

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import inferometer
from inferometer.core.errors import DomainError, UnknownNameError
from inferometer.predict import fields
from inferometer.predict.fields import ASKED, AXES, FIELDS, require_fields
from inferometer.predict.flags import parse_sizes

SOURCE = Path(inferometer.__file__).parent
DOCS = Path(__file__).parents[3] / "docs"
ROW = """
    "frobnication": Field(
        "whole", "N", "How often it is frobnicated.", _HOST, changes="size", needs="tokens", axis="frobnication",
        doors=("fit", "simulate", "profile", "models"),
    ),
"""
# What each door has, in an interpreter in which the table has one more row.
DOORS = """
import importlib.util, inspect, json, sys
import inferometer.predict
spec = importlib.util.spec_from_file_location("inferometer.predict.fields", sys.argv[1])
sys.modules[spec.name] = module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
sys.path.insert(0, sys.argv[2])
import generate
import inferometer as im
from inferometer.cli.commands import models, predict, simulate, sweep
from inferometer.hub.mcp.tools import TOOLS
from inferometer.hub.web.api.catalog import PredictRequest, SweepRequest
from inferometer.hub.web.pages.predictions import field_groups
from inferometer.predict.applicable import SIZES
from inferometer.predict.change import KEYS
from inferometer.predict.sweep import AXES, COLUMNS
commands = [models.show, predict.command, simulate.command, sweep.command]
verbs = [im.predict, im.fit, im.sweep, im.simulate]
doors = {
    **{f"command {each.name}": [parameter.name for parameter in each.params] for each in commands},
    **{f"verb {each}": [*inspect.signature(each).parameters] for each in verbs},
    **{f"tool {name}": [*TOOLS[name].schema()["properties"]] for name in ("predict", "fit", "sweep", "simulate")},
    "tool profile": [*TOOLS["profile"].schema()["properties"]],
    "request of a prediction": [*PredictRequest.model_fields],
    "request of a sweep": [*SweepRequest.model_fields],
    "form": [field["name"] for group in field_groups() for field in group["fields"]],
    "axes": [*AXES], "columns": [*COLUMNS], "what-if": [*KEYS], "sizes of some models": [*SIZES],
    "types": generate.asked_module().replace(":", " ").split(),
}
print(json.dumps(doors))
"""


def test_a_row_of_the_table_is_an_option_at_every_door(tmp_path):
    table, line = Path(fields.__file__).read_text(encoding="utf-8"), "FIELDS: dict[str, Field] = {"
    assert line in table
    (tmp_path / "fields.py").write_text(table.replace(line, f"{line}{ROW}"), "utf-8")
    told = subprocess.run(
        [sys.executable, "-c", DOORS, str(tmp_path / "fields.py"), str(DOCS)],
        capture_output=True, text=True, check=False, timeout=240,
    )  # fmt: skip
    assert told.returncode == 0, told.stderr
    doors = json.loads(told.stdout)
    assert len(doors) >= 20
    assert [door for door, names in doors.items() if "frobnication" not in names] == []


def test_a_name_that_no_row_has_is_refused_with_those_like_it():
    with pytest.raises(UnknownNameError, match=r"named 'promt'\. Did you mean prompt"):
        require_fields(["batch", "promt"])
    with pytest.raises(UnknownNameError, match="named 'batch'"):
        require_fields(["batch"], AXES.keys() - {"batch"})


def test_rows_of_a_sweep_come_with_the_sizes_of_a_request_varying_fastest():
    assert [*AXES][-4:] == ["batch", "prompt", "generate", "context"]
    assert next(iter(AXES)) == "runtimes"


@pytest.mark.parametrize("name", FIELDS)
def test_a_row_says_in_a_sentence_what_it_is_for_and_what_it_takes(name):
    field = FIELDS[name]
    sentence = field.help.partition("  [default: ")[0]
    assert sentence[0].isupper()
    assert sentence.endswith(".")
    assert bool(field.metavar) == (field.takes != "switch")


# What holds six of the names and is no door of a question: values that answer one, or that others have published …
VALUES = {
    "known/atlas/measurement.py", "known/atlas/looking.py", "known/atlas/reading.py", "known/atlas/sources/tidy.py",
    "predict/options.py", "predict/published.py", "predict/served/question.py", "understand/accuracy/cases.py",
    "understand/view/charts/pareto.py", "hub/web/pages/compare.py", "predict/basis/learned.py",
}  # fmt: skip
# … what a measurement is asked for, which has fields of its own beside these …
MEASURED = {"api/measurements.py", "cli/commands/prepare.py", "cli/measuring.py", "measure/prepare/run.py"}
# … and code that asks one question of its own making.
ASKS = {
    "cli/commands/sweep.py", "measure/prepare/proof.py", "predict/sweep/serving.py",
    "understand/accuracy/atlas_file.py",
}  # fmt: skip
# … what a plan chooses from: lists of its own …
PLANNED = {"api/services.py", "cli/commands/plan.py", "serving/plans/asked.py", "serving/plans/search.py"}
TABLE = {"predict/fields.py", "predict/asked.py"}
NAMES = {*FIELDS, *ASKED, *AXES}


def listed(node):
    """Names that one signature, call, class, display or pile of decorators has."""
    if isinstance(node, ast.FunctionDef):
        arguments = [argument.arg for argument in (*node.args.args, *node.args.kwonlyargs)]
        given = [part for call in node.decorator_list if isinstance(call, ast.Call) for part in call.args]
        return arguments + [str(part.value).lstrip("-") for part in given if isinstance(part, ast.Constant)]
    if isinstance(node, ast.Call):
        return [keyword.arg for keyword in node.keywords]
    if isinstance(node, ast.ClassDef):
        return [part.target.id for part in node.body if isinstance(part, ast.AnnAssign)]
    parts = node.keys if isinstance(node, ast.Dict) else getattr(node, "elts", ())
    return [part.value for part in parts if isinstance(part, ast.Constant)]


def test_no_other_file_spells_out_six_of_the_fields():
    texts = {file.relative_to(SOURCE).as_posix(): file.read_text(encoding="utf-8") for file in SOURCE.rglob("*.py")}
    found = {
        name
        for name, text in texts.items()
        if len(NAMES.intersection(re.findall(r"\w+", text))) >= 6  # few have, and to parse all would take long
        for node in ast.walk(ast.parse(text))
        if len(NAMES.intersection(listed(node))) >= 6
    }
    assert found >= TABLE
    assert found - TABLE - VALUES - MEASURED - ASKS - PLANNED == set()


def test_sizes_are_whole_numbers_of_one_or_more():
    assert parse_sizes(["a=1", "b=c=20"]) == {"a": 1, "b=c": 20}
    for wrong in ("a", "=3", "a=", "a=0", "a=-1", "a=1.5"):
        with pytest.raises(DomainError, match="is not a size"):
            parse_sizes([wrong])
