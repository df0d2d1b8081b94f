"""`--size NAME=N`, which several commands have."""

from inferometer.errors import DomainError


def parse_sizes(assignments: tuple[str, ...]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for assignment in assignments:
        name, _, value = assignment.rpartition("=")
        if not name or not value.isdecimal() or int(value) < 1:
            raise DomainError(f"{assignment!r} is not a size.", remedy="Write NAME=N, as in sequence=128.")
        sizes[name] = int(value)
    return sizes
