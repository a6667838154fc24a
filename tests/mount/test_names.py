# SPDX-License-Identifier: Apache-2.0
"""Names: rename, removal, listings, links that are refused, attributes that are accepted."""

import collections
import concurrent.futures
import ctypes
import errno
import os
import shutil
import subprocess
import threading
import time

import pytest
from harness.programs import wait_until
from harness.simulator import BUCKET

MIB = 1 << 20


def test_rename_replaces_and_removes_the_source(mount, simulator, prefix):
    made = mount()
    (made / "a").write_bytes(b"new")
    (made / "b").write_bytes(b"old")
    os.rename(made / "a", made / "b")
    assert simulator.keys(prefix) == [prefix + "b"]
    assert (made / "b").read_bytes() == b"new"
    assert not (made / "a").exists()


def test_rename_of_a_large_file_is_a_copy_in_parts(mount, simulator, prefix):
    made = mount()
    content = os.urandom(150 * MIB)
    (made / "large").write_bytes(content)
    os.rename(made / "large", made / "moved")
    assert simulator.content(prefix + "moved") == content
    assert simulator.keys(prefix) == [prefix + "moved"]
    assert (mount() / "moved").read_bytes() == content


def renameat2_noreplace(source, target) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    result = libc.renameat2(-100, os.fsencode(source), -100, os.fsencode(target), 1)
    return 0 if result == 0 else ctypes.get_errno()


def test_rename_noreplace(mount, simulator, prefix):
    made = mount()
    (made / "a").write_bytes(b"a")
    simulator.put(prefix + "b", b"b")
    assert renameat2_noreplace(made / "a", made / "b") == errno.EEXIST
    assert renameat2_noreplace(made / "a", made / "c") == 0
    assert sorted(simulator.keys(prefix)) == [prefix + "b", prefix + "c"]


def test_a_new_directory_whose_reply_was_lost_is_a_success(mount, simulator, prefix):
    simulator.inject({"op": "PutObject", "key": prefix + "*", "times": 1, "action": "performed-but-reply-lost"})
    made = mount()
    (made / "directory").mkdir()
    with pytest.raises(FileExistsError):
        (made / "directory").mkdir()
    assert simulator.keys(prefix) == [prefix + "directory/"]


def test_rename_noreplace_of_an_open_file_replaces_no_file_that_another_mount_makes_meanwhile(mount, simulator, prefix):
    made, other = mount(), mount()
    with open(made / "source", "wb", buffering=0) as file:
        file.write(b"of this mount")
        # Looked up before, and again while it is sent.
        simulator.inject({"op": "PutObject", "key": prefix + "source", "action": "slow", "ms": 1500})
        with concurrent.futures.ThreadPoolExecutor(1) as threads:
            renamed = threads.submit(renameat2_noreplace, made / "source", made / "target")
            wait_until(simulator.fault_hits, "the source to be sent")
            (other / "target").write_bytes(b"of the other")
            assert renamed.result() == errno.EEXIST
    simulator.clear_faults()
    assert simulator.content(prefix + "target") == b"of the other"
    assert simulator.content(prefix + "source") == b"of this mount"


@pytest.mark.parametrize("writer", ["this mount", "another client"])
def test_rename_noreplace_whose_reply_was_lost_is_a_success(mount, simulator, prefix, writer):
    made = mount()
    if writer == "this mount":
        (made / "a").write_bytes(b"content")
    else:
        simulator.client().put_object(Bucket=BUCKET, Key=prefix + "a", Body=b"content", CacheControl="no-store",
                                      ContentType="text/plain", Metadata={"note": "kept"})
    simulator.inject({"op": "CopyObject", "key": prefix + "*", "times": 1, "action": "performed-but-reply-lost"})
    assert renameat2_noreplace(made / "a", made / "b") == 0
    assert simulator.keys(prefix) == [prefix + "b"]
    assert simulator.content(prefix + "b") == b"content"
    if writer == "another client":
        copy = simulator.client().head_object(Bucket=BUCKET, Key=prefix + "b")
        assert (copy["CacheControl"], copy["ContentType"], copy["Metadata"]["note"]) == ("no-store", "text/plain", "kept")


