# SPDX-License-Identifier: Apache-2.0
"""Files in --cache-dir that the kernel reads itself. They need FUSE passthrough: kernel 6.9, and root."""

import errno
import fcntl
import json
import mmap
import os
import random
import subprocess
import threading

import pytest
from harness.programs import CKPTFS, wait_until

pytestmark = pytest.mark.sanitized_too

MIB = 1 << 20
CONTENT = random.Random(2).randbytes(3 * MIB) + b"end"
LATER = CONTENT[::-1]


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "cache"


@pytest.fixture(params=["none", "auto"])
def make(mount, directory, request):
    return lambda *options: mount("--cache-dir", str(directory), "--compress", request.param, *options)


def disk(made) -> dict:
    answer = subprocess.run([CKPTFS, "status", made.path, "--json"], capture_output=True, text=True, check=True)
    return json.loads(answer.stdout)["disk"]


def opens_passed_through(made) -> int:
    return disk(made)["opens_passed_through"]


def is_passed_through(made, path) -> bool:
    before = opens_passed_through(made)
    with path.open("rb"):
        return opens_passed_through(made) > before


def wait_until_checked(made, path) -> None:
    wait_until(lambda: is_passed_through(made, path), "the file to be read by the kernel (kernel 6.9, as root)")


@pytest.fixture
def made(make):
    """With a file that is passed through."""
    made = make()
    (made / "shard").write_bytes(CONTENT)
    wait_until_checked(made, made / "shard")
    return made


def gets(simulator) -> int:
    return simulator.counters()["operations"].get("GetObject", {"requests": 0})["requests"]


def test_what_was_written_is_read_past_the_daemon(made, simulator):
    simulator.reset_counters()
    before = disk(made)["bytes_read"]
    assert (made / "shard").read_bytes() == CONTENT
    with (made / "shard").open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        assert mapped[:] == CONTENT
        assert os.pread(file.fileno(), 100, len(CONTENT) - 3) == b"end"
        assert os.pread(file.fileno(), 100, len(CONTENT)) == b""
        assert os.fstat(file.fileno()).st_size == len(CONTENT)
    assert gets(simulator) == 0
    assert disk(made)["bytes_read"] == before


def test_a_restart_checks_what_was_used_last(made, make, simulator):
    made.unmount()
    made = make()
    wait_until_checked(made, made / "shard")
    simulator.reset_counters()
    assert (made / "shard").read_bytes() == CONTENT
    assert gets(simulator) == 0
    assert disk(made)["bytes_read"] == 0


def test_what_was_fetched_is_passed_through_once_all_is_there(mount, make, simulator):
    other = mount()
    (other / "shard").write_bytes(CONTENT)
    made = make()
    assert not is_passed_through(made, made / "shard")
    assert (made / "shard").read_bytes() == CONTENT
    wait_until_checked(made, made / "shard")
    assert (made / "shard").read_bytes() == CONTENT


def test_never_means_never(make, made):
    made.unmount()
    made = make("--passthrough", "never")
    assert (made / "shard").read_bytes() == CONTENT
    assert disk(made)["bytes_read"] >= len(CONTENT) - MIB
    assert opens_passed_through(made) == 0


def flip_a_bit(directory) -> None:
    for path in directory.glob("*.data"):
        with path.open("r+b") as file:
            file.seek(2 * MIB + 5)
            byte = file.read(1)[0]
            file.seek(2 * MIB + 5)
            file.write(bytes([byte ^ 1]))


def test_what_is_damaged_between_mounts_is_not_passed_through(made, make, directory):
    made.unmount()
    flip_a_bit(directory)
    made = make()
    wait_until(lambda: disk(made)["frames_damaged"] == 1, "the damage to be found")
    assert not is_passed_through(made, made / "shard")
    assert (made / "shard").read_bytes() == CONTENT
    # What was fetched anew is.
    wait_until_checked(made, made / "shard")
    assert (made / "shard").read_bytes() == CONTENT


def test_what_is_changed_after_it_was_checked_is_not_passed_through(made, directory):
    flip_a_bit(directory)
    assert not is_passed_through(made, made / "shard")
    assert (made / "shard").read_bytes() == CONTENT


def test_what_another_mount_has_saved_since_is_read(made, mount):
    other = mount()
    with (made / "shard").open("rb") as file:
        (other / "shard").write_bytes(LATER)
        wait_until(lambda: (made / "shard").read_bytes() == LATER, "the later version")
        assert file.read() == CONTENT


