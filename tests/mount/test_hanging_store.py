# SPDX-License-Identifier: Apache-2.0
"""What programs see while the store takes nothing."""

import contextlib
import ctypes
import hashlib
import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import time

import pytest
from harness.programs import CKPTFS, wait_until

pytestmark = pytest.mark.sanitized

MIB = 1 << 20
# Of umount2(2).
MNT_FORCE = 1

WRITERS = """
    import hashlib, os, sys, threading
    data = os.urandom(1 << 20)
    def write(name):
        file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for _ in range(int(sys.argv[1])):
            os.write(file, data)
        os.close(file)
    threads = [threading.Thread(target=write, args=(name,)) for name in sys.argv[2:]]
    for thread in threads:
        thread.start()
    print("ready", flush=True)
    for thread in threads:
        thread.join()
    print(hashlib.sha256(data).hexdigest(), flush=True)
"""


def start_writers(directory: pathlib.Path, mebibytes: int, *names: str) -> subprocess.Popen:
    """One thread a file; it says the digest of a block, of which each file has so many."""
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(WRITERS), str(mebibytes), *(directory / name for name in names)],
        stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline().strip() == "ready"
    return process


def seconds(action) -> float:
    begun = time.monotonic()
    action()
    return time.monotonic() - begun


def run(*command) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=20)


def blocked_threads(process: subprocess.Popen) -> int:
    """Those that wait in a call to the mount."""
    count = 0
    for task in pathlib.Path(f"/proc/{process.pid}/task").iterdir():
        try:
            count += "fuse" in (task / "stack").read_text() or "request_wait" in (task / "wchan").read_text()
        except OSError:
            continue
    return count


@pytest.mark.parametrize("writers", [64, 512])
def test_what_needs_no_data_is_answered_while_writers_wait(mount, simulator, prefix, writers):
    made = mount("--max-memory", "128M", "--metadata-ttl", "60s")
    (made / "directory").mkdir()
    (made / "directory" / "file").write_bytes(b"content")
    os.listdir(made / "directory")
    for operation in ("UploadPart", "PutObject", "CompleteMultipartUpload"):
        simulator.inject({"op": operation, "key": prefix + "shard*", "action": "hang"})
    killed = [start_writers(made.path, 1000, f"shard-killed-{i}") for i in range(4)]
    others = start_writers(made.path, 2, *(f"shard-{i}" for i in range(writers)))
    wait_until(lambda: blocked_threads(others) == writers and all(blocked_threads(each) == 1 for each in killed),
               "all of them to wait", 60)
    # What the kernel still holds is read within a second, too.
    assert seconds(lambda: run("stat", "-f", made.path)) < 1
    assert seconds(lambda: run("ls", made / "directory")) < 1
    assert seconds(lambda: run("stat", made / "directory" / "file")) < 1
    assert seconds(lambda: run(CKPTFS, "status", made.path)) < 1
    for each in killed:
        each.kill()
    assert seconds(lambda: [each.wait(20) for each in killed]) < 1
    simulator.clear_faults()
    digest = others.stdout.readline().strip()
    assert others.wait(60) == 0
    for i in range(0, writers, 16):
        content = simulator.content(prefix + f"shard-{i}")
        assert len(content) == 2 * MIB
        assert {hashlib.sha256(content[begin:begin + MIB]).hexdigest() for begin in (0, MIB)} == {digest}
    assert len(simulator.keys(prefix + "shard")) == writers
    wait_until(lambda: simulator.open_uploads(prefix) == [], "the uploads of killed writers to be ended")


# Each in a directory of its own, since the kernel lets one call at a time change a directory.
CALLS = """
    import mmap, os, sys, threading
    def changed(name, mode):
        with open(name, mode) as file:
            file.write(b"x")
    def mapped(name):
        with open(name, "rb") as file:
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)[5]
    def synced(name):
        with open(name, "wb") as file:
            file.write(b"x")
            os.fsync(file.fileno())
    def removed(name):
        os.unlink(name)
        os.fsync(os.open(os.path.dirname(name), os.O_RDONLY))
    calls = [
        lambda at: os.mkdir(at + "new"), lambda at: os.rmdir(at + "dir"), lambda at: os.rename(at + "old", at + "new"),
        lambda at: os.rename(at + "dir", at + "new"), lambda at: removed(at + "old"),
        lambda at: os.symlink("target", at + "new"), lambda at: os.link(at + "old", at + "new"),
        lambda at: os.stat(at + "nothing"), lambda at: os.listdir(at), lambda at: os.truncate(at + "old", 3),
        lambda at: open(at + "old", "rb").read(), lambda at: mapped(at + "old"),
        lambda at: changed(at + "old", "ab"), lambda at: changed(at + "old", "r+b"), lambda at: changed(at + "new", "wb"),
        lambda at: synced(at + "new"),
    ]
    def run(call, at):
        try:
            call(at)
        except OSError:
            pass
    for directory in sys.argv[1:]:
        call = calls[int(os.path.basename(directory)) % len(calls)]
        threading.Thread(target=run, args=(call, directory + "/")).start()
    print("ready", flush=True)
"""