def test_rename_noreplace_that_another_client_forestalls_while_it_is_tried_again(mount, simulator, prefix):
    made = mount("--stall-timeout", "1s")
    (made / "a").write_bytes(b"ours")
    simulator.inject({"op": "CopyObject", "key": prefix + "*", "times": 1, "action": "hang"})
    answers = []
    renaming = threading.Thread(target=lambda: answers.append(renameat2_noreplace(made / "a", made / "b")))
    renaming.start()
    wait_until(lambda: simulator.counters()["hung"] > 0, "the copy to hang")
    simulator.put(prefix + "b", b"theirs")
    renaming.join()
    assert answers == [errno.EEXIST]
    assert simulator.content(prefix + "a") == b"ours"
    assert simulator.content(prefix + "b") == b"theirs"


def test_rename_of_an_open_unsynced_file_publishes_it_under_the_new_name(mount, simulator, prefix):
    made = mount()
    with open(made / "tmp", "wb") as file:
        file.write(b"content")
        file.flush()
        os.rename(made / "tmp", made / "final")
        assert simulator.keys(prefix) == [prefix + "final"]
    assert simulator.content(prefix + "final") == b"content"


def test_rename_of_a_directory(mount, simulator, prefix):
    made = mount()
    (made / "step.tmp/deep").mkdir(parents=True)
    for i in range(20):
        (made / f"step.tmp/deep/{i}").write_bytes(b"%d" % i)
    os.rename(made / "step.tmp", made / "step")
    assert (made / "step/deep/7").read_bytes() == b"7"
    assert not (made / "step.tmp").exists()
    assert all(key.startswith(prefix + "step/") for key in simulator.keys(prefix))
    assert len(os.listdir(mount() / "step/deep")) == 20


def test_what_is_synced_while_its_directory_is_renamed_goes_to_the_new_name(mount, simulator, prefix):
    # The copies are made at once, and their replies come late.
    simulator.inject({"op": "CopyObject", "key": prefix + "*", "action": "slow", "ms": 2000})
    made = mount()
    (made / "old").mkdir()
    with open(made / "old/log", "wb", buffering=0) as file:
        file.write(b"one")
        os.fsync(file.fileno())
        renaming = threading.Thread(target=os.rename, args=(made / "old", made / "new"))
        renaming.start()
        wait_until(lambda: prefix + "new/log" in simulator.keys(prefix), "the copy, though not its reply")
        file.write(b"two")
        os.fsync(file.fileno())
        renaming.join()
        assert simulator.content(prefix + "new/log") == b"onetwo"
    assert simulator.keys(prefix) == [prefix + "new/", prefix + "new/log"]


def test_rename_onto_a_directory_that_is_not_empty_is_refused(mount):
    made = mount()
    (made / "a").mkdir()
    (made / "b").mkdir()
    (made / "b/file").write_bytes(b"x")
    with pytest.raises(OSError) as refused:
        os.rename(made / "a", made / "b")
    assert refused.value.errno == errno.ENOTEMPTY


def test_rmtree(mount, simulator, prefix):
    made = mount()
    for i in range(30):
        path = made / f"tree/{i % 3}/{i}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    shutil.rmtree(made / "tree")
    assert simulator.keys(prefix) == []


def test_an_implied_directory_outlives_its_last_key(mount, simulator, prefix):
    simulator.put(prefix + "implied/file", b"x")
    made = mount()
    os.unlink(made / "implied/file")
    assert os.listdir(made / "implied") == []
    assert simulator.keys(prefix) == [prefix + "implied/"]


def test_a_prefix_does_not_match_a_longer_one(mount, simulator, prefix):
    simulator.put(prefix[:-1] + "2/stranger", b"x")
    assert os.listdir(mount().path) == []
    simulator.client().delete_object(Bucket="bucket", Key=prefix[:-1] + "2/stranger")


def test_keys_that_cannot_be_paths_are_hidden_and_reported(mount, simulator, prefix):
    for key in ("a//b", "a/../b", "a/./b", "x" * 300, "both", "both/below", ".ckptfs/tmp/1"):
        simulator.put(prefix + key, b"x")
    made = mount()
    assert sorted(os.listdir(made.path)) == ["a", "both"]
    assert os.listdir(made / "a") == []
    assert os.listdir(made / "both") == ["below"]
    assert "hidden" in made.log()


