# SPDX-License-Identifier: Apache-2.0
"""Unchanged checkpoint writers: what they save on one mount loads equal on another, and the objects are the files."""

import hashlib
import os

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from safetensors.torch import load_file, save_file

MIB = 1 << 20


def tensors(mebibytes: int, seed: int, count: int = 8) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {f"layer{i}": torch.randn(mebibytes * MIB // 4 // count, generator=generator) for i in range(count)}


def assert_equal(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> None:
    assert left.keys() == right.keys()
    for name in left:
        assert torch.equal(left[name], right[name]), name


def assert_objects_are_the_files(simulator, prefix: str, directory) -> None:
    for root, _, names in os.walk(directory):
        for name in names:
            path = os.path.join(root, name)
            with open(path, "rb") as file:
                local = hashlib.file_digest(file, "sha256").hexdigest()
            key = prefix + os.path.relpath(path, directory)
            assert hashlib.sha256(simulator.content(key)).hexdigest() == local, key


@pytest.mark.parametrize("size", [4, 200, pytest.param(2048, marks=pytest.mark.full)])
def test_torch_save(mount, simulator, prefix, size):
    state = tensors(size, seed=1)
    torch.save(state, mount() / "model.pt")
    other = mount()
    assert_equal(torch.load(other / "model.pt"), state)
    assert_equal(torch.load(other / "model.pt", mmap=True), state)
    assert_objects_are_the_files(simulator, prefix, other.path)


def test_torch_save_to_a_file_object_and_legacy_format(mount):
    state = tensors(20, seed=2)
    made = mount()
    with open(made / "object.pt", "wb") as file:
        torch.save(state, file)
    torch.save(state, made / "legacy.pt", _use_new_zipfile_serialization=False)
    other = mount()
    assert_equal(torch.load(other / "object.pt"), state)
    assert_equal(torch.load(other / "legacy.pt"), state)


@pytest.mark.parametrize("size", [100, pytest.param(1024, marks=pytest.mark.full)])
def test_safetensors(mount, simulator, prefix, size):
    state = tensors(size, seed=3)
    save_file(state, mount() / "model.safetensors")
    other = mount()
    assert os.listdir(other.path) == ["model.safetensors"]
    assert_equal(load_file(other / "model.safetensors"), state)
    assert_objects_are_the_files(simulator, prefix, other.path)


def dcp_rank(rank: int, ranks: int, rendezvous: str, path: str, action: str, size: int, threads: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=ranks)
    state = {f"rank{rank}.{name}": tensor for name, tensor in tensors(size, seed=10 + rank).items()}
    if action == "save":
        dcp.save(state, storage_writer=dcp.FileSystemWriter(path, thread_count=threads, sync_files=True))
    else:
        loaded = {name: torch.empty_like(tensor) for name, tensor in state.items()}
        dcp.load(loaded, storage_reader=dcp.FileSystemReader(path))
        assert_equal(loaded, state)
    dist.destroy_process_group()


@pytest.mark.parametrize("threads", [pytest.param(1, marks=pytest.mark.full), 4])
@pytest.mark.parametrize("ranks, size", [(2, 40), pytest.param(4, 256, marks=pytest.mark.full)])
def test_dcp(mount, simulator, prefix, tmp_path, ranks, size, threads):
    saving = mount()
    for attempt in ("first", "overwritten"):
        mp.spawn(dcp_rank, nprocs=ranks,
                 args=(ranks, str(tmp_path / f"save-{attempt}"), str(saving / "step"), "save", size, threads))
    loading = mount()
    mp.spawn(dcp_rank, nprocs=ranks,
             args=(ranks, str(tmp_path / "load"), str(loading / "step"), "load", size, threads))
    assert ".metadata" in os.listdir(loading / "step")
    assert ".metadata.tmp" not in os.listdir(loading / "step")
    assert simulator.open_uploads(prefix) == []
    assert_objects_are_the_files(simulator, prefix, loading.path)
