# SPDX-License-Identifier: Apache-2.0
"""Random operations on a file of the mount and on one of a local directory: what they answer and hold is the same.

CKPTFS_RANDOM_SEED and CKPTFS_RANDOM_SECONDS choose another run; a failure names the seed and the last operations.
"""

import collections
import mmap
import os
import random
import time

import pytest

MIB = 1 << 20


class Files:
    """One of the two sides: a file that is changed, in a directory."""

    def __init__(self, directory) -> None:
        self.directory = directory
        self.name = "file0"
        self.descriptor = os.open(directory / self.name, os.O_RDWR | os.O_CREAT)

    def write(self, offset, content):
        return os.pwrite(self.descriptor, content, offset)

    def append(self, content):
        return os.pwrite(self.descriptor, content, os.fstat(self.descriptor).st_size)

    def read(self, offset, size):
        return os.pread(self.descriptor, size, offset)

    def truncate(self, size):
        os.ftruncate(self.descriptor, size)

    def truncate_by_name(self, size):
        os.truncate(self.directory / self.name, size)

    def map(self, offset, content):
        size = os.fstat(self.descriptor).st_size
        if size == 0:
            return None
        with mmap.mmap(self.descriptor, size) as pages:
            content = content[:max(0, size - offset)]
            pages[offset:offset + len(content)] = content
            return pages[max(0, offset - 100):offset + 100]

    def sync(self):
        os.fsync(self.descriptor)

    def reopen(self, flags):
        os.close(self.descriptor)
        self.descriptor = os.open(self.directory / self.name, os.O_RDWR | flags)

    def rename(self, name):
        os.rename(self.directory / self.name, self.directory / name)
        self.name = name

    def size(self):
        return os.fstat(self.descriptor).st_size

    def close(self):
        os.close(self.descriptor)

    def whole(self):
        return (self.directory / self.name).read_bytes()


def any_operation(dice, largest):
    def offset():
        return dice.choice([0, 1, 4095, dice.randrange(largest), dice.randrange(largest // 100)])

    def content():
        size = dice.choice([1, 100, 4096, dice.randrange(1, 100_000), dice.randrange(1, 3 * MIB)])
        return dice.randbytes(size) if dice.random() < 0.5 else bytes([dice.randrange(1, 256)]) * size

    name = dice.choices(["write", "append", "read", "truncate", "truncate_by_name", "map", "sync", "reopen", "rename"],
                        [20, 30, 15, 3, 1, 5, 4, 5, 2])[0]
    arguments = {
        "write": lambda: (offset(), content()),
        "append": lambda: (content(),),
        "read": lambda: (offset(), dice.choice([1, 5000, 2 * MIB])),
        "truncate": lambda: (offset(),),
        "truncate_by_name": lambda: (offset(),),
        "map": lambda: (offset(), content()),
        "reopen": lambda: (os.O_TRUNC if dice.random() < 0.2 else 0,),
        "rename": lambda: (f"file{dice.randrange(100)}",),
    }.get(name, tuple)()
    return name, arguments


def shown(operation):
    name, arguments = operation
    return f"{name}({', '.join(f'{len(a)} bytes' if isinstance(a, bytes) else str(a) for a in arguments)})"


def run(seed, seconds, made, other, local):
    here, there = Files(local), Files(made.path)
    try:
        compare(seed, seconds, here, there, other)
    finally:
        # An open file holds the unmount.
        here.close()
        there.close()
    assert here.whole() == (other / there.name).read_bytes(), f"seed {seed}"


def compare(seed, seconds, here, there, other):
    dice = random.Random(seed)
    last = collections.deque(maxlen=30)
    end = time.monotonic() + seconds
    written = False
    while time.monotonic() < end:
        operation = any_operation(dice, dice.choice([10_000, MIB, 40 * MIB]))
        last.append(shown(operation))
        if here.size() > 60 * MIB:
            operation = ("truncate", (dice.randrange(20 * MIB),))
        name, arguments = operation
        told = f"seed {seed}: " + "; ".join(last)
        assert getattr(here, name)(*arguments) == getattr(there, name)(*arguments), told
        assert here.size() == there.size(), told
        if dice.random() < 0.05:
            assert here.whole() == there.whole(), told
        if name in ("write", "append"):
            written = True
        elif operation == ("reopen", (os.O_TRUNC,)):
            written = False
        # A sync before the first write publishes nothing.
        if operation == ("reopen", (0,)) or (name == "sync" and written):
            assert here.whole() == (other / there.name).read_bytes(), told


@pytest.mark.parametrize("compress", ["auto", "none"])
@pytest.mark.parametrize("seconds", [15, pytest.param(300, marks=[pytest.mark.full, pytest.mark.timeout(600)])])
def test_random_operations(mount, simulator, prefix, tmp_path, compress, seconds):
    seed = int(os.environ.get("CKPTFS_RANDOM_SEED", random.randrange(1 << 32)))
    seconds = float(os.environ.get("CKPTFS_RANDOM_SECONDS", seconds))
    run(seed, seconds, mount("--compress", compress), mount("--compress", compress, "--metadata-ttl", "0ms"), tmp_path)
    assert simulator.open_uploads(prefix) == []
