"""Every place that the contract suite runs jobs at, each made ready for tests."""

import shutil
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fakes.sshd import WHY_NOT, start_sshd
from inferometer.providers.base import resolve


@dataclass
class GivenPlace:
    place: Any
    root: Path

    def deliver(self, handle) -> None:
        """What somebody has to do by hand."""

    def left(self, handle) -> list[str]:
        """What a job left behind that nobody will use again."""
        return [path.name for path in (self.root / "jobs").glob("*") if path.name == handle.job]


@contextmanager
def local(tmp_path_factory):
    root = tmp_path_factory.mktemp("local")
    with resolve(f"local:?root={root}") as place:
        yield GivenPlace(place, root)


@contextmanager
def ssh(tmp_path_factory):
    if WHY_NOT:
        pytest.skip(WHY_NOT)
    root, sshd = tmp_path_factory.mktemp("device"), start_sshd(tmp_path_factory.mktemp("sshd"))
    try:
        with resolve(sshd.address(root=root, python=sys.executable)) as place:
            yield GivenPlace(place, root)
    finally:
        sshd.stop()


class GivenBundle(GivenPlace):
    def deliver(self, handle) -> None:
        """Somebody carries the file to the device, runs it there and carries the result back."""
        device = self.root / "device"
        device.mkdir(exist_ok=True)
        carried = Path(shutil.copy(handle.folder, device))
        ran = subprocess.run([sys.executable, carried.name], cwd=device, capture_output=True, text=True, check=False)
        assert (device / "result.json").is_file(), ran.stderr
        shutil.move(device / "result.json", self.root / "result.json")

    def left(self, handle) -> list[str]:
        return sorted(path.name for path in (self.root / "device").iterdir() if path.name != Path(handle.folder).name)


@contextmanager
def bundle(tmp_path_factory):
    """With the packages that the device has: packing them takes longer than all else."""
    root = tmp_path_factory.mktemp("bundle")
    with resolve(f"bundle:{root}/job.zip?leave=msgspec,numpy,psutil,onnxruntime,onnx") as place:
        yield GivenBundle(place, root)


PLACES = {"local": local, "ssh": ssh, "bundle": bundle}
