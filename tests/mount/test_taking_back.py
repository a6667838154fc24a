# SPDX-License-Identifier: Apache-2.0
"""A daemon is killed and started again: its mount point comes back without anybody's help."""

import os
import pathlib
import pwd
import signal
import subprocess
import sys

import pytest

from harness.installed import InstalledMachine
from harness.programs import wait_until
from harness.simulator import BUCKET

NOBODY = pwd.getpwnam("nobody").pw_uid


@pytest.fixture(scope="module")
def installed():
    machine = InstalledMachine()
    yield machine
    machine.remove()


class Place:
    """A mount point, and the command that mounts there."""

    def __init__(self, machine: InstalledMachine, name: str, source: str, environment: dict[str, str],
                 user: int = 0) -> None:
        self.machine = machine
        self.path = machine.mount_point(name, owner=user)
        self.source = source
        self.log = self.path.with_suffix(".log")
        self.user = user
        # What stays of uploads of this place.
        self.state = self.path.with_suffix(".state")
        self.environment = {**environment, "CKPTFS_STATE_DIR": str(self.state)}
        if user:
            self.log.touch()
            os.chown(self.log, user, user)
            self.state.mkdir(mode=0o700)
            os.chown(self.state, user, user)

    def mount(self, source: str = "", *options) -> subprocess.CompletedProcess:
        return self.machine.run("ckptfs", "mount", source or self.source, self.path, "--log-file", self.log, *options,
                                environment=self.environment, user=self.user)

    def daemon(self) -> int:
        """Of several the one that was started last."""
        return max(self.machine.daemons())

    def kill(self) -> None:
        killed = self.daemon()
        os.kill(killed, signal.SIGKILL)
        wait_until(lambda: killed not in self.machine.daemons(), "the daemon to be gone")

    def write(self, name: str, text: str) -> None:
        done = self.machine.run("tee", self.path / name, input=text, user=self.user)
        assert (done.returncode, done.stdout) == (0, text), done.stderr

    def read(self, name: str) -> str:
        done = self.machine.run("cat", self.path / name, user=self.user)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def place(installed, simulator, prefix, request):
    def make(user: int = 0, name: str = "") -> Place:
        return Place(installed, f"{request.node.name}-{name}{user}", f"s3://{BUCKET}/{prefix}",
                     simulator.environment(), user)

    yield make
    for daemon in installed.daemons():
        os.kill(daemon, signal.SIGCONT)
    for point, *_ in installed.mounts():
        installed.run("umount", "--lazy", point)
    wait_until(lambda: not installed.daemons(), "the daemons to end", 60)


def assert_mounted(done: subprocess.CompletedProcess, at: Place) -> None:
    assert (done.returncode, done.stderr) == (0, "")
    assert [mount[0] for mount in at.machine.mounts()] == [str(at.path)]


def test_a_killed_daemon_gets_its_mount_point_back(place):
    at = place()
    assert_mounted(at.mount(), at)
    at.write("file", "saved")
    # Its working directory keeps the dead mount busy.
    inside = subprocess.Popen(["nsenter", f"--mount={at.machine.namespace}", f"--wd={at.path}", "sleep", "300"])
    wait_until(lambda: os.readlink(f"/proc/{inside.pid}/exe").endswith("sleep"), "somebody to be in the mount")
    at.kill()
    # Aborted where it was asked before the kernel had noticed.
    assert at.machine.run("ls", at.path).stderr.strip().endswith(("not connected", "connection abort"))
    assert_mounted(at.mount(), at)
    assert at.read("file") == "saved"
    at.write("other", "more")
    assert "took" in at.log.read_text()
    inside.kill()
    inside.wait()


def test_the_daemon_holds_nothing_that_its_caller_had_open(place, tmp_path):
    at = place()
    lock = tmp_path / "lock"
    with_lock = ["flock", "--exclusive", "--timeout", "10", lock]
    done = at.machine.run(*with_lock, "ckptfs", "mount", at.source, at.path, "--log-file", at.log,
                          environment=at.environment)
    assert_mounted(done, at)
    assert at.machine.run(*with_lock, "true").returncode == 0
    assert str(lock) not in [os.readlink(each) for each in
                             pathlib.Path(f"/proc/{at.daemon()}/fd").iterdir() if each.is_symlink()]
    assert at.machine.run("ckptfs", "unmount", at.path).returncode == 0


