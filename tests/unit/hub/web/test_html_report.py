"""The report in one file, and the profile as Markdown and CSV."""

import base64
import csv
import hashlib
import io
import re
from html.parser import HTMLParser

import pytest

from inferometer.core.errors import DomainError
from inferometer.core.profile import Run
from inferometer.hub.web.assets import STATIC, Parts, bundled, html_report
from inferometer.hub.web.downloads import one_file
from inferometer.understand.view.exports import markdown, profile_csv
from unit.hub.web.samples import ENDING, HOSTILE, decoder, hostile, network


def run_of(profile):
    return Run(id="574p191w9czk", project="p", status="finished", created="2026-11-15T00:00:00+00:00", profile=profile)


def test_modules_stand_before_whoever_needs_them_and_once():
    modules = {
        "a.js": 'import { b } from "./b.js";\nimport { c } from "./c.js";\nb(c);\n',
        "b.js": 'import { c } from "./c.js";\nexport function b() { return c; }\n',
        "c.js": "export const c = 1;\nexport class D {}\nexport async function e() {}\n",
    }
    made = bundled("a.js", modules)
    assert made.count("const c = 1;") == 1
    assert made.index("const c") < made.index("function b") < made.index("b(c);")
    assert "import" not in made
    assert "export" not in made


def test_modules_that_go_round_or_are_missing_are_refused():
    with pytest.raises(DomainError, match="imports itself"):
        bundled("a.js", {"a.js": 'import { b } from "./b.js";\n', "b.js": 'import { a } from "./a.js";\n'})
    with pytest.raises(DomainError, match="no module"):
        bundled("a.js", {"a.js": 'import { b } from "./b.js";\n'})


def test_names_in_our_modules_are_unique_among_those_of_the_run_page():
    modules = {path.name: path.read_text(encoding="utf-8") for path in STATIC.glob("*.js")}
    made = bundled("run.js", modules)
    names = re.findall(r"^(?:async )?(?:function|class|const|let) ([\w$]+)", made, flags=re.MULTILINE)
    assert len(names) == len(set(names)), sorted(name for name in names if names.count(name) > 1)
    assert len(names) > 30


def test_the_page_runs_only_what_it_names_by_hash():
    made = html_report(Parts(title="<t>", styles="a{}", body="<p>x</p>", early=("1;",), late=('"</script><!--";',)))
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', made)[1].replace("&#x27;", "'")
    scripts = re.findall(r"<script[^>]*>(.*?)</script>", made, flags=re.DOTALL)
    assert len(scripts) == 2
    for text in scripts:
        assert base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() in policy
    assert "<title>&lt;t&gt;</title>" in made
    assert "unsafe" not in policy


class Links(HTMLParser):
    """Every address that an element of a page leads to or loads, and every script it would run by itself."""

    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attrs):
        self.found += [(tag, name, value) for name, value in attrs if name in {"src", "href"} or name.startswith("on")]


@pytest.mark.parametrize("profile", [network(), decoder(), hostile()], ids=["network", "decoder", "hostile"])
def test_a_report_loads_nothing_from_elsewhere_and_runs_nothing_of_the_model(profile):
    made = one_file(run_of(profile), profile)
    outside = re.sub(r"<script[^>]*>.*?</script>", "", made, flags=re.DOTALL)
    reader = Links()
    reader.feed(outside)
    assert reader.found == []
    assert HOSTILE not in outside
    assert ENDING not in made
    assert 'id="layers"' in made


def test_markdown_has_the_headline_the_layers_and_the_findings():
    profile = network()
    text = markdown(profile, title="Before | after")
    assert text.startswith("## Before \\| after\n")
    slowest = max(profile.phase("forward").ops, key=lambda op: op.time_s)
    table = [line for line in text.splitlines() if line.startswith("| stage.")]
    assert len(table) == 12
    assert slowest.name in table[0]
    assert "- critical: A finding it carries" in text
    assert "**machine**: disturbed (the load rose" in text
    assert "<img" not in markdown(hostile())


def test_csv_has_every_op_in_order_and_nothing_a_spreadsheet_would_run():
    profile = network(3)
    rows = list(csv.DictReader(io.StringIO(profile_csv(profile))))
    assert [row["name"] for row in rows] == [op.name for op in profile.phase("forward").ops]
    assert float(rows[0]["time_s"]) == profile.phase("forward").ops[0].time_s
    from dataclasses import replace

    forward = profile.phase("forward")
    risky = replace(forward, ops=(replace(forward.ops[0], name="=cmd|'/c calc'!A0"),))
    (row,) = csv.DictReader(io.StringIO(profile_csv(replace(profile, phases=(risky,)))))
    assert row["name"].startswith("'=")
