# SPDX-License-Identifier: Apache-2.0
"""What is appended to a file that another program has truncated, and is about to save: as on a local disk."""

import errno
import os
import random
import threading

import pytest
from harness.programs import wait_until

from mount.test_half_files import kill, start, wait_ready

pytestmark = pytest.mark.sanitized_too

ANEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
NAMES = pytest.mark.parametrize("name", ["train.log", "notes.bin"])
ACCESS = pytest.mark.parametrize("access", [os.O_WRONLY, os.O_RDWR], ids=["a", "a+"])


def begin_log(path, access=os.O_WRONLY, content=b"before\n") -> int:
    log = os.open(path, access | os.O_CREAT | os.O_APPEND)
    os.write(log, content)
    os.fsync(log)
    return log


@pytest.mark.parametrize("access", [os.O_WRONLY, os.O_RDWR], ids=["w", "w+"])
@pytest.mark.parametrize("synced", [False, True])
def test_a_file_that_was_made_longer_by_its_name_stays_so(mount, simulator, prefix, access, synced):
    """truncate -s 5M, between an open with O_TRUNC and its first write."""
    made = mount()
    file = os.open(made / "f", access | os.O_CREAT | os.O_TRUNC)
    os.truncate(made / "f", 5 << 20)
    if synced:
        os.fsync(file)
    if synced and access == os.O_WRONLY and os.environ.get("CKPTFS_COMPRESS") == "none":
        # Plain bytes that were saved are out of reach of who writes in order.
        with pytest.raises(OSError) as refused:
            os.pwrite(file, b"begin", 0)
        assert refused.value.errno == errno.EOPNOTSUPP
        with pytest.raises(OSError):
            os.close(file)
        return
    os.pwrite(file, b"begin", 0)
    assert os.fstat(file).st_size == 5 << 20
    os.close(file)
    assert (made / "f").read_bytes() == b"begin" + bytes((5 << 20) - 5)
    assert simulator.open_uploads(prefix) == []


@NAMES
@ACCESS
@pytest.mark.parametrize("synced", [False, True])
def test_a_line_goes_on_in_what_another_has_truncated(mount, simulator, prefix, name, access, synced):
    """: > train.log, beside a program that logs into it."""
    made = mount()
    log = begin_log(made / name, access)
    os.write(log, b"unsaved\n")
    other = os.open(made / name, ANEW)
    os.write(log, b"first\n")
    if synced:
        os.fsync(log)
        assert simulator.content(prefix + name) == b"first\n"
    os.close(other)
    os.fsync(log)
    assert simulator.content(prefix + name) == b"first\n"
    assert (made / name).read_bytes() == b"first\n"
    assert (made / name).stat().st_size == len(b"first\n")
    os.write(log, b"next\n")
    os.close(log)
    assert simulator.content(prefix + name) == b"first\nnext\n"
    assert simulator.open_uploads(prefix) == []


@ACCESS
def test_a_line_goes_behind_what_is_written_anew_to_a_log(mount, simulator, prefix, access):
    made = mount()
    log = begin_log(made / "train.log", access)
    other = os.open(made / "train.log", ANEW)
    os.write(other, b"another run\n")
    os.write(log, b"line\n")
    os.close(other)
    assert simulator.content(prefix + "train.log") == b"another run\nline\n"
    os.write(log, b"next\n")
    os.close(log)
    assert simulator.content(prefix + "train.log") == b"another run\nline\nnext\n"


def test_a_line_beside_what_is_written_anew_to_another_file_is_told_to_be_lost(mount, simulator, prefix):
    """It would publish the other's half, or be given up with it."""
    made = mount()
    log = begin_log(made / "notes.bin")
    other = os.open(made / "notes.bin", ANEW)
    os.write(other, b"whole")
    os.write(log, b"line\n")
    os.close(other)
    assert simulator.content(prefix + "notes.bin") == b"whole"
    with pytest.raises(OSError):
        os.fsync(log)
    with pytest.raises(OSError):
        os.close(log)
    assert simulator.content(prefix + "notes.bin") == b"whole"


def test_what_is_written_anew_is_not_published_before_its_close_where_who_appends_has_cut_it(mount, simulator, prefix):
    made = mount("--publish-interval", "100ms")
    log = begin_log(made / "notes.bin", os.O_RDWR)
    other = os.open(made / "notes.bin", ANEW)
    os.ftruncate(log, 65_536)
    os.write(other, b"x" * (3 << 20))
    beside = begin_log(made / "train.log", content=b"line\n")
    for lines in range(2, 5):
        os.write(beside, b"line\n")
        wait_until(lambda lines=lines: simulator.content(prefix + "train.log") == b"line\n" * lines, "a log to be published")
    assert simulator.content(prefix + "notes.bin") == b"before\n"
    os.write(other, b"x" * (3 << 20))
    os.close(other)
    assert simulator.content(prefix + "notes.bin") == b"x" * (6 << 20)
    os.close(log)
    os.close(beside)
    assert simulator.content(prefix + "notes.bin") == b"x" * (6 << 20)


