# SPDX-License-Identifier: Apache-2.0
"""Programs that go back in what they write, or change files that are there; each read back on a second mount."""

import os
import subprocess
import sys
import zipfile

import h5py
import numpy
import pytest
import torch
from harness.programs import wait_until
from safetensors.torch import load_file

MIB = 1 << 20
# Elements of 8 bytes: one request, and more than a part.
LENGTHS = [1000, 3 * MIB]


@pytest.fixture(params=["auto", "none"])
def mounts(request, mount):
    """Two mounts of the same prefix."""
    return mount("--compress", request.param), mount("--compress", request.param)


@pytest.fixture
def nothing_left(simulator, prefix):
    """Neither uploads nor temporary objects."""
    yield
    assert simulator.open_uploads(prefix) == []
    assert [key for key in simulator.keys(prefix) if ".ckptfs/" in key] == []


def numbers(length, seed=0):
    return numpy.random.default_rng(seed).standard_normal(length)


pytestmark = pytest.mark.usefixtures("nothing_left")


@pytest.mark.parametrize("length", LENGTHS)
def test_numpy_savez(mounts, length):
    made, other = mounts
    arrays = {f"array{n}": numbers(length, n) for n in range(3)}
    for save in (numpy.savez, numpy.savez_compressed):
        save(made / "arrays.npz", **arrays)
        with numpy.load(other / "arrays.npz") as loaded:
            for name, array in arrays.items():
                assert numpy.array_equal(loaded[name], array)


@pytest.mark.parametrize("length", LENGTHS)
def test_numpy_save_and_memmap(mounts, length):
    made, other = mounts
    array = numbers(length)
    numpy.save(made / "array.npy", array)
    assert numpy.array_equal(numpy.load(other / "array.npy"), array)
    mapped = numpy.lib.format.open_memmap(made / "mapped.npy", "w+", numpy.float64, (length,))
    for begin in range(length - 100, -1, -100):
        mapped[begin:begin + 100] = array[begin:begin + 100]
    mapped[:length % 100] = array[:length % 100]
    mapped.flush()
    del mapped
    assert numpy.array_equal(numpy.load(other / "mapped.npy"), array)
    mapped = numpy.lib.format.open_memmap(made / "mapped.npy", "r+")
    mapped[7] = array[7] = 5
    mapped[-7] = array[-7] = 6
    del mapped
    assert numpy.array_equal(numpy.load(other / "mapped.npy", mmap_mode="r"), array)


@pytest.mark.parametrize("length", LENGTHS)
def test_h5py(mounts, length):
    made, other = mounts
    array = numbers(length)
    with h5py.File(made / "file.h5", "w") as file:
        file["first"] = array
        file.create_dataset("chunked", data=array, chunks=(1000,), maxshape=(None,), compression="gzip")
    with h5py.File(made / "file.h5", "a") as file:
        file["second"] = array[::-1]
        file["chunked"].resize((length + 500,))
        file["chunked"][length:] = array[:500]
        file["first"][3] = 7
        assert file["first"][3] == 7
    for reader in (made, other):
        with h5py.File(reader / "file.h5") as file:
            assert numpy.array_equal(file["second"], array[::-1])
            assert numpy.array_equal(file["chunked"], [*array, *array[:500]])
            assert file["first"][3] == 7 and numpy.array_equal(file["first"][4:], array[4:])


