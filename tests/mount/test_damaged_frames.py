# SPDX-License-Identifier: Apache-2.0
"""One bit that flips on its way down, in what `--compress auto` makes of weights: it is fetched once more."""

import os

import numpy
import pytest
from format.container import Frames, read_table, references_of
from harness.simulator import Simulator

MIB = 1 << 20


def weights(mebibytes: int) -> numpy.ndarray:
    return numpy.random.default_rng(1).standard_normal(mebibytes * MIB // 4, dtype=numpy.float32)


def rounded(numbers: numpy.ndarray) -> bytes:
    """As bf16."""
    bits = numbers.view(numpy.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(numpy.uint16).tobytes()


class Weights:
    """bf16 weights, and the fp32 ones that they are rounded from, which are stored by what those do not say."""

    HALF = 8

    def __init__(self, mount, simulator: Simulator, key: str) -> None:
        numbers = weights(2 * self.HALF)
        self.content = rounded(numbers) + numbers.tobytes()
        # Where processors are too busy, frames do not refer to others, or are stored as they are.
        for _ in range(10):
            (mount("--compress", "auto") / "weights").write_bytes(self.content)
            stored = simulator.stored(key)
            table = read_table(stored)
            frames = Frames(stored, table)
            self.sizes = [size for size, _, _ in table]
            self.referring = [index for index in range(len(table)) if references_of(frames.frame(index))]
            if len(self.referring) == 2 * self.HALF:
                return
        raise AssertionError(f"only {self.referring} refer to others")

    def piece(self, frame: int) -> bytes:
        return self.content[frame * MIB:(frame + 1) * MIB]


@pytest.fixture
def reader(mount):
    """Each of its reads asks for what it needs, one frame a request."""
    return mount("--direct-io", "always", "--max-read-ahead", "1M")


def read_with_a_flip(file, simulator: Simulator, key: str, frame: int, place: int, nth: int = 1) -> bytes:
    """The frame, from the bucket, where the request of this number comes with a bit flipped there."""
    simulator.clear_faults()
    simulator.inject({"op": "GetObject", "key": key, "action": "corrupt", "bytes": place, "nth": nth})
    read = os.pread(file.fileno(), MIB, frame * MIB)
    assert simulator.fault_hits() == 1, f"byte {place} of request {nth} for frame {frame}"
    return read


# From the magic number to the planes: version and size, sub-block, reference, headers of the planes, edges.
HEAD = [0, 3, 4, 5, 7, 8, 9, 10, 11, 12, 13, 16, 17, 20, 21, 24]
BODY = [100, 10_000, 400_000, 600_000]


@pytest.mark.parametrize("refers", [False, True])
def test_a_frame_of_weights_that_came_damaged_is_fetched_once_more(mount, reader, simulator, prefix, refers):
    file = Weights(mount, simulator, prefix + "weights")
    # The first one is read ahead.
    frames, places = (file.referring, HEAD) if refers else (range(1, file.HALF), HEAD[::5] + BODY[:3])
    with open(reader / "weights", "rb", buffering=0) as opened:
        # From the end, so that nothing else is.
        for frame, place in zip(reversed(frames), places, strict=True):
            read = read_with_a_flip(opened, simulator, prefix + "weights", frame, place)
            assert read == file.piece(frame), place


def test_a_frame_that_others_refer_to_and_that_came_damaged_is_fetched_once_more(mount, reader, simulator, prefix):
    file = Weights(mount, simulator, prefix + "weights")
    with open(reader / "weights", "rb", buffering=0) as opened:
        # Two refer to each.
        for frame, place in zip(reversed(file.referring[1::2]), HEAD[1::4] + BODY, strict=True):
            read = read_with_a_flip(opened, simulator, prefix + "weights", frame, place, nth=2)
            assert read == file.piece(frame), place


@pytest.mark.parametrize("nth", range(1, 5))
@pytest.mark.parametrize("mode, offset", [("ab", 0), ("r+b", 3 * MIB + 5), ("r+b", 20 * MIB + 5)])
def test_weights_that_came_damaged_are_not_written_back(mount, reader, simulator, prefix, mode, offset, nth):
    """By a change of the bf16 weights, of the fp32 ones, and by what is added."""
    file = Weights(mount, simulator, prefix + "weights")
    content = bytearray(file.content)
    writer = mount("--compress", "auto")
    simulator.inject({"op": "GetObject", "key": prefix + "weights", "action": "corrupt", "bytes": 16, "nth": nth})
    with open(writer / "weights", mode, buffering=0) as opened:
        opened.seek(offset)
        opened.write(b"changed")
    assert simulator.fault_hits() == 1
    simulator.clear_faults()
    place = len(content) if mode == "ab" else offset
    content[place:place + 7] = b"changed"
    assert simulator.content(prefix + "weights") == content
    assert (reader / "weights").read_bytes() == content
