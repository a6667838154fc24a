#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a training node with a GPU waits for: saves from its memory, restores into it, and steps beside a save.

    CKPTFS_BUILD=build/release python bench/gpu_node.py [--gib 4] [--rounds 3] [--disk /var/tmp] [--device cuda]

One checkpoint of bf16 weights and the two fp32 moments of Adam goes to a mount without compression, to one with, and to
the local disk with an fsync, in turn; the store is s3sim with 30 ms and 90 MB/s a connection. Restores are cold: a mount
is new, of the disk the page cache was dropped. What the first round reads back is compared, on the GPU. The medians are
printed, and the range. `--device cpu` shows that it works where there is no GPU.
"""

import argparse
import contextlib
import dataclasses
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator

import torch
import torch.distributed.checkpoint as dcp

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "tests"))

from bench_plan import S3_LIKE  # noqa: E402
from harness.mounts import Mount  # noqa: E402
from harness.simulator import BUCKET, Simulator  # noqa: E402

GIB = 1 << 30
# Of a parameter: two of the weight, four of each moment.
BYTES_PER_PARAMETER = 10
LAYERS = 32
TARGETS = {"mount": ["--compress", "none"], "mount, compressed": [], "disk": None}
State = dict[str, torch.Tensor]


def make_state(size: int, device: str) -> State:
    torch.manual_seed(1)
    each = size // BYTES_PER_PARAMETER // LAYERS
    state = {}
    for layer in range(LAYERS):
        gradient = torch.randn(each, device=device) * 1e-3
        state[f"{layer}.weight"] = (torch.randn(each, device=device) * 0.02).to(torch.bfloat16)
        state[f"{layer}.exp_avg"] = gradient
        state[f"{layer}.exp_avg_sq"] = gradient.square()
    return state


def empty_like(state: State) -> State:
    return {name: torch.zeros_like(tensor) for name, tensor in state.items()}


def sync_files(path: pathlib.Path) -> None:
    for file in path.iterdir() if path.is_dir() else [path]:
        descriptor = os.open(file, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


@dataclasses.dataclass
class Training:
    """Steps that keep the GPU busy and the processor free, as those of a large model."""

    device: str

    def __post_init__(self) -> None:
        side = 8192 if self.device != "cpu" else 256
        self._weights = torch.randn(side, side, device=self.device, dtype=torch.bfloat16)

    def step(self) -> None:
        activations = self._weights
        for _ in range(20):
            activations = (activations @ self._weights).clamp(-1, 1)
        if self.device != "cpu":
            torch.cuda.synchronize()

    def seconds_a_step(self, steps: int) -> float:
        began = time.monotonic()
        for _ in range(steps):
            self.step()
        return (time.monotonic() - began) / steps


class Node:
    def __init__(self, wanted: argparse.Namespace) -> None:
        self.device = wanted.device
        self.disk = pathlib.Path(tempfile.mkdtemp(prefix="gpu-node-", dir=wanted.disk))
        self.state = make_state(int(wanted.gib * GIB), self.device)
        self.size = sum(tensor.nbytes for tensor in self.state.values())
        self.store = Simulator("--preallocate", str(int(self.size * 2.5) + GIB), start_seconds=300)
        self.store.set_model(**S3_LIKE)
        self.training = Training(self.device)
        self.seconds: dict[tuple[str, str], list[float]] = {}
        self.stored: dict[str, float] = {}
        self.daemon_peak: dict[str, int] = {}

    def close(self) -> None:
        self.store.stop()
        shutil.rmtree(self.disk)

    def note(self, what: str, target: str, seconds: float) -> None:
        self.seconds.setdefault((what, target), []).append(seconds)
        print(f"  {what}, {target}: {seconds:.3f}", flush=True)

    def time(self, what: str, target: str, work: Callable[[], object]) -> object:
        if self.device != "cpu":
            torch.cuda.synchronize()
        began = time.monotonic()
        result = work()
        if self.device != "cpu":
            torch.cuda.synchronize()
        self.note(what, target, time.monotonic() - began)
        return result

    @contextlib.contextmanager
    def place(self, target: str) -> Iterator[pathlib.Path]:
        """A directory that has cached nothing."""
        options = TARGETS[target]
        if options is None:
            os.sync()
            pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")
            yield self.disk
            return
        mount = Mount(f"s3://{BUCKET}/", self.store.environment(), *options)
        try:
            yield mount.path
            self.daemon_peak[target] = max(self.daemon_peak.get(target, 0), mount.peak_memory())
            if mount.unmount() != 0:
                raise SystemExit(f"the mount ended badly:\n{mount.log()}")
        finally:
            mount.remove()

    def check(self, loaded: State, verify: bool) -> None:
        for name, tensor in self.state.items() if verify else ():
            if not torch.equal(tensor, loaded[name].to(self.device)):
                raise SystemExit(f"{name} differs from what was saved")

    def save(self, target: str) -> None:
        def to_file(path: pathlib.Path) -> None:
            torch.save(self.state, path)
            if TARGETS[target] is None:
                sync_files(path)

        with self.place(target) as directory:
            self.time("torch.save", target, lambda: to_file(directory / "model.pt"))
        with self.place(target) as directory:
            self.time("DCP save", target, lambda: dcp.save(self.state, checkpoint_id=directory / "dcp"))
        with self.place(target) as directory:
            self.save_beside_training(target, directory / "async")
        if TARGETS[target] is not None:
            pages = self.store.client().get_paginator("list_objects_v2").paginate(Bucket=BUCKET)
            stored = sum(item["Size"] for page in pages for item in page["Contents"])
            # Three times the same.
            self.stored[target] = stored / 3 / self.size

    def save_beside_training(self, target: str, path: pathlib.Path) -> None:
        alone = self.training.seconds_a_step(50)
        began = time.monotonic()
        saving = dcp.async_save(self.state, checkpoint_id=path)
        self.note("async DCP save, until training goes on", target, time.monotonic() - began)
        beside = []
        while not saving.done():
            beside.append(self.training.seconds_a_step(1))
        saving.result()
        self.note("async DCP save, until it is stored", target, time.monotonic() - began)
        if beside:
            self.note("a training step beside it, to one alone", target, statistics.mean(beside) / alone)

    def load(self, target: str, verify: bool) -> None:
        with self.place(target) as directory:
            loaded = self.time("torch.load", target,
                               lambda: torch.load(directory / "model.pt", map_location=self.device))
            self.check(loaded, verify)
            del loaded
        with self.place(target) as directory:
            def mapped() -> State:
                state = torch.load(directory / "model.pt", mmap=True, map_location="cpu")
                return {name: tensor.to(self.device, copy=True) for name, tensor in state.items()}

            loaded = self.time("torch.load, mmap", target, mapped)
            self.check(loaded, verify)
            del loaded
        with self.place(target) as directory:
            loaded = empty_like(self.state)
            self.time("DCP load", target, lambda: dcp.load(loaded, checkpoint_id=directory / "dcp"))
            self.check(loaded, verify)

    def remove(self, target: str) -> None:
        with self.place(target) as directory:
            (directory / "model.pt").unlink()
            shutil.rmtree(directory / "dcp")
            shutil.rmtree(directory / "async")

    def told(self) -> None:
        whats = list(dict.fromkeys(what for what, _ in self.seconds))
        print(f"\n{self.size / GIB:.2f} GiB, {self.device}, {os.cpu_count()} processors, Linux {os.uname().release}, "
              f"torch {torch.__version__}")
        print("| s | " + " | ".join(TARGETS) + " |\n|---|" + "---|" * len(TARGETS))
        for what in whats:
            cells = []
            for target in TARGETS:
                values = self.seconds.get((what, target))
                cells.append(f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})" if values else "")
            print(f"| {what} | " + " | ".join(cells) + " |")
        for target, peak in self.daemon_peak.items():
            print(f"{target}: {self.stored[target]:.2f} of the bytes are stored; the daemon's memory reached "
                  f"{peak / 2**20:.0f} MiB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gib", type=float, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--disk", default="/var/tmp")
    parser.add_argument("--device", default="cuda")
    wanted = parser.parse_args()
    if wanted.device != "cpu" and not torch.cuda.is_available():
        raise SystemExit("there is no GPU here: torch.cuda.is_available() says no; --device cpu shows that it works")
    node = Node(wanted)
    try:
        for number in range(wanted.rounds):
            print(f"round {number + 1}", flush=True)
            for target in TARGETS:
                node.save(target)
                node.load(target, verify=number == 0)
                node.remove(target)
        node.told()
    finally:
        node.close()


if __name__ == "__main__":
    main()
