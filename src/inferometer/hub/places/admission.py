"""The files that came with a job, looked at before anything opens them: all that its models need, and nothing else.

What a job says beside its files is looked at by `requests.require_known`, wherever a job goes by.
"""

from pathlib import Path

from inferometer.core.errors import FormatError, TrustError
from inferometer.core.job import Job, JobModel
from inferometer.formats.resolve import read
from inferometer.formats.trust.door import require_data
from inferometer.hub.places.artifacts import companions
from inferometer.hub.places.requests import model_path

NATIVE_CODE = "native-code"  # what the owner of a device may allow: packages of AOTInductor that come with jobs
_COMPILED = "aoti"


def require_files(job: Job, folder: Path, *, native_code: bool = False) -> tuple[str, ...]:
    """The files as they were said to be, no more than the models need, and without code of their own.

    `native_code`: the owner of this machine lets jobs bring compiled packages. Gives the packages that this one brings.
    """
    for file in job.files:
        place = folder / file.path
        if not place.is_file():
            raise FormatError(f"The job's file {file.path!r} is not there, or is no file.")
        if place.stat().st_size != file.size_bytes:
            raise FormatError(
                f"The job's file {file.path!r} has {place.stat().st_size:,} bytes, and was said to have "
                f"{file.size_bytes:,}.",
                remedy="Send it again.",
            )
    brought = (model for model in (job.model, job.reference) if model is not None and model.files)
    formats = {model_path(model, folder): _admitted(model, folder, native_code=native_code) for model in brought}
    return tuple(path for path, form in formats.items() if form == _COMPILED)


def _admitted(model: JobModel, folder: Path, *, native_code: bool) -> str:
    """The format of a model that is data, or compiled where that is allowed."""
    path = Path(model_path(model, folder))
    if path.is_file():
        needed = {path, *companions(path)}
        extra = next((file.path for file in model.files if folder / file.path not in needed), None)
        if extra is not None:
            raise TrustError(
                f"The job carries {extra!r}, which {model.entry!r} does not need.",
                remedy="A job carries a model's own files alone.",
            )
    form = str(read(str(path)).metadata.get("format"))
    try:
        require_data(path, form, trusted=native_code and form == _COMPILED)
    except TrustError as error:
        allowed = f"The owner of the device can allow it: inferometer hub agent --allow {NATIVE_CODE}."
        raise TrustError(error.message, remedy=allowed if form == _COMPILED else "A job is data.") from None
    return form