def test_what_needs_no_data_is_answered_while_calls_of_every_kind_wait(mount, simulator, prefix):
    directories = range(192)
    for i in directories:
        simulator.put(f"{prefix}{i}/old", b"content")
        simulator.put(f"{prefix}{i}/dir/", b"")
    simulator.put(f"{prefix}directory/file", b"content")
    made = mount("--max-memory", "128M", "--metadata-ttl", "60s")
    os.stat(made / "directory" / "file")
    with open(made / "open", "wb", buffering=0) as file:
        file.write(b"written")
        simulator.inject({"op": "*", "action": "hang"})
        callers = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(CALLS), *(made / f"{i}" for i in directories)],
            stdout=subprocess.PIPE, text=True)
        assert callers.stdout.readline().strip() == "ready"
        wait_until(lambda: blocked_threads(callers) == len(directories), "all of them to wait", 60)
        assert seconds(lambda: run("stat", "-f", made.path)) < 1
        assert seconds(lambda: run("stat", made / "directory" / "file")) < 1
        assert seconds(lambda: run(CKPTFS, "status", made.path)) < 1
        callers.kill()
        assert seconds(lambda: callers.wait(20)) < 1
        simulator.clear_faults()
    assert simulator.content(prefix + "open") == b"written"


@pytest.mark.parametrize("name", ["shard", "train.log"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_a_writer_that_dies_does_not_wait_for_the_store(mount, simulator, prefix, name, number):
    made = mount()
    script = """
        import os, sys
        files = [open(f"{directory}/{sys.argv[2]}", "wb", buffering=0) for directory in sys.argv[3:]]
        for file in files:
            file.write(os.urandom(int(sys.argv[1])))
        print("ready", flush=True)
        sys.stdin.read()
    """
    directories = [made / f"{i}" for i in range(3)]
    for directory in directories:
        directory.mkdir()
    writer = subprocess.Popen([sys.executable, "-c", textwrap.dedent(script), str(12 * MIB), name, *directories],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert writer.stdout.readline().strip() == "ready"
    simulator.inject({"op": "*", "action": "hang"})
    writer.send_signal(number)
    assert seconds(lambda: writer.wait(20)) < 1
    simulator.clear_faults()
    kept = [prefix + f"{i}/train.log" for i in range(3)] if name == "train.log" else []
    wait_until(lambda: [key for key in simulator.keys(prefix) if not key.endswith("/")] == kept, "logs to be published", 60)
    wait_until(lambda: simulator.open_uploads(prefix) == [], "the uploads to be ended", 60)


def creates(path: pathlib.Path) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-c", "import sys; open(sys.argv[1], 'x')", path],
                            stderr=subprocess.PIPE, text=True)


def waits_for_the_directory(daemon: int) -> bool:
    """A thread of the daemon, for the lock that a call holds which waits for the daemon."""
    stacks = [(task / "stack") for task in pathlib.Path(f"/proc/{daemon}/task").iterdir()]
    return any("fuse_reverse_inval_entry" in stack.read_text() for stack in stacks)


@pytest.mark.parametrize("what", ["daemon", "process group"])
def test_a_daemon_that_is_killed_while_it_waits_for_its_callers_leaves_none_waiting(mount, simulator, prefix, what):
    made = mount(within=["setsid"])
    first, second = (os.open(made / "a", os.O_WRONLY | os.O_CREAT | os.O_TRUNC) for _ in range(2))
    simulator.inject({"op": "*", "action": "slow", "ms": 20_000, "key": prefix + "b*"})
    creator = creates(made / "b")
    wait_until(lambda: blocked_threads(creator) == 1, "the creation to wait for the store")
    os.write(first, b"1")
    # Its own version: the kernel is told to look the name up again, in the directory in which the other one creates.
    os.write(second, b"2")
    wait_until(lambda: waits_for_the_directory(made.process.pid), "the daemon to wait for the directory's lock")
    os.kill(made.process.pid, signal.SIGKILL) if what == "daemon" else os.killpg(made.process.pid, signal.SIGKILL)
    try:
        assert creator.wait(10) != 0
        assert made.process.wait(10) == -signal.SIGKILL
    finally:
        # In this process: one that is started would close what it inherits of the mount, and wait as well.
        ctypes.CDLL(None).umount2(os.fsencode(made.path), MNT_FORCE)
    with pytest.raises(OSError, match="not connected|aborted"):
        (made / "c").write_bytes(b"3")
    assert made.is_mounted()
    assert "was killed but could not exit: its connection was aborted" in made.log()


def test_an_unmount_that_callers_of_the_store_hold_up_names_what_is_lost(mount, simulator, prefix):
    made = mount("--drain-timeout", "2s", "--retry-for", "5m")
    first, second = (os.open(made / "a", os.O_WRONLY | os.O_CREAT | os.O_TRUNC) for _ in range(2))
    simulator.inject({"op": "*", "action": "hang", "key": prefix + "b*"})
    creator = creates(made / "b")
    try:
        wait_until(lambda: blocked_threads(creator) == 1, "the creation to wait for the store")
        os.write(first, b"1")
        os.write(second, b"2")
        wait_until(lambda: waits_for_the_directory(made.process.pid), "the daemon to wait for the directory's lock")
        # Then the daemon has no mount that it could unmount by force.
        run("umount", "-l", made.path)
        made.process.terminate()
        assert made.process.wait(30) == 1, made.log()
        assert f"not saved within the drain timeout: {prefix}a" in made.log()
        assert creator.wait(10) != 0
    finally:
        creator.kill()
        for file in (first, second):
            with contextlib.suppress(OSError):
                os.close(file)
