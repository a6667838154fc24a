# SPDX-License-Identifier: Apache-2.0
"""Reads plane frames. Written from ckptfs-format(5), section PLANE FRAMES, alone."""

import struct
from collections.abc import Callable

import numpy as np
import zstandard

MAGIC = b"CKPF"
VERSION = 1
RAW, REPEATED, ZSTD, PACKED, CENTRED = range(5)
SEGMENT = 256


class Damaged(Exception):
    pass


class Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.offset = 0

    def take(self, size: int) -> bytes:
        taken = self.data[self.offset : self.offset + size]
        if len(taken) != size:
            raise Damaged("ends too early")
        self.offset += size
        return taken

    def packed(self) -> tuple[int, int]:
        (word,) = struct.unpack("<I", self.take(4))
        return word & 0xFF, word >> 8


def unzstd(frame: bytes, size: int) -> bytes:
    try:
        return zstandard.ZstdDecompressor().decompress(frame, max_output_size=size)
    except zstandard.ZstdError as error:
        raise Damaged(str(error)) from error


def unpack(body: bytes, count: int) -> bytes:
    if len(body) < 2 or body[0] & body[1]:
        raise Damaged("packed bits without their mask")
    places = [place for place in range(8) if body[0] >> place & 1]
    if len(body) - 2 != (count * len(places) + 7) // 8:
        raise Damaged("packed bits of another size")
    bits = np.unpackbits(np.frombuffer(body[2:], np.uint8), bitorder="little")[: count * len(places)]
    bits = bits.reshape(count, len(places))
    plane = np.full(count, body[1], np.uint8)
    for column, place in enumerate(places):
        plane |= bits[:, column] << place
    return plane.tobytes()


def uncentre(body: bytes, count: int) -> bytes:
    segments = -(-count // SEGMENT)
    rest = np.frombuffer(unzstd(body[segments:], count), np.uint8)
    if len(rest) != count:
        raise Damaged("a centred plane of another size")
    return (rest + np.repeat(np.frombuffer(body[:segments], np.uint8), SEGMENT)[:count]).tobytes()


def decode_plane(coding: int, body: bytes, count: int) -> np.ndarray:
    if coding == RAW:
        plane = body
    elif coding == REPEATED:
        if len(body) != 1:
            raise Damaged("one byte is to be repeated")
        plane = body * count
    elif coding == ZSTD:
        plane = unzstd(body, count)
    elif coding == PACKED:
        plane = unpack(body, count)
    elif coding == CENTRED:
        plane = uncentre(body, count)
    else:
        raise Damaged(f"unknown coding {coding}")
    if len(plane) != count:
        raise Damaged(f"a plane of {len(plane)} bytes instead of {count}")
    return np.frombuffer(plane, np.uint8)


def decode_planes(reader: Reader, planes: int, count: int, edges: int) -> tuple[np.ndarray, bytes]:
    headers = [reader.packed() for _ in range(planes)]
    edge = reader.take(edges)
    decoded = [decode_plane(coding, reader.take(size), count) for coding, size in headers]
    return np.stack(decoded, axis=1), edge


def upper_halves(low: np.ndarray, bf16: bytes, exceptions: np.ndarray) -> np.ndarray:
    upper = np.frombuffer(bf16, "<u2") - (low > 0x8000).astype(np.uint16)
    upper[exceptions["index"]] = exceptions["upper"]
    return upper


def decode_sub_block(reader: Reader, left: int, read_file: Callable[[int, int], bytes] | None) -> bytes:
    (word,) = struct.unpack("<I", reader.take(4))
    width, rotation, phase = 1 << (word & 3), word >> 2 & 7, word >> 5 & 7
    size, reference = word >> 8 & 0x1FFFFF, bool(word >> 29 & 1)
    if word >> 30 or phase >= width or not max(phase, 1) <= size <= left or (rotation and width == 1):
        raise Damaged("an invalid sub-block")
    count, trailing = divmod(size - phase, width)
    if reference:
        if width != 4 or rotation or count == 0 or read_file is None:
            raise Damaged("a reference that cannot be followed")
        offset, exceptions = struct.unpack("<QI", reader.take(12))
        planes, edges = decode_planes(reader, 2, count, phase + trailing)
        low = planes.reshape(-1).view("<u2")
        listed = np.frombuffer(reader.take(6 * exceptions), np.dtype([("index", "<u4"), ("upper", "<u2")]))
        upper = upper_halves(low, read_file(offset, 2 * count), listed)
        elements = np.stack([low, upper], axis=1).tobytes()
    else:
        planes, edges = decode_planes(reader, width, count, phase + trailing)
        elements = planes.tobytes()
        if rotation:
            numbers = np.frombuffer(elements, f"<u{width}")
            elements = (numbers >> rotation | numbers << (8 * width - rotation)).astype(f"<u{width}").tobytes()
    return edges[:phase] + elements + edges[phase:]


def references(frame: bytes) -> list[tuple[int, int]]:
    """The bytes of the file that the sub-blocks of a frame refer to, as offsets and sizes."""
    reader = Reader(frame)
    reader.take(4)
    left = reader.packed()[1]
    found = []
    while left > 0:
        (word,) = struct.unpack("<I", reader.take(4))
        width, phase, size = 1 << (word & 3), word >> 5 & 7, word >> 8 & 0x1FFFFF
        if not max(phase, 1) <= size <= left:
            raise Damaged("an invalid sub-block")
        count, trailing = divmod(size - phase, width)
        bodies = phase + trailing
        planes = width
        if word >> 29 & 1:
            offset, exceptions = struct.unpack("<QI", reader.take(12))
            found.append((offset, 2 * count))
            bodies += 6 * exceptions
            planes = 2
        bodies += sum([reader.packed()[1] for _ in range(planes)])
        reader.take(bodies)
        left -= size
    return found


def decode_plane_frame(frame: bytes, read_file: Callable[[int, int], bytes] | None = None) -> bytes:
    """read_file(offset, size) gives earlier bytes of the same file, for reference sub-blocks."""
    reader = Reader(frame)
    if reader.take(4) != MAGIC:
        raise Damaged("no plane frame")
    version, size = reader.packed()
    if version != VERSION:
        raise Damaged(f"version {version}")
    raw = bytearray()
    while len(raw) < size:
        raw += decode_sub_block(reader, size - len(raw), read_file)
    if reader.offset != len(frame):
        raise Damaged("extra bytes after its end")
    return bytes(raw)
