"""What takes seconds to make, made once for all tests of a run."""

import hashlib
import os
import shutil
from importlib.util import cache_from_source
from pathlib import Path

import inferometer
from inferometer.core.settings import cache_folder
from inferometer.hub.agent.runner import alone
from inferometer.hub.places.device_side import unpack_wheel
from inferometer.hub.places.wheels import our_wheel


def made_once(name, make):
    """The folder that `make(folder)` has filled, for whichever worker asked first. Nobody may change what is in it."""
    place = cache_folder() / "of-tests" / name  # all workers have one cache: see conftest.py
    place.parent.mkdir(parents=True, exist_ok=True)
    with alone(place.with_name(f"{name}.lock"), lambda _: None):
        if not place.is_dir():
            begun = place.with_name(f"{name}-{os.getpid()}")
            begun.mkdir()
            make(begun)
            begun.replace(place)
    return place


def lend_bytecode(package):
    """Give our modules in another folder the bytecode they have here: compiling takes longer than what they then do."""
    ours = Path(inferometer.__file__).parent
    for source in ours.rglob("*.py"):
        there, compiled = package / source.relative_to(ours), Path(cache_from_source(str(source)))
        if compiled.is_file():
            times = source.stat()
            os.utime(there, ns=(times.st_atime_ns, times.st_mtime_ns))  # by which Python knows what it was made of
            (there.parent / "__pycache__").mkdir(exist_ok=True)
            shutil.copy(compiled, there.parent / "__pycache__")


def known_device(root):
    """The folder of a device that has run a job before: our code is there already."""
    data = our_wheel()

    def unpacked(folder):
        (folder / "ours.whl").write_bytes(data)
        unpack_wheel(folder / "ours.whl", folder / "code")
        lend_bytecode(folder / "code" / "inferometer")

    code = root / "code" / hashlib.sha256(data).hexdigest()[:16]
    shutil.copytree(made_once("code", unpacked) / "code", code, copy_function=os.link)
    return root
