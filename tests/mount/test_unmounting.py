# SPDX-License-Identifier: Apache-2.0
"""What a mount still has to tell other mounts when it ends."""

import os
import subprocess

import pytest

from harness.markers import commit, refuse_to_commit
from harness.programs import CKPTFS, wait_until


@pytest.fixture
def untold(mount, simulator, prefix):
    """A mount on which step/shard failed, and the store lets nobody tell; and another mount."""
    ours, other = mount("--retry-for", "2s", "--drain-timeout", "6s"), mount()
    (ours / "step").mkdir()
    simulator.inject({"op": "PutObject", "key": prefix + "step/shard", "action": "403"},
                     {"op": "PutObject", "key": prefix + ".ckptfs/failed/*", "action": "500"})
    with pytest.raises(OSError):
        (ours / "step/shard").write_bytes(b"content")
    assert simulator.failed_files(prefix) == []
    return ours, other


def test_a_mount_ends_when_others_know_what_failed(untold, simulator, prefix):
    ours, other = untold
    ours.process.terminate()
    wait_until(lambda: "finishing what is being written" in ours.log(), "the mount to begin to end")
    simulator.clear_faults()
    assert ours.process.wait(30) == 0, ours.log()
    assert simulator.failed_files(prefix) == ["step/shard"]
    refuse_to_commit(other / "step")


def test_a_failure_that_could_not_be_told_is_named(untold):
    ours, _ = untold
    ended = subprocess.run([CKPTFS, "unmount", ours.path], text=True, timeout=60, check=False, capture_output=True)
    assert (ended.returncode, ours.process.wait(30)) == (1, 1)
    assert "not done: " in ended.stderr
    assert "step/shard: other mounts were not told that it failed" in ended.stderr
    assert "step/shard: other mounts were not told that it failed" in ours.log()


def test_a_failure_that_was_made_good_is_not_waited_for(untold, simulator):
    ours, other = untold
    simulator.clear_faults()
    (ours / "step/shard").write_bytes(b"again")
    assert ours.unmount() == 0
    commit(other / "step")


@pytest.mark.parametrize("way", ["-f", "-l"])
def test_what_nobody_can_close_any_more_is_not_waited_for(mount, simulator, prefix, way):
    made = mount("--drain-timeout", "5m", "--publish-interval", "1h")
    (made / "shard").write_bytes(b"before")
    files = [os.open(made / name, flags) for name, flags in (
        ("shard", os.O_WRONLY | os.O_TRUNC), ("changed", os.O_RDWR | os.O_CREAT), ("train.log", os.O_WRONLY | os.O_CREAT),
        ("appended", os.O_WRONLY | os.O_CREAT | os.O_APPEND), ("empty.log", os.O_WRONLY | os.O_CREAT))]
    for file in files[:4]:
        os.write(file, b"written")
    closed_late = os.open(made / "closed", os.O_WRONLY | os.O_CREAT)
    os.write(closed_late, b"whole")
    if way == "-l":
        subprocess.run(["umount", "-l", made.path], check=True)
        assert made.process.poll() is None
    os.close(closed_late)
    if way == "-l":
        # All of them are closed by close(2).
        for file in files:
            os.close(file)
        assert made.process.wait(60) == 0, made.log()
        assert simulator.content(prefix + "shard") == simulator.content(prefix + "changed") == b"written"
    else:
        subprocess.run(["umount", "-f", made.path], check=False)
        assert made.process.wait(60) == 1, made.log()
        assert simulator.content(prefix + "shard") == b"before"
        assert prefix + "changed" not in simulator.keys(prefix)
        for name in ("shard", "changed"):
            assert f"not done: saving {prefix}{name}: the mount ended before it was closed" in made.log()
        assert "train.log" not in made.log() and "appended" not in made.log()
        for file in files:
            with pytest.raises(OSError):
                os.close(file)
    assert simulator.content(prefix + "closed") == b"whole"
    assert simulator.content(prefix + "train.log") == simulator.content(prefix + "appended") == b"written"
    assert simulator.open_uploads(prefix) == []
