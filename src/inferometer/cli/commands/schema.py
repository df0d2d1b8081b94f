"""`inferometer schema`."""

import click

from inferometer.cli.options import format_option, print_document, print_table
from inferometer.understand.view.table import Column, ReportTable


@click.command("schema")
@click.argument("name", required=False, metavar="[NAME]")
@format_option
def command(name: str | None, form: str) -> None:
    """Print the JSON Schema (draft 2020-12) of what `--format json` prints; without a NAME, list the documents.

    \b
    inferometer schema
    inferometer schema profile > profile.schema.json

    A schema is made from the values themselves. Later versions add fields, and a new meaning has a new number in the
    document's own `schema`.
    """
    from inferometer.api.schemas import SCHEMAS, schema_of

    if name is not None:
        print_document(schema_of(name))
        return
    rows = tuple({"name": name, "about": about} for name, (about, _) in SCHEMAS.items())
    columns = (Column(key="name", heading="schema"), Column(key="about", heading="of"))
    print_table(ReportTable(columns=columns, rows=rows), form)
