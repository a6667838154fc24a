# SPDX-License-Identifier: Apache-2.0
"""One rank of a job: saves and loads DCP checkpoints together with the others, over gloo.

usage: rank.py MIB (save|load DIRECTORY SEED)...   (RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT as torchrun sets them)
"""

import os
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

MIB = 1 << 20


def state(seed: int, mebibytes: int) -> dict[str, object]:
    """Sharded over all ranks, of each rank alone, and the same on all."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    generator = torch.Generator().manual_seed(seed)
    whole = torch.randn(dist.get_world_size() * 1024, mebibytes * MIB // 4 // 1024 // dist.get_world_size(), generator=generator)
    own = torch.randn(1000, generator=torch.Generator().manual_seed(seed * 100 + dist.get_rank()))
    return {"sharded": distribute_tensor(whole, mesh, [Shard(0)]), f"own{dist.get_rank()}": own,
            "replicated": torch.full((1000,), float(seed)), "step": seed}


def run(action: str, directory: str, seed: int, mebibytes: int) -> None:
    wanted = state(seed, mebibytes)
    if action == "save":
        dcp.save(wanted, checkpoint_id=directory)
    else:
        loaded = state(seed + 1, mebibytes)
        dcp.load(loaded, checkpoint_id=directory)
        assert loaded["step"] == seed
        assert torch.equal(loaded["sharded"].to_local(), wanted["sharded"].to_local())
        assert torch.equal(loaded["replicated"], wanted["replicated"])
        own = f"own{os.environ['RANK']}"
        assert torch.equal(loaded[own], wanted[own])


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    words = iter(sys.argv[2:])
    for action, directory, seed in zip(words, words, words):
        run(action, directory, int(seed), int(sys.argv[1]))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
