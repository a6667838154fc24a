# SPDX-License-Identifier: Apache-2.0
"""Plane frames that ckptfs writes can be read by what is written in ckptfs-format(5)."""

import pathlib
import struct
import subprocess
import sys

import numpy as np
import pytest
from harness.programs import BUILD, ROOT

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from plane_frames import Damaged, decode_plane_frame, references  # noqa: E402

FRAME = 1 << 20
RANDOM = np.random.default_rng(1)
WEIGHTS = RANDOM.normal(0, 0.03, FRAME // 2)


def bf16(values: np.ndarray) -> np.ndarray:
    bits = values.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def moments(count: int) -> bytes:
    rows = np.arange(count) // 256
    averages = RANDOM.normal(0, 1e-4, count) * 2.0 ** -(rows * 7 % 20)
    return np.where(rows % 4 == 0, 0, averages).astype(np.float32).tobytes()


TEXT = b"".join(path.read_bytes() for path in sorted((ROOT / "src").rglob("*.cc")))
DATA = {
    "bf16": bf16(WEIGHTS).tobytes(),
    "fp16": WEIGHTS.astype(np.float16).tobytes(),
    "fp32": WEIGHTS.astype(np.float32).tobytes()[:FRAME],
    "fp64": WEIGHTS.tobytes()[:FRAME],
    "moments": moments(FRAME // 4),
    "dead bits": (WEIGHTS.astype(np.float32).view(np.uint32)[: FRAME // 4] & 0xFFFFE000).tobytes(),
    "integers": RANDOM.integers(0, 5000, FRAME // 8).astype(np.int64).tobytes(),
    "text": TEXT[:FRAME],
    "zeros": bytes(FRAME),
    "mixed": TEXT[:70001] + bf16(WEIGHTS).tobytes()[:300001] + bytes(200000) + WEIGHTS.tobytes()[:400003],
}


def encode(folder: pathlib.Path, raw: bytes) -> bytes:
    (folder / "raw").write_bytes(raw)
    subprocess.run([BUILD / "plane_frame_tool", folder / "raw", folder / "frame"], check=True)
    return (folder / "frame").read_bytes()


@pytest.mark.parametrize("name", DATA)
def test_what_ckptfs_writes_is_what_the_manual_says(tmp_path, name):
    raw = DATA[name]
    for size in (len(raw), len(raw) - 3, 150001, 4099, 1):
        for begin in (0, 1, 3):
            piece = raw[begin:size]
            if piece and (frame := encode(tmp_path, piece)):
                assert len(frame) < len(piece)
                assert decode_plane_frame(frame) == piece
    assert encode(tmp_path, raw), "no frame was made of the whole"


def test_a_plane_frame_is_no_zstd_frame(tmp_path):
    frame = encode(tmp_path, DATA["bf16"])
    (magic,) = struct.unpack("<I", frame[:4])
    assert magic != 0xFD2FB528 and magic >> 4 != 0x184D2A5 and not 0xFD2FB51E <= magic <= 0xFD2FB527


def test_references_are_what_rounding_leaves():
    master = WEIGHTS.astype(np.float32)[:1000].copy()
    # Ties, of which one rounds up and one down, a NaN, and what rounds to infinity.
    master[:4] = np.array([0x3F808000, 0x3F818000, 0x7F800001, 0x7F7FFFFF], np.uint32).view(np.float32)
    rounded = bf16(master)
    rounded[2] = 0x7FC0
    bits = master.view(np.uint32)
    derived = rounded - (bits & 0xFFFF > 0x8000)
    different = np.flatnonzero(derived != bits >> 16)
    assert list(different) == [1, 2]
    size = 2 + master.nbytes + 1
    low = (bits & 0xFFFF).astype(np.uint16)
    planes = [(low & 0xFF).astype(np.uint8).tobytes(), (low >> 8).astype(np.uint8).tobytes()]
    frame = b"CKPF" + struct.pack("<I", 1 | size << 8)
    frame += struct.pack("<IQI", 2 | 2 << 5 | size << 8 | 1 << 29, 77, len(different))
    frame += struct.pack("<II", 1000 << 8, 1000 << 8) + b"abc" + b"".join(planes)
    frame += b"".join(struct.pack("<IH", i, bits[i] >> 16) for i in different)
    file = bytes(77) + rounded.tobytes()
    raw = decode_plane_frame(frame, lambda offset, count: file[offset : offset + count])
    assert references(frame) == [(77, 2000)]
    assert raw == b"ab" + master.tobytes() + b"c"


@pytest.mark.parametrize("where", range(0, 40))
def test_damage_is_noticed_or_harmless(tmp_path, where):
    raw = DATA["fp32"][:5000]
    frame = bytearray(encode(tmp_path, raw))
    frame[where] ^= 0xFF
    try:
        decode_plane_frame(bytes(frame))
    except Damaged:
        return
    assert where >= 8
