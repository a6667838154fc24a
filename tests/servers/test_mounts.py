# SPDX-License-Identifier: Apache-2.0
"""Mounts on OpenStack Swift's s3api, which takes no conditions on writes and knows no checksums, and on Ceph's RADOS
Gateway, which compares If-Match of a write with the ETag without its quotes, ignores all other conditions of changes,
and leaves the ETag out of the answer to CompleteMultipartUpload."""

import os

import numpy
import pytest
import safetensors.numpy
from harness.mounts import Mount
from harness.servers import start_radosgw, start_swift
from harness.simulator import BUCKET

MIB = 1 << 20


STORES = {"swift": (start_swift, ["--checksum", "none"]), "radosgw": (start_radosgw, [])}


@pytest.fixture(scope="module", params=STORES)
def store(request):
    start, options = STORES[request.param]
    server = start()
    server.options = options
    yield server
    server.stop()


@pytest.fixture(params=["auto", pytest.param("none", marks=pytest.mark.full)])
def mount(store, request):
    request.node.mounts = []
    made = Mount(f"s3://{BUCKET}/{request.node.name}/", store.environment(), *store.options, "--compress",
                 request.param, "--retry-for", "30s")
    request.node.mounts.append(made)
    yield made
    made.remove()
    assert "Uploads" not in store.client().list_multipart_uploads(Bucket=BUCKET)


def sample(size: int) -> bytearray:
    """Of which the first half can be compressed."""
    return bytearray(bytes(size // 2) + os.urandom(size - size // 2))


def test_a_directory_is_saved_renamed_and_removed(mount):
    (mount / "old").mkdir()
    for i in range(50):
        (mount / f"old/file{i}").write_text(str(i))
    large = sample(20 * MIB)
    (mount / "old/large").write_bytes(large)
    (mount / "old").rename(mount / "new")
    assert sorted(os.listdir(mount / "new")) == sorted([*(f"file{i}" for i in range(50)), "large"])
    assert (mount / "new/large").read_bytes() == large
    assert not (mount / "old").exists()
    for i in range(50):
        assert (mount / f"new/file{i}").read_text() == str(i)
        (mount / f"new/file{i}").unlink()
    assert os.listdir(mount / "new") == ["large"]
    (mount / "new/large").unlink()
    (mount / "new").rmdir()
    assert os.listdir(mount.path) == []


def test_a_large_file_is_renamed_appended_to_and_changed(mount):
    data = sample(160 * MIB)
    (mount / "file").write_bytes(data)
    (mount / "file").rename(mount / "renamed")
    with open(mount / "renamed", "ab") as file:
        file.write(b"more")
    data += b"more"
    with open(mount / "renamed", "r+b") as file:
        file.seek(100 * MIB)
        file.write(b"changed")
    data[100 * MIB:100 * MIB + 7] = b"changed"
    assert (mount / "renamed").read_bytes() == data
    # Each is told once.
    assert mount.log().count("the store rejects") <= 2, mount.log()


@pytest.mark.parametrize("name", ["p%20q", "50%", "a+b"])
def test_a_name_is_not_decoded(mount, name):
    """The Gateway decodes the key twice where parts are copied."""
    contents = {each: sample(70 * MIB) for each in {name, name.replace("%20", " ").replace("+", " ")}}
    for each, data in contents.items():
        (mount / each).write_bytes(data)
    with open(mount / name, "ab") as file:
        file.write(b"more")
    (mount / name).rename(mount / "renamed")
    assert (mount / "renamed").read_bytes() == contents.pop(name) + b"more"
    assert all((mount / each).read_bytes() == data for each, data in contents.items())


def test_a_name_is_made_once(mount):
    for size in (1, 40 * MIB):
        data = sample(size)
        with open(mount / f"file{size}", "xb") as file:
            file.write(data)
        assert (mount / f"file{size}").read_bytes() == data
        with pytest.raises(FileExistsError):
            open(mount / f"file{size}", "xb")


def test_safetensors_saves_and_loads(mount):
    tensors = {"a": numpy.arange(6 * MIB, dtype=numpy.float32), "b": numpy.ones((3, 5))}
    for factor in (1, 2):
        safetensors.numpy.save_file({name: tensor * factor for name, tensor in tensors.items()},
                                    mount / "model.safetensors")
        loaded = safetensors.numpy.load_file(mount / "model.safetensors")
        assert all((loaded[name] == tensor * factor).all() for name, tensor in tensors.items())
