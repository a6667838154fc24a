# SPDX-License-Identifier: Apache-2.0
"""Files that are made in a directory of which this mount knows what it holds."""

import errno
import mmap
import os
import subprocess
import sys
import threading

import pytest

pytestmark = pytest.mark.sanitized


def test_a_new_file_is_one_request(mount, simulator, prefix):
    directory = mount("--metadata-ttl", "1m") / "step"
    directory.mkdir()
    (directory / "first").write_bytes(b"first")
    simulator.reset_counters()
    for number in range(20):
        (directory / f"shard_{number}").write_bytes(b"shard")
    asked = {name: each["requests"] for name, each in simulator.counters()["operations"].items()}
    assert asked.pop("PutObject") == 20
    # A list, and a look at the one that asked for it, once a second.
    assert sum(asked.values()) <= 20, asked


def test_who_makes_a_file_below_a_directory_of_another_mount_finds_the_directory(mount, simulator, prefix):
    one, other = mount("--metadata-ttl", "1m"), mount("--metadata-ttl", "1m")
    (one / "first").write_bytes(b"first")
    (other / "step").mkdir()
    (one / "step" / "shard").write_bytes(b"shard")
    (other / "shard").mkdir()
    (one / "shard" / "shard").write_bytes(b"shard")
    assert simulator.content(prefix + "step/shard") == simulator.content(prefix + "shard/shard") == b"shard"


def test_what_another_mount_has_saved_since_is_seen_by_all_that_do_not_replace_it(mount, simulator, prefix):
    one, other = mount("--metadata-ttl", "1m"), mount("--metadata-ttl", "1m")
    (one / "first").write_bytes(b"first")
    (other / "exclusive").write_bytes(b"of another mount")
    with pytest.raises(FileExistsError):
        (one / "exclusive").open("xb")
    (other / "log").write_bytes(b"of another mount\n")
    with (one / "log").open("ab") as log:
        log.write(b"and of this one\n")
    (other / "changed").write_bytes(b"of another mount")
    changed = os.open(one / "changed", os.O_RDWR | os.O_CREAT)
    os.pwrite(changed, b"OF", 0)
    os.close(changed)
    (other / "replaced").write_bytes(b"of another mount")
    (one / "replaced").write_bytes(b"anew")
    assert simulator.content(prefix + "log") == b"of another mount\nand of this one\n"
    assert simulator.content(prefix + "changed") == b"OF another mount"
    assert simulator.content(prefix + "replaced") == b"anew"


def test_a_process_that_may_not_be_looked_into_makes_files_as_well(mount, simulator, prefix):
    """By a relative path, from a process that has made itself undumpable, through a link."""
    directory = mount()
    (directory / "step").mkdir()
    (directory / "latest").symlink_to("step")
    script = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)
os.chdir(sys.argv[1])
for number in range(3):
    with open(f"latest/shard_{number}", "wb") as file:
        file.write(b"shard")
"""
    subprocess.run([sys.executable, "-c", script, directory.path], check=True, timeout=60)
    assert simulator.keys(prefix + "step/shard") == [f"{prefix}step/shard_{number}" for number in range(3)]


def test_a_process_that_unmaps_what_it_has_changed_makes_files_meanwhile(mount, simulator, prefix):
    """munmap(2) holds the lock by which the path of the other thread is read, until the pages are written."""
    directory = mount()
    (directory / "mapped").write_bytes(bytes(1 << 20))
    stop = threading.Event()

    def unmap():
        while not stop.is_set():
            file = os.open(directory / "mapped", os.O_RDWR)
            with mmap.mmap(file, 1 << 20) as pages:
                pages[::4096] = b"x" * 256
            os.close(file)
    thread = threading.Thread(target=unmap)
    thread.start()
    try:
        for number in range(50):
            (directory / f"shard_{number}").write_bytes(b"shard")
    finally:
        stop.set()
        thread.join(60)
    assert len(simulator.keys(prefix + "shard_")) == 50


def test_a_name_that_is_a_directory_is_no_file(mount):
    directory = mount()
    (directory / "first").write_bytes(b"first")
    (directory / "step").mkdir()
    with pytest.raises(OSError) as refused:
        (directory / "step").open("wb")
    assert refused.value.errno == errno.EISDIR
