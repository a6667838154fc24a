# SPDX-License-Identifier: Apache-2.0
"""Files that tell which version they are, and whether they are whole."""

import struct

import numpy

HEADER = struct.Struct("<QQ")


def version(number: int, size: int) -> bytes:
    """Its number and size come first; `size` is cut to a multiple of 8."""
    words = numpy.arange(size // 8, dtype=numpy.uint64) * numpy.uint64(0x9E3779B97F4A7C15) ^ numpy.uint64(number)
    words[:2] = number, len(words) * 8
    return words.tobytes()


def number_of(data: bytes) -> int | None:
    """None where it is not a whole version."""
    if len(data) < HEADER.size:
        return None
    number, size = HEADER.unpack_from(data)
    return number if size == len(data) and data == version(number, size) else None


def describe(data: bytes) -> str:
    if len(data) < HEADER.size:
        return f"{len(data)} bytes"
    number, size = HEADER.unpack_from(data)
    if size != len(data) and not any(data[size:]) and data[:size] == version(number, size):
        return f"version {number} of {size} bytes and zeros up to {len(data)}"
    return f"{len(data)} bytes that begin as version {number} of {size}"
