# SPDX-License-Identifier: Apache-2.0
"""Bytes that say which write they come from: a mix of versions, NULs and stale bytes are recognised by looking.

Each write has a tag. Three of four are text, a line of 64 bytes for each 64 bytes of the file: "TAG LINE ....". Every
fourth does not compress, so that frames and parts are as large as the file.
"""

import functools
import random

LINE = 64
BLOCK = 1 << 16


@functools.lru_cache(maxsize=64)
def _noise(tag: int) -> bytes:
    return random.Random(tag).randbytes(BLOCK)


@functools.lru_cache(maxsize=16)
def _lines(tag: int, first: int, count: int) -> bytes:
    return b"".join(b"%06d %07d %s\n" % (tag, first + number, b"." * 48) for number in range(count))


def is_noise(tag: int) -> bool:
    return tag % 4 == 3


def pattern(tag: int, offset: int, size: int) -> bytes:
    """What the write `tag` puts at [offset, offset + size)."""
    if size <= 0:
        return b""
    if is_noise(tag):
        skip = offset % BLOCK
        return (_noise(tag) * ((skip + size) // BLOCK + 1))[skip:skip + size]
    first, last = offset // LINE, (offset + size - 1) // LINE
    return _lines(tag, first, last - first + 1)[offset - first * LINE:][:size]


def writer_of(line: bytes, at: int, tags: int) -> str | None:
    if line[:6].isdigit() and len(line) > 6:
        tag = int(line[:6])
        return str(tag) if pattern(tag, at, len(line)) == line else None
    noisy = (tag for tag in range(3, tags + 1, 4) if _noise(tag).startswith(line, at % BLOCK))
    return next((str(tag) for tag in noisy), None) or next(
        (str(tag) for tag in range(1, tags + 1 if len(line) < 7 else 1) if pattern(tag, at, len(line)) == line), None)


def explain(data: bytes | None, tags: int) -> str:
    """Runs of the file by the write that they come from: "3:0+4096 NUL:4096+100"."""
    if data is None:
        return "absent"
    runs: list[list] = []
    for at in range(0, len(data), LINE):
        line = data[at:at + LINE]
        whom = writer_of(line, at, tags)
        if whom is None:
            whom = "NUL" if not line.strip(b"\0") else "mixed"
        if runs and runs[-1][0] == whom:
            runs[-1][2] += len(line)
        else:
            runs.append([whom, at, len(line)])
    shown = " ".join(f"{whom}:{at}+{size}" for whom, at, size in runs[:12])
    return f"{len(data)} bytes [{shown}{' ...' if len(runs) > 12 else ''}]"
