"""The documentation site: `make site` builds it, and fails on a warning; `make test-torch` fails on a dead link."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from inferometer.version import __version__

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "Inferometer"
author = "The Inferometer authors"
version = release = __version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx_copybutton"]
exclude_patterns = ["screenshots", "tables"]

# Pages are Markdown that GitHub shows too. A heading is reached by its words, as GitHub does it.
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
nb_execution_mode = "off"  # tests execute the notebook; the site shows what it printed
nb_output_stderr = "remove"
nb_merge_streams = True

# The reference of the Python interface is written from docstrings: plain sentences, with code in single backticks.
default_role = "code"
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
maximum_signature_line_length = 88
add_module_names = False
toc_object_entries_show_parents = "hide"

smartquotes = False  # code and commands are full of quotes, and a tenth of the time goes there

html_theme = "furo"  # light and dark, searchable without a server, nothing from elsewhere
html_title = f"Inferometer {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_show_copyright = False
html_copy_source = False
copybutton_prompt_text = "$ "

_OUTSIDE = re.compile(r"\[([^\]]*)\]\(((?:\.\./)+(?:src|design|examples|tests|benchmarks)/[^)\s]*)\)")


def _name_files_outside(_app: Sphinx, _page: str, source: list[str]) -> None:
    """Files that are not pages are links on GitHub, and paths here."""
    source[0] = _OUTSIDE.sub(lambda link: f"`{link[2].replace('../', '')}`", source[0])


def _write_llms_txt(app: Sphinx, error: Exception | None) -> None:
    """The pages with their first sentences, by the sections of the index: what programs read first (llmstxt.org)."""
    if error is not None or app.builder.name != "html":
        return
    index = Path(app.srcdir, "index.md").read_text(encoding="utf-8")
    lines = ["# Inferometer", "", f"> {_first_sentence(index)}"]
    for caption, entries in re.findall(r"```{toctree}\n:hidden:\n:caption: (.*)\n\n([^`]*)```", index):
        lines += ["", f"## {caption}", ""]
        for page in entries.split():
            about = _first_sentence(Path(app.env.doc2path(page)).read_text(encoding="utf-8"))
            lines.append(f"- [{app.env.titles[page].astext()}]({page}.html){about and f': {about}'}")
    Path(app.outdir, "llms.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _first_sentence(page: str) -> str:
    """Of its first paragraph; nothing where it begins with something else, as a notebook does."""
    paragraphs = [part.strip() for part in re.sub(r"<!--.*?-->", "", page).split("\n\n")]
    plain = next((part for part in paragraphs[:4] if re.match(r"[A-Z`*\[]", part)), "")
    return re.split(r"(?<=[.:])\s", " ".join(plain.split()), maxsplit=1)[0]


def setup(app: Sphinx) -> None:
    app.connect("source-read", _name_files_outside)
    app.connect("build-finished", _write_llms_txt)
