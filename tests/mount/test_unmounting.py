# SPDX-License-Identifier: Apache-2.0
"""What a mount still has to tell other mounts when it ends."""

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
