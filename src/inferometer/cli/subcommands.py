"""A command that lists by itself and has subcommands: a misspelt one is answered with the nearest."""

import click

from inferometer.errors import UnknownNameError


class Listing(click.Group):
    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            name = f"{self.name} subcommand"
            known = ", ".join(self.commands)
            raise UnknownNameError(name, args[0], self.commands, listing=f"There is: {known}.")
        return super().resolve_command(ctx, args)
