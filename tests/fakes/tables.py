"""The tables of new stores: made by Alembic for the first of a process, and as they then were for the others."""

from sqlalchemy import event, inspect

from inferometer.store.location import VERSION_TABLE


def remembering(run_alembic):
    """`run_alembic`, which takes a fifth of a second for a new store, and of them hundreds of tests have one."""
    kept = {}

    def run(name, connection, revision):
        kind = connection.dialect.name
        if (name, revision) != ("upgrade", "head") or inspect(connection).has_table(VERSION_TABLE):
            run_alembic(name, connection, revision)
        elif kind not in kept:
            record = _dumped if kind == "sqlite" else _recorded
            kept[kind] = record(connection, lambda: run_alembic(name, connection, revision))
        else:
            for statement, parameters in kept[kind]:
                connection.exec_driver_sql(statement, parameters)

    return run


def _dumped(connection, work):
    """SQLite tells its tables in their last form, without the hundred steps that led there."""
    work()
    dump = connection.connection.driver_connection.iterdump()
    return [(statement, None) for statement in dump if statement not in {"BEGIN TRANSACTION;", "COMMIT;"}]


def _recorded(connection, work):
    done = []

    def record(_connection, _cursor, statement, parameters, _context, _many):
        if not statement.lstrip().startswith(("SELECT", "PRAGMA")):
            done.append((statement, parameters or None))

    event.listen(connection, "before_cursor_execute", record)
    try:
        work()
    finally:
        event.remove(connection, "before_cursor_execute", record)
    return done
