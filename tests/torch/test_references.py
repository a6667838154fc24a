# SPDX-License-Identifier: Apache-2.0
"""Mixed-precision checkpoints in one file: fp32 weights leave out what their bf16 weights say."""

import errno
import json
import os
import random
import subprocess

import pytest
import torch
from harness.programs import CKPTFS
from harness.simulator import BUCKET

MIB = 1 << 20


def mixed_precision(mebibytes: int) -> dict:
    """bf16 weights, moments, and the fp32 master that the weights are rounded from; so much master."""
    generator = torch.Generator().manual_seed(1)
    sizes = [700, 4096, 300_000, 65_536, 1_000_003]
    master, left, layer = {}, mebibytes * MIB // 4, 0
    while left > 0:
        count = min(sizes[layer % len(sizes)], left)
        master[f"layer{layer}"] = torch.randn(count, generator=generator) * 0.03
        left -= count
        layer += 1
    # Ties, of which half round up, and numbers that bf16 does not have.
    first = master["layer2"].view(torch.int32)
    first[::5000] = (first[::5000] & -0x10000) | 0x8000
    master["layer2"][1] = float("nan")
    master["layer2"][2] = float("inf")
    master["layer2"][3] = 3.4e38
    return {"model": {name: tensor.to(torch.bfloat16) for name, tensor in master.items()},
            "moments": {name: tensor * tensor * 1e-3 for name, tensor in master.items()},
            "master": master}


def assert_equal_bits(left: dict, right: dict) -> None:
    assert left.keys() == right.keys()
    for part, tensors in left.items():
        assert tensors.keys() == right[part].keys()
        for name, tensor in tensors.items():
            assert torch.equal(tensor.view(torch.int16), right[part][name].view(torch.int16)), (part, name)


def tool(simulator, command: str, key: str, *options: str) -> bytes:
    return subprocess.run([CKPTFS, command, f"s3://{BUCKET}/{key}", *options], capture_output=True, timeout=120,
                          check=True, env={**os.environ, **simulator.environment()}).stdout


@pytest.fixture
def saved(mount, simulator, prefix, tmp_path):
    """A checkpoint on a mount and on the local disk."""
    state = mixed_precision(48)
    made = mount("--compress", "auto")
    torch.save(state, tmp_path / "checkpoint.pt")
    torch.save(state, made / "checkpoint.pt")
    return state, (tmp_path / "checkpoint.pt").read_bytes()


def test_the_master_is_stored_by_its_lower_halves(saved, mount, simulator, prefix):
    state, content = saved
    key = prefix + "checkpoint.pt"
    assert simulator.content(key) == content, "as the manual says it is read"
    report = json.loads(tool(simulator, "inspect", key, "--json"))
    assert report["references"]["count"] > 30
    assert report["references"]["size"] > 0.85 * 24 * MIB
    assert report["references"]["stored_size"] < 20_000
    other = mount()
    assert_equal_bits(torch.load(other / "checkpoint.pt"), state)
    assert_equal_bits(torch.load(other / "checkpoint.pt", mmap=True), state)


def test_every_offset_can_be_read(saved, mount, simulator, prefix):
    _, content = saved
    choose = random.Random(3)
    for options in ((), ("--direct-io", "always"), ("--max-memory", "64M")):
        other = mount(*options)
        with open(other / "checkpoint.pt", "rb", buffering=0) as file:
            for _ in range(60):
                size = choose.choice([1, 1000, 300_000, 3 * MIB])
                offset = choose.randrange(len(content) - size)
                assert os.pread(file.fileno(), size, offset) == content[offset:offset + size], (offset, size)


def test_tools_follow_references(saved, simulator, prefix):
    _, content = saved
    assert tool(simulator, "cat", prefix + "checkpoint.pt") == content
    tool(simulator, "verify", prefix)
    assert b"references" in tool(simulator, "inspect", prefix + "checkpoint.pt")


def test_what_is_appended_goes_behind_references(saved, mount, simulator, prefix):
    _, content = saved
    made = mount("--compress", "auto")
    for more in (b"more", content[:3 * MIB]):
        with open(made / "checkpoint.pt", "ab") as file:
            file.write(more)
        content += more
        assert simulator.content(prefix + "checkpoint.pt") == content
    assert (mount() / "checkpoint.pt").read_bytes() == content


def test_weights_that_others_refer_to_cannot_be_changed(saved, mount):
    _, content = saved
    made = mount("--compress", "auto")
    with open(made / "header.pt", "wb", buffering=0) as file:
        file.write(content)
        assert os.pwrite(file.fileno(), b"header", 0) == 6
    assert (mount() / "header.pt").read_bytes() == b"header" + content[6:]
    with pytest.raises(OSError) as failed, open(made / "weights.pt", "wb", buffering=0) as file:
        file.write(content)
        os.pwrite(file.fileno(), b"weights", 3 * MIB + 100_000)
    assert failed.value.errno == errno.EOPNOTSUPP
    assert "bf16" in made.log()
    assert not (mount() / "weights.pt").exists()
