# SPDX-License-Identifier: Apache-2.0
"""Stores that judge the conditions of writes and copies otherwise than S3, as radosgw and OpenStack Swift do."""

import concurrent.futures
import errno
import os
import signal
import threading
import urllib.parse

import pytest

from harness.mounts import Mount
from harness.programs import errno_of, wait_until
from harness.simulator import BUCKET, Simulator
from test_names import renameat2_noreplace

MIB = 1 << 20
# radosgw 16.2 also copies, and removes, whatever the condition says; here the two meet one by one.
RADOSGW = ["--lacks", "quoted-if-match", "--lacks", "part-copy-sources"]
SWIFT = ["--lacks", "known-write-conditions", "--lacks", "conditions-on-uploads"]
NO_PART_COPY = ["--lacks", "part-copy"]
ON_WRITES, ON_COPIES = "rejects If-Match on writes", "rejects x-amz-copy-source-if-match"


@pytest.fixture(params=[pytest.param(RADOSGW, id="radosgw"), pytest.param(SWIFT, id="swift")])
def store(request):
    simulator = Simulator(*request.param)
    simulator.is_swift = request.param is SWIFT
    yield simulator
    simulator.stop()


@pytest.fixture(params=["auto", "none"])
def compress(request):
    return request.param


@pytest.fixture
def other_mount(store, compress, request):
    request.node.mounts = []
    made = Mount(f"s3://{BUCKET}/run/", store.environment(), "--compress", compress)
    request.node.mounts.append(made)
    yield made
    made.remove()


def test_a_directory_is_renamed(other_mount, store):
    directory = other_mount / "old"
    directory.mkdir()
    for i in range(50):
        (directory / f"file{i}").write_text(str(i))
    large = os.urandom(20 * MIB)
    (directory / "large").write_bytes(large)
    directory.rename(other_mount / "new")
    assert sorted(os.listdir(other_mount / "new")) == sorted([*(f"file{i}" for i in range(50)), "large"])
    assert (other_mount / "new/large").read_bytes() == large
    assert not (other_mount / "old").exists()
    (other_mount / "new").rename(other_mount / "newer")
    # Told once; the store that only wants the ETag without quotes loses no promise.
    assert other_mount.log().count(ON_WRITES) == (1 if store.is_swift else 0)
    assert other_mount.log().count(ON_COPIES) == (1 if store.is_swift else 0)


@pytest.mark.parametrize("name", ["p%20q", "50%", "100%25", "a+b%2Fc"])
def test_a_name_with_a_percent_sign_is_not_taken_for_another(other_mount, store, name):
    """radosgw finds "p q" where a part is to be copied from "p%20q"."""
    contents = {each: os.urandom(20 * MIB) for each in {name, urllib.parse.unquote(name).replace("/", "")}}
    for each, data in contents.items():
        (other_mount / each).write_bytes(data)
    with open(other_mount / name, "ab") as file:
        file.write(b"more")
    with open(other_mount / name, "r+b") as file:
        file.seek(10 * MIB)
        file.write(b"changed")
    data = contents[name]
    contents[name] = data[:10 * MIB] + b"changed" + data[10 * MIB + 7:] + b"more"
    assert all((other_mount / each).read_bytes() == content for each, content in contents.items())
    (other_mount / name).rename(other_mount / "renamed")
    assert (other_mount / "renamed").read_bytes() == contents.pop(name)
    assert all((other_mount / each).read_bytes() == content for each, content in contents.items())


def rename_append_and_change(mount, data):
    (mount / "file").rename(mount / "renamed")
    assert (mount / "renamed").read_bytes() == data
    with open(mount / "renamed", "ab") as file:
        file.write(b"more")
    data += b"more"
    with open(mount / "renamed", "r+b") as file:
        file.seek(40 * MIB)
        file.write(b"changed")
    data[40 * MIB:40 * MIB + 7] = b"changed"
    assert (mount / "renamed").read_bytes() == data


def test_a_large_file_is_renamed_appended_to_and_changed(other_mount, store):
    data = bytearray(os.urandom(80 * MIB))
    (other_mount / "file").write_bytes(data)
    rename_append_and_change(other_mount, data)
    assert store.content("run/renamed") == data
    assert store.open_uploads() == []


def refusals(store) -> int:
    """Besides those of objects that were looked for and are not there."""
    return sum(request["status"] in (405, 412, 501) for request in store.requests())


