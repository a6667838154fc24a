# SPDX-License-Identifier: Apache-2.0
"""Saves beside mounts that are killed, stopped, told to end, and unmounted, while the store fails: what was acknowledged
is in the bucket, or something later is, and always whole.

CKPTFS_RANDOM_SEED and CKPTFS_RANDOM_SECONDS choose another run.
"""

import os
import pathlib
import random
import signal
import subprocess
import threading
import time

import pytest
from botocore.exceptions import ClientError
from harness.programs import wait_until
from harness.versions import describe, number_of, version

SIZES = [16, 4096, 100_000, 1 << 20, 6_000_000, 12_000_000]
TROUBLE = [
    {"op": "*", "action": "slow", "ms": 50}, {"op": "*", "action": "500", "times": 5},
    {"op": "PutObject", "action": "performed-but-reply-lost", "times": 2},
    {"op": "CompleteMultipartUpload", "action": "performed-but-500", "times": 1},
    {"op": "CopyObject", "action": "performed-but-reply-lost", "times": 1},
    {"op": "UploadPart", "action": "reset", "times": 3}, {"op": "DeleteObject", "action": "slow", "ms": 400},
    {"op": "PutObject", "action": "access-denied", "times": 1}]
OPTIONS = ("--retry-for", "2s", "--drain-timeout", "4s", "--stall-timeout", "2s", "--max-memory", "256M",
           "--metadata-ttl", "200ms")


def save(path: pathlib.Path, way: str, data: bytes) -> None:
    written = path.with_name(f"{path.name}.tmp") if way == "rename" else path
    flags = {"w+": os.O_RDWR | os.O_TRUNC, "r+": os.O_RDWR}.get(way, os.O_WRONLY | os.O_TRUNC)
    file = os.open(written, flags | os.O_CREAT)
    try:
        if way == "r+":
            os.ftruncate(file, 0)
        at = 0
        while at < len(data):
            at += os.write(file, data[at:at + (1 << 20)])
        if way == "fsync":
            os.fsync(file)
    finally:
        os.close(file)
    if way == "rename":
        os.rename(written, path)


class Place:
    """Where one mount after another is."""

    def __init__(self, mount, options) -> None:
        self.mount, self.options = mount, options
        self.made = mount(*options)
        self.path = self.made.path

    def is_there(self) -> bool:
        return os.path.ismount(self.path)

    def end(self, dice) -> None:
        process = self.made.process
        way = dice.choice(["stop", "kill", "terminate", "force", "lazy"])
        if way == "stop":
            process.send_signal(signal.SIGSTOP)
            time.sleep(dice.random())
            process.send_signal(signal.SIGCONT)
            return
        if way in ("force", "lazy"):
            subprocess.run(["umount", f"--{way}", self.path], check=False, capture_output=True)
            subprocess.run(["umount", "--lazy", self.path], check=False, capture_output=True)
        else:
            process.send_signal(signal.SIGKILL if way == "kill" else signal.SIGTERM)
            process.wait(30)
        # One that has ended may still lie there for a moment.
        wait_until(self.begins_again, "a mount to take its place")

    def begins_again(self) -> bool:
        try:
            self.made = self.mount(*self.options, at=self.path)
        except AssertionError:
            return False
        return True


class Saver(threading.Thread):
    """One program with a name of its own, which it saves again and again by this mount or that."""

    def __init__(self, places, name: str, key: str, simulator, seed: int, stopped: threading.Event) -> None:
        super().__init__()
        self.places, self.name_, self.key, self.simulator, self.stopped = places, name, key, simulator, stopped
        self.dice = random.Random(seed)
        self.acknowledged, self.tried = 0, 0
        self.saves = 0
        self.wrong: list[str] = []

    def run(self) -> None:
        while not self.stopped.is_set():
            place = self.dice.choice(self.places)
            if not place.is_there():
                self.stopped.wait(0.02)
                continue
            self.tried += 1
            way = self.dice.choice(["w", "w", "w+", "r+", "fsync", "rename"])
            try:
                save(place.path / self.name_, way, version(self.tried, self.dice.choice(SIZES)))
                self.acknowledged = self.tried
                self.saves += 1
            except OSError:
                pass
            self.check(way)

    def in_the_bucket(self) -> bytes | None:
        found = []

        def looked() -> bool:
            try:
                found.append(self.simulator.content(self.key))
            except ClientError as problem:
                # Faults strike here, too.
                if problem.response["Error"]["Code"] != "NoSuchKey":
                    return False
                found.append(None)
            return True

        wait_until(looked, "an answer of the store")
        return found[0]

    def check(self, way: str) -> None:
        data = self.in_the_bucket()
        number = number_of(data) if data is not None else 0
        if number is None or number < self.acknowledged:
            found = "nothing" if data is None else describe(data)
            self.wrong.append(f"{self.name_}: {found} after {way} number {self.tried}, {self.acknowledged} was acknowledged")


@pytest.mark.parametrize("options", [("--compress", "none"), ("--compress", "auto", "--direct-io", "never")], ids=" ".join)
@pytest.mark.parametrize("seconds", [15, pytest.param(300, marks=[pytest.mark.full, pytest.mark.timeout(600)])])
def test_what_was_acknowledged_survives_the_ends_of_mounts(mount, simulator, prefix, options, seconds):
    seed = int(os.environ.get("CKPTFS_RANDOM_SEED", random.randrange(1 << 32)))
    dice, stopped = random.Random(seed), threading.Event()
    places = [Place(mount, (*OPTIONS, *options)) for _ in range(2)]
    # Without a mount there is no such directory.
    (places[0].path / "step").mkdir()
    savers = [Saver(places, f"step/n{number}", f"{prefix}step/n{number}", simulator, seed + number, stopped) for number in range(5)]
    for saver in savers:
        saver.start()
    end = time.monotonic() + float(os.environ.get("CKPTFS_RANDOM_SECONDS", seconds))
    try:
        while time.monotonic() < end and not any(saver.wrong for saver in savers):
            time.sleep(dice.random())
            if dice.random() < 0.4:
                simulator.inject(dice.choice(TROUBLE))
                time.sleep(dice.random())
                simulator.clear_faults()
            else:
                dice.choice(places).end(dice)
    finally:
        simulator.clear_faults()
        stopped.set()
        for saver in savers:
            saver.join(120)
    assert not any(saver.is_alive() for saver in savers), f"seed {seed}"
    wrong = [each for saver in savers for each in saver.wrong]
    assert not wrong, f"seed {seed}: {wrong[:10]}"
    assert min(saver.saves for saver in savers) > 3
