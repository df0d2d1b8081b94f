"""The files that pages load: our scripts and styles, and the one script that is not ours.

Ours are read and compressed once. Their addresses name what is in them, so that a browser keeps them for good and asks
for none of them when it turns to the next page. Vega is bundled once by vl-convert and kept in the cache folder.
"""

import base64
import gzip
import hashlib
import re
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from html import escape
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from markupsafe import Markup
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from inferometer.core.cache import write_whole
from inferometer.core.errors import DomainError, MissingDependencyError
from inferometer.core.frozen import frozen
from inferometer.core.settings import cache_folder

# A self-contained HTML page: styles, scripts and data inside, nothing loaded from elsewhere.
#
# The page says what it may run by the hashes of its own scripts and styles, so that a name in a model file stays text
# even where it looks like markup.

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


STATIC = Path(__file__).parent / "static"
_LOCK = threading.Lock()
_MARK = re.compile(r"[0-9a-f]{12}")
_KINDS = {"js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}  # a system's own table may say otherwise
_FOR_GOOD = "public, max-age=31536000, immutable"
WEEK = "public, max-age=604800"


@cache
def own_assets() -> Mapping[str, bytes]:
    """Our own files by their names. No other file is served, whatever a path looks like."""
    return {path.name: path.read_bytes() for path in sorted(STATIC.iterdir()) if path.is_file()}


@cache
def _mark() -> str:
    """Changes with any of the files: a module's imports are relative to it, so they have the same one."""
    whole = hashlib.sha256()
    for name, data in own_assets().items():
        whole.update(f"{name} {len(data)}\n".encode() + data)
    return whole.hexdigest()[:12]


def asset_address(name: str) -> str:
    return f"/static/{_mark()}/{name}"


@cache
def module_scripts(*names: str) -> Markup:
    """The elements that run these modules. Those that they import are named too, so that all come at once."""
    modules = {name: data.decode() for name, data in own_assets().items() if name.endswith(".js")}
    order = dict.fromkeys(needed for name in names for needed in module_order(name, modules) if needed not in names)
    preloads = [Markup('<link rel="modulepreload" href="{}">').format(asset_address(name)) for name in order]
    scripts = [Markup('<script type="module" src="{}"></script>').format(asset_address(name)) for name in names]
    return Markup("").join([*preloads, *scripts])


async def static_asset(request: Request) -> Response:
    """One of our files, at its address or by its plain name; a page from before an update finds the new one."""
    mark, _, name = request.path_params["path"].rpartition("/")
    data = own_assets().get(name)
    if data is None or (mark and not _MARK.fullmatch(mark)):
        raise HTTPException(404)
    headers = {"etag": f'W/"{_mark()}"', "cache-control": _FOR_GOOD if mark == _mark() else "no-cache"}
    if request.headers.get("if-none-match") == headers["etag"]:
        return Response(status_code=304, headers=headers)
    return compressed(request, data, _KINDS[name.rpartition(".")[2]], headers)


def compressed(request: Request, data: bytes, kind: str, headers: Mapping[str, str]) -> Response:
    """Data that is the same for everybody, packed once for all who take it so."""
    if "gzip" not in request.headers.get("accept-encoding", ""):
        return Response(data, media_type=kind, headers={**headers, "vary": "accept-encoding"})
    more = {"vary": "accept-encoding", "content-encoding": "gzip"}
    return Response(_packed(data), media_type=kind, headers={**headers, **more})


@cache
def _packed(data: bytes) -> bytes:
    return gzip.compress(data, mtime=0)


def vega_bundle(folder: Path | None = None) -> bytes:
    """Vega, Vega-Lite and vega-embed as one script. Making it takes seconds; afterwards it is a file."""
    try:
        converter = version("vl-convert-python")
    except PackageNotFoundError:
        raise MissingDependencyError(
            "Drawing charts in a page needs vl-convert, which is not installed.",
            remedy="pip install 'inferometer[charts]'",
        ) from None
    path = (folder or cache_folder()) / "hub" / f"vega-{converter}.js"
    with _LOCK:
        if path.is_file():
            return path.read_bytes()
        bundle: bytes = import_module("vl_convert").javascript_bundle().encode()
        with suppress(OSError):  # a cache that may only be read is no error
            write_whole(path, bundle)
    return bundle
