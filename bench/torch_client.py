# SPDX-License-Identifier: Apache-2.0
"""Saves or loads one checkpoint and prints one line of JSON: what any training script does, with a clock around it.

    torch_client.py save|load|load-mmap|safetensors-save|safetensors-load|dcp-save|dcp-load PATH
                    --bytes N [--fsync] [--verify]
Imports, making the tensors and checking them are not timed. A mapped checkpoint is loaded once all of it is touched.
"""

import argparse
import json
import os
import tempfile

import safetensors.torch
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from stopwatch import Stopwatch

RANKS = 2
TENSORS = 8


class Options(argparse.Namespace):
    # What opens a file of a library, and makes the storage of a rank; None: paths.
    open = None
    storage = None


def make_state(size: int, seed: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {f"layer{i}.weight": torch.empty(size // 4 // TENSORS).uniform_(generator=generator) for i in range(TENSORS)}


def touch_memory(size: int) -> None:
    """What a load allocates is then memory that this process has touched before."""
    blocks = [torch.ones(size // 4 // TENSORS) for _ in range(TENSORS)]
    del blocks


def check_equal(expected: dict[str, torch.Tensor], loaded: dict[str, torch.Tensor]) -> None:
    for name, tensor in expected.items():
        if not torch.equal(tensor, loaded[name]):
            raise SystemExit(f"{name} differs from what was saved")


def sync_file(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def save(options: argparse.Namespace) -> dict[str, float]:
    state = make_state(options.bytes, seed=1)
    stopwatch = Stopwatch()
    if options.action == "safetensors-save":
        safetensors.torch.save_file(state, options.path)
    elif options.open:
        with options.open(options.path) as file:
            torch.save(state, file)
    else:
        torch.save(state, options.path)
    if options.fsync:
        sync_file(options.path)
    return stopwatch.result()


def load_state(options: argparse.Namespace) -> dict[str, torch.Tensor]:
    if options.action == "load-mmap":
        state = torch.load(options.path, mmap=True)
        for tensor in state.values():
            tensor.sum()
        return state
    if options.action == "safetensors-load":
        return safetensors.torch.load_file(options.path)
    if options.open:
        with options.open(options.path) as file:
            return torch.load(file)
    return torch.load(options.path)


def load(options: argparse.Namespace) -> dict[str, float]:
    touch_memory(options.bytes)
    stopwatch = Stopwatch()
    state = load_state(options)
    result = stopwatch.result()
    if options.verify:
        check_equal(make_state(options.bytes, seed=1), state)
    return result


def rank_main(rank: int, options: argparse.Namespace, scratch: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{scratch}/rendezvous", rank=rank, world_size=RANKS)
    saved = make_state(options.bytes // RANKS, seed=10 + rank)
    state = {f"rank{rank}.{name}": tensor for name, tensor in saved.items()}
    if options.action == "dcp-load":
        state = {name: torch.ones_like(tensor) for name, tensor in state.items()}
        touch_memory(options.bytes // RANKS)
    writer, reader = options.storage() if options.storage else (None, None)
    place = {} if options.storage else {"checkpoint_id": options.path}
    dist.barrier()
    stopwatch = Stopwatch()
    if options.action == "dcp-save":
        dcp.save(state, storage_writer=writer, **place)
    else:
        dcp.load(state, storage_reader=reader, **place)
    dist.barrier()
    result = stopwatch.result()
    if options.verify and options.action == "dcp-load":
        check_equal({f"rank{rank}.{name}": tensor for name, tensor in saved.items()}, state)
    with open(f"{scratch}/{rank}", "w") as file:
        json.dump(result, file)
    dist.destroy_process_group()


def distributed(options: argparse.Namespace) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as scratch:
        # torch is imported already; spawned ranks would import it again.
        mp.start_processes(rank_main, args=(options, scratch), nprocs=RANKS, start_method="fork")
        results = []
        for rank in range(RANKS):
            with open(f"{scratch}/{rank}") as file:
                results.append(json.load(file))
    return {"wall_s": max(result["wall_s"] for result in results), "cpu_s": sum(result["cpu_s"] for result in results),
            "peak_mb": sum(result["peak_mb"] for result in results)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("action", choices=["save", "load", "load-mmap", "safetensors-save", "safetensors-load",
                                           "dcp-save", "dcp-load"])
    parser.add_argument("path")
    parser.add_argument("--bytes", type=int, required=True)
    parser.add_argument("--fsync", action="store_true")
    parser.add_argument("--verify", action="store_true")
    options = parser.parse_args(namespace=Options())
    run = distributed if options.action.startswith("dcp") else save if options.action.endswith("save") else load
    print(json.dumps({"action": options.action, "bytes": options.bytes, **run(options)}))


if __name__ == "__main__":
    main()
