# SPDX-License-Identifier: Apache-2.0
"""torch.save and torch.load in all forms, safetensors, and the small files that point at the last checkpoint."""

import io
import mmap
import multiprocessing
import os

import numpy
import pytest
import safetensors.numpy
import safetensors.torch
import torch
from safetensors import safe_open

from programs.states import MIB, checkpoint, equal, weights


def save_by_path(state, path):
    torch.save(state, path)


def save_to_file(state, path):
    with open(path, "wb") as file:
        torch.save(state, file)


def save_to_unbuffered_file(state, path):
    with open(path, "wb", buffering=0) as file:
        torch.save(state, file)


def save_legacy(state, path):
    torch.save(state, path, _use_new_zipfile_serialization=False)


def save_by_rename(state, path):
    torch.save(state, f"{path}.tmp")
    os.rename(f"{path}.tmp", path)


def save_from_memory(state, path):
    buffer = io.BytesIO()
    torch.save(state, buffer)
    with open(path, "wb") as file:
        file.write(buffer.getbuffer())


def load_from_file(path):
    with open(path, "rb") as file:
        return torch.load(file)


def load_from_shared_mapping(path):
    with torch.serialization.set_default_mmap_options(mmap.MAP_SHARED):
        return torch.load(path, mmap=True)


@pytest.mark.parametrize("save", [save_by_path, save_to_file, save_to_unbuffered_file, save_legacy, save_by_rename,
                                  save_from_memory])
def test_torch_save(mount, tmp_path, save):
    made = mount()
    # Over an earlier and longer one.
    save(checkpoint(15, seed=1), made / "model.pt")
    expected = checkpoint(12)
    save(expected, made / "model.pt")
    save(expected, tmp_path / "model.pt")
    other = mount()
    assert equal(torch.load(other / "model.pt"), expected)
    assert (other / "model.pt").read_bytes() == (tmp_path / "model.pt").read_bytes()
    assert os.listdir(other.path) == ["model.pt"]


@pytest.mark.parametrize("zip_format", [True, False], ids=["zip", "legacy"])
def test_torch_load(mount, zip_format):
    expected = checkpoint(12)
    torch.save(expected, mount() / "model.pt", _use_new_zipfile_serialization=zip_format)
    loads = [load_from_file, lambda path: torch.load(path, weights_only=True),
             lambda path: torch.load(path, weights_only=False),
             lambda path: torch.load(path, map_location=lambda storage, _: storage)]
    if zip_format:
        loads += [load_from_shared_mapping, lambda path: torch.load(path, mmap=True),
                  lambda path: torch.load(path, mmap=True, map_location="cpu", weights_only=False), load_from_file]
    # Two to a mount: one that has seen nothing, and one that has read it.
    for first, second in zip(loads[::2], loads[1::2]):
        other = mount()
        assert equal(first(other / "model.pt"), expected)
        assert equal(second(other / "model.pt"), expected)
    shapes = torch.load(other / "model.pt", map_location="meta")["model"]
    assert {name: tensor.shape for name, tensor in shapes.items()} == \
        {name: tensor.shape for name, tensor in expected["model"].items()}


def test_torch_save_without_data(mount, tmp_path):
    for directory in (mount().path, tmp_path):
        with torch.serialization.skip_data():
            torch.save(weights(12), directory / "model.pt")
    other = mount()
    assert (other / "model.pt").read_bytes() == (tmp_path / "model.pt").read_bytes()
    assert all(not tensor.any() for tensor in torch.load(other / "model.pt").values())


def test_a_module_and_its_optimizer_resume(mount):
    class Scale(torch.nn.Module):
        """Each weight has its own gradient: no order of summation changes a bit of it."""

        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(1024, 1024))

        def forward(self, inputs):
            return self.weight * inputs

    def trained(steps, resume=None):
        torch.manual_seed(0)
        model = Scale()
        optimizer = torch.optim.AdamW(model.parameters())
        if resume:
            state = torch.load(resume)
            model.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])
        for _ in range(steps):
            optimizer.zero_grad()
            model(torch.ones(1024)).square().sum().backward()
            optimizer.step()
        return {"model": model.state_dict(), "optimizer": optimizer.state_dict()}

    saved = trained(2)
    torch.save(saved, mount() / "model.pt")
    other = mount()
    assert equal(torch.load(other / "model.pt"), saved)
    assert equal(trained(2, other / "model.pt"), trained(4))


def test_safetensors(mount):
    made = mount()
    safetensors.torch.save_file(weights(20, seed=1), made / "model.safetensors")
    expected = weights(12)
    safetensors.torch.save_file(expected, made / "model.safetensors", metadata={"format": "pt"})
    arrays = {name: tensor.numpy() for name, tensor in expected.items() if tensor.dtype != torch.bfloat16}
    safetensors.numpy.save_file(arrays, made / "arrays.safetensors")
    model = torch.nn.Linear(1024, 1024)
    safetensors.torch.save_model(model, str(made / "module.safetensors"))
    other = mount()
    assert equal(safetensors.torch.load_file(other / "model.safetensors"), expected)
    assert equal(safetensors.torch.load((other / "model.safetensors").read_bytes()), expected)
    loaded = safetensors.numpy.load_file(other / "arrays.safetensors")
    assert loaded.keys() == arrays.keys() and all(numpy.array_equal(loaded[name], arrays[name]) for name in arrays)
    again = torch.nn.Linear(1024, 1024)
    safetensors.torch.load_model(again, str(other / "module.safetensors"))
    assert equal(dict(again.state_dict()), dict(model.state_dict()))
    assert set(os.listdir(other.path)) == {"model.safetensors", "arrays.safetensors", "module.safetensors"}
    other = mount()
    with safe_open(other / "model.safetensors", framework="pt") as file:
        assert file.metadata() == {"format": "pt"}
        for name in sorted(file.keys(), reverse=True):
            assert equal(file.get_tensor(name), expected[name])
        assert equal(file.get_slice("layer1.weight")[100:200, ::2], expected["layer1.weight"][100:200, ::2])