def test_what_the_store_refuses_is_not_sent_again(other_mount, store):
    def rename_directory(number: int) -> None:
        directory = other_mount / f"old{number}"
        directory.mkdir()
        (directory / "file").write_bytes(os.urandom(20 * MIB))
        directory.rename(other_mount / f"new{number}")

    for number in range(2):
        rename_directory(number)
    assert refusals(store) > 0
    store.reset_counters()
    before = refusals(store)
    for number in range(2, 5):
        rename_directory(number)
    assert refusals(store) == before


@pytest.fixture
def without_part_copy(compress, request):
    simulator = Simulator("--lacks", "part-copy")
    request.node.mounts = []
    mount = Mount(f"s3://{BUCKET}/run/", simulator.environment(), "--compress", compress, "--max-memory", "256MiB")
    request.node.mounts.append(mount)
    yield simulator, mount
    mount.remove()
    simulator.stop()


@pytest.mark.parametrize("copies", [True, False])
def test_without_part_copies_the_bytes_are_sent(without_part_copy, copies):
    store, mount = without_part_copy
    if not copies:
        # Too large for it.
        store.inject({"op": "CopyObject", "action": "400"})
    data = bytearray(bytes(20 * MIB) + os.urandom(100 * MIB))
    (mount / "file").write_bytes(data)
    rename_append_and_change(mount, data)
    with open(mount / "renamed", "r+b") as file:
        file.seek(70 * MIB)
        file.write(b"changed again")
    data[70 * MIB:70 * MIB + 13] = b"changed again"
    assert store.content("run/renamed") == data
    assert store.open_uploads() == []
    assert mount.log().count("has no UploadPartCopy") == 1
    # Of the first rename its four parts, each with its condition and without, once the first was asked for with a wrong
    # one.
    assert sum(request["op"] == "UploadPartCopy" for request in store.requests()) <= 9


def test_what_is_fetched_and_sent_takes_little_memory(without_part_copy):
    store, mount = without_part_copy
    directory = mount / "old"
    directory.mkdir()
    data = os.urandom(80 * MIB)
    for number in range(8):
        (directory / f"file{number}").write_bytes(data)
    store.inject({"op": "CopyObject", "action": "400"})
    # So that all are under way at once.
    store.set_model(conn_mbps=60)
    directory.rename(mount / "new")
    store.set_model(conn_mbps=0)
    for number in range(8):
        assert store.content(f"run/new/file{number}") == data
    # --max-memory, two parts of 32 MiB, and everything else: 394 to 427 MiB on a busy machine. All at once are 640.
    assert mount.peak_memory() < (256 + 64 + 160) * MIB


def test_bytes_that_flip_on_the_way_down_are_not_renamed(without_part_copy):
    store, mount = without_part_copy
    data = os.urandom(80 * MIB)
    (mount / "file").write_bytes(data)
    (mount / "small").write_bytes(b"x")
    store.inject({"op": "CopyObject", "action": "400"},
                 {"op": "GetObject", "key": "run/file", "action": "corrupt", "bytes": 1000, "times": 1})
    (mount / "file").rename(mount / "renamed")
    store.clear_faults()
    assert store.content("run/renamed") == data


def test_a_refusal_is_believed_where_another_version_is_there(other_mount, store):
    """The source changes between the list and its copy."""
    directory = other_mount / "old"
    directory.mkdir()
    (directory / "file").write_bytes(os.urandom(20 * MIB))
    changed = os.urandom(MIB)
    store.inject({"op": "PutObject", "key": "run/new/", "action": "slow", "ms": 3000, "times": 1})
    renaming = threading.Thread(target=directory.rename, args=[other_mount / "new"])
    renaming.start()
    wait_until(lambda: store.fault_hits() > 0, "the destination to be hidden")
    store.put("run/old/file", changed)
    renaming.join()
    assert (other_mount / "new/file").read_bytes() == changed
    assert ON_COPIES not in other_mount.log()


# --- stores that ignore conditions, or refuse them


@pytest.fixture
def ignoring(compress, request):
    """A store that ignores the conditions of writes, copies and deletes, and what makes mounts of it."""
    simulator = Simulator("--lacks", "write-conditions", "--lacks", "copy-conditions", "--lacks", "unnamed-parts")
    request.node.mounts = []

    def make(*options: str) -> Mount:
        made = Mount(f"s3://{BUCKET}/run/", simulator.environment(), "--compress", compress, *options)
        request.node.mounts.append(made)
        return made

    yield simulator, make
    for made in request.node.mounts:
        made.remove()
    simulator.stop()


