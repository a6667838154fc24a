#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Saves and loads a checkpoint with torch's distributed checkpoint (DCP) through a mount, on a slow link, three ways.

    dcp_extension.py CHECKPOINT [--copies N] [--pairs N] [--mbps N] [--max-memory SIZE]

CHECKPOINT is what torch.save wrote (bench/codec_data.py makes some); N copies of it are saved, because one is small. The
ways: through a mount that compresses; with DCP's own ZStandard extension, through a mount that does not; and neither.
They take turns; the first turn is not counted. Prints medians and the bytes in the bucket. Needs torch and zstandard.
"""

import argparse
import os
import pathlib
import statistics
import sys
import time
import warnings

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint._extension import ZStandard

sys.path[:0] = [str(pathlib.Path(__file__).parent), str(pathlib.Path(__file__).parent.parent / "tests")]

from harness.mounts import Mount  # noqa: E402
from harness.simulator import BUCKET, Simulator  # noqa: E402
from workloads import STORE_SLACK  # noqa: E402

MIB = 1 << 20
# Name, --compress, extensions.
WAYS = (("ckptfs", "auto", []), ("ZStandard extension", "none", [ZStandard()]), ("neither", "none", []))


def mounted(way: str, compress: str, environment: dict, options: list[str]) -> Mount:
    return Mount(f"s3://{BUCKET}/{way.replace(' ', '-')}/", environment, "--compress", compress, "--unsigned-payload", *options)


def stored_bytes(simulator: Simulator, way: str) -> int:
    pages = simulator.client().get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=way.replace(" ", "-") + "/step")
    return sum(item["Size"] for page in pages for item in page.get("Contents", []))


def save(state: dict, folder: pathlib.Path, extensions: list) -> float:
    begin = time.perf_counter()
    dcp.save(state, storage_writer=dcp.FileSystemWriter(folder, _extensions=extensions), no_dist=True)
    return time.perf_counter() - begin


def load(state: dict, folder: pathlib.Path) -> float:
    blank = {name: {key: torch.zeros_like(value) for key, value in part.items()} for name, part in state.items()}
    begin = time.perf_counter()
    dcp.load(blank, storage_reader=dcp.FileSystemReader(folder), no_dist=True)
    seconds = time.perf_counter() - begin
    assert all(torch.equal(value, blank[name][key]) for name, part in state.items() for key, value in part.items())
    return seconds


def tensors(value, path: str = ""):
    if isinstance(value, torch.Tensor):
        yield path, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from tensors(inner, f"{path}/{key}")
    elif isinstance(value, (list, tuple)):
        for index, inner in enumerate(value):
            yield from tensors(inner, f"{path}/{index}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=pathlib.Path)
    parser.add_argument("--copies", type=int, default=4)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--mbps", type=int, default=400)
    parser.add_argument("--max-memory", help="of every mount")
    arguments = parser.parse_args()
    options = ["--max-memory", arguments.max_memory] if arguments.max_memory else []
    warnings.filterwarnings("ignore", module="torch")
    one = dict(tensors(torch.load(arguments.checkpoint, map_location="cpu", weights_only=False)))
    state = {f"copy{copy}": {key: value.clone() for key, value in one.items()} for copy in range(arguments.copies)}
    size = sum(value.nbytes for part in state.values() for value in part.values())
    simulator = Simulator("--max-memory", f"{(len(WAYS) + 1) * size + STORE_SLACK}", start_seconds=300)
    simulator.set_model(latency_ms=30, total_mbps=arguments.mbps)
    environment = simulator.environment()
    mounts = {name: mounted(name, compress, environment, options) for name, compress, _ in WAYS}
    saved = {name: [] for name in mounts}
    loaded = {name: [] for name in mounts}
    try:
        for turn in range(arguments.pairs + 1):
            for name, compress, extensions in WAYS:
                seconds = save(state, mounts[name] / "step", extensions)
                reader = mounted(name, compress, environment, options)
                back = load(state, reader / "step")
                reader.remove()
                if turn > 0:
                    saved[name].append(seconds)
                    loaded[name].append(back)
        print(f"{size / 1e6:.0f} MB of tensors, {arguments.mbps} MB/s in total")
        for name in mounts:
            stored = stored_bytes(simulator, name)
            print(f"  {name:20} save {statistics.median(saved[name]):6.2f} s   load {statistics.median(loaded[name]):6.2f} s   "
                  f"{stored / 1e6:7.1f} MB stored, {100 * (1 - stored / size):5.1f} % saved")
    finally:
        for mount in mounts.values():
            mount.remove()
        simulator.stop()


if __name__ == "__main__":
    os.environ.pop("CKPTFS_COMPRESS", None)
    main()
