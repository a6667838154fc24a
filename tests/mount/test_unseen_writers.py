# SPDX-License-Identifier: Apache-2.0
"""Writers in a PID namespace that the mount does not see: a container without hostPID."""

import io
import os
import subprocess

import numpy
import pytest
from harness.mounts import Mount
from harness.programs import wait_until
from harness.simulator import BUCKET

from mount.test_half_files import WRITE_AND_WAIT, kill, start, wait_ready

OLD = b"the last good version"


@pytest.fixture
def unseeing(request, simulator, prefix):
    """A mount in a PID namespace of its own; those of the tests are outside."""
    request.node.mounts = []
    made = Mount(f"s3://{BUCKET}/{prefix}", simulator.environment(),
                 within=["unshare", "--pid", "--fork", "--kill-child"])
    request.node.mounts.append(made)
    yield made
    subprocess.run(["umount", "--lazy", made.path], check=True)
    made.process.wait(60)
    made.remove()


def test_close_returns_what_became_of_the_file(unseeing, simulator, prefix):
    simulator.inject({"op": "PutObject", "key": prefix + "slow", "action": "slow", "ms": 500},
                     {"op": "PutObject", "key": prefix + "refused", "action": "403"})
    (unseeing / "slow").write_bytes(b"whole")
    assert simulator.content(prefix + "slow") == b"whole"
    with pytest.raises(OSError):
        (unseeing / "refused").write_bytes(b"whole")
    assert simulator.keys(prefix) == [prefix + "slow"]


def test_what_was_closed_is_read_back_at_once(unseeing):
    for number in range(20):
        (unseeing / f"file{number}").write_bytes(b"%d" % number)
        assert (unseeing / f"file{number}").read_bytes() == b"%d" % number


def test_each_close_of_a_duplicate_publishes_and_the_last_one_all(unseeing, simulator, prefix):
    expected = io.BytesIO()
    with open(unseeing / "arrays.npy", "wb") as file:
        for target in (file, expected):
            for factor in (1, 2, 3):
                numpy.save(target, numpy.arange(50_000) * factor)
    assert simulator.content(prefix + "arrays.npy") == expected.getvalue()
    subprocess.run(["sh", "-c", 'echo one > "$1"; dd if=/dev/zero of="$2" bs=1M count=20 status=none; '
                    '(echo one; echo two; seq 3) > "$3"', "sh", unseeing / "shell", unseeing / "dd",
                    unseeing / "group"], check=True)
    assert simulator.content(prefix + "shell") == b"one\n"
    assert simulator.content(prefix + "dd") == bytes(20 << 20)
    assert simulator.content(prefix + "group") == b"one\ntwo\n1\n2\n3\n"


def test_an_empty_file_is_published(unseeing, simulator, prefix):
    subprocess.run(["touch", unseeing / "marker"], check=True)
    wait_until(lambda: simulator.keys(prefix) == [prefix + "marker"], "the empty file to appear")


@pytest.mark.parametrize("mebibytes", [0, 1, 40])
def test_a_killed_writer_publishes_nothing(unseeing, simulator, prefix, mebibytes):
    (unseeing / "file").write_bytes(OLD)
    writer = start(WRITE_AND_WAIT, unseeing / "file", mebibytes)
    wait_ready(writer)
    kill(writer)
    wait_until(lambda: "its writer was killed" in unseeing.log(), "the version to be given up")
    wait_until(lambda: simulator.open_uploads(prefix) == [], "the upload to be ended")
    assert simulator.content(prefix + "file") == OLD
    wait_until(lambda: (unseeing / "file").read_bytes() == OLD, "the name to show it again")


def test_a_log_of_a_killed_writer_is_published(unseeing, simulator, prefix):
    writer = start(WRITE_AND_WAIT, unseeing / "train.log", 1)
    wait_ready(writer)
    kill(writer)
    wait_until(lambda: simulator.keys(prefix) == [prefix + "train.log"], "the log to appear")


def test_a_sync_is_durable(unseeing, simulator, prefix):
    with open(unseeing / "file", "wb", buffering=0) as file:
        file.write(b"one")
        os.fsync(file)
        assert simulator.content(prefix + "file") == b"one"
        file.write(b"two")
    assert simulator.content(prefix + "file") == b"onetwo"
