# SPDX-License-Identifier: Apache-2.0
"""Random operations on names, now through one mount and now through another, and on a local directory: what they answer
and what is there afterwards is the same.

CKPTFS_RANDOM_SEED and CKPTFS_RANDOM_SECONDS choose another run; a failure names the seed and the last operations.
"""

import collections
import errno
import os
import random
import stat
import time

import pytest

# Few, so that operations meet.
NAMES = ["a", "b", "c", "step-1", "step-1.tmp", ".metadata", "ünï", "with space"]
SIZES = [0, 1, 100, 5000, 2 << 20]


class Tree:
    """One of the sides; an operation answers what it found, or the name of its errno."""

    def __init__(self, root) -> None:
        # One below, so that links do not lead out of it.
        self.root = os.path.join(root, "top")
        os.makedirs(self.root, exist_ok=True)

    def do(self, name, *arguments):
        try:
            return getattr(self, name)(*arguments)
        except OSError as problem:
            return errno.errorcode[problem.errno]

    def at(self, path):
        return os.path.join(self.root, path)

    def write(self, path, content):
        with open(self.at(path), "wb") as file:
            file.write(content)

    def create(self, path, content):
        with open(self.at(path), "xb") as file:
            file.write(content)

    def append(self, path, content):
        with open(self.at(path), "ab") as file:
            file.write(content)

    def read(self, path):
        with open(self.at(path), "rb") as file:
            return file.read()

    def truncate(self, path, size):
        os.truncate(self.at(path), size)

    def unlink(self, path):
        os.unlink(self.at(path))

    def mkdir(self, path):
        os.mkdir(self.at(path))

    def rmdir(self, path):
        os.rmdir(self.at(path))

    def rename(self, path, other):
        os.rename(self.at(path), self.at(other))

    def symlink(self, target, path):
        os.symlink(target, self.at(path))

    def readlink(self, path):
        return os.readlink(self.at(path))

    def list(self, path):
        return sorted(os.listdir(self.at(path)))

    def look(self, path, follow):
        found = (os.stat if follow else os.lstat)(self.at(path))
        is_file = stat.S_ISREG(found.st_mode)
        return stat.S_IFMT(found.st_mode), found.st_size if is_file else None

    def whole(self):
        found = {}
        for directory, directories, files in os.walk(self.root):
            for name in directories + files:
                path = os.path.relpath(os.path.join(directory, name), self.root)
                found[path] = self.do("readlink", path) if os.path.islink(self.at(path)) else (
                    None if name in directories else self.read(path))
        return found


def any_operation(dice):
    def path():
        return "/".join(dice.choices(NAMES, k=dice.choice([1, 1, 2, 2, 3])))

    def content():
        return dice.randbytes(dice.choice(SIZES))

    name = dice.choices(
        ["write", "create", "append", "read", "truncate", "unlink", "mkdir", "rmdir", "rename", "symlink", "readlink",
         "list", "look"],
        [12, 4, 6, 8, 2, 8, 14, 6, 16, 4, 3, 8, 10])[0]
    arguments = {
        "write": lambda: (path(), content()),
        "create": lambda: (path(), content()),
        "append": lambda: (path(), content()),
        "truncate": lambda: (path(), dice.choice(SIZES)),
        "rename": lambda: (path(), path()),
        "symlink": lambda: (dice.choice(["a", "../b", "absent", "step-1"]), path()),
        "look": lambda: (path(), dice.random() < 0.5),
    }.get(name, lambda: (path(),))()
    return name, arguments


def shown(side, operation):
    name, arguments = operation
    return f"{side}.{name}({', '.join(f'{len(a)} bytes' if isinstance(a, bytes) else repr(a) for a in arguments)})"


@pytest.mark.parametrize("compress", ["auto", "none"])
@pytest.mark.parametrize("seconds", [15, pytest.param(300, marks=[pytest.mark.full, pytest.mark.timeout(600)])])
def test_random_trees(mount, simulator, prefix, tmp_path, compress, seconds):
    seed = int(os.environ.get("CKPTFS_RANDOM_SEED", random.randrange(1 << 32)))
    seconds = float(os.environ.get("CKPTFS_RANDOM_SECONDS", seconds))
    options = ("--compress", compress, "--metadata-ttl", "0ms")
    sides = {"first": Tree(mount(*options).path), "second": Tree(mount(*options).path)}
    here = Tree(tmp_path)
    dice = random.Random(seed)
    last = collections.deque(maxlen=30)
    end = time.monotonic() + seconds
    operations = 0
    while time.monotonic() < end:
        side = dice.choice(list(sides))
        name, arguments = operation = any_operation(dice)
        last.append(shown(side, operation))
        told = f"seed {seed}, operation {operations}: " + "; ".join(last)
        assert sides[side].do(name, *arguments) == here.do(name, *arguments), told
        operations += 1
        if dice.random() < 0.02:
            expected = here.whole()
            for each in sides.values():
                assert each.whole() == expected, told
    assert operations > 100
    assert simulator.open_uploads(prefix) == []
