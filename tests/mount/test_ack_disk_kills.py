# SPDX-License-Identifier: Apache-2.0
"""A daemon with --ack disk is killed again and again: the next one has all that was acknowledged, and no commit marker is
in the bucket before the files of its checkpoint.

CKPTFS_RANDOM_SEED chooses another run.
"""

import pathlib
import random
import threading

import pytest
from harness.acknowledged import SLOW, Acknowledged, begin_saves, check_at_the_end, check_bucket

pytestmark = pytest.mark.sanitized


def play(mount, simulator, prefix: str, disk: pathlib.Path, dice: random.Random, kills: int) -> None:
    acknowledged = Acknowledged()
    simulator.set_model(total_mbps=SLOW)
    try:
        for _ in range(kills):
            made = mount("--ack", "disk", "--cache-dir", str(disk), "--compress", dice.choice(["none", "auto"]))
            acknowledged.check(made.path)
            writer = begin_saves(made.path, dice, acknowledged)
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
    check_at_the_end(made, simulator, prefix, acknowledged)


def test_nothing_that_was_acknowledged_is_lost(mount, simulator, prefix, tmp_path, dice):
    play(mount, simulator, prefix, tmp_path / "disk", dice, 12)


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_nothing_that_was_acknowledged_is_lost_in_200_kills(mount, simulator, prefix, tmp_path, dice):
    for _ in range(10):
        play(mount, simulator, prefix, tmp_path / f"disk{dice.getrandbits(32)}", dice, 20)
        simulator.empty()
