"""Settings: the environment variables Inferometer reads, all of them, in one table.

Nothing else in the program looks at the environment, and nothing sets it. A few settings may also stand in a file,
`config.toml` in the user's configuration folder; the environment comes first.
"""

import os
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from inferometer.core.errors import InferometerError


class Setting(NamedTuple):  # no dataclass: an answer that was given before is printed without that module
    """`key` is its name in the configuration file, if it may stand there."""

    name: str
    default: str | None
    meaning: str
    key: str | None = None


SETTINGS = (
    Setting(
        name="INFEROMETER_ALLOW",
        default=None,
        meaning="What jobs may bring to this device: `native-code` allows compiled packages of AOTInductor.",
        key="allow",
    ),
    Setting(
        name="INFEROMETER_CACHE",
        default=None,
        meaning="Folder for what can be made again, as made-up weights.  Without it: the user's cache folder.",
    ),
    Setting(
        name="INFEROMETER_CACHE_LIMIT",
        default="10 GB",
        meaning="How much may lie there.  Above it, what was not used for the longest is removed.",
        key="cache_limit",
    ),
    Setting(
        name="INFEROMETER_ARTIFACTS",
        default=None,
        meaning="Folder of the files that belong to runs.  Without it: beside the database.",
    ),
    Setting(
        name="INFEROMETER_CA",
        default=None,
        meaning="File with the certificate authority of a hub that is reached by https.",
        key="ca",
    ),
    Setting(
        name="INFEROMETER_CATALOG",
        default=None,
        meaning="Folders with your own catalog rows (TOML), separated like PATH; read after the built-in ones.",
    ),
    Setting(
        name="INFEROMETER_CONFIG",
        default=None,
        meaning="The configuration file.  Without it: `inferometer/config.toml` in the user's configuration folder.",
    ),
    Setting(name="INFEROMETER_DEBUG", default="0", meaning="1 shows the traceback behind an error, as `--debug` does."),
    Setting(
        name="INFEROMETER_DATA",
        default=None,
        meaning="Folder for runs and calibrations.  Without it: `inferometer` in the user's data folder.",
    ),
    Setting(
        name="INFEROMETER_FORGE",
        default=None,
        meaning="Address of the API of your own GitHub or GitLab, for `watch --tell`.  Without it: the public one.",
        key="forge",
    ),
    Setting(
        name="INFEROMETER_FORGE_TOKEN",
        default=None,
        meaning="The token that `watch --tell github:…` and `gitlab:…` comment with.",
    ),
    Setting(
        name="INFEROMETER_HUB",
        default=None,
        meaning="Address of the hub that `--on hub:…` and `inferometer hub agent` use.  Without it: this machine's.",
        key="hub",
    ),
    Setting(
        name="INFEROMETER_LEARN",
        default="1",
        meaning="0 lets profiles on this machine teach its predictions nothing, and what they taught be left aside.",
    ),
    Setting(
        name="INFEROMETER_MACHINE",
        default=None,
        meaning="What runs call this machine.  Without it: `machine` in the configuration file, else the host name.",
        key="machine",
    ),
    Setting(
        name="INFEROMETER_OIDC_ALLOW",
        default=None,
        meaning="Domains and e-mail addresses, with commas between, whose people may sign in through the provider.",
        key="oidc_allow",
    ),
    Setting(
        name="INFEROMETER_OIDC_CLIENT_ID",
        default=None,
        meaning="What the provider of identities knows this hub by.",
        key="oidc_client_id",
    ),
    Setting(
        name="INFEROMETER_OIDC_CLIENT_SECRET_FILE",
        default=None,
        meaning="File with the secret that the hub shows to the provider.",
        key="oidc_client_secret_file",
    ),
    Setting(
        name="INFEROMETER_OIDC_ISSUER",
        default=None,
        meaning="Address of a provider of identities (OpenID Connect) that people sign in to the hub through.",
        key="oidc_issuer",
    ),
    Setting(
        name="INFEROMETER_PORT",
        default="8077",
        meaning="The hub's port, and the one in the links that commands print.",
    ),
    Setting(
        name="INFEROMETER_POWER_METER",
        default=None,
        meaning="What measures this machine at the mains: a plug's address (http://…), or the CSV that a meter writes.",
        key="power_meter",
    ),
    Setting(
        name="INFEROMETER_PROFILE",
        default="1",
        meaning="0 switches every `Profiler` off that is not switched on in code: its spans then record nothing.",
    ),
    Setting(
        name="INFEROMETER_PUSH",
        default=None,
        meaning="Address of a hub that every measured run is sent to, as with `--hub`.",
        key="push",
    ),
    Setting(
        name="INFEROMETER_REMEMBER",
        default="1",
        meaning="0 works out anew what a command printed for the same question before, and what a sweep began with.",
    ),
    Setting(
        name="INFEROMETER_SMTP",
        default=None,
        meaning="Where `watch --tell mailto:…` sends mail: smtps://USER:PASSWORD@HOST, or smtp://HOST:PORT.",
    ),
    Setting(
        name="INFEROMETER_STORE",
        default=None,
        meaning="Where runs are kept: a file, a folder or postgresql://…  Without it: in the data folder.",
    ),
    Setting(
        name="INFEROMETER_TOKEN",
        default=None,
        meaning="What opens that hub: `inferometer hub token create` makes one.",
        key="token",
    ),
    Setting(
        name="INFEROMETER_URL",
        default=None,
        meaning="Address by which others open this machine's hub; links have it.  Without it: http://127.0.0.1:PORT.",
        key="url",
    ),
    Setting(
        name="INFEROMETER_USER",
        default=None,
        meaning="Whose runs are measured here.  Without it: `user` in the configuration file, else the login name.",
        key="user",
    ),
)


