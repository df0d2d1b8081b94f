"""Look up names from a request in the catalog only: a path would let a visitor read files of this machine."""

from inferometer.core.device import Device, is_local
from inferometer.core.errors import UnknownNameError
from inferometer.core.profile import JudgedBy, Profile


def catalog_device(name: str) -> Device:
    from inferometer.known import device  # noqa: PLC0415 - pages of runs do not need the catalog
    from inferometer.known.files import row_named, rows_of  # noqa: PLC0415 - as above

    if row_named("devices", name) is None:
        raise UnknownNameError("device", name, rows_of("devices").by_name, listing="The devices page lists them.")
    return device(name)


def catalog_model(name: str) -> str:
    from inferometer.formats.networks.shipped import is_shipped  # noqa: PLC0415 - as above
    from inferometer.known.files import row_named, rows_of  # noqa: PLC0415 - as above

    if row_named("models", name) is None and not is_shipped(name):  # to trace one would cost a visitor's wait
        raise UnknownNameError("model", name, rows_of("models").by_name, listing="`inferometer models` lists them.")
    return name


def roofs_of(profile: Profile) -> JudgedBy | None:
    """What a profile was judged by, else its device's catalog row; never this machine's, which may be another one."""
    if profile.judged_by is not None or is_local(profile.device.name):
        return profile.judged_by
    from inferometer.known.files import row_named  # noqa: PLC0415 - as above

    if row_named("devices", profile.device.name) is None:  # an error would look for names like it, in all of them
        return None
    return JudgedBy(device=catalog_device(profile.device.name))