def test_a_user_gets_a_mount_point_back_as_well(place):
    at = place(NOBODY)
    assert_mounted(at.mount(), at)
    at.write("file", "saved")
    at.kill()
    assert_mounted(at.mount(), at)
    assert at.read("file") == "saved"


def test_a_dead_mount_stays_where_the_kernel_refuses_the_next_one(place):
    """/etc/fuse.conf does not allow users --allow-other."""
    at = place(NOBODY)
    assert_mounted(at.mount(), at)
    at.write("file", "saved")
    at.kill()
    refused = at.mount("", "--allow-other")
    assert (refused.returncode, "user_allow_other" in refused.stderr) == (1, True), refused.stderr
    assert "not connected" in at.machine.run("touch", at.path / "file", user=NOBODY).stderr
    assert_mounted(at.mount(), at)
    assert at.read("file") == "saved"


def test_of_two_that_start_again_one_mounts(place):
    at = place()
    assert_mounted(at.mount(), at)
    at.kill()
    again = [subprocess.Popen(["nsenter", f"--mount={at.machine.namespace}", "/usr/bin/ckptfs", "mount", at.source,
                               at.path, "--log-file", at.log], env={"PATH": "/usr/bin", **at.environment},
                              stderr=subprocess.PIPE, text=True) for _ in range(3)]
    said = [process.communicate(timeout=60)[1] for process in again]
    assert sorted(process.returncode for process in again) == [0, 1, 1], said
    assert sum("already mounted" in line for line in said) == 2, said
    assert len(at.machine.mounts()) == 1
    at.write("file", "saved")


def test_a_daemon_that_dies_while_it_is_asked_is_dead(place):
    at = place()
    assert_mounted(at.mount(), at)
    daemon = at.daemon()
    os.kill(daemon, signal.SIGSTOP)
    again = subprocess.Popen(["nsenter", f"--mount={at.machine.namespace}", "/usr/bin/ckptfs", "mount", at.source,
                              at.path, "--log-file", at.log], env={"PATH": "/usr/bin", **at.environment},
                             stderr=subprocess.PIPE, text=True)
    # What asks the mount.
    wait_until(lambda: pathlib.Path(f"/proc/{again.pid}/task/{again.pid}/children").read_text(), "the mount to be asked")
    os.kill(daemon, signal.SIGKILL)
    assert (again.communicate(timeout=60)[1], again.returncode) == ("", 0)
    at.write("file", "saved")


def test_a_mount_that_hangs_is_not_dead(place):
    at = place()
    assert_mounted(at.mount(), at)
    at.write("file", "saved")
    daemon, = at.machine.daemons()
    os.kill(daemon, signal.SIGSTOP)
    refused = at.mount()
    assert refused.returncode == 1
    assert "already mounted" in refused.stderr
    os.kill(daemon, signal.SIGCONT)
    assert at.read("file") == "saved"


def test_a_dead_mount_of_another_source_is_left(place):
    at = place()
    assert_mounted(at.mount(), at)
    at.kill()
    refused = at.mount(at.source + "other")
    assert refused.returncode == 1
    assert "has ended" in refused.stderr
    assert [mount[:2] for mount in at.machine.mounts()] == [(str(at.path), at.source)]
    assert_mounted(at.mount(), at)


def test_a_dead_mount_stays_while_the_store_refuses(place, simulator, prefix):
    """Files that are written into the bare directory would be nowhere."""
    at = place()
    assert_mounted(at.mount(), at)
    at.kill()
    simulator.inject({"op": "ListObjectsV2", "action": "403"})
    assert at.mount().returncode == 1
    assert "not connected" in at.machine.run("touch", at.path / "file").stderr
    simulator.clear_faults()
    assert_mounted(at.mount(), at)