@pytest.mark.parametrize("size", [10, 20 * MIB], ids=["small", "in parts"])
def test_where_conditions_are_ignored_the_last_of_two_mounts_wins_and_what_is_there_is_seen(ignoring, size):
    store, make = ignoring
    made, other = make(), make()
    content = os.urandom(size)
    exclusive = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    file = os.open(made / "both", exclusive)
    assert errno_of(os.open, made / "both", exclusive) == errno.EEXIST
    os.write(file, content)
    (other / "both").write_bytes(b"theirs")
    os.close(file)
    assert store.content("run/both") == content
    # All that is looked at rather than left to the store.
    (other / "there").write_bytes(b"theirs")
    assert errno_of(os.open, made / "there", exclusive) == errno.EEXIST
    assert errno_of(os.symlink, "target", made / "there") == errno.EEXIST
    assert errno_of(os.mkdir, made / "there") == errno.EEXIST
    (made / "source").write_bytes(content)
    assert renameat2_noreplace(made / "source", made / "there") == errno.EEXIST
    assert store.content("run/there") == b"theirs" and store.content("run/source") == content


# Of the largest, most is copied within the store, in parts; the store is asked with the first whether it looks.
@pytest.mark.parametrize("size", [10, 3 * MIB, 20 * MIB])
@pytest.mark.parametrize("flags", [os.O_RDWR, os.O_WRONLY | os.O_APPEND], ids=["changed", "appended to"])
def test_where_conditions_are_ignored_no_change_goes_into_what_another_mount_has_written(ignoring, size, flags):
    store, make = ignoring
    made, other = make(), make()
    # Not by the mount that changes it: whose writer, if it is not released yet, saves more of the same file.
    (other / "file").write_bytes(os.urandom(size))
    file = os.open(made / "file", flags)
    os.write(file, b"changed")
    theirs = os.urandom(size)
    (other / "file").write_bytes(theirs)
    assert errno_of(os.close, file) == errno.ESTALE
    assert store.content("run/file") == theirs
    assert store.open_uploads() == []


def test_where_conditions_are_ignored_files_and_directories_are_renamed(ignoring):
    store, make = ignoring
    made, other = make(), make("--metadata-ttl", "0s")
    data = bytearray(os.urandom(80 * MIB))
    (made / "file").write_bytes(data)
    rename_append_and_change(made, data)
    assert store.content("run/renamed") == data
    for name in ("old", "full"):
        (made / name).mkdir()
        for number in range(20):
            (made / name / str(number)).write_bytes(name.encode())
    assert errno_of(os.rename, made / "old", made / "full") == errno.ENOTEMPTY
    (made / "old").rename(made / "new")
    assert sorted(os.listdir(other.path)) == ["full", "new", "renamed"]
    assert {(other / "new" / str(number)).read_bytes() for number in range(20)} == {b"old"}
    assert store.open_uploads() == []


@pytest.mark.parametrize("lacks", ["write-conditions", "known-write-conditions"])
def test_without_conditions_a_renamer_that_was_stopped_gives_up(request, lacks):
    store = Simulator("--lacks", lacks)
    made, other = (Mount(f"s3://{BUCKET}/run/", store.environment(), "--metadata-ttl", "0s", "--rename-repair-after",
                         "2s") for _ in range(2))
    request.node.mounts = [made, other]
    try:
        (made / "old").mkdir()
        for number in range(20):
            (made / "old" / str(number)).write_bytes(b"old")
        store.inject({"op": "CopyObject", "key": "*new/7", "action": "slow", "ms": 500})
        with concurrent.futures.ThreadPoolExecutor() as threads:
            renamed = threads.submit(errno_of, os.rename, made / "old", made / "new")
            wait_until(lambda: store.fault_hits() > 0, "a copy to be under way")
            made.process.send_signal(signal.SIGSTOP)
            wait_until(lambda: os.listdir(other.path) == ["old"] and not any(".ckptfs" in key for key in store.keys()),
                       "the repair")
            made.process.send_signal(signal.SIGCONT)
            assert renamed.result(30) == errno.EIO
        assert os.listdir(other.path) == ["old"] and len(os.listdir(other / "old")) == 20
        (made / "old").rename(made / "new")
        assert os.listdir(other.path) == ["new"] and len(os.listdir(other / "new")) == 20
    finally:
        made.process.send_signal(signal.SIGCONT)
        for each in (made, other):
            each.remove()
        store.stop()
