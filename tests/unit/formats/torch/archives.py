"""Exported programs to read and to damage. Nothing here needs torch."""

import json
import zipfile
from pathlib import Path

DATA = Path(__file__).parents[3] / "data" / "torch"
NAMES = ("mlp", "gpt", "cnn", "mixed", "encoder")


def members_of(name):
    """The members of a program by their names without the archive's folder."""
    with zipfile.ZipFile(DATA / f"{name}.pt2") as archive:
        return {entry.filename.partition("/")[2]: archive.read(entry) for entry in archive.infolist()}


def document_of(name):
    return json.loads(members_of(name)["models/model.json"])


def packed(path, members, method=zipfile.ZIP_STORED, folder="m/"):
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, data in members.items():
            archive.writestr(folder + name, data)
    return path


def with_document(path, document, name="mlp"):
    """The program of that name with another document in its place."""
    text = document if isinstance(document, bytes) else json.dumps(document).encode()
    return packed(path, {**members_of(name), "models/model.json": text})


def legacy(path, name="mlp"):
    """The layout of torch before 2.8: the document at the top, weights in a pickle."""
    members = {
        "serialized_exported_program.json": members_of(name)["models/model.json"],
        "serialized_state_dict.pt": b"\x80\x02 never read",
        "serialized_constants.pt": b"\x80\x02 never read",
        "version": b"8.5",
    }
    return packed(path, members, folder="")