def test_a_dead_mount_stays_where_the_next_one_cannot_begin(place, simulator, prefix, tmp_path):
    """What the disk has acknowledged cannot be read."""
    at = place()
    options = ("--cache-dir", tmp_path, "--ack", "disk")
    assert at.mount("", *options).returncode == 0
    for name in "one", "other":
        simulator.inject({"op": "PutObject", "key": f"{prefix}{name}", "action": "403"})
        at.write(name, "text")
    at.kill()
    log, = (path for path in tmp_path.rglob("*.log") if path.stat().st_size > 0)
    whole = log.read_bytes()
    log.write_bytes(whole[:10] + bytes([whole[10] ^ 1]) + whole[11:])
    refused = at.mount("", *options)
    assert refused.returncode == 1, refused.stderr
    assert "not connected" in at.machine.run("touch", at.path / "file").stderr
    log.write_bytes(whole)
    simulator.clear_faults()
    assert_mounted(at.mount("", *options), at)


def test_a_file_below_a_dead_mount_does_not_keep_the_next_one_away(place, tmp_path):
    """Of a program that saw the directory without the mount, as a container does that was there before."""
    at = place()
    assert_mounted(at.mount(), at)
    at.write("file", "saved")
    below = tmp_path / "below"
    below.mkdir()
    assert at.machine.run("mount", "--bind", at.path.parent, below).returncode == 0
    assert at.machine.run("touch", below / at.path.name / "stray").returncode == 0
    assert at.machine.run("umount", below).returncode == 0
    at.kill()
    assert_mounted(at.mount(), at)
    assert at.read("file") == "saved"
    assert "has files of its own, which are hidden while it is mounted" in at.log.read_text()
    assert at.machine.run("umount", at.path).returncode == 0
    wait_until(lambda: not at.machine.daemons(), "the daemon to end")
    assert at.machine.run("rm", at.path / "stray").returncode == 0


def slow_writer(at: Place, name: str) -> subprocess.Popen:
    return subprocess.Popen(["nsenter", f"--mount={at.machine.namespace}", "dd", "if=/dev/urandom",
                             f"of={at.path / name}", "bs=1M", "count=100", "status=none"], stderr=subprocess.DEVNULL)


def test_uploads_of_a_killed_daemon_are_ended_and_no_others(place, simulator, prefix):
    ours, other = place(), place(name="other")
    writers = []
    # Both stay in the middle of their uploads.
    simulator.inject(*({"op": "UploadPart", "key": prefix + at.path.name, "action": "hang"} for at in (other, ours)))
    try:
        for at in other, ours:
            at.mount()
            writers.append(slow_writer(at, at.path.name))
            wait_until(lambda: prefix + at.path.name in simulator.open_uploads(prefix), "an upload to begin", 60)
        simulator.client().create_multipart_upload(Bucket=BUCKET, Key=f"{prefix}of-somebody-else")
        journal, = ours.state.iterdir()
        assert (ours.state.stat().st_mode & 0o777, journal.stat().st_mode & 0o777) == (0o700, 0o600)
        ours.kill()
        assert prefix + ours.path.name in simulator.open_uploads(prefix)
        assert ours.mount().returncode == 0
        wait_until(lambda: prefix + ours.path.name not in simulator.open_uploads(prefix), "the upload to be ended")
        assert simulator.open_uploads(prefix) == [f"{prefix}of-somebody-else", prefix + other.path.name]
        wait_until(lambda: "ended 1 of 1 upload or hidden file that" in ours.log.read_text(), "the log to say so")
        assert not journal.exists()
    finally:
        for writer in writers:
            writer.kill()
            writer.wait()
        simulator.clear_faults()


