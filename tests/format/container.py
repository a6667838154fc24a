# SPDX-License-Identifier: Apache-2.0
"""Reads what ckptfs stores, from ckptfs-format(5) alone."""

import struct
from collections.abc import Iterator

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
    expect(magic == 0x8F92EAB1 and flags == 0x80 and count > 0, "no footer")
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


class Pieces:
    """What has been decoded of a file."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        # Whether the frame of each refers to others.
        self.referring: list[bool] = []

    def read(self, offset: int, size: int) -> bytes:
        first, last = offset // PIECE, (offset + size - 1) // PIECE
        expect(last < len(self.pieces) and not any(self.referring[first:last + 1]), "a reference")
        return b"".join(self.pieces[first:last + 1])[offset - first * PIECE:][:size]


def references_of(frame: bytes) -> list[tuple[int, int]]:
    frame = skip_padding(frame)
    if frame[:4] != plane_frames.MAGIC:
        return []
    found = plane_frames.references(frame)
    frames = {offset // PIECE for offset, _ in found} | {(offset + size - 1) // PIECE for offset, size in found}
    expect(len(found) <= 16 and len(frames) <= 4, "too many references")
    return found


def decode_frame(frame: bytes, size: int, before: Pieces) -> bytes:
    frame = skip_padding(frame)
    if frame[:4] == plane_frames.MAGIC:
        return plane_frames.decode_plane_frame(frame, before.read)
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
    offset = 0
    before = Pieces()
    for stored, raw, checksum in entries:
        frame = data[offset:offset + stored]
        piece = decode_frame(frame, raw, before)
        before.pieces.append(piece)
        before.referring.append(bool(references_of(frame)))
        expect(CHECKSUMS[metadata["ckptfs-format"]](piece) == checksum, "a checksum")
        yield piece
        offset += stored


def decode_object(data: bytes, metadata: dict[str, str]) -> bytes:
    return b"".join(pieces_of_object(data, metadata))
