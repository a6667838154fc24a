# SPDX-License-Identifier: Apache-2.0
"""What closes, syncs and deaths mean for a file that several processes hold."""

import mmap
import os
import signal
import subprocess
import time

import pytest
from harness.markers import commit, refuse_to_commit
from harness.programs import wait_until

from mount.test_half_files import WRITE_AND_WAIT, kill, process_is_gone, start, wait_ready

pytestmark = pytest.mark.sanitized

MIB = 1 << 20
OLD = b"the last good version"


def make_old(made) -> None:
    (made / "file").write_bytes(OLD)


def start_writer_within(made, way: str = "r+b") -> subprocess.Popen:
    """Has written into the present version, and not closed it."""
    writer = start("""
        import sys
        file = open(sys.argv[1], sys.argv[2], buffering=0)
        file.write(b"half")
        print("ready", flush=True)
        sys.stdin.read()
    """, made / "file", way)
    wait_ready(writer)
    return writer


@pytest.mark.parametrize("mapped", [False, True], ids=["read and write", "mapped"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_bystander_that_closes_does_not_publish_a_killed_writers_half(mount, simulator, prefix, mapped, number):
    made = mount()
    make_old(made)
    with open(made / "file", "r+b") as bystander:
        mapping = mmap.mmap(bystander.fileno(), 0) if mapped else None
        kill(start_writer_within(made), number)
        if mapping is not None:
            mapping.close()
    wait_until(lambda: "its writer was killed" in made.log(), "the version to be given up")
    assert simulator.content(prefix + "file") == OLD
    wait_until(lambda: (made / "file").read_bytes() == OLD, "the name to show it again")


# Half of it can be compressed. Some parts have left by then, and others have not.
WRITE_MUCH = """
    import os, sys
    file = open(sys.argv[1], sys.argv[2], buffering=0)
    for _ in range(24):
        file.write(b"half" * (1 << 17) + os.urandom(1 << 19))
    if sys.argv[3] == "child" and os.fork() == 0:
        print(os.getpid(), flush=True)
        sys.stdin.read()
        file.close()
        sys.exit()
    if sys.argv[3] != "child":
        print(os.getpid(), flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("compress", ["auto", "none"])
@pytest.mark.parametrize("way, holder", [("r+b", "bystander"), ("r+b", "mapping"), ("r+b", "child"),
                                         ("wb", "bystander"), ("wb", "child")])
def test_a_large_half_of_a_killed_writer_is_not_published_by_who_holds_it(mount, simulator, prefix, compress, way,
                                                                          holder):
    made = mount("--compress", compress)
    old = OLD * MIB
    (made / "file").write_bytes(old)
    writer = start(WRITE_MUCH, made / "file", way, holder)
    holding = int(writer.stdout.readline())
    bystander = os.open(made / "file", os.O_RDWR) if holder != "child" else None
    mapping = mmap.mmap(bystander, MIB) if holder == "mapping" else None
    if mapping is not None:
        os.close(bystander)
    assert (made / "file").stat().st_size >= 24 * MIB
    kill(writer)
    if holder == "child":
        # It closes the file, and ends by itself.
        writer.stdin.close()
        wait_until(lambda: process_is_gone(holding), "the child to end")
    elif mapping is not None:
        mapping.close()
    else:
        os.close(bystander)
    wait_until(lambda: "its writer was killed" in made.log(), "the version to be given up")
    wait_until(lambda: simulator.open_uploads(prefix) == [], "its upload to be ended")
    assert simulator.content(prefix + "file") == old
    wait_until(lambda: (made / "file").read_bytes() == old, "the name to show it again")
    assert simulator.keys(prefix) == [prefix + "file"]


# mmap.mmap() keeps a descriptor.
MAP_AND_CLOSE = """
    import ctypes, os, sys
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    file = os.open(sys.argv[1], os.O_RDWR)
    pages = libc.mmap(None, 1 << 20, 3, 1, file, 0)
    os.close(file)
    ctypes.memset(pages, ord("X"), 1 << 19)
    print("ready", flush=True)
    if sys.stdin.readline() == "unmap\\n":
        ctypes.memset(pages, ord("X"), 1 << 20)
        libc.munmap(pages, 1 << 20)
        print("unmapped", flush=True)
        sys.stdin.readline()
"""


@pytest.mark.parametrize("ends", ["killed", "unmaps"])
def test_a_mapping_that_outlives_its_descriptor_is_not_published_where_its_writer_is_killed(mount, simulator, prefix,
                                                                                            ends):
    made = mount()
    (made / "file").write_bytes(b"g" * MIB)
    writer = start(MAP_AND_CLOSE, made / "file")
    wait_ready(writer)
    if ends == "killed":
        kill(writer)
        wait_until(lambda: "its writer was killed" in made.log(), "the version to be given up")
        assert simulator.content(prefix + "file") == b"g" * MIB
        wait_until(lambda: (made / "file").read_bytes() == b"g" * MIB, "the name to show it again")
    else:
        writer.stdin.write("unmap\n")
        writer.stdin.flush()
        assert writer.stdout.readline() == "unmapped\n"
        wait_until(lambda: simulator.content(prefix + "file") == b"X" * MIB, "what was mapped to be published")
        writer.communicate("\n")


def test_a_child_commits_though_its_parent_has_the_file_open_otherwise(mount, simulator, prefix):
    made = mount()
    (made / "file").write_bytes(b"old bytes")
    with open(made / "file", "r+b", buffering=0):
        with open(made / "file", "r+b", buffering=0) as handed_down:
            child = subprocess.Popen(["sh", "-c", "printf new"], stdout=handed_down)
        assert child.wait() == 0
        assert simulator.content(prefix + "file") == b"new bytes"


def test_what_a_killed_writer_left_is_not_published_by_a_sync_or_a_rename(mount, simulator, prefix):
    made = mount()
    make_old(made)
    bystander = os.open(made / "file", os.O_RDWR)
    kill(start_writer_within(made))
    with pytest.raises(OSError):
        os.rename(made / "file", made / "other")
    with pytest.raises(OSError):
        os.fsync(bystander)
    # A close after a sync that failed.
    with pytest.raises(OSError):
        os.close(bystander)
    assert simulator.content(prefix + "file") == OLD
    assert simulator.keys(prefix) == [prefix + "file"]


def test_who_writes_after_the_death_vouches_for_the_file(mount, simulator, prefix):
    made = mount()
    make_old(made)
    with open(made / "file", "r+b", buffering=0) as survivor:
        kill(start_writer_within(made))
        survivor.write(b"whole again")
    assert simulator.content(prefix + "file") == b"whole again" + OLD[11:]


def test_who_wrote_before_the_death_is_told_that_it_is_lost(mount, simulator, prefix):
    made = mount()
    make_old(made)
    survivor = open(made / "file", "r+b", buffering=0)
    survivor.write(b"mine")
    kill(start_writer_within(made))
    with pytest.raises(OSError, match="Input/output error"):
        survivor.close()
    assert simulator.content(prefix + "file") == OLD


CHILD = ["sh", "-c", "read line; printf one; read line; printf two; read line"]


def start_child(file) -> subprocess.Popen:
    return subprocess.Popen(CHILD, stdin=subprocess.PIPE, stdout=file, text=True)


def go_on(child: subprocess.Popen, made, size: int) -> None:
    child.stdin.write("go\n")
    child.stdin.flush()
    wait_until(lambda: (made / "file").stat().st_size == size, "the child to write")


@pytest.mark.parametrize("written", [0, 3, 6], ids=["nothing", "half", "all"])
def test_a_parent_that_closes_its_copy_leaves_the_file_to_its_child(mount, simulator, prefix, written):
    made = mount()
    make_old(made)
    with open(made / "file", "wb") as file:
        child = start_child(file)
        for size in range(3, written + 1, 3):
            go_on(child, made, size)
    assert simulator.content(prefix + "file") == OLD
    for size in range(written + 3, 7, 3):
        go_on(child, made, size)
    assert simulator.content(prefix + "file") == OLD
    child.communicate("end\n")
    assert child.returncode == 0
    assert simulator.content(prefix + "file") == b"onetwo"


def test_a_child_that_writes_nothing_ends_when_the_empty_file_is_saved(mount, simulator, prefix):
    made = mount()
    make_old(made)
    with open(made / "file", "wb") as file:
        child = subprocess.Popen(["sh", "-c", "read line"], stdin=subprocess.PIPE, stdout=file, text=True)
    assert simulator.content(prefix + "file") == OLD
    simulator.inject({"op": "PutObject", "key": prefix + "file", "action": "slow", "ms": 500})
    begun = time.monotonic()
    child.communicate("end\n")
    assert time.monotonic() - begun >= 0.5
    assert simulator.content(prefix + "file") == b""


@pytest.mark.parametrize("written", [0, 3], ids=["nothing", "half"])
def test_a_child_that_is_killed_after_its_parent_closed_its_copy_publishes_nothing(mount, simulator, prefix, written):
    made = mount()
    make_old(made)
    with open(made / "file", "wb") as file:
        child = start_child(file)
        if written:
            go_on(child, made, written)
    kill(child)
    wait_until(lambda: (made / "file").read_bytes() == OLD, "the name to show the version before")
    assert simulator.content(prefix + "file") == OLD


def test_a_parent_whose_child_was_killed_is_told(mount, simulator, prefix):
    made = mount()
    make_old(made)
    file = open(made / "file", "wb", buffering=0)
    file.write(b"header")
    child = start_child(file)
    go_on(child, made, 9)
    kill(child)
    with pytest.raises(OSError, match="Input/output error"):
        file.close()
    assert simulator.content(prefix + "file") == OLD


def test_who_wrote_and_closes_commits_though_a_child_sleeps_on_the_descriptor(mount, simulator, prefix):
    made = mount()
    sleeper = start("""
        import os, sys, time
        file = open(sys.argv[1], "wb", buffering=0)
        empty = open(sys.argv[1] + ".done", "wb", buffering=0)
        file.write(b"whole")
        child = os.fork()
        if child == 0:
            time.sleep(600)
        file.close()
        empty.close()
        print(child, flush=True)
        sys.stdin.read()
    """, made / "file")
    child = int(sleeper.stdout.readline())
    try:
        assert simulator.content(prefix + "file") == b"whole"
        assert simulator.content(prefix + "file.done") == b""
    finally:
        os.kill(child, signal.SIGKILL)
        sleeper.communicate()
    assert simulator.content(prefix + "file") == b"whole"


def test_a_marker_waits_for_what_a_killed_writer_left(mount, simulator, prefix):
    made = mount()
    make_old(made)
    bystander = os.open(made / "file", os.O_RDWR)
    kill(start_writer_within(made))
    with pytest.raises(OSError):
        (made / ".metadata").write_bytes(b"all is there")
    # A marker syncs what it waits for.
    with pytest.raises(OSError):
        os.close(bystander)
    assert simulator.keys(prefix) == [prefix + "file"]


# --- fsync


@pytest.mark.parametrize("way", ["r+b", "wb", "ab"])
def test_a_sync_by_a_descriptor_that_cannot_write_saves_what_others_wrote(mount, simulator, prefix, way):
    made = mount()
    make_old(made)
    reader = os.open(made / "file", os.O_RDONLY)
    with open(made / "file", way, buffering=0) as writer:
        writer.write(b"new")
        os.fsync(reader)
        expected = {"r+b": b"new" + OLD[3:], "wb": b"new", "ab": OLD + b"new"}[way]
        assert simulator.content(prefix + "file") == expected
        writer.write(b" more")
        subprocess.run(["sync", made / "file"], check=True)
        assert len(simulator.content(prefix + "file")) >= len(b"new more")
        simulator.inject({"op": "PutObject", "key": prefix + "file", "times": 1, "action": "403"})
        writer.write(b" still")
        with pytest.raises(OSError):
            os.fsync(reader)
        os.close(reader)
        simulator.clear_faults()
        with pytest.raises(OSError):
            writer.close()


def test_a_sync_by_a_reader_of_an_earlier_version_saves_the_later_one(mount, simulator, prefix):
    made = mount()
    with open(made / "file", "wb", buffering=0) as earlier:
        earlier.write(OLD)
        os.fsync(earlier.fileno())
        reader = os.open(made / "file", os.O_RDONLY)
        with open(made / "file", "wb", buffering=0) as later:
            later.write(b"new")
            os.fsync(reader)
            assert simulator.content(prefix + "file") == b"new"
    os.close(reader)


# --- what grows, and what does not


@pytest.mark.parametrize("name", ["latest_checkpointed_iteration.txt", "latest", "train.log"])
def test_a_file_that_was_truncated_and_not_written_keeps_its_version_when_its_writer_is_killed(mount, simulator, prefix,
                                                                                               name):
    made = mount()
    (made / name).write_bytes(OLD)
    writer = start(WRITE_AND_WAIT, made / name, 0)
    wait_ready(writer)
    kill(writer)
    wait_until(lambda: "its writer was killed" in made.log(), "the version to be given up")
    assert simulator.content(prefix + name) == OLD


@pytest.mark.parametrize("written", [0, 1], ids=["truncated", "written"])
@pytest.mark.parametrize("pointer", ["latest_checkpointed_iteration.txt", "latest", "notes.txt"])
def test_a_pointer_file_of_a_killed_writer_is_not_published_and_holds_the_marker_back(mount, simulator, prefix, pointer,
                                                                                     written):
    made, other = mount(), mount()
    (made / pointer).write_bytes(b"1000")
    writer = start(WRITE_AND_WAIT, made / pointer, written)
    wait_ready(writer)
    kill(writer)
    wait_until(lambda: simulator.failed_files(prefix) == [pointer], "the failure to be recorded")
    assert simulator.content(prefix + pointer) == b"1000"
    for each in (made, other):
        refuse_to_commit(each.path)
    (made / pointer).write_bytes(b"2000")
    commit(other.path)


def test_a_close_makes_a_failure_good_for_other_mounts_too(mount, simulator, prefix):
    made, other = mount(), mount()
    (made / "latest").write_bytes(b"1000")
    writer = start(WRITE_AND_WAIT, made / "latest", 1)
    wait_ready(writer)
    kill(writer)
    wait_until(lambda: simulator.failed_files(prefix) == ["latest"], "the failure to be recorded")
    simulator.inject({"op": "DeleteObject*", "key": prefix + ".ckptfs/failed/*", "action": "503", "times": 2})
    (made / "latest").write_bytes(b"2000")
    commit(other.path)


def test_a_log_of_a_killed_writer_that_was_not_written_holds_no_marker_back(mount, simulator, prefix):
    made = mount()
    (made / "train.log").write_bytes(OLD)
    writer = start(WRITE_AND_WAIT, made / "train.log", 0)
    wait_ready(writer)
    kill(writer)
    wait_until(lambda: "its writer was killed" in made.log(), "the version to be given up")
    commit(made.path)
    assert simulator.failed_files(prefix) == []