_BY_NAME = {setting.name: setting for setting in SETTINGS}


def value_of(name: str) -> str | None:
    """From the environment, else from the configuration file if it may stand there, else the default."""
    setting = _BY_NAME[name]
    value = os.environ.get(name)  # noqa: TID251 - the one place that reads it
    if value is None and setting.key is not None:
        value = _configured(setting.key)
    return setting.default if value is None else value


def config_file() -> Path:
    chosen = value_of("INFEROMETER_CONFIG")
    if chosen:
        return Path(chosen).expanduser()
    homes = {"win32": ("APPDATA", "~/AppData/Roaming"), "darwin": (None, "~/Library/Application Support")}
    return _home(*homes.get(sys.platform, ("XDG_CONFIG_HOME", "~/.config"))) / "config.toml"


def _configured(key: str) -> str | None:
    """The value of a key in the configuration file. A file that cannot be read is an error; none at all is fine."""
    path = config_file()
    try:
        stamp = path.stat().st_mtime_ns
    except OSError:
        return None
    value = _table(path, stamp).get(key)
    if value is not None and not isinstance(value, str):
        raise InferometerError(f"{path}: {key} is {value!r}, which is not text.", remedy=f'Write {key} = "NAME".')
    return value


@lru_cache(maxsize=4)
def _table(path: Path, stamp: int) -> dict[str, Any]:
    del stamp  # only part of the key: a file that was changed is read again
    import tomllib  # noqa: PLC0415 - most users have no such file

    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InferometerError(f"{path} cannot be read: {error}.", remedy="Mend it, or move it away.") from None
    known = sorted(setting.key for setting in SETTINGS if setting.key)
    unknown = sorted(table.keys() - set(known))
    if unknown:
        raise InferometerError(f"{path}: there is no setting {unknown[0]!r}.", remedy=f"There is: {', '.join(known)}.")
    return table