def test_what_a_killed_daemon_wrote_out_of_order_is_removed(place, simulator, prefix):
    at = place()
    at.mount()
    write = ("import os, sys; file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)\n"
             "for i in range(40): os.write(file, os.urandom(1 << 20))\n"
             "os.pwrite(file, b'changed', 20 << 20); print(flush=True); input()")
    writer = subprocess.Popen(["nsenter", f"--mount={at.machine.namespace}", sys.executable, "-c", write,
                               at.path / "file"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL)
    try:
        writer.stdout.readline()
        hidden, = simulator.keys(prefix)
        assert hidden.startswith(prefix + ".ckptfs/tmp/")
        at.kill()
        assert_mounted(at.mount(), at)
        wait_until(lambda: simulator.keys(prefix) == [], "it to be removed")
        wait_until(lambda: "ended 1 of 1 upload or hidden file" in at.log.read_text(), "the log to say so")
    finally:
        writer.kill()
        writer.wait()


# The request at which the daemon is killed, and where its rename leads.
@pytest.mark.parametrize("step", [
    pytest.param(("PutObject", "new/", 2, "new"), id="decided"),
    # 70 s for requests that may still be on their way, and for a heartbeat.
    pytest.param(("CopyObject", "new/file3", 1, "old"), id="undecided", marks=pytest.mark.full),
])
def test_a_rename_of_a_killed_daemon_is_ended_by_the_next(place, simulator, prefix, step):
    operation, key, nth, remains = step
    at = place()
    at.mount()
    at.machine.run("mkdir", at.path / "old")
    for i in range(5):
        at.write(f"old/file{i}", f"text {i}")
    simulator.inject({"op": operation, "key": prefix + key, "nth": nth, "action": "hang"})
    renaming = subprocess.Popen(["nsenter", f"--mount={at.machine.namespace}", "mv", "-T", at.path / "old",
                                 at.path / "new"], stderr=subprocess.DEVNULL)
    wait_until(lambda: simulator.fault_hits() > 0, "the step to be reached")
    at.kill()
    renaming.wait(timeout=60)
    simulator.clear_faults()
    assert_mounted(at.mount(), at)
    # Other mounts would wait for ten minutes.
    wait_until(lambda: simulator.keys(prefix) == [f"{prefix}{remains}/", *(f"{prefix}{remains}/file{i}"
                                                                          for i in range(5))], "the repair", 120)
    assert at.read(f"{remains}/file3") == "text 3"
    assert at.machine.run("ckptfs", "unmount", at.path).returncode == 0
    assert list(at.state.iterdir()) == []


def test_a_mount_that_ends_in_order_leaves_no_journal(place):
    at = place()
    assert_mounted(at.mount(), at)
    at.write("file", "saved")
    assert len(list(at.state.iterdir())) == 1
    assert at.machine.run("ckptfs", "unmount", at.path).returncode == 0
    assert list(at.state.iterdir()) == []


def test_a_mount_without_a_place_for_its_journal_works(place):
    at = place()
    at.environment["CKPTFS_STATE_DIR"] = "/proc/nowhere"
    assert_mounted(at.mount(), at)
    at.write("file", "saved")
    assert "its uploads stay in the bucket" in at.log.read_text()


def test_a_mount_that_can_only_read_the_journals_knows_what_they_name(place, simulator, prefix):
    at = place()
    simulator.inject({"op": "UploadPart", "key": prefix + "shard", "action": "hang"})
    at.mount()
    writer = slow_writer(at, "shard")
    try:
        wait_until(lambda: simulator.open_uploads(prefix), "an upload to begin", 60)
        at.kill()
    finally:
        writer.kill()
        writer.wait()
    simulator.clear_faults()
    for options in "bind", "remount,bind,ro":
        assert at.machine.run("mount", "-o", options, at.state, at.state).returncode == 0
    try:
        assert_mounted(at.mount(), at)
        wait_until(lambda: simulator.open_uploads(prefix) == [], "the upload to be ended")
        assert simulator.failed_files(prefix) == ["shard"]
        assert "its uploads stay in the bucket: cannot make" in at.log.read_text()
        # It cannot be removed, and does no harm.
        assert at.machine.run("ckptfs", "unmount", at.path).returncode == 0
        assert len(list(at.state.iterdir())) == 1
    finally:
        at.machine.run("umount", "--lazy", at.state)


def test_the_state_directory_is_an_option(place):
    at = place()
    elsewhere = at.path.with_suffix(".elsewhere")
    assert_mounted(at.mount("", "--state-dir", elsewhere), at)
    at.write("file", "saved")
    # Before the environment.
    assert (len(list(elsewhere.iterdir())), at.state.exists()) == (1, False)
    # Doctor judges the same one.
    elsewhere.chmod(0o755)
    told = at.machine.run("ckptfs", "doctor", at.source, "--state-dir", elsewhere, environment=at.environment).stdout
    assert str(elsewhere) in told
    assert at.machine.run("ckptfs", "unmount", at.path).returncode == 0
    # The daemon would wait for itself.
    refused = at.mount("", "--state-dir", at.path / "state")
    assert refused.returncode != 0 and "is inside the mount" in refused.stderr
