"""Our own package as a wheel: what is in it is in its record, whatever the installed package told of itself."""

import base64
import hashlib
import io
import zipfile
from types import SimpleNamespace

import pytest

from inferometer.hub.places import wheels


@pytest.mark.parametrize(
    "told", [{"METADATA": "Name: inferometer\n", "entry_points.txt": "[x]\n"}, {"METADATA": "Name: inferometer\n"}]
)
def test_a_wheel_records_each_of_its_files(monkeypatch, told):
    monkeypatch.setattr(wheels, "distribution", lambda _name: SimpleNamespace(read_text=told.get))
    monkeypatch.setattr(wheels, "_sources", lambda: [wheels._PACKAGE / "__init__.py", wheels._PACKAGE / "py.typed"])
    with zipfile.ZipFile(io.BytesIO(wheels.our_wheel.__wrapped__())) as archive:
        held = {name: archive.read(name) for name in archive.namelist()}
    record = held.pop(f"{wheels._INFO}/RECORD").decode().splitlines()
    assert record.pop() == f"{wheels._INFO}/RECORD,,"
    recorded = {name: (digest, int(size)) for name, digest, size in (line.split(",") for line in record)}

    def digest(data):
        return f"sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip('=')}"

    assert recorded == {name: (digest(data), len(data)) for name, data in held.items()}
    assert {name.rpartition("/")[2] for name in held} == {"__init__.py", "py.typed", "WHEEL", *told}
    assert {name: held[f"{wheels._INFO}/{name}"].decode() for name in told} == told
