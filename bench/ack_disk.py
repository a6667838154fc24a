#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What --ack disk makes of a save and of a restart, beside the disk itself.

    CKPTFS_BUILD=build/release CKPTFS_S3SIM=build/release/s3sim python bench/ack_disk.py --directory DIR [--mebibytes 2048]

On the disk of DIR, in turn, while the store takes --total-mbps: torch.save of so much to the disk, with fsync(2), and
through a mount of which nothing waits for the bucket then. Saves one after the other until --ack-limit, a save and a half,
holds them up. Then the last one is loaded by torch.load from the disk and from a mount made after a kill, both with an
empty page cache, and the requests for data are counted. s3sim keeps what is saved in memory.
"""

import argparse
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import torch

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "tests"))

from harness.mounts import Mount  # noqa: E402
from harness.programs import CKPTFS  # noqa: E402
from harness.simulator import BUCKET, Simulator  # noqa: E402

MIB = 1 << 20
TENSORS = 8


def content(mebibytes: int) -> dict[str, torch.Tensor]:
    """As floats are: not all alike."""
    values = mebibytes * MIB // 4 // TENSORS
    return {f"layer{number}": torch.randn(values, generator=torch.Generator().manual_seed(number))
            for number in range(TENSORS)}


def save(tensors: dict, path: pathlib.Path, syncs: bool) -> float:
    begun = time.monotonic()
    with open(path, "wb") as file:
        torch.save(tensors, file)
        if syncs:
            file.flush()
            os.fsync(file.fileno())
    return time.monotonic() - begun


def load(path: pathlib.Path) -> float:
    os.sync()
    pathlib.Path("/proc/sys/vm/drop_caches").write_text("3\n")
    begun = time.monotonic()
    torch.load(path, weights_only=True)
    return time.monotonic() - begun


def wait(mount: Mount) -> None:
    subprocess.run([CKPTFS, "wait", mount.path], check=True, stderr=subprocess.DEVNULL)


def told(what: str, ours: list[float], disk: list[float]) -> None:
    print(f"{what}: {statistics.median(ours):.2f} s, the disk {statistics.median(disk):.2f} s, ratio "
          f"{statistics.median(ours) / statistics.median(disk):.2f} "
          f"({', '.join(f'{one / other:.2f}' for one, other in zip(ours, disk))})", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--directory", type=pathlib.Path, required=True)
    parser.add_argument("--mebibytes", type=int, default=2048)
    parser.add_argument("--total-mbps", type=float, default=50)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--saves", type=int, default=8)
    parser.add_argument("--compress", default="none")
    parser.add_argument("--max-memory", default="1G")
    wanted = parser.parse_args()
    place = pathlib.Path(tempfile.mkdtemp(prefix="ckptfs-bench-", dir=wanted.directory))
    simulator = Simulator()
    options = ["--ack", "disk", "--cache-dir", str(place / "cache"), "--compress", wanted.compress, "--max-memory",
               wanted.max_memory]
    mounts = []

    def made(*more: str) -> Mount:
        mounts.append(Mount(f"s3://{BUCKET}/", simulator.environment(), *options, *more))
        return mounts[-1]

    tensors = content(wanted.mebibytes)
    try:
        mount = made()
        ours, disk = [], []
        for _ in range(wanted.repetitions):
            disk.append(save(tensors, place / "direct.pt", True))
            simulator.set_model(total_mbps=wanted.total_mbps)
            ours.append(save(tensors, mount / "model.pt", False))
            simulator.set_model(total_mbps=0)
            wait(mount)
        told(f"torch.save of {wanted.mebibytes} MiB", ours, disk)
        assert mount.unmount() == 0
        mount = made("--ack-limit", f"{wanted.mebibytes * 3 // 2}M")
        simulator.set_model(total_mbps=wanted.total_mbps * 4)
        seconds = [save(tensors, mount / f"step-{step % 2}.pt", False) for step in range(wanted.saves)]
        print(f"{wanted.saves} saves in a row at {wanted.total_mbps * 4:.0f} MB/s: "
              f"{', '.join(f'{each:.1f}' for each in seconds)} s, none failed", flush=True)
        simulator.set_model(total_mbps=0)
        wait(mount)
        ours, disk = [], []
        for _ in range(wanted.repetitions):
            mount.process.kill()
            mount.process.wait()
            mounts.remove(mount)
            mount.remove()
            mount = made()
            simulator.reset_counters()
            # The first one finds the file unchecked.
            disk.append(load(place / "direct.pt"))
            ours.append(load(mount / f"step-{(wanted.saves - 1) % 2}.pt"))
        gets = simulator.counters()["operations"].get("GetObject", {"requests": 0})["requests"]
        told("torch.load after a kill", ours, disk)
        print(f"requests for data after the last kill: {gets}", flush=True)
    finally:
        for each in mounts:
            each.remove()
        simulator.stop()
        shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    main()
