# SPDX-License-Identifier: Apache-2.0
"""Reads what ckptfs stores, from ckptfs-format(5) alone."""

import functools
import itertools
import struct
from collections.abc import Callable, Iterator

import google_crc32c
import xxhash
import zstandard

from . import plane_frames
from .plane_frames import Damaged

PIECE = 1 << 20
CHECKSUMS = {
    "zstd-1": lambda piece: xxhash.xxh64_intdigest(piece) & 0xFFFFFFFF,
    "planes-1": google_crc32c.value,
}
LARGEST_FRAME = PIECE + 4096


def expect(holds: bool, what: str) -> None:
    if not holds:
        raise Damaged(what)


def read_table(data: bytes) -> list[tuple[int, int, int]]:
    """Size in the object, size in the file and checksum of every frame."""
    expect(len(data) >= 17, "no room for a table")
    count, flags, magic = struct.unpack("<IBI", data[-9:])
    expect(magic == 0x8F92EAB1 and flags in (0x80, 0x81) and count > 0, "no footer")
    size = 8 + 12 * count + 9
    expect(size + 8 <= len(data), "the table is larger than the object")
    magic, content = struct.unpack("<II", data[-size:][:8])
    expect(magic == 0x184D2A5E and content == size - 8, "no table header")
    entries = list(struct.iter_unpack("<III", data[len(data) - size + 8:len(data) - 9]))
    for index, (stored, raw, _) in enumerate(entries):
        expect(0 < stored <= LARGEST_FRAME, "a frame's size in the object")
        expect(raw == PIECE or (index == count - 1 and 0 < raw < PIECE), "a frame's size in the file")
    padding = len(data) - size - sum(entry[0] for entry in entries)
    expect(padding >= 8, "frames larger than the object")
    magic, content = struct.unpack("<II", data[-size - padding:][:8])
    expect(magic == 0x184D2A5D and content == padding - 8, "no padding")
    return entries


def skip_padding(frame: bytes) -> bytes:
    while len(frame) >= 8 and struct.unpack("<I", frame[:4])[0] & ~15 == 0x184D2A50:
        size = 8 + struct.unpack("<I", frame[4:8])[0]
        expect(size <= len(frame), "padding longer than its frame")
        frame = frame[size:]
    return frame


def references_of(frame: bytes) -> list[tuple[int, int]]:
    frame = skip_padding(frame)
    if frame[:4] != plane_frames.MAGIC:
        return []
    found = plane_frames.references(frame)
    pieces = {place // PIECE for offset, size in found for place in (offset, offset + size - 1)}
    expect(len(found) <= 16 and len(pieces) <= 4, "too many references")
    return found


class Frames:
    """The frames of a container, for those that refer to others."""

    def __init__(self, data: bytes, entries: list[tuple[int, int, int]]) -> None:
        self.data = data
        self.sizes = [raw for _, raw, _ in entries]
        self.begins = [0, *itertools.accumulate(stored for stored, _, _ in entries)]
        self.referenced = functools.lru_cache(maxsize=4)(self.decode_referenced)

    def frame(self, index: int) -> bytes:
        return self.data[self.begins[index]:self.begins[index + 1]]

    def decode_referenced(self, index: int) -> bytes:
        expect(not references_of(self.frame(index)), "a reference to what refers itself")
        return decode_frame(self.frame(index), self.sizes[index])

    def decode(self, index: int) -> bytes:
        def read(offset: int, size: int) -> bytes:
            expect(offset + size <= index * PIECE, "a reference to what is not before it")
            first, last = offset // PIECE, (offset + size - 1) // PIECE
            joined = b"".join(self.referenced(place) for place in range(first, last + 1))
            return joined[offset - first * PIECE:][:size]

        references_of(self.frame(index))
        return decode_frame(self.frame(index), self.sizes[index], read)


def decode_frame(frame: bytes, size: int, read_file: Callable[[int, int], bytes] | None = None) -> bytes:
    frame = skip_padding(frame)
    if frame[:4] == plane_frames.MAGIC:
        return plane_frames.decode_plane_frame(frame, read_file)
    expect(frame[:4] == struct.pack("<I", 0xFD2FB528), "a frame of unknown kind")
    piece = zstandard.ZstdDecompressor().decompress(frame, max_output_size=size)
    expect(len(piece) == size, "a frame of another size")
    return piece


def pieces_of_object(data: bytes, metadata: dict[str, str]) -> Iterator[bytes]:
    """The file that an object holds, piece by piece."""
    if "ckptfs-format" not in metadata:
        yield data
        return
    expect(metadata["ckptfs-format"] in CHECKSUMS, "an unknown format")
    expect(len(data) % 4096 == 3223, "not the size of a container")
    entries = read_table(data)
    size = sum(raw for _, raw, _ in entries)
    expect(int(metadata.get("ckptfs-size", size)) == size, "another size than described")
    frames = Frames(data, entries)
    if data[-5] & 1:
        expect(not any(references_of(frames.frame(index)) for index in range(len(entries))), "references")
    for index, (_, _, checksum) in enumerate(entries):
        piece = frames.decode(index)
        expect(CHECKSUMS[metadata["ckptfs-format"]](piece) == checksum, "a checksum")
        yield piece


def decode_object(data: bytes, metadata: dict[str, str]) -> bytes:
    return b"".join(pieces_of_object(data, metadata))
