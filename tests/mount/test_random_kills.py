# SPDX-License-Identifier: Apache-2.0
"""Writers on two mounts that are killed at random, beside readers: who reads a file finds a whole version, and so does
who looks into the bucket.

Mappings are left out: on the mount where a file is written anew fstat(2) tells of that ("not promised").
CKPTFS_RANDOM_SEED and CKPTFS_RANDOM_SECONDS choose another run.
"""

import os
import pathlib
import random
import subprocess
import sys
import time

import pytest
from harness.versions import describe, number_of, version

pytestmark = pytest.mark.sanitized

NAMES = ["a.bin", "b.bin"]
PREAMBLE = f"""
import os, pathlib, random, select, signal, sys, time
sys.path.insert(0, {str(pathlib.Path(__file__).resolve().parents[1])!r})
from harness.versions import describe, number_of, version
made, dice = pathlib.Path(sys.argv[1]), random.Random(int(sys.argv[2]))

def goes_on():
    return not select.select([sys.stdin], [], [], 0)[0]
"""
WRITER = PREAMBLE + """
def save(path, whole, killed_at, pause):
    temporary = path.with_name(f"{path.name}.{os.getpid()}") if dice.random() < 0.3 else path
    file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    at = 0
    while at < len(whole) if killed_at is None else at < killed_at:
        end = min(at + (1 << 20), len(whole) if killed_at is None else killed_at)
        at += os.write(file, whole[at:end])
    time.sleep(pause)
    if killed_at is not None:
        os.kill(os.getpid(), signal.SIGKILL)
    if dice.random() < 0.2:
        os.fsync(file)
    os.close(file)
    if temporary != path:
        os.rename(temporary, path)

while goes_on():
    size = dice.choice([16, 4096, 100_000, 307_200, 3_000_000, 9_437_184])
    arguments = (made / dice.choice(["a.bin", "b.bin"]), version(dice.getrandbits(40), size),
                 dice.randrange(size) if dice.random() < 0.6 else None, dice.choice([0, 0, 0.02]))
    child = os.fork()
    if child == 0:
        try:
            save(*arguments)
        except OSError:
            pass
        finally:
            os._exit(0)
    os.waitpid(child, 0)
"""
READER = PREAMBLE + """
def read(file, size, at=0):
    data = bytearray()
    while more := os.pread(file, size, at + len(data)):
        data += more
    return bytes(data)

while goes_on():
    try:
        file = os.open(made / dice.choice(["a.bin", "b.bin"]), os.O_RDONLY)
        try:
            for size in dice.sample([65536, 1 << 20, 1 << 24], dice.choice([1, 2])):
                data = read(file, size)
                if number_of(data) is None:
                    print(f"{made}: {describe(data)}", flush=True)
        finally:
            os.close(file)
    except OSError:
        # Replaced meanwhile, or made anew.
        pass
"""


def start(script: str, made, seed: int) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-c", script, str(made.path), str(seed)],
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def trouble(simulator, dice) -> None:
    simulator.inject(dice.choice([
        {"op": "*", "action": "slow", "ms": 20}, {"op": "GetObject", "action": "slow", "ms": 60},
        {"op": "PutObject", "action": "500", "times": 3}, {"op": "UploadPart", "action": "reset", "times": 2},
        {"op": "PutObject", "action": "access-denied", "times": 1},
        {"op": "CompleteMultipartUpload", "action": "access-denied", "times": 1}]))


def in_the_bucket(simulator, prefix) -> list[str]:
    found = {name: simulator.content(prefix + name) for name in NAMES}
    return [f"{name} in the bucket: {describe(data)}" for name, data in found.items() if number_of(data) is None]


@pytest.mark.parametrize("options", [("--compress", "none"), ("--compress", "auto", "--direct-io", "never")], ids=" ".join)
@pytest.mark.parametrize("seconds", [10, pytest.param(300, marks=[pytest.mark.full, pytest.mark.timeout(600)])])
def test_killed_writers_leave_whole_versions(mount, simulator, prefix, options, seconds):
    seed = int(os.environ.get("CKPTFS_RANDOM_SEED", random.randrange(1 << 32)))
    dice = random.Random(seed)
    first, second = mount("--retry-for", "2s", *options), mount("--retry-for", "2s", "--metadata-ttl", "100ms", *options)
    for name in NAMES:
        (first / name).write_bytes(version(1, 100_000))
    programs = [start(script, made, seed + number) for number, (script, made) in enumerate(
        [(WRITER, first), (WRITER, first), (WRITER, second), (READER, first), (READER, first), (READER, second)])]
    end = time.monotonic() + float(os.environ.get("CKPTFS_RANDOM_SECONDS", seconds))
    wrong = []
    while time.monotonic() < end and not wrong:
        trouble(simulator, dice)
        wrong += in_the_bucket(simulator, prefix)
        time.sleep(dice.random() / 2)
        simulator.clear_faults()
    for program in programs:
        wrong += program.communicate("\n", timeout=60)[0].splitlines()
    assert not wrong, f"seed {seed}: {wrong[:10]}"
    assert all(program.returncode == 0 for program in programs)
    assert in_the_bucket(simulator, prefix) == []
    for made in (first, second):
        for name in NAMES:
            assert number_of((made / name).read_bytes()) is not None, f"seed {seed}"
