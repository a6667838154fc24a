# SPDX-License-Identifier: Apache-2.0
"""What a disk has acknowledged (--ack disk) and a mount that was unmounted has not sent is the next one's to send."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys

import pytest
from harness.disk_acknowledges import SHARD, SMALL, files, hold, wait
from harness.mounts import Mount
from harness.programs import CKPTFS, wait_until
from harness.simulator import BUCKET

pytestmark = pytest.mark.sanitized


@pytest.fixture
def disk(tmp_path):
    return tmp_path / "disk"


@pytest.fixture
def make(mount, disk):
    return lambda *options: mount("--ack", "disk", "--cache-dir", str(disk), *options)


def unmount(made: Mount, disk) -> None:
    """It says that it is about to end."""
    subprocess.run(["umount", made.path], check=True)
    wait_until(lambda: list(disk.glob("unsent/*/ending")) or made.process.poll() is not None, "the mount to say so")


@contextlib.contextmanager
def newcomer(made: Mount, log):
    """The same command once more, which may wait."""
    with open(f"/proc/{made.process.pid}/environ") as environment:
        variables = dict(line.split("=", 1) for line in environment.read().split("\0") if line)
    with log.open("w") as output, subprocess.Popen(made.process.args, env=variables, stdout=output,
                                                   stderr=subprocess.STDOUT, start_new_session=True) as process:
        try:
            yield process
        finally:
            process.kill()


def test_after_umount_the_next_mount_goes_on_where_that_one_was(make, disk, simulator, prefix):
    """umount(8) does not wait until all is sent."""
    first = make()
    hold(simulator, prefix, "shard", "latest")
    (first / "shard").write_bytes(SHARD)
    (first / "latest").write_bytes(b"five")
    unmount(first, disk)
    following = make()
    assert (following / "shard").read_bytes() == SHARD
    assert (following / "latest").read_bytes() == b"five"
    (following / "latest").write_bytes(b"six")
    # It does not send what comes before that any more, and leaves nothing that is to be done.
    assert first.process.wait(60) == 0
    simulator.clear_faults()
    assert wait(following.path).returncode == 0
    client = simulator.client()
    assert client.get_object(Bucket=BUCKET, Key=f"{prefix}latest")["Body"].read() == b"six"
    assert (following / "shard").read_bytes() == SHARD


def test_what_was_asked_of_an_earlier_mount_does_not_end_the_next_one_early(make, disk, simulator, prefix):
    """A mount that gave up waiting for it leaves its question there."""
    made = make()
    hold(simulator, prefix, "small")
    (made / "small").write_bytes(SMALL)
    for lock in (disk / "unsent").glob("*/lock"):
        (lock.parent / "wanted").touch()
    subprocess.run(["umount", made.path], check=True)
    simulator.clear_faults()
    assert made.process.wait(60) == 0
    assert files(simulator, prefix) == ["small"]


def test_a_mount_that_is_killed_as_it_waits_takes_nothing_over(make, disk, simulator, prefix, tmp_path):
    made = make()
    hold(simulator, prefix, "small")
    (made / "small").write_bytes(SMALL)
    unmount(made, disk)
    made.process.send_signal(signal.SIGSTOP)
    log = tmp_path / "newcomer.log"
    with newcomer(made, log) as process:
        wait_until(lambda: "waiting for what the mount before this one has not sent" in log.read_text(), "it to wait")
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    made.process.send_signal(signal.SIGCONT)
    simulator.clear_faults()
    assert made.process.wait(60) == 0
    assert files(simulator, prefix) == ["small"]


def test_what_a_detached_mount_leaves_is_not_taken_for_sent(make, disk, simulator, prefix, tmp_path):
    made = make()
    hold(simulator, prefix, "small")
    (made / "small").write_bytes(SMALL)
    with (made / "small").open("rb"):
        subprocess.run(["umount", "--lazy", made.path], check=True)
        with newcomer(made, tmp_path / "newcomer.log"):
            wait_until(lambda: os.path.ismount(made.path), "the next mount")
            # What the first one has is its own to send.
            assert wait(made.path).returncode == 0
            made.process.kill()
            wait_until(lambda: wait(made.path).returncode == 1, "it to be seen")
            assert "1 mount before this one left changes on the disk" in wait(made.path).stderr
            asked = subprocess.run([CKPTFS, "status", made.path], capture_output=True, text=True)
            assert "safe to stop: no, 1 mount before this one left changes on the disk" in asked.stdout
            subprocess.run(["umount", made.path], check=True)
    simulator.clear_faults()
    assert wait(make().path).returncode == 0
    assert files(simulator, prefix) == ["small"]


def test_what_others_were_not_told_of_does_not_keep_the_next_mount_waiting(make, disk, simulator, prefix):
    """The bucket takes the record of a failure no more than what is on the disk: the next mount knows of both."""
    made = make()
    hold(simulator, prefix, "small", ".ckptfs/failed/*")
    (made / "small").write_bytes(SMALL)
    writes = "import sys; f = open(sys.argv[1], 'wb'); f.write(b'x' * 100_000); f.flush(); print(flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", writes, made / "failed"], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE) as writer:
        writer.stdout.readline()
        writer.kill()
    wait_until(lambda: "was killed" in made.log(), "the mount to notice")
    unmount(made, disk)
    following = make()
    assert made.process.wait(30) == 1
    assert "failed: other mounts were not told that it failed" in made.log()
    assert "does not end" not in following.log()
    simulator.clear_faults()
    assert wait(following.path).returncode == 0
    assert files(simulator, prefix) == ["small"]
    assert following.unmount() == 0


def test_a_place_that_was_removed_hides_none_behind_it(make, disk, simulator, prefix):
    one, other, last = make(), make(), make()
    hold(simulator, prefix, "shard")
    (last / "shard").write_bytes(SMALL)
    for each in one, other, last:
        each.process.kill()
        each.process.wait()
        each.remove()
    shutil.rmtree(next(disk.rglob("*-1")))
    simulator.clear_faults()
    assert wait(make().path).returncode == 0
    assert files(simulator, prefix) == ["shard"]
