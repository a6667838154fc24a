# SPDX-License-Identifier: Apache-2.0
"""What programs do when the store fails: who can notice it does, and what was there before stays, whole and alone."""

import os
import pathlib
import re
import subprocess
import tempfile

import fsspec
import h5py
import numpy
import pytest
import safetensors.torch
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint._fsspec_filesystem import FsspecWriter

from programs.states import equal
from programs.trees import MIB

# Which request fails, and the size of a file for whose bytes the store is asked that way.
FAULTS = [pytest.param("UploadPart", 20 * MIB, id="write"),
          pytest.param("CompleteMultipartUpload", 20 * MIB, id="commit", marks=pytest.mark.full),
          pytest.param("PutObject", 100_000, id="commit of a small file"),
          pytest.param("CreateMultipartUpload", 20 * MIB, id="create", marks=pytest.mark.full)]


# Of the file, of its temporary ones, and of ckptfs's, but for its records of failed files.
NAMES = ("file*", ".file*", ".tmp*", ".ckptfs/tmp/*")


def refuse(simulator, operation, prefix, names=NAMES, **rule):
    simulator.inject(*({"op": operation, "key": prefix + name, "action": "403", **rule} for name in names))


def tensor(size: int) -> torch.Tensor:
    return torch.randn(size // 4, generator=torch.Generator().manual_seed(0))


def torch_save(path, size):
    torch.save({"weight": tensor(size)}, path)


def torch_save_file(path, size):
    with open(path, "wb") as file:
        torch.save({"weight": tensor(size)}, file)


def torch_save_legacy(path, size):
    torch.save({"weight": tensor(size)}, path, _use_new_zipfile_serialization=False)


def torch_save_and_rename(path, size):
    torch.save({"weight": tensor(size)}, f"{path}.tmp")
    os.rename(f"{path}.tmp", path)


def save_safetensors(path, size):
    safetensors.torch.save_file({"weight": tensor(size)}, path)


def numpy_save(path, size):
    numpy.save(path, tensor(size).numpy())


def numpy_savez(path, size):
    numpy.savez(path, first=tensor(size // 2).numpy(), second=tensor(size // 2).numpy())


def numpy_tofile(path, size):
    tensor(size).numpy().tofile(path)


def numpy_memmap(path, size):
    mapped = numpy.memmap(path, dtype=numpy.float32, mode="w+", shape=(size // 4,))
    mapped[:] = tensor(size).numpy()
    mapped.flush()


def h5py_write(path, size):
    with h5py.File(path, "w") as file:
        file["weight"] = tensor(size).numpy()


def fsspec_transaction(path, size):
    """As Lightning saves: a temporary file elsewhere, which is copied to its name in the end."""
    files = fsspec.filesystem("file")
    with files.transaction:
        with files.open(str(path), "wb") as file:
            file.write(tensor(size).numpy().tobytes())


def command(*arguments: str):
    """A program that writes TARGET in DIRECTORY, from SOURCE or an ARCHIVE of it."""
    def run(path, size):
        with tempfile.TemporaryDirectory() as directory:
            source = pathlib.Path(directory) / path.name
            source.write_bytes(tensor(size).numpy().tobytes())
            archive = source.with_name("archive.tar")
            subprocess.run(["tar", "-C", directory, "-cf", archive, path.name], check=True)
            places = {"SOURCE": source, "TARGET": path, "DIRECTORY": path.parent, "ARCHIVE": archive}
            filled = [re.sub("|".join(places), lambda name: str(places[name[0]]), argument) for argument in arguments]
            subprocess.run(filled, check=True, timeout=60, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return run


WRITERS = {
    "torch.save": torch_save, "torch.save to a file": torch_save_file, "torch.save legacy": torch_save_legacy,
    "torch.save and rename": torch_save_and_rename, "safetensors": save_safetensors, "numpy.save": numpy_save,
    "numpy.savez": numpy_savez, "numpy.tofile": numpy_tofile, "numpy.memmap": numpy_memmap, "h5py": h5py_write,
    "fsspec": fsspec_transaction,
    "cp": command("cp", "SOURCE", "TARGET"), "cp -a": command("cp", "-a", "SOURCE", "TARGET"),
    "mv": command("mv", "SOURCE", "TARGET"), "rsync": command("rsync", "-a", "--ignore-times", "SOURCE", "DIRECTORY"),
    "rsync --inplace": command("rsync", "-a", "--ignore-times", "--inplace", "SOURCE", "DIRECTORY"),
    "tar": command("tar", "--overwrite", "-xf", "ARCHIVE", "-C", "DIRECTORY"),
    "dd": command("dd", "if=SOURCE", "of=TARGET", "bs=1M"),
    "dd conv=fsync": command("dd", "if=SOURCE", "of=TARGET", "bs=1M", "conv=fsync"),
    "dd oflag=direct": command("dd", "if=SOURCE", "of=TARGET", "bs=4k", "oflag=direct"),
    "cat": command("bash", "-ec", "cat SOURCE > TARGET; true"),
}
# One of a kind; the others are tried by tests/run --full.
FIRST = ("torch.save", "torch.save and rename", "safetensors", "numpy.save", "numpy.savez", "h5py", "fsspec", "cp", "rsync",
         "tar", "dd", "cat")
# They remove what has the name before they write.
REMOVERS = {"mv"}


@pytest.mark.parametrize("operation, size", FAULTS)
@pytest.mark.parametrize("writer", [name if name in FIRST else pytest.param(name, marks=pytest.mark.full)
                                    for name in WRITERS])
def test_writers_are_told(mount, simulator, prefix, writer, operation, size):
    made = mount()
    # Of the name that numpy.savez would give it.
    earlier = tensor(1000).numpy().tobytes()
    (made / "file.npz").write_bytes(earlier)
    refuse(simulator, operation, prefix)
    path = made / ("file.npz" if writer != "numpy.save" else "file.npy")
    with pytest.raises(Exception):
        WRITERS[writer](path, size)
    assert simulator.fault_hits() > 0
    assert simulator.keys(prefix) == ([] if writer in REMOVERS else [prefix + "file.npz"])
    if writer not in REMOVERS:
        assert (mount("--read-only") / "file.npz").read_bytes() == earlier


@pytest.mark.parametrize("writer", ["torch.save and rename", "rsync"])
def test_a_rename_that_fails_is_told(mount, simulator, prefix, writer):
    made = mount()
    (made / "file").write_bytes(b"the earlier version")
    refuse(simulator, "CopyObject", prefix)
    with pytest.raises(Exception):
        WRITERS[writer](made / "file", 100_000)
    assert (mount("--read-only") / "file").read_bytes() == b"the earlier version"


def test_a_move_within_the_mount_that_fails_keeps_the_source(mount, simulator, prefix):
    made = mount()
    (made / "file").write_bytes(b"content")
    refuse(simulator, "CopyObject", prefix)
    moved = subprocess.run(["mv", made / "file", made / "file moved"], stderr=subprocess.DEVNULL, check=False)
    assert moved.returncode == 1
    assert simulator.keys(prefix) == [prefix + "file"]


def test_what_h5py_cannot_append_leaves_the_file_as_it_was(mount, simulator, prefix):
    made = mount()
    with h5py.File(made / "file.h5", "w") as file:
        file["first"] = numpy.arange(100_000)
    refuse(simulator, "UploadPart", prefix)
    with pytest.raises(Exception):
        with h5py.File(made / "file.h5", "a") as file:
            file["second"] = tensor(20 * MIB).numpy()
    with h5py.File(mount("--read-only") / "file.h5", "r") as file:
        assert list(file) == ["first"] and numpy.array_equal(file["first"], numpy.arange(100_000))


# What the shell itself writes, and, in dash, also what its commands write.
@pytest.mark.parametrize("shell, script", [
    ("bash", "echo lost > file"), ("bash", "printf lost >> file"), ("bash", "exec 3> file; echo lost >&3; exec 3>&-"),
    ("dash", "cat /proc/version > file")])
def test_what_a_shell_cannot_notice_is_not_visible(mount, simulator, prefix, shell, script):
    made = mount()
    refuse(simulator, "PutObject", prefix)
    subprocess.run([shell, "-c", script], cwd=made.path, check=True)
    assert simulator.keys(prefix) == []
    assert prefix + "file" in made.log()
    assert not (mount("--read-only") / "file").exists()


# --- DCP

def save_by_file_system(path, size, **options):
    dcp.save({"weight": tensor(size)}, storage_writer=dcp.FileSystemWriter(path, **options), no_dist=True)


def save_by_fsspec(path, size, **options):
    dcp.save({"weight": tensor(size)}, storage_writer=FsspecWriter(f"file://{path}", **options), no_dist=True)


def save_for_hugging_face(path, size):
    dcp.save({"weight": tensor(size)}, storage_writer=dcp.HuggingFaceStorageWriter(str(path)), no_dist=True)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("operation, size", FAULTS)
@pytest.mark.parametrize("save, options", [
    (save_by_file_system, {"sync_files": True}), (save_by_file_system, {"sync_files": False}),
    (save_by_fsspec, {"sync_files": True}), (save_for_hugging_face, {})])
def test_dcp_with_one_thread_raises_and_has_no_metadata(mount, simulator, prefix, save, options, operation, size):
    made = mount()
    refuse(simulator, operation, prefix, ("step/*.distcp", "step/*.safetensors"))
    with pytest.raises(dcp.api.CheckpointException):
        save(made / "step", size, **options)
    assert simulator.fault_hits() > 0
    assert [key for key in simulator.keys(prefix) if key != prefix + "step/"] == []


def assert_loads(path, size):
    loaded = {"weight": torch.zeros(size // 4)}
    dcp.load(loaded, checkpoint_id=path, no_dist=True)
    assert equal(loaded["weight"], tensor(size))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("save, operation", [(save_by_file_system, "PutObject"), (save_by_file_system, "CopyObject"),
                                             (save_by_fsspec, "PutObject")])
def test_dcp_raises_when_its_metadata_fails(mount, simulator, prefix, save, operation):
    made = mount()
    refuse(simulator, operation, prefix, ("step/.metadata*",), times=1)
    with pytest.raises(dcp.api.CheckpointException):
        save(made / "step", 100_000, sync_files=True)
    assert simulator.fault_hits() > 0
    assert prefix + "step/.metadata" not in simulator.keys(prefix)
    # The same again when the store is well.
    save(made / "step", 100_000, sync_files=True)
    assert_loads(mount() / "step", 100_000)


@pytest.mark.filterwarnings("ignore")
def test_fsspec_copies_what_it_cannot_rename(mount, simulator, prefix):
    refuse(simulator, "CopyObject", prefix, ("step/.metadata*",))
    save_by_fsspec(mount() / "step", 100_000)
    assert simulator.fault_hits() > 0
    assert_loads(mount() / "step", 100_000)