@pytest.mark.parametrize("size", [1000, 20 * MIB])
def test_zip_written_and_added_to(mounts, size):
    made, other = mounts
    members = {f"member{n}": os.urandom(size) for n in range(3)}
    with zipfile.ZipFile(made / "file.zip", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("member0", members["member0"])
        with file.open("member1", "w") as member:
            member.write(members["member1"])
    with zipfile.ZipFile(made / "file.zip", "a") as file:
        file.writestr("member2", members["member2"])
    with zipfile.ZipFile(other / "file.zip") as file:
        assert file.testzip() is None
        assert {name: file.read(name) for name in file.namelist()} == members


@pytest.mark.parametrize("size", [1000, 30 * MIB])
def test_rsync_inplace(mounts, tmp_path, size):
    made, other = mounts
    content = bytearray(os.urandom(size))
    source = tmp_path / "file"
    for options in ([], ["--no-whole-file"]):
        content[size // 2:size // 2 + 100] = os.urandom(100)
        source.write_bytes(content)
        subprocess.run(["rsync", "--inplace", "--ignore-times", *options, source, made.path], check=True)
        assert (other / "file").read_bytes() == content
    del content[size // 3:]
    source.write_bytes(content)
    subprocess.run(["rsync", "--inplace", "-a", source, made.path], check=True)
    assert (other / "file").read_bytes() == content


@pytest.mark.parametrize("flags", [[], ["oflag=direct"]])
def test_dd_into_a_file_that_is_there(mounts, tmp_path, flags):
    made, other = mounts
    content = bytearray(os.urandom(30 * MIB))
    (made / "file").write_bytes(content)
    piece = os.urandom(3 * MIB)
    (tmp_path / "piece").write_bytes(piece)
    subprocess.run(["dd", f"if={tmp_path / 'piece'}", f"of={made / 'file'}", "bs=1M", "seek=11", "conv=notrunc", *flags],
                   check=True, stderr=subprocess.DEVNULL)
    content[11 * MIB:14 * MIB] = piece
    assert (other / "file").read_bytes() == content


def test_copies_within_the_mount_into_a_file_that_is_there(mounts):
    made, other = mounts
    content = os.urandom(12 * MIB)
    (made / "source").write_bytes(content)
    (made / "file").write_bytes(bytes(3 * MIB))
    with open(made / "source", "rb") as source, open(made / "file", "r+b") as file:
        try:
            copied = os.copy_file_range(source.fileno(), file.fileno(), 2 * MIB, 100, 5)
        except OSError:
            copied = os.pwrite(file.fileno(), os.pread(source.fileno(), 2 * MIB, 100), 5)
    assert (other / "file").read_bytes() == bytes(5) + content[100:100 + copied] + bytes(3 * MIB - 5 - copied)
    subprocess.run(["cp", "--reflink=auto", made / "source", made / "file"], check=True)
    assert (other / "file").read_bytes() == content


def test_torch_save_without_data_filled_in_later(mounts):
    made, other = mounts
    tensors = {"weights": torch.randn(2 * MIB), "bias": torch.randn(1000)}
    with torch.serialization.skip_data():
        torch.save(tensors, made / "file.pt")
    torch.save(tensors, made / "whole.pt")
    whole = (made / "whole.pt").read_bytes()
    with open(made / "file.pt", "r+b") as file:
        file.seek(0)
        file.write(whole)
        file.truncate()
    loaded = torch.load(other / "file.pt")
    assert all(torch.equal(loaded[name], tensor) for name, tensor in tensors.items())


def test_torch_tensors_of_a_shared_mapping(mounts):
    made, other = mounts
    tensor = torch.from_file(str(made / "file.bin"), shared=True, size=3 * MIB, dtype=torch.float32)
    expected = torch.randn(3 * MIB)
    tensor.copy_(expected)
    # It closed the file when it had mapped it: what is unmapped later is published when the kernel lets go of the file.
    del tensor
    wait_until(lambda: numpy.array_equal(numpy.fromfile(other / "file.bin", numpy.float32), expected.numpy()),
               "what was mapped to be published", 30)
    torch.save({"weights": expected}, made / "file.pt")
    with torch.serialization.set_default_mmap_options(0x01):
        loaded = torch.load(made / "file.pt", mmap=True)
    assert torch.equal(loaded["weights"], expected)


def test_hugging_face_writer_with_consolidation(mounts):
    made, other = mounts
    program = f"""
import torch, torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import HuggingFaceStorageWriter
torch.manual_seed(0)
state = {{f"layer{{n}}.weight": torch.randn(1024, 1024) for n in range(6)}}
writer = HuggingFaceStorageWriter(path={str(made / "model")!r}, save_distributed=True,
                                  fqn_to_index_mapping={{name: 1 for name in state}}, enable_consolidation=True)
dcp.save(state, storage_writer=writer)
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
    torch.manual_seed(0)
    expected = {f"layer{n}.weight": torch.randn(1024, 1024) for n in range(6)}
    files = list((other / "model").glob("*.safetensors"))
    assert len(files) == 1
    loaded = load_file(files[0])
    assert loaded.keys() == expected.keys()
    assert all(torch.equal(loaded[name], tensor) for name, tensor in expected.items())
