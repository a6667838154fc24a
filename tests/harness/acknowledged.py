# SPDX-License-Identifier: Apache-2.0
"""Checkpoints that are saved to a mount with --ack disk until it is gone, and what has to be there then."""

import functools
import hashlib
import pathlib
import random
import subprocess
import sys

from harness.programs import CKPTFS, wait_until

# Says what it begins, and what was acknowledged; ends with the first error.
SAVES = """
import os, random, sys, threading
directory, dice, step = sys.argv[1], random.Random(int(sys.argv[2])), int(sys.argv[3])
RANKS = 3

def say(*words):
    # As one, beside those of other threads.
    sys.stdout.write(" ".join(map(str, words)) + "\\n")
    sys.stdout.flush()

def plan(name, size, ways):
    return name, dice.getrandbits(32), size, dice.choice(ways)

def save(name, seed, size, way):
    written = name + ".tmp" if way == "rename" else name
    # Before the first write it publishes nothing.
    is_synced = way == "fsync" and size > 0
    say("write", written, seed, size)
    with open(os.path.join(directory, written), "wb") as file:
        file.write(random.Random(seed).randbytes(size))
        if is_synced:
            file.flush()
            os.fsync(file.fileno())
            say("done", name, seed, size)
    if not is_synced:
        say("done", written, seed, size)
    if way == "rename":
        say("rename", name, seed, size)
        os.rename(os.path.join(directory, written), os.path.join(directory, name))
        say("done", name, seed, size)

def save_rank(*planned):
    try:
        save(*planned)
    except OSError:
        os._exit(1)

while True:
    os.mkdir(os.path.join(directory, f"step-{step}"))
    planned = [plan(f"step-{step}/{rank}.distcp", dice.choice([0, 100, 5_000, 300_000, 3_000_000, 12_000_000]),
                    ["close", "fsync", "rename"]) for rank in range(RANKS)]
    ranks = [threading.Thread(target=save_rank, args=each) for each in planned]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    save(*plan(f"step-{step}/.metadata", 1_000, ["rename"]))
    save(*plan("latest", 40, ["close", "rename"]))
    save(*plan("last.pt", dice.choice([10_000, 2_000_000]), ["close", "fsync", "rename"]))
    step += 1
"""
RANKS = 3
# So that the bucket is behind; in MB a second.
SLOW = 30

Version = tuple[int, int]


@functools.cache
def digest(seed: int, size: int) -> str:
    return hashlib.md5(random.Random(seed).randbytes(size)).hexdigest()


def digest_of(path: pathlib.Path) -> str | None:
    try:
        return hashlib.md5(path.read_bytes()).hexdigest()
    except FileNotFoundError:
        return None


class Acknowledged:
    def __init__(self) -> None:
        # By name, what is there; and what may be instead.
        self.files: dict[str, Version] = {}
        self.begun: dict[str, Version] = {}
        # Of those, which ones take the name of another file, which was acknowledged.
        self.renamed: set[str] = set()
        # Names that acknowledged renames have taken; and those that a rename which was not may have left.
        self.gone: set[str] = set()
        self.left: dict[str, Version] = {}
        # All that was ever acknowledged under a name.
        self.versions: dict[str, list[str]] = {}
        self.marked: list[str] = []
        # Of those, what was found in the bucket.
        self.found: set[str] = set()
        self.step = 0

    def read(self, lines) -> None:
        for line in lines:
            what, name, seed, size = line.split()
            version = int(seed), int(size)
            if what == "done":
                self._note(name, version)
            else:
                self.begun[name] = version
                self.gone.discard(name)
                if what == "rename":
                    self.renamed.add(name)

    def _note(self, name: str, version: Version) -> None:
        self.files[name] = version
        del self.begun[name]
        self.left.pop(name, None)
        if name in self.renamed:
            self.gone.add(self._note_rename(name))
        self.versions.setdefault(name, []).append(digest(*version))
        if name.endswith(".metadata"):
            self.marked.append(name)
            self.step += 1

    def _note_rename(self, name: str) -> str:
        self.renamed.remove(name)
        del self.files[name + ".tmp"]
        return name + ".tmp"

    def check(self, directory: pathlib.Path) -> None:
        # What was not acknowledged is there as a whole, or not at all. A rename may have been stopped half-way: a copy,
        # and then a removal.
        for name, version in self.begun.items():
            if digest_of(directory / name) == digest(*version):
                self.files[name] = version
                if name in self.renamed:
                    source = self.files[name + ".tmp"]
                    self.left[self._note_rename(name)] = source
            elif name not in self.files:
                allowed = {None, *(digest(*left) for left in [self.left.get(name)] if left)}
                assert digest_of(directory / name) in allowed, f"{name} is not whole"
        # Which of both it was does not change any more.
        self.begun, self.renamed = {}, set()
        for name, version in self.files.items():
            assert digest_of(directory / name) == digest(*version), self._difference(directory / name, name, version)
        for name in self.gone:
            assert not (directory / name).exists(), f"{name} was renamed, and is there again"

    def _difference(self, path: pathlib.Path, name: str, version: Version) -> str:
        found = digest_of(path)
        what = "missing" if found is None else f"{path.stat().st_size} bytes"
        what += ", an earlier version" if found in self.versions.get(name, []) else ""
        return f"{name} is not what was acknowledged, {version[1]} bytes, but {what}"


def check_bucket(simulator, prefix: str, acknowledged: Acknowledged) -> None:
    """No marker is there before its files."""
    there = set(simulator.keys(prefix))
    for marker in acknowledged.marked:
        if prefix + marker in there and marker not in acknowledged.found:
            acknowledged.found.add(marker)
            directory = marker.rsplit("/", 1)[0]
            for rank in range(RANKS):
                name = f"{directory}/{rank}.distcp"
                assert prefix + name in there, f"{name} is missing, and {marker} is there"
                assert simulator.digest(prefix + name) in acknowledged.versions[name]


def begin_saves(directory: pathlib.Path, dice: random.Random, acknowledged: Acknowledged) -> subprocess.Popen:
    # A step that was begun is not continued.
    acknowledged.step += 1
    return subprocess.Popen([sys.executable, "-c", SAVES, directory, str(dice.getrandbits(32)), str(acknowledged.step)],
                            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def check_at_the_end(made, simulator, prefix: str, acknowledged: Acknowledged, uploads_are_ended: bool = True) -> None:
    """All of it is in the bucket, and nothing else is told of it."""
    acknowledged.check(made.path)
    subprocess.run([CKPTFS, "wait", made.path, "--timeout", "2m"], check=True)
    for name, version in acknowledged.files.items():
        assert simulator.digest(prefix + name) == digest(*version), f"{name} is not what was acknowledged"
    still_there = {prefix + name for name in acknowledged.gone} & set(simulator.keys(prefix))
    assert not still_there, "renamed, and still in the bucket"
    wait_until(lambda: simulator.all_keys(f"{prefix}.ckptfs/unsent/") == [], "nothing to be announced any more")
    if uploads_are_ended:
        wait_until(lambda: simulator.open_uploads(prefix) == [], "the uploads to be ended")
    assert made.unmount() == 0
