# SPDX-License-Identifier: Apache-2.0
"""Reads plane frames. Written from ckptfs-format(5), section PLANE FRAMES, alone."""

import struct
from collections.abc import Callable

import numpy as np
import zstandard

MAGIC = b"CKPF"
VERSION = 1
RAW, REPEATED, ZSTD = 0, 1, 2


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


def decode_plane(coding: int, body: bytes, count: int) -> np.ndarray:
    if coding == RAW:
        plane = body
    elif coding == REPEATED:
        if len(body) != 1:
            raise Damaged("one byte is to be repeated")
        plane = body * count
    elif coding == ZSTD:
        try:
            plane = zstandard.ZstdDecompressor().decompress(body, max_output_size=count)
        except zstandard.ZstdError as error:
            raise Damaged(str(error)) from error
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
    layout, size = reader.packed()
    width, phase = 1 << (layout & 3), layout >> 4 & 7
    rotated, reference = bool(layout & 4), bool(layout & 8)
    if layout & 0x80 or phase >= width or not max(phase, 1) <= size <= left or (rotated and width == 1):
        raise Damaged("a sub-block that cannot be")
    count, trailing = divmod(size - phase, width)
    if reference:
        if width != 4 or rotated or read_file is None:
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
        if rotated:
            numbers = np.frombuffer(elements, f"<u{width}")
            elements = (numbers >> 1 | numbers << (8 * width - 1)).astype(f"<u{width}").tobytes()
    return edges[:phase] + elements + edges[phase:]


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
        raise Damaged("bytes behind its end")
    return bytes(raw)
