# SPDX-License-Identifier: Apache-2.0
"""The power of a node is cut while --ack disk acknowledges: the next mount has all that was acknowledged, whatever the
disk had of what was not flushed; no file is half, and no commit marker is in the bucket before its files.

CKPTFS_RANDOM_SEED chooses another run.
"""

import os
import pathlib
import random
import threading

import pytest
from harness.acknowledged import SLOW, Acknowledged, begin_saves, check_at_the_end, check_bucket
from harness.forgetful_disk import ForgetfulDisk
from harness.forgetful_files import Loss
from harness.programs import wait_until

# Where nothing more is written for that long, it is cut then.
LONGEST = 20
MOST_CHANGES = 600
ALL_THAT_MAY_BE_LOST = Loss(has_journal=False, names=0, data=0)


def any_loss(dice: random.Random) -> Loss:
    return Loss(dice.random() < 0.5, dice.choice([0, 0.5, 0.9, 1]), dice.choice([0, 0.5, 1]))


def attach(disk: ForgetfulDisk) -> None:
    """The kernel gives each mount of it a free device number, where a disk keeps its own: with another number and
    nothing unsent it would be taken for a copy of the disk, which leaves what the disk has announced alone."""
    disk.attach()
    for path in disk.path.glob("cache/unsent/*/id"):
        device = path.stat().st_dev
        lines = path.read_text().split("\n")
        with path.open("r+") as file:
            file.write("\n".join([*lines[:4], f"{os.major(device)}:{os.minor(device)}"]))
            file.truncate()
            os.fsync(file.fileno())


def write_until_cut(made, disk: ForgetfulDisk, loss: Loss, dice: random.Random, acknowledged: Acknowledged) -> str:
    """Returns where that was, and what it left."""
    told = []
    changes = int(MOST_CHANGES ** dice.random())
    disk.cut_after(changes, makes_last=dice.random() < 0.5)
    seed = dice.getrandbits(32)

    def cut() -> None:
        if disk.wait_for_cut(LONGEST):
            told.append("late")
        # Before what it waits for fails, which it could react to.
        made.process.kill()
        told.append(disk.lose(loss, seed))

    writer = begin_saves(made.path, dice, acknowledged)
    cutter = threading.Thread(target=cut)
    cutter.start()
    acknowledged.read(writer.stdout)
    writer.wait()
    cutter.join()
    made.process.wait()
    return f"cut at change {changes}; " + ", ".join(told)


def play(mount, simulator, prefix: str, disk: ForgetfulDisk, dice: random.Random, cuts: int) -> None:
    acknowledged = Acknowledged()
    options = ["--ack", "disk", "--cache-dir", str(disk.path / "cache")]
    try:
        for number in range(cuts):
            # The first one: names that the first mount has made are among it.
            loss = any_loss(dice) if number > 0 else ALL_THAT_MAY_BE_LOST
            attach(disk)
            made = mount(*options, "--compress", dice.choice(["none", "auto"]))
            acknowledged.check(made.path)
            simulator.set_model(total_mbps=SLOW)
            print(write_until_cut(made, disk, loss, dice, acknowledged), "with", len(acknowledged.files), "files")
            simulator.set_model(total_mbps=0)
            check_bucket(simulator, prefix, acknowledged)
            made.remove()
        attach(disk)
        # What was known of uploads to the bucket is not flushed: some may be left.
        check_at_the_end(mount(*options), simulator, prefix, acknowledged, uploads_are_ended=False)
    finally:
        simulator.set_model(total_mbps=0)
        disk.end()


def test_a_power_cut_loses_nothing_that_was_acknowledged(mount, simulator, prefix, tmp_path, dice):
    play(mount, simulator, prefix, ForgetfulDisk(tmp_path / "disk"), dice, 5)


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_50_power_cuts_lose_nothing_that_was_acknowledged(mount, simulator, prefix, tmp_path, dice):
    for number in range(5):
        play(mount, simulator, prefix, ForgetfulDisk(tmp_path / f"disk{number}"), dice, 10)
        simulator.empty()


def left_after_an_end(mount, simulator, prefix: str, place: pathlib.Path, seed: int) -> str:
    """Of a file whose first version was sent by a later mount than its own, which saved another and sent it as well."""
    disk = ForgetfulDisk(place)
    options = ["--ack", "disk", "--cache-dir", str(disk.path / "cache")]
    try:
        simulator.inject({"op": "PutObject", "key": prefix + "latest", "action": "403"})
        disk.attach()
        made = mount(*options)
        (made / "latest").write_text("first")
        disk.wait_for_cut(0)
        made.process.kill()
        disk.lose(Loss(has_journal=True, names=1, data=1), seed)
        made.remove()
        simulator.clear_faults()
        disk.attach()
        made = mount(*options)
        (made / "latest").write_text("second")
        wait_until(lambda: simulator.keys(prefix) and simulator.content(prefix + "latest") == b"second", "both")
        assert made.unmount() == 0
        disk.wait_for_cut(0)
        disk.lose(Loss(has_journal=False, names=0.5, data=1), seed)
        disk.attach()
        made = mount(*options)
        assert made.unmount() == 0
        return simulator.content(prefix + "latest").decode()
    finally:
        disk.end()


def test_what_was_sent_does_not_come_back_after_a_power_cut(mount, simulator, prefix, tmp_path, dice):
    """Whichever of the files are there again that the mount has removed."""
    seeds = [dice.getrandbits(32) for _ in range(8)]
    found = {seed: left_after_an_end(mount, simulator, prefix, tmp_path / str(seed), seed) for seed in seeds}
    assert set(found.values()) == {"second"}, found