@pytest.mark.parametrize("change", ["r+", "a", "w", "replace", "unlink", "truncate", "rename"])
def test_who_reads_keeps_the_version_that_was_opened(made, change):
    shard = made / "shard"
    with shard.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        expected = CONTENT
        if change == "r+":
            with shard.open("r+b") as writer:
                writer.write(b"changed")
            expected = b"changed" + CONTENT[7:]
        elif change == "a":
            with shard.open("ab") as writer:
                writer.write(b"more")
            expected = CONTENT + b"more"
        elif change == "w":
            shard.write_bytes(LATER)
            expected = LATER
        elif change == "replace":
            (made / "new").write_bytes(LATER)
            (made / "new").rename(shard)
            expected = LATER
        elif change == "truncate":
            os.truncate(shard, 5)
            expected = CONTENT[:5]
        elif change == "rename":
            shard = shard.rename(made / "other")
        else:
            shard.unlink()
        if change != "unlink":
            assert shard.read_bytes() == expected
            assert shard.stat().st_size == len(expected)
        assert mapped[:] == CONTENT
        assert file.read() == CONTENT
        assert os.fstat(file.fileno()).st_size == len(CONTENT)


def test_a_file_that_is_being_changed_is_read_as_it_is(made):
    with (made / "shard").open("r+b", buffering=0) as writer:
        writer.write(b"changed")
        assert not is_passed_through(made, made / "shard")
        assert (made / "shard").read_bytes() == b"changed" + CONTENT[7:]


def test_logs_are_followed(make):
    made = make()
    log = made / "train.log"
    log.write_bytes(CONTENT)
    (made / "shard").write_bytes(CONTENT)
    wait_until_checked(made, made / "shard")
    with log.open("rb") as reader:
        assert reader.read() == CONTENT
        with log.open("ab") as writer:
            writer.write(b"line\n")
        wait_until(lambda: reader.read() == b"line\n", "the line")
    assert not is_passed_through(made, log)


def test_all_ways_to_open_it_work_side_by_side(made):
    shard = made / "shard"
    with shard.open("rb") as first:
        flags = [os.O_RDONLY, os.O_RDONLY | os.O_DIRECT, os.O_RDONLY | os.O_CREAT, os.O_RDONLY | os.O_NOATIME]
        files = [os.open(shard, each) for each in flags]
        for file in files:
            room = mmap.mmap(-1, 4096)
            assert os.preadv(file, [room], 4096) == 4096
            assert room[:] == CONTENT[4096:8192]
            fcntl.flock(file, fcntl.LOCK_SH)
            os.close(file)
        assert first.read() == CONTENT


def test_what_is_passed_through_is_in_use(made):
    with (made / "shard").open("rb"):
        dropped = subprocess.run([CKPTFS, "drop", made / "shard"], capture_output=True, text=True)
        assert dropped.returncode == 1
        assert "in use" in dropped.stderr
    wait_until(lambda: subprocess.run([CKPTFS, "drop", made / "shard"]).returncode == 0, "the file to be dropped")
    assert (made / "shard").read_bytes() == CONTENT


def test_a_renamed_file_is_passed_through_still(made):
    (made / "dir").mkdir()
    (made / "shard").rename(made / "dir" / "other")
    (made / "dir").rename(made / "final")
    wait_until_checked(made, made / "final" / "other")
    assert (made / "final" / "other").read_bytes() == CONTENT


def test_threads_that_open_in_all_ways_meet_no_error(made):
    """What is read is one version, whole; an open fails with nothing but what names of others explain."""
    versions = {CONTENT, LATER}
    shard = made / "shard"
    problems = []
    end = threading.Event()

    def read(seed: int) -> None:
        chance = random.Random(seed)
        while not end.is_set():
            try:
                with open(os.open(shard, os.O_RDONLY | chance.choice([0, os.O_CREAT])), "rb", buffering=0) as file:
                    content = file.readall()
                if content not in versions:
                    problems.append(f"{len(content)} bytes of no version")
            except OSError as problem:
                problems.append(repr(problem))

    def write() -> None:
        chance = random.Random(9)
        for _ in range(60):
            way = chance.choice(["w", "replace", "r+"])
            content = chance.choice([CONTENT, LATER])
            if way == "w":
                shard.write_bytes(content)
            elif way == "replace":
                (made / "new").write_bytes(content)
                (made / "new").rename(shard)
            else:
                with shard.open("r+b"):
                    pass

    readers = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
    for reader in readers:
        reader.start()
    try:
        write()
    finally:
        end.set()
        for reader in readers:
            reader.join()
    # That the version was replaced while it was read is told (semantics(7)).
    told = [problem for problem in problems if f"OSError({errno.ESTALE}," in problem]
    assert [problem for problem in problems if problem not in told] == []
    assert opens_passed_through(made) > 1
