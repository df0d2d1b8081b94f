"""The hub: runs, predictions, devices and formulas as pages and as an API, served to this machine by default.

`app.create_app(store, rules)` is the application; `serving.serve` runs it. The pages need Starlette and Jinja alone, so
that the first one appears at once; the API (FastAPI) loads after them.
"""
