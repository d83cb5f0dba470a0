"""The contract only grows: what a client or a broker of the frozen one knows means the same."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorSet

from tests.rpc.contract_changes import breaks, frozen, present


def test_nothing_of_the_frozen_contract_means_something_else() -> None:
    assert list(breaks(frozen(), present())) == []


def test_every_service_of_the_frozen_contract_is_there_in_full() -> None:
    methods = sum(len(service.method) for file in frozen().file for service in file.service)
    assert methods >= 47, "an empty contract would be kept by everything"


def message(contract: FileDescriptorSet, name: str) -> DescriptorProto:
    return next(one for file in contract.file for one in file.message_type if one.name == name)


def drop_field(contract: FileDescriptorSet) -> None:
    del message(contract, "Place").field[0]


def renumber(contract: FileDescriptorSet) -> None:
    message(contract, "Place").field[1].number = 9


def retype(contract: FileDescriptorSet) -> None:
    message(contract, "Place").field[1].type = FieldDescriptorProto.TYPE_INT64


def rename(contract: FileDescriptorSet) -> None:
    message(contract, "Place").field[0].name = "subject"


def repeat(contract: FileDescriptorSet) -> None:
    message(contract, "Place").field[0].label = FieldDescriptorProto.LABEL_REPEATED


def drop_message(contract: FileDescriptorSet) -> None:
    for file in contract.file:
        for number, one in enumerate(file.message_type):
            if one.name == "Place":
                del file.message_type[number]
                return


def drop_method(contract: FileDescriptorSet) -> None:
    next(service for file in contract.file for service in file.service).method.pop()


def stream(contract: FileDescriptorSet) -> None:
    method = next(service for file in contract.file for service in file.service).method[0]
    method.server_streaming = not method.server_streaming


def drop_service(contract: FileDescriptorSet) -> None:
    next(file for file in contract.file if file.service).service.pop()


def drop_file(contract: FileDescriptorSet) -> None:
    contract.file.pop()


def shift_enum(contract: FileDescriptorSet) -> None:
    enum = next(one for file in contract.file for one in file.enum_type)
    enum.value[-1].number += 1


@pytest.mark.parametrize(
    "plant",
    [
        drop_field,
        renumber,
        retype,
        rename,
        repeat,
        drop_message,
        drop_method,
        stream,
        drop_service,
        drop_file,
        shift_enum,
    ],
)
def test_a_break_is_found(plant: Callable[[FileDescriptorSet], None]) -> None:
    changed = present()
    plant(changed)
    assert list(breaks(present(), changed))


def test_what_is_new_breaks_nothing_and_what_was_given_up_stays_reserved() -> None:
    old, new = present(), present()
    message(new, "Place").field.add(name="rack", number=99, type=FieldDescriptorProto.TYPE_STRING, label=1)
    new.file[0].message_type.add(name="Later")
    assert list(breaks(old, new)) == []
    given_up = message(new, "Place")
    name, number = given_up.field[0].name, given_up.field[0].number
    del given_up.field[0]
    given_up.reserved_name.append(name)
    given_up.reserved_range.add(start=number, end=number + 1)
    assert list(breaks(old, new)) == []
    assert list(breaks(new, old)), "a number that was given up is never used again"
