# SPDX-License-Identifier: Apache-2.0
"""torch.distributed.checkpoint in one process; torch/test_checkpoints has the one of several ranks."""

import itertools
import os

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import _extension, format_utils
from torch.distributed.checkpoint._fsspec_filesystem import FsspecReader, FsspecWriter
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType

from programs.states import equal, weights

pytestmark = pytest.mark.filterwarnings("ignore:.*(single process|overwriting since)")


def empty(state):
    return {name: torch.empty_like(tensor) for name, tensor in state.items()}


def assert_loads(path, expected, reader=dcp.FileSystemReader):
    loaded = empty(expected)
    dcp.load(loaded, storage_reader=reader(path), no_dist=not dist.is_initialized())
    assert equal(loaded, expected)


def names(directory):
    return sorted(os.listdir(directory))


@pytest.mark.parametrize("single_file", [True, False], ids=["one_file", "many_files"])
@pytest.mark.parametrize("sync", [True, False], ids=["sync", "no_sync"])
@pytest.mark.parametrize("threads", [1, 4])
def test_file_system_writer(mount, single_file, sync, threads):
    made = mount()
    # The second time over the first, with fewer and other tensors.
    for seed, size in ((1, 15), (2, 12)):
        state = weights(size, seed)
        dcp.save(state, no_dist=True, storage_writer=dcp.FileSystemWriter(
            made / "step", single_file_per_rank=single_file, sync_files=sync, thread_count=threads))
        other = mount()
        assert ".metadata" in names(other / "step") and ".metadata.tmp" not in names(other / "step")
        assert_loads(other / "step", state)
    with pytest.raises(dcp.api.CheckpointException, match="already exists"):
        dcp.save(state, no_dist=True, storage_writer=dcp.FileSystemWriter(made / "step", overwrite=False))


def test_by_checkpoint_id_and_in_part(mount):
    state = weights(12)
    dcp.save({"model": state, "step": 5}, checkpoint_id=mount() / "runs/first/step5", no_dist=True)
    other = mount()
    loaded = {"model": {"layer1.weight": torch.empty_like(state["layer1.weight"])}, "step": 0}
    dcp.load(loaded, checkpoint_id=other / "runs/first/step5", no_dist=True)
    assert loaded["step"] == 5 and equal(loaded["model"]["layer1.weight"], state["layer1.weight"])


def test_converted_to_torch_save_and_back(mount):
    made = mount()
    state = weights(12)
    dcp.save(state, checkpoint_id=made / "step", no_dist=True)
    format_utils.dcp_to_torch_save(made / "step", made / "model.pt")
    format_utils.torch_save_to_dcp(made / "model.pt", made / "again")
    other = mount()
    assert equal(torch.load(other / "model.pt", weights_only=False), state)
    assert_loads(other / "again", state)


def test_zstandard_extension(mount):
    state = weights(12)
    dcp.save(state, no_dist=True, storage_writer=dcp.FileSystemWriter(
        mount() / "step", _extensions=[_extension.ZStandard()]))
    assert_loads(mount() / "step", state)


def test_fsspec(mount):
    made = mount()
    for seed in (1, 2):
        state = weights(12, seed)
        dcp.save(state, no_dist=True, storage_writer=FsspecWriter(f"file://{made / 'step'}", sync_files=True))
    assert_loads(f"file://{mount() / 'step'}", state, FsspecReader)
    assert ".metadata.tmp" not in names(mount() / "step")


@pytest.mark.parametrize("distributed, consolidation, threads", [
    # Without save_distributed torch itself says that nothing is consolidated.
    (False, False, 1), (True, False, 1), (True, True, 1), (True, True, 4)])
def test_hugging_face_writer(mount, distributed, consolidation, threads):
    made = mount()
    # It consolidates floating point only.
    state = {name: tensor for name, tensor in weights(12).items() if tensor.is_floating_point()}
    places = dict(zip(state, itertools.cycle((1, 2))))
    writer = dcp.HuggingFaceStorageWriter(path=str(made / "model"), fqn_to_index_mapping=places, thread_count=threads,
                                          save_distributed=distributed, enable_consolidation=consolidation)
    dcp.save(state, storage_writer=writer, no_dist=True)
    other = mount()
    assert_loads(str(other / "model"), state, dcp.HuggingFaceStorageReader)
    assert sum(name.endswith(".safetensors") for name in names(other / "model")) == 2


@pytest.fixture
def process_group(tmp_path):
    dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'rendezvous'}", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("process_group")
@pytest.mark.parametrize("how", [AsyncCheckpointerType.THREAD,
                                 pytest.param(AsyncCheckpointerType.PROCESS, marks=pytest.mark.full)])
def test_async_save(mount, how):
    made = mount()
    for step in (1, 2):
        state = weights(12, step)
        saved = dcp.async_save(state, checkpoint_id=made / f"step{step}", async_checkpointer_type=how)
        # Training goes on, and changes what was saved before it is in the bucket.
        expected = {name: tensor.clone() for name, tensor in state.items()}
        for tensor in state.values():
            tensor.zero_()
        saved.result(120)
        other = mount()
        assert_loads(other / f"step{step}", expected)