@NAMES
def test_a_line_that_comes_while_the_truncation_is_published_goes_behind_it(mount, simulator, prefix, name):
    made = mount()
    log = begin_log(made / name)
    other = os.open(made / name, ANEW)
    simulator.inject({"op": "PutObject", "key": prefix + name, "times": 1, "action": "slow", "ms": 1000})
    closing = threading.Thread(target=os.close, args=(other,))
    closing.start()
    wait_until(lambda: simulator.fault_hits() > 0, "the file to be published")
    os.write(log, b"second\n")
    closing.join()
    os.write(log, b"third\n")
    os.close(log)
    assert simulator.content(prefix + name) == b"second\nthird\n"


@NAMES
@pytest.mark.parametrize("text", ["", "half"], ids=["truncated", "written"])
def test_lines_are_saved_where_the_process_that_truncated_the_file_is_killed(mount, simulator, prefix, name, text):
    made = mount()
    log = begin_log(made / name)
    other = start("""
        import sys
        file = open(sys.argv[1], "wb", buffering=0)
        if sys.argv[2]:
            file.write(sys.argv[2].encode())
        print("ready", flush=True)
        sys.stdin.read()
    """, made / name, text)
    wait_ready(other)
    os.write(log, b"after\n")
    kill(other)
    os.fsync(log)
    os.write(log, b"later\n")
    os.close(log)
    # What is neither a log nor only truncated is given up with its writer.
    before = text.encode() if name == "train.log" or not text else b"before\n"
    assert simulator.content(prefix + name) == before + b"after\nlater\n"


@NAMES
def test_the_name_of_a_log_and_its_lines_move_together(mount, simulator, prefix, name):
    """logrotate(8) without copytruncate, right after a restart."""
    made = mount()
    log = begin_log(made / name)
    other = os.open(made / name, ANEW)
    os.write(log, b"1\n")
    (made / name).rename(made / "old")
    os.write(log, b"2\n")
    os.fsync(log)
    assert simulator.content(prefix + "old") == b"1\n2\n"
    os.close(log)
    os.close(other)
    assert simulator.keys(prefix) == [prefix + "old"]


def test_a_store_that_refuses_what_was_truncated_is_told_to_who_appends(mount, simulator, prefix):
    made = mount()
    log = begin_log(made / "train.log")
    other = os.open(made / "train.log", ANEW)
    os.write(other, b"another run\n")
    os.write(log, b"line\n")
    simulator.inject({"op": "PutObject", "key": prefix + "train.log", "action": "access-denied"})
    for descriptor in (other, log):
        with pytest.raises(OSError):
            os.close(descriptor)
    simulator.clear_faults()
    assert simulator.content(prefix + "train.log") == b"before\n"


def play(path, choose: random.Random, writes: bool) -> None:
    """One that truncates the file, and two that append to it: one from before that, and one that comes at some time."""
    turns = ["other"] * 5 + ["log"] * 6 + ["late"] * 4
    choose.shuffle(turns)
    if writes:
        turns.insert(0, "other")
    descriptors = {"log": os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)}
    if choose.random() < 0.5:
        os.write(descriptors["log"], b"before\n")
    for number, who in enumerate(turns):
        if who not in descriptors:
            descriptors[who] = os.open(path, ANEW if who == "other" else os.O_WRONLY | os.O_APPEND)
        elif choose.random() < 0.3:
            os.fsync(descriptors[who])
        elif who != "other" or writes:
            os.write(descriptors[who], who.encode() + b" %d\n" % number)
    order = list(descriptors)
    choose.shuffle(order)
    for who in order:
        os.close(descriptors[who])


@pytest.mark.parametrize("name, writes", [("train.log", True), ("train.log", False), ("notes.bin", False)])
@pytest.mark.parametrize("seed", range(20))
def test_every_order_of_lines_and_a_truncation_ends_as_on_a_local_disk(mount, simulator, prefix, tmp_path, name, writes,
                                                                      seed):
    made = mount()
    play(tmp_path / name, random.Random(seed), writes)
    play(made / name, random.Random(seed), writes)
    assert simulator.content(prefix + name) == (tmp_path / name).read_bytes()
    assert (made / name).read_bytes() == (tmp_path / name).read_bytes()
    assert simulator.open_uploads(prefix) == []


def test_a_process_is_told_the_size_of_what_it_writes(mount):
    """The kernel may send the next open before the release of what was closed, and asks for sizes without saying of
    which descriptor."""
    path = mount() / "file"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    for number in range(4000):
        os.write(descriptor, b"x" * 4096)
        os.ftruncate(descriptor, 0)
        os.fsync(descriptor)
        os.close(descriptor)
        descriptor = os.open(path, os.O_RDWR | os.O_TRUNC)
        os.write(descriptor, b"y" * 100)
        assert os.fstat(descriptor).st_size == 100, number
    os.close(descriptor)
    assert path.read_bytes() == b"y" * 100
