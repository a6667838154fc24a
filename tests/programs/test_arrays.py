# SPDX-License-Identifier: Apache-2.0
"""numpy and h5py, beside what torch/test_writers has of them."""

import os
import subprocess
import sys

import h5py
import numpy
import pytest

from programs.trees import MIB


def numbers(length, seed=0):
    return numpy.random.default_rng(seed).standard_normal(length)


LENGTHS = [100, 2 * MIB]


@pytest.mark.parametrize("length", LENGTHS)
def test_save_and_load(mount, length):
    made = mount()
    array, second = numbers(length), numbers(length, 1)
    numpy.save(made / "array.npy", second)
    numpy.save(made / "array.npy", array)
    with open(made / "several.npy", "wb") as file:
        for each in (array, second, array[::2]):
            numpy.save(file, each)
    numpy.save(made / "objects.npy", numpy.array([{"epoch": 3}], dtype=object))
    numpy.savetxt(made / "table.txt", array[:100])
    other = mount()
    assert numpy.array_equal(numpy.load(other / "array.npy"), array)
    with open(other / "several.npy", "rb") as file:
        assert all(numpy.array_equal(numpy.load(file), each) for each in (array, second, array[::2]))
    assert numpy.load(other / "objects.npy", allow_pickle=True)[0] == {"epoch": 3}
    assert numpy.array_equal(numpy.loadtxt(other / "table.txt"), array[:100])


@pytest.mark.parametrize("length", LENGTHS)
def test_tofile_and_fromfile(mount, length):
    made = mount()
    array = numbers(length)
    array.tofile(made / "array.bin")
    with open(made / "several.bin", "wb") as file:
        file.write(b"head")
        for _ in range(3):
            array.tofile(file)
        file.write(b"tail")
    other = mount()
    assert numpy.array_equal(numpy.fromfile(other / "array.bin"), array)
    assert (other / "several.bin").read_bytes() == b"head" + 3 * array.tobytes() + b"tail"
    with open(other / "several.bin", "rb") as file:
        file.seek(4)
        assert numpy.array_equal(numpy.fromfile(file, count=length), array)
        assert numpy.array_equal(numpy.fromfile(file, count=length), array)


@pytest.mark.parametrize("mode", ["r", "c", "r+"])
def test_mapped(mount, mode):
    made = mount()
    array = numbers(2 * MIB)
    numpy.save(made / "array.npy", array)
    array.tofile(made / "array.bin")
    other = mount()
    for mapped in (numpy.load(other / "array.npy", mmap_mode=mode),
                   numpy.memmap(other / "array.bin", dtype=array.dtype, mode=mode)):
        assert numpy.array_equal(mapped[::-1000], array[::-1000])
        assert numpy.array_equal(mapped, array)
        if mode != "r":
            mapped[5] = 7
            assert mapped[5] == 7 and mapped[6] == array[6]
            mapped.flush()
        del mapped
    array[5] = 7 if mode == "r+" else array[5]
    assert numpy.array_equal(numpy.load(mount() / "array.npy"), array)
    assert numpy.array_equal(numpy.fromfile(mount() / "array.bin"), array)


def test_memmap_of_a_new_file(mount):
    made = mount()
    array = numbers(2 * MIB)
    mapped = numpy.memmap(made / "array.bin", dtype=array.dtype, mode="w+", shape=array.shape)
    mapped[MIB:] = array[MIB:]
    mapped[:MIB] = array[:MIB]
    mapped.flush()
    assert numpy.array_equal(numpy.fromfile(mount() / "array.bin"), array)
    mapped[3] = array[3] = 5
    mapped.flush()
    del mapped
    assert numpy.array_equal(numpy.fromfile(mount() / "array.bin"), array)


@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_h5py_groups_attributes_and_locks(mount, libver):
    made = mount()
    arrays = {f"group/below/array{n}": numbers(MIB // 4, n) for n in range(8)}
    with h5py.File(made / "file.h5", "w", libver=libver) as file:
        for name, array in arrays.items():
            file.create_dataset(name, data=array, fletcher32=True, chunks=True)
            file[name].attrs["epoch"] = 3
        file.flush()
        again = subprocess.run([sys.executable, "-c", f"import h5py; h5py.File({str(made / 'file.h5')!r}, 'r+')"],
                               stderr=subprocess.PIPE, check=False)
        assert again.returncode == 1 and b"unable to lock file" in again.stderr
    with h5py.File(made / "file.h5", "a") as file:
        del file["group/below/array3"]
        file["group/moved"] = file["group/below/array4"]
        file["group"].attrs["name"] = "x" * 1000
    del arrays["group/below/array3"]
    other = mount()
    with h5py.File(other / "file.h5", "r") as file:
        assert all(numpy.array_equal(file[name], array) and file[name].attrs["epoch"] == 3
                   for name, array in arrays.items())
        assert "group/below/array3" not in file
        assert numpy.array_equal(file["group/moved"], arrays["group/below/array4"])
        assert file["group"].attrs["name"] == "x" * 1000
    assert os.listdir(other.path) == ["file.h5"]
