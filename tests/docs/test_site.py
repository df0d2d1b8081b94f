"""The documentation site: no link in it leads nowhere, and it needs nothing from elsewhere."""

import json
import re
import tomllib
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import inferometer
from inferometer.cli import COMMANDS
from inferometer.cli.run import cli
from inferometer.core.plugins import listed

ROOT = Path(__file__).parents[2]
TABLES = {
    file.stem: tomllib.loads(file.read_text(encoding="utf-8"))
    for file in sorted((ROOT / "docs" / "tables").glob("*.toml"))
}


@pytest.fixture(scope="module")
def site():
    """Building it takes longer than any test may; `make test-torch` has done so, and fails where Sphinx warns."""
    built = ROOT / "build" / "site"
    sources = (path for folder in ("docs", "src") for path in (ROOT / folder).rglob("*.*") if path.suffix != ".pyc")
    newest = max(path.stat().st_mtime for path in sources)
    if not (built / ".built").is_file() or (built / ".built").stat().st_mtime < newest:
        pytest.skip("NO SITE HERE: `make site` builds it, and then every link in it is followed.")
    return built


class Page(HTMLParser):
    def __init__(self, path):
        super().__init__()
        self.links, self.loaded, self.ids = [], [], set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        if "id" in given:
            self.ids.add(given["id"])
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])
        if tag in {"script", "link", "img", "iframe"}:
            self.loaded += [given[key] for key in ("src", "href") if given.get(key)]


@pytest.fixture(scope="module")
def pages(site):
    return {path: Page(path) for path in site.rglob("*.html")}


@pytest.mark.slow
def test_every_link_in_the_site_leads_somewhere(pages):
    dead = []
    for path, page in pages.items():
        for link in {*page.links, *page.loaded}:
            parts = urlsplit(link)
            if parts.scheme in {"http", "https", "mailto", "data"}:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            named = pages.get(target)
            if not target.exists() or (parts.fragment and named and unquote(parts.fragment) not in named.ids):
                dead.append((path.name, link))
    assert len(pages) > 30
    assert not dead


@pytest.mark.slow
def test_the_site_needs_no_network(site, pages):
    for path, page in pages.items():
        for link in page.loaded:
            assert not link.startswith(("http:", "https:", "//")), f"{path.name} loads {link}"
    index = (site / "searchindex.js").read_text(encoding="utf-8")
    terms = json.loads(re.search(r"Search\.setIndex\((.*)\)\s*$", index, re.DOTALL)[1])["terms"]
    assert {"rooflin", "raspberri"} <= set(terms)


@pytest.mark.slow
def test_the_reference_of_the_interface_has_signatures_and_docstrings(site):
    text = re.sub(r"<[^>]+>", "", (site / "api.html").read_text(encoding="utf-8"))
    assert "How fast a model will run on a device" in text
    assert "whose help says what each is for" in text


def test_every_public_name_is_in_the_reference():
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    documented = {path.rpartition(".")[2] for path in re.findall(r"^\.\. auto\w+:: (\S+)$", page, re.MULTILINE)}
    assert set(inferometer.__all__) - {"__version__"} <= documented


@pytest.mark.parametrize("page", TABLES)
def test_every_row_of_a_table_says_something_in_every_column(page):
    for table in TABLES[page]["tables"]:
        assert table["rows"]
        for row in table["rows"]:
            assert set(row) == set(table["columns"])
            assert all(text.strip() for text in row.values()), row


def test_tables_name_importers_that_there_are_and_all_of_them():
    named = {row["importer"] for table in TABLES["tools"]["tables"] for row in table["rows"] if "importer" in row} - {
        "–"
    }
    assert named == {plugin.name for plugin in listed("inferometer.importers") if plugin.package == "inferometer"}


def test_tables_name_commands_and_options_that_there_are():
    context = cli.make_context("inferometer", ["doctor"])
    cells = [
        text for page in TABLES.values() for table in page["tables"] for row in table["rows"] for text in row.values()
    ]
    asked = [line for text in cells for line in re.findall(r"`inferometer ([^`]+)`", text)]
    assert asked
    for line in asked:
        name, *rest = line.split()
        assert name in COMMANDS, line
        command = cli.get_command(context, name)
        known = {option for parameter in command.params for option in parameter.opts}
        assert {word for word in rest if word.startswith("--")} <= known, line


def test_programs_find_every_page_in_llms_txt(site):
    """By the sections of the index, with what each is about; and nothing that is not there."""
    text = (site / "llms.txt").read_text(encoding="utf-8")
    listed = re.findall(r"^- \[[^\]]+\]\(([^)]+)\)", text, re.MULTILINE)
    assert text.startswith("# Inferometer\n\n> An instrument for AI inference:")
    assert all((site / page).is_file() for page in listed)
    built = {page.relative_to(site).as_posix() for page in site.rglob("*.html")}
    assert built - set(listed) <= {"index.html", "genindex.html", "search.html", "py-modindex.html"}
