"""The hub: runs, predictions, devices and formulas as pages and as an API, served to this machine by default.

`app.create_app(store, rules)` is the application; `serving.serve` runs it. The pages need Starlette and Jinja alone, so
that the first one appears at once; the API (FastAPI) loads after them.
"""

from importlib.util import find_spec

from inferometer.core.errors import MissingDependencyError


def require_web() -> None:
    missing = [name for name in ("starlette", "uvicorn", "jinja2", "fastapi") if find_spec(name) is None]
    if missing:
        raise MissingDependencyError(
            f"The hub needs {', '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} not installed.",
            remedy="pip install 'inferometer[hub]'",
        )
