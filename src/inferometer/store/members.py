"""Members of projects: who may read, who may write, and who decides about both."""

from sqlalchemy import Connection, delete, func, select, update

from inferometer.core.errors import DomainError, UnknownNameError
from inferometer.store import upserts
from inferometer.store.finding import project_id, value_of
from inferometer.store.people import user_id
from inferometer.store.tables import fleet_device_projects, fleet_devices, members, projects, tokens, users
from inferometer.store.values import ROLES, Member, Role


def put(connection: Connection, project: str, user: str, role: Role, *, now_us: int) -> None:
    """Make a user a member, or change their role."""
    if role not in ROLES:
        raise UnknownNameError("role", role, ROLES, listing=f"There is: {', '.join(ROLES)}.")
    project_no, user_no = project_id(connection, project), user_id(connection, user)
    if role != "owner":
        _require_another_owner(connection, project_no, user_no, f"{user} is the only owner of {project}.")
    row = {"project_id": project_no, "user_id": user_no, "role": role, "since_us": now_us}
    upserts.put(connection, "members", row, over=("role",))


def remove(connection: Connection, project: str, user: str, *, now_us: int) -> None:
    """With the member go their tokens for this project alone, and their devices out of it."""
    project_no, user_no = project_id(connection, project), user_id(connection, user)
    _require_another_owner(connection, project_no, user_no, f"{user} is the only owner of {project}.")
    where = members.c.project_id == project_no, members.c.user_id == user_no
    if not connection.execute(delete(members).where(*where)).rowcount:
        raise UnknownNameError("member", user, [member.user for member in listed(connection, project)])
    held = (tokens.c.user_id == user_no, tokens.c.project_id == project_no, tokens.c.revoked_us.is_(None))
    connection.execute(update(tokens).where(*held).values(revoked_us=now_us))
    theirs, of = select(fleet_devices.c.name).where(fleet_devices.c.user == user), fleet_device_projects.c
    connection.execute(delete(fleet_device_projects).where(of.project_id == project_no, of.device.in_(theirs)))


def _require_another_owner(connection: Connection, project: int, user: int, message: str) -> None:
    """A project that has an owner keeps one: nobody else could add members to it."""
    owners = select(members.c.user_id).where(members.c.project_id == project, members.c.role == "owner")
    if list(connection.execute(owners).scalars()) == [user]:
        raise DomainError(message, remedy="Make somebody else an owner first.")


def listed(connection: Connection, project: str) -> tuple[Member, ...]:
    query = (
        select(users.c.name.label("user"), members.c.role, members.c.since_us)
        .join(users, users.c.id == members.c.user_id)
        .where(members.c.project_id == project_id(connection, project))
        .order_by(users.c.name)
    )
    return tuple(value_of(Member, row) for row in connection.execute(query).mappings())


def roles_of(connection: Connection, user: str) -> dict[str, tuple[int, Role]]:
    """The projects that a user sees: the number of each and their role. An open one is there for every reader."""
    mine = select(members.c.project_id, members.c.role).join(users, users.c.id == members.c.user_id)
    held = mine.where(users.c.name == user).subquery()
    role = func.coalesce(held.c.role, "reader").label("role")
    query = (
        select(projects.c.id, projects.c.name, role)
        .outerjoin(held, held.c.project_id == projects.c.id)
        .where(held.c.role.is_not(None) | projects.c.open)
    )
    return {row.name: (row.id, row.role) for row in connection.execute(query)}
