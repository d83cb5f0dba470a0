"""What a change of the contract would break for a client or a broker that knows the frozen one.

``proto/logstore/v1.binpb`` is the frozen contract, as descriptors; `python -m tests.rpc.contract_changes` freezes the
present one, which a release does and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
    ServiceDescriptorProto,
)

from tests.house import ROOT

FROZEN = ROOT / "proto" / "logstore" / "v1.binpb"


def present() -> FileDescriptorSet:
    """The contract that this tree speaks."""
    found = FileDescriptorSet()
    for path in sorted((ROOT / "rpc" / "pb").glob("*_pb2.py")):
        import_module(f"rpc.pb.{path.stem}").DESCRIPTOR.CopyToProto(found.file.add())
    return found


def frozen(path: Path = FROZEN) -> FileDescriptorSet:
    return FileDescriptorSet.FromString(path.read_bytes())


def breaks(old: FileDescriptorSet, new: FileDescriptorSet) -> Iterator[str]:
    """A sentence for everything that one side would take for something else, or miss."""
    news = {file.name: file for file in new.file}
    for file in old.file:
        if file.name in news:
            yield from _in_file(file, news[file.name])
        else:
            yield f"{file.name} is gone"


def _in_file(old: FileDescriptorProto, new: FileDescriptorProto) -> Iterator[str]:
    if old.package != new.package:
        yield f"{old.name}: its package was {old.package}"
    yield from _in_messages(old.package, old.message_type, new.message_type)
    yield from _in_enums(old.package, old.enum_type, new.enum_type)
    services = {service.name: service for service in new.service}
    for service in old.service:
        yield from _in_service(service, services.get(service.name))


def _in_messages(where: str, old: Any, new: Any) -> Iterator[str]:
    news = {message.name: message for message in new}
    for message in old:
        name = f"{where}.{message.name}"
        if message.name not in news:
            yield f"{name} is gone"
            continue
        other = news[message.name]
        yield from _in_fields(name, message, other)
        yield from _in_messages(name, message.nested_type, other.nested_type)
        yield from _in_enums(name, message.enum_type, other.enum_type)


def _in_fields(where: str, old: DescriptorProto, new: DescriptorProto) -> Iterator[str]:
    news = {field.number: field for field in new.field}
    reserved = {number for span in new.reserved_range for number in range(span.start, span.end)}
    for field in old.field:
        name = f"{where}.{field.name}"
        if field.number in news:
            if _shape(where, old, field) != _shape(where, new, news[field.number]):
                yield f"{name}, number {field.number}, has become {news[field.number].name} or another type"
        elif field.number not in reserved or field.name not in new.reserved_name:
            yield f"{name} is gone, and its number {field.number} and name are not reserved"
    for span in old.reserved_range:
        for number in range(span.start, span.end):
            if number not in reserved:
                yield f"{where}: number {number} is no longer reserved"


def _shape(where: str, message: DescriptorProto, field: FieldDescriptorProto) -> tuple[object, ...]:
    group = message.oneof_decl[field.oneof_index].name if field.HasField("oneof_index") else None
    return (field.name, field.type, field.label, field.type_name, field.proto3_optional, group)


def _in_enums(where: str, old: Any, new: Any) -> Iterator[str]:
    news: dict[str, EnumDescriptorProto] = {one.name: one for one in new}
    for enum in old:
        if enum.name not in news:
            yield f"{where}.{enum.name} is gone"
            continue
        values = {value.number: value.name for value in news[enum.name].value}
        for value in enum.value:
            if values.get(value.number) != value.name:
                yield f"{where}.{enum.name}: {value.name} was {value.number}"


def _in_service(old: ServiceDescriptorProto, new: ServiceDescriptorProto | None) -> Iterator[str]:
    methods = {} if new is None else {method.name: method for method in new.method}
    for method in old.method:
        if method.name not in methods:
            yield f"{old.name}/{method.name} is gone"
        elif method != methods[method.name]:
            yield f"{old.name}/{method.name} takes, gives or streams something else"


if __name__ == "__main__":
    FROZEN.write_bytes(present().SerializeToString(deterministic=True))
