"""A command that lists by itself and has subcommands. For a misspelt one, the error suggests the nearest."""

import click

from inferometer.core.errors import UnknownNameError


class ListingGroup(click.Group):
    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            listing = f"Known: {', '.join(self.commands)}."
            raise UnknownNameError(f"{self.name} subcommand", args[0], self.commands, listing=listing)
        return super().resolve_command(ctx, args)