@pytest.mark.full
def test_ten_thousand_keys_list_within_three_seconds(mount, simulator, prefix):
    client = simulator.client()
    for i in range(10_000):
        client.put_object(Bucket="bucket", Key=f"{prefix}many/file{i:05}", Body=b"")
    made = mount()
    simulator.set_model(latency_ms=30)
    try:
        started = time.monotonic()
        listed = subprocess.run(["ls", made / "many"], check=True, capture_output=True, text=True)
        seconds = time.monotonic() - started
    finally:
        simulator.set_model(latency_ms=0)
    assert len(listed.stdout.split()) == 10_000
    assert seconds < 3


def test_attributes_are_accepted(mount):
    made = mount("--file-mode", "0640", "--dir-mode", "0750", "--uid", "12", "--gid", "34")
    path = made / "file"
    path.write_bytes(b"x")
    os.chmod(path, 0o600)
    os.chown(path, 0, 0)
    os.utime(path)
    status = path.stat()
    assert (status.st_mode & 0o777, status.st_uid, status.st_gid, status.st_nlink) == (0o640, 12, 34, 1)
    assert made.path.stat().st_mode & 0o777 == 0o750
    directory = os.open(made.path, os.O_RDONLY)
    os.fsync(directory)
    os.close(directory)
    assert shutil.disk_usage(made.path).free > 1 << 50


def test_inode_numbers_are_stable(mount):
    made = mount()
    (made / "file").write_bytes(b"one")
    number = (made / "file").stat().st_ino
    (made / "file").write_bytes(b"two")
    assert (made / "file").stat().st_ino == number
    assert (mount() / "file").stat().st_ino == number


def test_a_renamed_file_keeps_its_inode_number(mount):
    made = mount()
    with open(made / "log", "w") as file:
        file.write("first")
        number = os.fstat(file.fileno()).st_ino
        os.rename(made / "log", made / "log.1")
        assert (made / "log.1").stat().st_ino == os.fstat(file.fileno()).st_ino == number
        (made / "log").write_text("second")
        assert not os.path.samefile(made / "log", made / "log.1")
        assert {entry.name: entry.inode() for entry in os.scandir(made.path)} == {
            name: (made / name).stat().st_ino for name in ("log", "log.1")}


def test_a_read_only_mount_refuses_every_change(mount):
    (mount() / "file").write_bytes(b"x")
    made = mount("--read-only")
    assert (made / "file").read_bytes() == b"x"
    for change in (lambda: (made / "file").write_bytes(b"y"), lambda: (made / "new").mkdir(),
                   lambda: (made / "file").unlink(), lambda: os.rename(made / "file", made / "b")):
        with pytest.raises(OSError) as refused:
            change()
        assert refused.value.errno == errno.EROFS


def test_small_files_cost_one_request_each_and_one_list_a_second(mount, simulator, prefix):
    made = mount()
    (made / "dir").mkdir()
    simulator.reset_counters()
    for i in range(20):
        (made / f"dir/{i}").write_bytes(b"x" * 4096)
    # A request is noted behind its answer.
    wait_until(lambda: sum(request["op"] == "PutObject" for request in simulator.requests()) == 20, "the last request")
    asked = collections.Counter(request["op"] for request in simulator.requests())
    assert asked["PutObject"] == 20
    assert 1 <= asked["ListObjectsV2"] == asked["HeadObject"] <= 10


def test_append_and_fsync_cycles(mount, simulator, prefix):
    made = mount()
    content = b""
    with open(made / "log", "ab", buffering=0) as file:
        for size in (10, 6 * MIB, 100, 9 * MIB, 5):
            piece = os.urandom(size)
            content += piece
            file.write(piece)
            os.fsync(file.fileno())
            assert simulator.content(prefix + "log") == content
    with open(made / "log", "ab") as file:
        file.write(b"the end")
    assert simulator.content(prefix + "log") == content + b"the end"
    assert (mount() / "log").read_bytes() == content + b"the end"
