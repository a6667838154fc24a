# SPDX-License-Identifier: Apache-2.0
"""Stores that judge the conditions of writes and copies otherwise than S3, as radosgw and OpenStack Swift do."""

import os
import threading

import pytest

from harness.mounts import Mount
from harness.programs import wait_until
from harness.simulator import BUCKET, Simulator

MIB = 1 << 20
RADOSGW = ["--lacks", "quoted-if-match"]
SWIFT = ["--lacks", "known-write-conditions", "--lacks", "conditions-on-uploads"]
ON_WRITES, ON_COPIES = "refuses If-Match on writes", "refuses x-amz-copy-source-if-match"


@pytest.fixture(params=[pytest.param(RADOSGW, id="radosgw"), pytest.param(SWIFT, id="swift")])
def store(request):
    simulator = Simulator(*request.param)
    simulator.is_swift = request.param is SWIFT
    yield simulator
    simulator.stop()


@pytest.fixture
def other_mount(store, request):
    request.node.mounts = []
    made = Mount(f"s3://{BUCKET}/run/", store.environment(), "--compress", "none")
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


def test_a_large_file_is_renamed_appended_to_and_changed(other_mount, store):
    data = bytearray(os.urandom(80 * MIB))
    (other_mount / "file").write_bytes(data)
    (other_mount / "file").rename(other_mount / "renamed")
    assert (other_mount / "renamed").read_bytes() == data
    with open(other_mount / "renamed", "ab") as file:
        file.write(b"more")
    data += b"more"
    with open(other_mount / "renamed", "r+b") as file:
        file.seek(40 * MIB)
        file.write(b"changed")
    data[40 * MIB:40 * MIB + 7] = b"changed"
    assert (other_mount / "renamed").read_bytes() == data
    assert store.content("run/renamed") == data
    assert store.open_uploads() == []


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
