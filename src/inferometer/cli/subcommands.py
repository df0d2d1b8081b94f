"""A command that lists by itself and has subcommands. For a misspelt one, the error suggests the nearest."""

import click

from inferometer.core.errors import UnknownNameError


class ListingGroup(click.Group):
    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            known = [name for name, command in self.commands.items() if not command.hidden]
            listing = f"Known: {', '.join(known)}."
            raise UnknownNameError(f"{self.name} subcommand", args[0], known, listing=listing)
        return super().resolve_command(ctx, args)
