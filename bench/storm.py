#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Many mounts save to one prefix, and restore from it, that bears few requests a second: does each find its rate?

    CKPTFS_BUILD=build/release CKPTFS_S3SIM=build/release/s3sim python bench/storm.py [--mounts 64] [--mebibytes 32]

s3sim answers what comes faster than --read-rate and --write-rate with 503 SlowDown, as a prefix of Amazon S3 does beyond
5,500 and 3,500 requests a second. Both are a tenth of that by default, so that the machine that runs all mounts is not
what is measured. Prints the time of the fastest, the median and the slowest mount, what was refused, and what failed.
"""

import argparse
import os
import pathlib
import statistics
import sys
import threading
import time
from collections.abc import Callable

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "tests"))

from harness.mounts import Mount  # noqa: E402
from harness.simulator import BUCKET, Simulator  # noqa: E402

MIB = 1 << 20


def save(path: pathlib.Path, mebibytes: int) -> None:
    block = os.urandom(MIB)
    with open(path, "wb", buffering=0) as file:
        for _ in range(mebibytes):
            file.write(block)


def restore(path: pathlib.Path, mebibytes: int) -> None:
    with open(path, "rb", buffering=0) as file:
        block = bytearray(MIB)
        count = 0
        while size := file.readinto(block):
            count += size
    if count != mebibytes * MIB:
        raise OSError(f"{path}: {count} bytes of {mebibytes * MIB}")


def at_once(what: str, simulator: Simulator, mounts: list[Mount], run: Callable[[int], None]) -> None:
    """Prints how long each took from the common start, and the requests that the store served and refused."""
    simulator.reset_counters()
    seconds: list[float] = []
    failures: list[str] = []
    start = threading.Barrier(len(mounts) + 1)

    def one(number: int) -> None:
        start.wait()
        begun = time.monotonic()
        try:
            run(number)
        except OSError as error:
            failures.append(str(error))
        seconds.append(time.monotonic() - begun)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(len(mounts))]
    for thread in threads:
        thread.start()
    start.wait()
    for thread in threads:
        thread.join()
    counted = simulator.counters()["operations"].values()
    requests = sum(each["requests"] for each in counted)
    refused = sum(each["errors"] for each in counted)
    median = statistics.median(seconds)
    print(f"{what}: fastest {min(seconds):.1f} s, median {median:.1f} s, slowest {max(seconds):.1f} s "
          f"({max(seconds) / median:.2f} of the median); {requests} requests, {refused} refused; {len(failures)} failed",
          flush=True)
    for failure in failures[:5]:
        print(f"  {failure}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mounts", type=int, default=64)
    parser.add_argument("--mebibytes", type=int, default=32)
    parser.add_argument("--read-rate", type=float, default=550)
    parser.add_argument("--write-rate", type=float, default=350)
    parser.add_argument("--max-memory", default="256M")
    wanted = parser.parse_args()
    simulator = Simulator("--latency-ms", "30", "--conn-mbps", "90")
    mounts: list[Mount] = []

    def mount_all() -> None:
        simulator.set_model(read_rate=0, write_rate=0)
        while len(mounts) < wanted.mounts:
            mounts.append(Mount(f"s3://{BUCKET}/", simulator.environment(), "--compress", "none", "--max-memory",
                                wanted.max_memory))
        simulator.set_model(read_rate=wanted.read_rate, write_rate=wanted.write_rate)

    def unmount_all() -> None:
        while mounts:
            mounts.pop().remove()

    try:
        mount_all()
        at_once("save", simulator, mounts, lambda number: save(mounts[number] / f"file{number}", wanted.mebibytes))
        # Other mounts, which have nothing in memory.
        unmount_all()
        mount_all()
        at_once("restore, a file each", simulator, mounts,
                lambda number: restore(mounts[number] / f"file{number}", wanted.mebibytes))
        unmount_all()
        mount_all()
        at_once("restore, all one file", simulator, mounts, lambda number: restore(mounts[number] / "file0", wanted.mebibytes))
    finally:
        unmount_all()
        simulator.stop()


if __name__ == "__main__":
    main()
