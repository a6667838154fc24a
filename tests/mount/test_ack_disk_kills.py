# SPDX-License-Identifier: Apache-2.0
"""A daemon with --ack disk is killed again and again: the next one has all that was acknowledged, and no commit marker is
in the bucket before the files of its checkpoint.

CKPTFS_RANDOM_SEED chooses another run.
"""

import functools
import hashlib
import os
import pathlib
import random
import subprocess
import sys
import threading

import pytest
from harness.programs import CKPTFS, wait_until

pytestmark = pytest.mark.sanitized

# Says what it begins, and what was acknowledged; ends with the first error.
SAVES = """
import os, random, sys
directory, dice, step = sys.argv[1], random.Random(int(sys.argv[2])), int(sys.argv[3])

def content(seed, size):
    return random.Random(seed).randbytes(size)

def say(*words):
    print(*words, flush=True)

def save(name, size, by_rename):
    seed = dice.getrandbits(32)
    say("begin", name, seed, size)
    path = os.path.join(directory, name)
    with open(path + ".tmp" if by_rename else path, "wb") as file:
        file.write(content(seed, size))
    if by_rename:
        os.rename(path + ".tmp", path)
    say("end", name, seed, size)

while True:
    os.mkdir(os.path.join(directory, f"step-{step}"))
    for rank in range(3):
        size = dice.choice([0, 100, 5_000, 300_000, 3_000_000, 12_000_000])
        save(f"step-{step}/{rank}.distcp", size, dice.random() < 0.3)
    save(f"step-{step}/.metadata", 1_000, True)
    save("latest", 40, dice.random() < 0.5)
    save("last.pt", dice.choice([10_000, 2_000_000]), dice.random() < 0.5)
    step += 1
"""
# So that the bucket is behind; in MB a second.
SLOW = 30


@functools.cache
def digest(seed: int, size: int) -> str:
    return hashlib.md5(random.Random(seed).randbytes(size)).hexdigest()


class Acknowledged:
    def __init__(self) -> None:
        # By name, what is there; and what may be instead.
        self.files: dict[str, tuple[int, int]] = {}
        self.begun: dict[str, tuple[int, int]] = {}
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
            if what == "begin":
                self.begun = {name: version}
            else:
                self.files[name] = version
                self.begun = {}
                self.versions.setdefault(name, []).append(digest(*version))
                if name.endswith(".metadata"):
                    self.marked.append(name)
                    self.step += 1

    def check(self, directory: pathlib.Path) -> None:
        for name, version in self.files.items():
            allowed = [version] + ([self.begun[name]] if name in self.begun else [])
            found = hashlib.md5((directory / name).read_bytes()).hexdigest()
            there = [one for one in allowed if digest(*one) == found]
            assert there, f"{name} is not what was acknowledged"
            self.files[name] = there[0]
        # What was not acknowledged is there as a whole, or not at all.
        for name, version in self.begun.items():
            path = directory / name
            if name not in self.files and path.exists():
                assert hashlib.md5(path.read_bytes()).hexdigest() == digest(*version)
                self.files[name] = version
        # Which of both it was does not change any more.
        self.begun = {}


def check_bucket(simulator, prefix: str, acknowledged: Acknowledged) -> None:
    """No marker is there before its files."""
    there = set(simulator.keys(prefix))
    for marker in acknowledged.marked:
        if prefix + marker in there and marker not in acknowledged.found:
            acknowledged.found.add(marker)
            directory = marker.rsplit("/", 1)[0]
            for rank in range(3):
                name = f"{directory}/{rank}.distcp"
                assert prefix + name in there, f"{name} is missing, and {marker} is there"
                assert simulator.digest(prefix + name) in acknowledged.versions[name]


def play(mount, simulator, prefix: str, disk: pathlib.Path, dice: random.Random, kills: int) -> None:
    acknowledged = Acknowledged()
    simulator.set_model(total_mbps=SLOW)
    try:
        for _ in range(kills):
            made = mount("--ack", "disk", "--cache-dir", str(disk), "--compress", dice.choice(["none", "auto"]))
            acknowledged.check(made.path)
            # A step that was begun is not continued.
            acknowledged.step += 1
            writer = subprocess.Popen(
                [sys.executable, "-c", SAVES, made.path, str(dice.getrandbits(32)), str(acknowledged.step)],
                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            killer = threading.Timer(dice.choice([0.05, 0.3, 1, 2]) * dice.random() + 0.2, made.process.kill)
            killer.start()
            acknowledged.read(writer.stdout)
            writer.wait()
            killer.cancel()
            made.process.kill()
            made.process.wait()
            simulator.set_model(total_mbps=0)
            check_bucket(simulator, prefix, acknowledged)
            simulator.set_model(total_mbps=SLOW)
            made.remove()
    finally:
        simulator.set_model(total_mbps=0)
    made = mount("--ack", "disk", "--cache-dir", str(disk))
    acknowledged.check(made.path)
    subprocess.run([CKPTFS, "wait", made.path, "--timeout", "2m"], check=True)
    for name, version in acknowledged.files.items():
        assert simulator.digest(prefix + name) == digest(*version), f"{name} is not what was acknowledged"
    wait_until(lambda: simulator.all_keys(f"{prefix}.ckptfs/unsent/") == [], "nothing to be announced any more")
    wait_until(lambda: simulator.open_uploads(prefix) == [], "the uploads to be ended")
    assert made.unmount() == 0


@pytest.fixture
def dice():
    seed = int(os.environ.get("CKPTFS_RANDOM_SEED", "7"))
    print("seed", seed)
    return random.Random(seed)


def test_nothing_that_was_acknowledged_is_lost(mount, simulator, prefix, tmp_path, dice):
    play(mount, simulator, prefix, tmp_path / "disk", dice, 12)


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_nothing_that_was_acknowledged_is_lost_in_200_kills(mount, simulator, prefix, tmp_path, dice):
    for _ in range(10):
        play(mount, simulator, prefix, tmp_path / f"disk{dice.getrandbits(32)}", dice, 20)
        simulator.empty()
