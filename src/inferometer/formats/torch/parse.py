"""From the members of a `.pt2` file to a `Program`."""

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from inferometer.core.dtypes import dtype
from inferometer.core.errors import FormatError
from inferometer.core.graph import Role
from inferometer.formats.torch.body import BodyNames, name_symbols, parse_body, tensor_names, value_of
from inferometer.formats.torch.program import (
    HeldInput,
    InputDoc,
    PayloadDoc,
    PayloadsDoc,
    Program,
    ProgramDoc,
    SignatureDoc,
    TensorDoc,
    VersionedDoc,
)
from inferometer.formats.trust.archive import Archive

NEWEST_SCHEMA = 8  # the major number; minor ones only add fields
_OLDEST_SCHEMA = 5
_LEGACY = "serialized_exported_program.json"

T = TypeVar("T")


def program_members(archive: Archive) -> list[str]:
    """The members that hold a program each; torch's own name for one comes first."""
    models = sorted(
        (name for name in archive.members if name.startswith("models/") and name.endswith(".json")),
        key=lambda name: (name != "models/model.json", name),
    )
    return models or [name for name in (_LEGACY,) if name in archive.members]


def parse_program(archive: Archive, member: str, *, name: str) -> Program:
    data = archive.read(member)
    versions = _decoded(archive, member, data, VersionedDoc)
    _require_known(archive, member, versions)
    document = _decoded(archive, member, data, ProgramDoc)
    del data
    module = document.graph_module
    users = [
        name for spec in module.signature.input_specs if spec.user_input for name in tensor_names(spec.user_input.arg)
    ]
    raw = BodyNames(where=f"{member!r} of {str(archive.path)!r}", sizes={})
    values = module.graph.tensor_values
    ours, explained = name_symbols([(user, value_of(values[user], raw)) for user in users if user in values])
    names = BodyNames(where=raw.where, sizes=ours)
    body = parse_body(module.graph, names, users=users, outputs=_user_outputs(module.signature))
    version = versions.schema_version
    return Program(
        name=name,
        body=body,
        held=_held(module.signature, _payloads(archive, member), values, names),
        mutated=frozenset(
            names.checked(spec.buffer_mutation.buffer_name)
            for spec in module.signature.output_specs
            if spec.buffer_mutation
        ),
        metadata={
            "torch_version": versions.torch_version,
            "schema_version": f"{version.major}.{version.minor}",
            "symbols": explained,
            "size_names": {theirs: str(symbol) for theirs, symbol in ours.items()},
        },
    )


def _decoded(archive: Archive, member: str, data: bytes, kind: type[T]) -> T:
    remedy = "The file is damaged, or another program wrote it; save it again with torch.export.save."
    where = f"{member!r} of {str(archive.path)!r}"
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        raise FormatError(f"{where} is not an exported program: {error}.", remedy=remedy) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise FormatError(f"{where} is not JSON: {error}.", remedy=remedy) from None
    except RecursionError:
        raise FormatError(f"{where} is nested too deeply.", remedy=remedy) from None


def _require_known(archive: Archive, member: str, document: VersionedDoc) -> None:
    major = document.schema_version.major
    if _OLDEST_SCHEMA <= major <= NEWEST_SCHEMA:
        return
    what = "newer than" if major > NEWEST_SCHEMA else "older than"
    known = NEWEST_SCHEMA if major > NEWEST_SCHEMA else _OLDEST_SCHEMA
    raise FormatError(
        f"{member!r} of {str(archive.path)!r} has schema {major}.{document.schema_version.minor} (written by torch "
        f"{document.torch_version or 'of an unknown version'}), {what} {known}, which this reader knows.",
        remedy="Upgrade inferometer." if major > NEWEST_SCHEMA else "Export the model again with torch 2.4 or newer.",
    )


def _user_outputs(signature: SignatureDoc) -> list[str]:
    return [name for spec in signature.output_specs if spec.user_output for name in tensor_names(spec.user_output.arg)]


def _payloads(archive: Archive, member: str) -> dict[str, PayloadDoc]:
    """What the archive says about stored tensors, by their names. Older archives keep them in a pickle: unread."""
    payloads: dict[str, PayloadDoc] = {}
    model = member.removeprefix("models/").removesuffix(".json")
    for folder, suffix in (("data/weights/", "weights"), ("data/constants/", "constants")):
        config = f"{folder}{model}_{suffix}_config.json"
        if config in archive.members:
            for name, payload in _decoded(archive, config, archive.read(config), PayloadsDoc).config.items():
                if archive.weights:
                    _require_stored(archive, name, payload, folder + payload.path_name)
                payload.path_name = folder + payload.path_name
                payloads[name] = payload
    return payloads


def _require_stored(archive: Archive, name: str, payload: PayloadDoc, member: str) -> None:
    """A tensor's bytes must be in the file, as many as its shape says. They are not read."""
    stored = archive.size(member)
    if stored is None:
        raise FormatError(
            f"{str(archive.path)!r} has no member {member!r}, where the tensor {name!r} should be.",
            remedy="The file is damaged; copy or save it again.",
        )
    if payload.tensor_meta is None or payload.use_pickle:
        return
    names = BodyNames(where=f"the tensor {name!r} of {str(archive.path)!r}", sizes={})
    needed = _extent(payload.tensor_meta, names)
    if needed is not None and needed > stored:
        raise FormatError(
            f"The tensor {name!r} of {str(archive.path)!r} claims {needed:,} bytes and {member!r} holds {stored:,}.",
            remedy="The file is damaged; copy or save it again.",
        )


def _extent(tensor: TensorDoc, names: BodyNames) -> int | None:
    """Bytes from the start of a tensor's storage to its last number."""
    value = value_of(tensor, names)
    if value.dtype is None or value.strides is None or 0 in value.shape:
        return 0
    last = tensor.storage_offset.as_int or 0 if tensor.storage_offset else 0
    for size, stride in zip(value.shape, value.strides, strict=False):
        if not isinstance(size, int) or not isinstance(stride, int):
            return None
        last += (size - 1) * stride
    needed: int = dtype(value.dtype).nbytes(last + 1)
    return needed


def _held(
    signature: SignatureDoc, payloads: Mapping[str, PayloadDoc], values: Mapping[str, TensorDoc], names: BodyNames
) -> dict[str, HeldInput]:
    """Inputs that are the module's own. Tensors that lie at the same place in the file are one: tied weights."""
    held: dict[str, HeldInput] = {}
    first: dict[object, str] = {}
    for spec in signature.input_specs:
        own = _own(spec)
        if own is None:
            continue
        argument, name, role = own
        payload = payloads.get(name)
        tensor = payload.tensor_meta if payload else None
        index: object = (
            name
            if payload is None or tensor is None
            else (payload.path_name, msgspec.json.encode([tensor.sizes, tensor.strides, tensor.storage_offset]))
        )
        shared = first.setdefault(index, names.checked(name))
        size = names.nbytes(values[argument]) if payload and tensor and argument in values else None
        held[argument] = HeldInput(name=shared, role=role, stored_bytes=size)
    return held


def _own(spec: InputDoc) -> tuple[str, str, Role] | None:
    if spec.parameter:
        return spec.parameter.arg.name, spec.parameter.parameter_name, "weight"
    if spec.buffer:
        return spec.buffer.arg.name, spec.buffer.buffer_name, "constant"
    if spec.tensor_constant:
        return spec.tensor_constant.arg.name, spec.tensor_constant.tensor_constant_name, "constant"
    return None