def cache_folder() -> Path:
    """Where files are kept that can be made again."""
    homes = {"win32": ("LOCALAPPDATA", "~/AppData/Local"), "darwin": (None, "~/Library/Caches")}
    return _folder("INFEROMETER_CACHE", *homes.get(sys.platform, ("XDG_CACHE_HOME", "~/.cache")))


def data_folder() -> Path:
    """Where runs and calibrations are kept."""
    homes = {"win32": ("LOCALAPPDATA", "~/AppData/Local"), "darwin": (None, "~/Library/Application Support")}
    return _folder("INFEROMETER_DATA", *homes.get(sys.platform, ("XDG_DATA_HOME", "~/.local/share")))


def _folder(setting: str, variable: str | None, otherwise: str) -> Path:
    """The folder a setting names, or ours in the one that the system has for such files."""
    chosen = value_of(setting)
    return Path(chosen).expanduser() if chosen else _home(variable, otherwise)


def _home(variable: str | None, otherwise: str) -> Path:
    home = os.environ.get(variable) if variable else None  # noqa: TID251 - the one place that reads it
    return _ours_in(home or otherwise, os.environ.get("HOME"))  # noqa: TID251 - as above


@lru_cache(maxsize=16)
def _ours_in(folder: str, home: str | None) -> Path:
    del home  # only part of the key: `~` stands for it
    return Path(folder).expanduser() / "inferometer"


def catalog_folders() -> tuple[Path, ...]:
    # Not by `value_of`, since every row of a sweep asks: it has no key in the configuration file, and no default.
    text = os.environ.get("INFEROMETER_CATALOG")  # noqa: TID251 - as above
    return tuple(Path(part).expanduser() for part in text.split(os.pathsep) if part) if text else ()


def machine_name() -> str | None:
    """The name that the user gave this machine; None if it goes by the host's."""
    return (value_of("INFEROMETER_MACHINE") or "").strip() or None


def user_name() -> str | None:
    """Who measures here: as set, else the login name; None where there is none, as in some containers."""
    chosen = (value_of("INFEROMETER_USER") or "").strip()
    if chosen:
        return chosen
    import getpass  # noqa: PLC0415 - only where a run is stored

    try:
        return getpass.getuser()
    except (ImportError, KeyError, OSError):
        return None


def styled_terminal() -> bool:
    """Whether a terminal may get bold and colour: not where NO_COLOR is set (no-color.org), nor on a dumb one."""
    variables = os.environ  # noqa: TID251 - the one place that reads it
    return not variables.get("NO_COLOR") and variables.get("TERM") != "dumb"


def completing() -> bool:
    """Whether a shell asks what may follow on a command line: click's own variable, which its scripts set."""
    return "_INFEROMETER_COMPLETE" in os.environ  # noqa: TID251 - the one place that reads it


def login_shell() -> str | None:
    """The name of the user's shell, such as `zsh`; None where the system does not say."""
    return Path(os.environ.get("SHELL") or "").name or None  # noqa: TID251 - as above


def visible_gpus() -> tuple[str, ...] | None:
    """The GPUs that CUDA shows to programs, in their order; None where it shows all."""
    shown = os.environ.get("CUDA_VISIBLE_DEVICES")  # noqa: TID251 - the one place that reads it
    return None if shown is None else tuple(part.strip() for part in shown.split(",") if part.strip())


def debug() -> bool:
    return value_of("INFEROMETER_DEBUG") not in {None, "", "0"}


def remembers() -> bool:
    return not completing() and not debug() and value_of("INFEROMETER_REMEMBER") not in {None, "", "0"}


def learns() -> bool:
    return value_of("INFEROMETER_LEARN") not in {None, "", "0"}


def variables() -> dict[str, str]:
    """All of the environment, for who must know whether anything in it has changed."""
    return dict(os.environ)  # noqa: TID251 - the one place that reads it


def profiling() -> bool:
    return value_of("INFEROMETER_PROFILE") not in {None, "", "0"}
