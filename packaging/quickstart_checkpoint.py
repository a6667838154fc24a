# SPDX-License-Identifier: Apache-2.0
"""Saves and loads what the quickstart shows: one torch checkpoint and one distributed checkpoint of two ranks.

Nothing here knows of ckptfs: it is what any training script does.
    quickstart_checkpoint.py save DIRECTORY MEBIBYTES
    quickstart_checkpoint.py load DIRECTORY MEBIBYTES
"""

import os
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp

RANKS = 2


def tensors(mebibytes: int, seed: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    count = 8
    elements = mebibytes * 2**20 // 4 // count
    return {f"layer{i}.weight": torch.randn(elements, generator=generator) for i in range(count)}


def report(what: str, seconds: float, mebibytes: int) -> None:
    print(f"  {what}: {mebibytes} MiB in {seconds:.2f} s, {mebibytes * 2**20 / seconds / 1e6:.0f} MB/s", flush=True)


def check_equal(expected: dict[str, torch.Tensor], loaded: dict[str, torch.Tensor]) -> None:
    for name, tensor in expected.items():
        if not torch.equal(tensor, loaded[name]):
            raise SystemExit(f"{name} differs from what was saved")


def save_torch(directory: str, mebibytes: int) -> None:
    state = tensors(mebibytes, seed=1)
    started = time.monotonic()
    torch.save(state, os.path.join(directory, "model.pt"))
    report("torch.save", time.monotonic() - started, mebibytes)


def load_torch(directory: str, mebibytes: int) -> None:
    started = time.monotonic()
    state = torch.load(os.path.join(directory, "model.pt"))
    report("torch.load", time.monotonic() - started, mebibytes)
    check_equal(tensors(mebibytes, seed=1), state)


def rank_main(rank: int, action: str, directory: str, mebibytes: int, rendezvous: str) -> None:
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=RANKS)
    state = {f"rank{rank}.{name}": tensor for name, tensor in tensors(mebibytes // RANKS, seed=10 + rank).items()}
    path = os.path.join(directory, "dcp")
    dist.barrier()
    started = time.monotonic()
    if action == "save":
        dcp.save(state, checkpoint_id=path)
    else:
        loaded = {name: torch.empty_like(tensor) for name, tensor in state.items()}
        dcp.load(loaded, checkpoint_id=path)
    dist.barrier()
    if rank == 0:
        report(f"DCP {action}, {RANKS} ranks", time.monotonic() - started, mebibytes)
    if action == "load":
        check_equal(state, loaded)
    dist.destroy_process_group()


def main() -> None:
    action, directory, mebibytes = sys.argv[1], sys.argv[2], int(sys.argv[3])
    if action == "save":
        save_torch(directory, mebibytes)
    else:
        load_torch(directory, mebibytes)
    with tempfile.TemporaryDirectory() as scratch:
        mp.spawn(rank_main, args=(action, directory, mebibytes, os.path.join(scratch, "rendezvous")), nprocs=RANKS)


if __name__ == "__main__":
    main()
