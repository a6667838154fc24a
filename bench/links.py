#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long a save and a restore take with compression and without, on links of several speeds.

    links.py FILE [--mib N] [--pairs N] [--mbps N,N,...] [--compress HOW]

Writes N MiB made of FILE (a real checkpoint: bench/codec_data.py makes some) and closes, then reads them on a mount that
has not seen them, with --compress none and with HOW in turn, through a store that moves so many MB/s in total after 30 ms.
The first pair of each link is not counted. Prints medians and their ratio.
"""

import argparse
import os
import pathlib
import statistics
import sys
import time

sys.path[:0] = [str(pathlib.Path(__file__).parent), str(pathlib.Path(__file__).parent.parent / "tests")]

from harness.mounts import Mount  # noqa: E402
from harness.simulator import BUCKET, Simulator  # noqa: E402
from workloads import STORE_SLACK  # noqa: E402

MIB = 1 << 20


def write(path: pathlib.Path, data: memoryview) -> float:
    started = time.monotonic()
    with open(path, "wb", buffering=0) as file:
        for begin in range(0, len(data), MIB):
            file.write(data[begin:begin + MIB])
    return time.monotonic() - started


def read(path: pathlib.Path, size: int) -> float:
    started = time.monotonic()
    buffer = bytearray(4 * MIB)
    left = size
    with open(path, "rb", buffering=0) as file:
        while got := file.readinto(buffer):
            left -= got
    assert left == 0, "another size came back"
    return time.monotonic() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--mbps", default="400,1000,2500")
    parser.add_argument("--compress", default="auto")
    arguments = parser.parse_args()
    content = arguments.file.read_bytes()
    data = memoryview(content * (arguments.mib * MIB // len(content) + 1))[:arguments.mib * MIB]
    ways = {"none": [], arguments.compress: []}
    # Both files, and a third that replaces one of them.
    simulator = Simulator("--max-memory", f"{3 * arguments.mib + STORE_SLACK // MIB}M", start_seconds=300)
    environment = simulator.environment()
    mounts = {way: Mount(f"s3://{BUCKET}/{way}/", environment, "--compress", way, "--unsigned-payload") for way in ways}
    try:
        for mbps in arguments.mbps.split(","):
            simulator.set_model(latency_ms=30, total_mbps=int(mbps))
            saved = {way: [] for way in ways}
            restored = {way: [] for way in ways}
            for pair in range(arguments.pairs + 1):
                for way, mount in mounts.items():
                    seconds = write(mount / "file", data)
                    reader = Mount(f"s3://{BUCKET}/{way}/", environment, "--unsigned-payload")
                    back = read(reader / "file", len(data))
                    reader.remove()
                    if pair > 0:
                        saved[way].append(seconds)
                        restored[way].append(back)
            for name, times in (("save", saved), ("restore", restored)):
                plain, packed = (statistics.median(times[way]) for way in ways)
                print(f"{mbps:>5} MB/s  {name:7}  none {plain:6.2f} s  {arguments.compress} {packed:6.2f} s  "
                      f"ratio {packed / plain:.3f}", flush=True)
            sizes = {item["Key"]: item["Size"] for item in simulator.client().list_objects_v2(Bucket=BUCKET)["Contents"]}
            print(f"            saved {100 * (1 - sizes[f'{arguments.compress}/file'] / len(data)):.1f} %", flush=True)
    finally:
        for mount in mounts.values():
            mount.remove()
        simulator.stop()


if __name__ == "__main__":
    os.environ.pop("CKPTFS_COMPRESS", None)
    main()