@pytest.mark.parametrize("pointer, write", [
    # DeepSpeed: its engine writes the tag to `latest` when the files of the tag are saved.
    ("latest", lambda step: f"global_step{step}"),
    # Megatron-LM, of the tracker file.
    ("latest_checkpointed_iteration.txt", str),
])
def test_pointer_files_overwritten_in_place(mount, pointer, write):
    made = mount()
    for step in (9, 10, 999, 1000, 2):
        directory = write(step) if pointer == "latest" else f"iter_{step:07d}/mp_rank_00"
        os.makedirs(made / directory)
        expected = weights(3, seed=step)
        torch.save(expected, made / directory / "model.pt")
        with open(made / pointer, "w") as file:
            file.write(write(step))
        other = mount()
        assert (other / pointer).read_text() == write(step)
        assert equal(torch.load(other / directory / "model.pt"), expected)


def save_and_sync(path, state):
    with open(path, "wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())


def test_forked_writers(mount):
    """Like Megatron's asynchronous checkpoints: children write and sync, then their parent renames the metadata."""
    made = mount()
    os.mkdir(made / "step")
    states = [weights(9, rank) for rank in range(3)]
    context = multiprocessing.get_context("fork")
    # Opened before the fork, and written after it.
    with open(made / "step/.metadata.tmp", "wb") as metadata:
        writers = [context.Process(target=save_and_sync, args=(made / f"step/__{rank}_0.distcp", state))
                   for rank, state in enumerate(states)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join(60)
            assert writer.exitcode == 0
        metadata.write(b"metadata")
        os.fsync(metadata.fileno())
    os.rename(made / "step/.metadata.tmp", made / "step/.metadata")
    other = mount()
    assert (other / "step/.metadata").read_bytes() == b"metadata"
    for rank, state in enumerate(states):
        assert equal(torch.load(other / f"step/__{rank}_0.distcp"), state)


@pytest.mark.parametrize("size", [4096, 12 * MIB, 12 * MIB + 12345])
def test_direct_writes_and_a_tail(mount, size):
    """Like DeepSpeed's FastFileWriter: O_DIRECT without O_TRUNC in aligned blocks, the rest without O_DIRECT."""
    made = mount()
    block = mmap.mmap(-1, 4 * MIB)
    for seed in range(2):
        content = numpy.random.default_rng(seed).bytes(size)
        aligned = size // 4096 * 4096
        file = os.open(made / "zero.pt", os.O_CREAT | os.O_WRONLY | os.O_DIRECT)
        for begin in range(0, aligned, len(block)):
            piece = min(len(block), aligned - begin)
            block[:piece] = content[begin:begin + piece]
            assert os.pwrite(file, memoryview(block)[:piece], begin) == piece
        os.fsync(file)
        os.close(file)
        if aligned < size:
            file = os.open(made / "zero.pt", os.O_WRONLY)
            assert os.pwrite(file, content[aligned:], aligned) == size - aligned
            os.fsync(file)
            os.close(file)
        other = mount()
        assert (other / "zero.pt").read_bytes() == content
        file = os.open(other / "zero.pt", os.O_RDONLY | os.O_DIRECT)
        assert os.preadv(file, [memoryview(block)[:4096]], 0) == 4096
        assert block[:4096] == content[:4096]
        os.close(file)


def test_renames_in_a_chain(mount):
    """Like TensorFlow's: shards in one write each under temporary names, then all renamed twice, the index last."""
    made = mount()
    os.makedirs(made / "ckpt_temp/part-00000-of-00001")
    contents = {f"data-0000{n}-of-00002": numpy.random.default_rng(n).bytes(9 * MIB) for n in range(2)}
    contents["index"] = b"index"
    for name, content in contents.items():
        temporary = f"ckpt_temp/part-00000-of-00001.{name}"
        with open(made / f"{temporary}.tempstate17", "wb", buffering=0) as file:
            assert file.write(content) == len(content)
        os.rename(made / f"{temporary}.tempstate17", made / temporary)
    for name in contents:
        os.rename(made / f"ckpt_temp/part-00000-of-00001.{name}", made / f"ckpt-1.{name}")
    os.rmdir(made / "ckpt_temp/part-00000-of-00001")
    os.rmdir(made / "ckpt_temp")
    for step in (1, 2):
        with open(made / "checkpoint.tmp8d7c", "w") as file:
            file.write(f'model_checkpoint_path: "ckpt-{step}"\n')
        os.replace(made / "checkpoint.tmp8d7c", made / "checkpoint")
    other = mount()
    expected = {f"ckpt-1.{name}": content for name, content in contents.items()}
    expected["checkpoint"] = b'model_checkpoint_path: "ckpt-2"\n'
    assert {name: (other / name).read_bytes() for name in os.listdir(other.path)} == expected
