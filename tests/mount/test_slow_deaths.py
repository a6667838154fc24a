# SPDX-License-Identifier: Apache-2.0
"""A killed process closes what it has open one after another, and one of these may take its time. Until its turn comes
a file that it has half written looks as if that process had nothing to do with it."""

import errno
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from harness.programs import wait_until

pytestmark = pytest.mark.sanitized

GOOD = b"the last good version"

# The first argument is closed before the second, as its descriptor is lower. The child inherits both.
WRITE_AND_FORK = r"""
    import os, signal, sys
    slow = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
    file = os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    writes = sys.argv[3:]
    child = os.fork()
    if child == 0:
        os.close(slow)
    name = "parent" if child else "child"
    if name in writes:
        os.write(file, b"half" * 1000)
    os.write(1, f"{name} {os.getpid()}\n".encode())
    if child:
        signal.pause()
    sys.stdin.readline()
    if "closes" in writes:
        os.close(file)
        print("closed", flush=True)
"""


class Dying:
    """A process that is being killed, and stands still in a close before that of the file which it has half written."""

    def __init__(self, mount, *writes: str, name: str = "file"):
        self.made = mount()
        self.slow = mount()
        (self.made / name).write_bytes(GOOD)
        self.process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(WRITE_AND_FORK), self.slow / "slow", self.made / name, *writes],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        pids = dict(self.process.stdout.readline().split() for _ in range(2))
        self.child = int(pids["child"])
        self.slow.process.send_signal(signal.SIGSTOP)
        self.process.kill()
        wait_until(lambda: descriptors(self.process.pid) == [], "the process to begin its end")

    def end_child(self) -> None:
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        wait_until(lambda: descriptors(self.child) == [], "the child to end")

    def end(self) -> None:
        self.slow.process.send_signal(signal.SIGCONT)
        self.process.wait(20)


def descriptors(process: int) -> list[str]:
    try:
        return os.listdir(f"/proc/{process}/fdinfo")
    except (FileNotFoundError, ProcessLookupError):
        return []


def test_a_child_does_not_publish_what_its_parent_has_left_half(mount, simulator, prefix):
    dying = Dying(mount, "parent")
    dying.end_child()
    dying.end()
    wait_until(lambda: "its writer was killed" in dying.made.log(), "the half to be given up")
    assert simulator.content(prefix + "file") == GOOD
    assert (dying.made / "file").read_bytes() == GOOD


def test_the_close_of_a_child_that_wrote_as_well_fails(mount, simulator, prefix):
    dying = Dying(mount, "parent", "child", "closes")
    dying.process.stdin.write("\n")
    dying.process.stdin.flush()
    dying.end()
    wait_until(lambda: "its writer was killed" in dying.made.log(), "the half to be given up")
    assert simulator.content(prefix + "file") == GOOD
    assert "closed" not in dying.process.stdout.read()


def test_one_that_waits_for_the_end_of_another_in_its_close_can_be_killed(mount, simulator, prefix):
    dying = Dying(mount, "parent", "child", "closes")
    before = len(descriptors(dying.child))
    dying.process.stdin.write("\n")
    dying.process.stdin.flush()
    wait_until(lambda: len(descriptors(dying.child)) < before, "the child to close the file")
    os.kill(dying.child, signal.SIGKILL)
    wait_until(lambda: descriptors(dying.child) == [], "the child to be gone")
    dying.end()
    wait_until(lambda: "its writer was killed" in dying.made.log(), "the half to be given up")
    assert simulator.content(prefix + "file") == GOOD


def publish_marker(made) -> None:
    (made / ".metadata").write_bytes(b"complete")


def publish_renamed(made) -> None:
    (made / "file").rename(made / "renamed")


def publish_synced(made) -> None:
    sync(made / "file")


@pytest.mark.parametrize("publish", [publish_marker, publish_renamed, publish_synced])
def test_nothing_else_publishes_it(mount, simulator, prefix, publish):
    dying = Dying(mount, "parent")
    with pytest.raises(OSError) as refused:
        publish(dying.made)
    assert refused.value.errno == errno.EIO
    dying.end_child()
    dying.end()
    wait_until(lambda: "its writer was killed" in dying.made.log(), "the half to be given up")
    assert simulator.content(prefix + "file") == GOOD
    assert prefix + ".metadata" not in simulator.keys(prefix)


# Writes a half, and then looks for a name on another mount.
WRITE_AND_LOOK = r"""
    import os, resource, sys
    file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.write(file, b"half" * 1000)
    resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    os.chdir(sys.argv[2])
    os.write(1, b"written\n")
    sys.stdin.readline()
    os.path.exists("name")
"""


def core_is_dumped(process: int) -> bool:
    return "CoreDumping:\t1" in Path(f"/proc/{process}/status").read_text()


@pytest.fixture
def cores_in_working_directories():
    """Of all processes of the machine, for the time of one test."""
    pattern = Path("/proc/sys/kernel/core_pattern")
    before = pattern.read_text()
    if before.startswith(("|", "/")):
        pattern.write_text("core")
    yield
    if pattern.read_text() != before:
        pattern.write_text(before)


@pytest.mark.parametrize("killed", ["dumps core", "waits"])
@pytest.mark.parametrize("publish", [publish_marker, publish_renamed, publish_synced])
@pytest.mark.usefixtures("cores_in_working_directories")
def test_nothing_publishes_the_half_of_one_that_is_not_yet_exiting(mount, simulator, prefix, killed, publish):
    made, slow = mount(), mount()
    (made / "file").write_bytes(GOOD)
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(WRITE_AND_LOOK), made / "file", slow.path],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "written\n"
    if killed == "waits":
        simulator.inject({"op": "*", "key": prefix + "name*", "action": "hang"})
        process.stdin.write("\n")
        process.stdin.flush()
        wait_until(lambda: simulator.fault_hits() > 0, "the process to wait for the other mount")
    slow.process.send_signal(signal.SIGSTOP)
    process.send_signal(signal.SIGABRT if killed == "dumps core" else signal.SIGKILL)
    if killed == "dumps core":
        wait_until(lambda: core_is_dumped(process.pid), "the core to be dumped")
    with pytest.raises(OSError) as refused:
        publish(made)
    assert refused.value.errno == errno.EIO
    simulator.clear_faults()
    slow.process.send_signal(signal.SIGCONT)
    process.wait(20)
    wait_until(lambda: "its writer was killed" in made.log(), "the half to be given up")
    assert simulator.content(prefix + "file") == GOOD
    assert prefix + ".metadata" not in simulator.keys(prefix)


def test_logs_are_published_as_far_as_they_were_written(mount, simulator, prefix):
    dying = Dying(mount, "parent", name="train.log")
    sync(dying.made / "train.log")
    assert simulator.content(prefix + "train.log") == b"half" * 1000
    dying.end()
    dying.end_child()


def sync(path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
