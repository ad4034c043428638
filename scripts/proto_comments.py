"""The comments of the contract as JSON, by the full name of what they are about: generated code does not have them.

A descriptor set with source info comes in on stdin. Run by scripts/gen_proto.sh.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet


def comments(file: FileDescriptorProto) -> Iterator[tuple[str, str]]:
    """Full name and comment, in the order of the file."""
    for location in file.source_code_info.location:
        text = location.trailing_comments or location.leading_comments
        name = _name(file, list(location.path))
        if name and text:
            yield f"{file.package}.{name}", " ".join(text.split())


def _name(file: FileDescriptorProto, path: list[int]) -> str:
    """The name that a path of field numbers and indices leads to, "" where it leads to something without one."""
    names, holder = [], file
    while path:
        number, *path = path
        field = holder.DESCRIPTOR.fields_by_number[number]
        held: Any = getattr(holder, field.name)
        if not path or field.message_type is None:
            return ""
        index, *path = path
        holder = held[index]
        if not hasattr(holder, "name"):
            return ""
        names.append(holder.name)
    return ".".join(names)


def main() -> None:
    """stdin to stdout."""
    files = FileDescriptorSet.FromString(sys.stdin.buffer.read()).file
    found = dict(pair for file in files for pair in comments(file))
    json.dump(found, sys.stdout, indent=1, ensure_ascii=False)
    print()


if __name__ == "__main__":
    main()
