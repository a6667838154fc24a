# SPDX-License-Identifier: Apache-2.0
"""Zeros and holes in compressed files take no room in the bucket, however they came to be there."""

import os
import pathlib
import random
import threading
from collections.abc import Callable

import pytest
from harness.mounts import Mount
from harness.programs import wait_until
from harness.simulator import BUCKET, Simulator

pytestmark = pytest.mark.sanitized

MIB = 1 << 20
SIZE = 96 * MIB
# Each at the begin of a frame.
DATA = {place: b"data%d" % place for place in (0, 40 * MIB, SIZE - MIB)}


def pieces(step: int) -> list[tuple[int, bytes]]:
    return [(place, DATA.get(place, b"").ljust(step, b"\0")) for place in range(0, SIZE, step)]


def write_zeros(path: pathlib.Path, mode: str) -> None:
    with open(path, mode, buffering=0) as file:
        for _, piece in pieces(MIB):
            file.write(piece)


def write_zeros_backwards(path: pathlib.Path) -> None:
    with open(path, "r+b", buffering=0) as file:
        for place, piece in reversed(pieces(MIB)):
            assert os.pwrite(file.fileno(), piece, place) == MIB


def seek_over(path: pathlib.Path, mode: str) -> None:
    with open(path, mode, buffering=0) as file:
        for place, data in DATA.items():
            file.seek(place)
            file.write(data)
        file.truncate(SIZE)


def grow_by_name(path: pathlib.Path) -> None:
    path.write_bytes(DATA[0])
    os.truncate(path, SIZE)
    with open(path, "r+b", buffering=0) as file:
        for place, data in DATA.items():
            os.pwrite(file.fileno(), data, place)


def grow_in_steps(path: pathlib.Path) -> None:
    """Saved in between: what is there is changed at its end."""
    with open(path, "wb", buffering=0) as file:
        file.write(DATA[0])
        for place, data in list(DATA.items())[1:]:
            file.truncate(place)
            os.fsync(file.fileno())
            file.seek(place)
            file.write(data)
        file.truncate(SIZE)


WAYS: dict[str, Callable[[pathlib.Path], None]] = {
    "zeros in a new file": lambda path: write_zeros(path, "wb"),
    "zeros over a file": lambda path: write_zeros(path, "r+b"),
    "zeros backwards": write_zeros_backwards,
    "holes in a new file": lambda path: seek_over(path, "wb"),
    "holes in a new file for both": lambda path: seek_over(path, "w+b"),
    "holes behind a file": lambda path: seek_over(path, "r+b"),
    "a file that grows by name": grow_by_name,
    "a file that grows in steps": grow_in_steps}


def check(made: Mount, simulator: Simulator, prefix: str, way: str) -> None:
    path = made / way
    path.write_bytes(b"")
    WAYS[way](path)
    assert path.stat().st_size == SIZE
    assert len(simulator.stored(prefix + way)) < MIB // 4
    with open(path, "rb", buffering=0) as file:
        for place, data in DATA.items():
            assert os.pread(file.fileno(), 100, place) == data.ljust(100, b"\0")


@pytest.mark.parametrize("compress", ["auto", "zstd"])
@pytest.mark.parametrize("way", WAYS)
def test_zeros_and_holes_take_no_room(mount, simulator, prefix, way, compress):
    check(mount("--compress", compress), simulator, prefix, way)


def test_written_zeros_take_no_room(mount, simulator, prefix):
    """Where the processors had more to compress than they can, which a mount remembers for half a minute."""
    one_processor = ["taskset", "--cpu-list", str(min(os.sched_getaffinity(0)))]
    made = mount("--compress", "auto", within=one_processor)
    # It takes long to compress, and becomes much less.
    text = bytes(random.Random(1).choices(b"0123456789    ", k=MIB))
    enough = threading.Event()

    def keep_busy(number: int) -> None:
        while not enough.is_set():
            with open(made / f"busy{number}", "wb", buffering=0) as file:
                for _ in range(32):
                    file.write(text)

    def passes_as_it_is() -> bool:
        listed = simulator.client().list_objects_v2(Bucket=BUCKET, Prefix=prefix + "busy")
        return any(each["Size"] > 0.99 * 32 * MIB for each in listed.get("Contents", []))

    others = [threading.Thread(target=keep_busy, args=(number,)) for number in range(6)]
    for other in others:
        other.start()
    try:
        wait_until(passes_as_it_is, "a file that was not compressed", 60)
    finally:
        enough.set()
        for other in others:
            other.join()
    for way in WAYS:
        check(made, simulator, prefix, way)
    (made / "text").write_bytes(text * 4)
    assert len(simulator.stored(prefix + "text")) > 4 * MIB
