"""A self-contained HTML page: styles, scripts and data inside, nothing loaded from elsewhere.

The page says what it may run by the hashes of its own scripts and styles, so that a name in a model file stays text
even where it looks like markup.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from inferometer.core.errors import DomainError
from inferometer.core.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Mapping

_IMPORT = re.compile(r"""^import\s*\{[^}]*\}\s*from\s*"\./([\w.-]+)";\n""", re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|const|class|let) )", re.MULTILINE)


@frozen
class Parts:
    """`body` is markup that is safe already. `early` scripts run before it, `late` ones after it."""

    title: str
    styles: str
    body: str
    early: Sequence[str] = ()
    late: Sequence[str] = ()


def html_report(parts: Parts) -> str:
    styles = parts.styles.replace("</", "<\\/")
    early, late = ([_script_text(text) for text in texts] for texts in (parts.early, parts.late))
    policy = (
        f"default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'; style-src {_hash(styles)}; "
        f"script-src {' '.join(map(_hash, (*early, *late)))}"
    )
    lines = [
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(parts.title)}</title><style>{styles}</style>",
        *(f"<script>{text}</script>" for text in early),
        "</head>",
        f'<body class="report">{parts.body}',
        *(f'<script type="module">{text}</script>' for text in late),
        "</body></html>\n",
    ]
    return "\n".join(lines)


def bundled(entry: str, modules: Mapping[str, str]) -> str:
    """An ES module and those it imports as one. Names must be unique among them."""
    return "\n".join(_EXPORT.sub("", _IMPORT.sub("", modules[name])) for name in module_order(entry, modules))


def module_order(entry: str, modules: Mapping[str, str]) -> list[str]:
    """An ES module and those it imports: each once, before whoever needs it.

    It takes the plain form that ours have: `import { a, b } from "./file.js";` on a line.
    """
    order: list[str] = []

    def visit(name: str, above: tuple[str, ...]) -> None:
        if name in above:
            raise DomainError(f"{name} imports itself through {' → '.join(above)}.")
        if name not in modules:
            raise DomainError(f"There is no module {name!r} to put into the page.")
        if name in order:
            return
        for needed in _IMPORT.findall(modules[name]):
            visit(needed, (*above, name))
        order.append(name)

    visit(entry, ())
    return order


def _script_text(text: str) -> str:
    """A script that cannot end its own element: in JavaScript the escaped form means the same."""
    return re.sub(r"<(?=/script|!--)", r"\\x3c", text, flags=re.IGNORECASE)


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
