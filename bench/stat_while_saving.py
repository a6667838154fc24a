#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long stat(2) of names that are not cached takes while files are saved over a link that they fill.

    CKPTFS_BUILD=build/release CKPTFS_S3SIM=build/release/s3sim python bench/stat_while_saving.py [--files 4] [--mebibytes 1024]

s3sim keeps what is saved in memory. The same is measured on the idle mount first, and a HEAD that goes straight to s3sim
beside it: what the machine and the full link cost without ckptfs. A stat of a new name is two requests, one after the other.
"""

import argparse
import concurrent.futures
import pathlib
import statistics
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "tests"))

from harness.mounts import Mount  # noqa: E402
from harness.simulator import BUCKET, Simulator  # noqa: E402

MIB = 1 << 20
NAMES = 1200


def save(path: pathlib.Path, mebibytes: int, block: bytes) -> None:
    with open(path, "wb", buffering=0) as file:
        for number in range(mebibytes // 4):
            # Not two alike.
            file.write(number.to_bytes(8, "little") + block[8:])


def told(what: str, seconds: list[float]) -> None:
    ordered = sorted(seconds)
    print(f"{what}: {len(ordered)} calls, median {statistics.median(ordered) * 1000:.0f} ms, "
          f"99 % {ordered[len(ordered) * 99 // 100] * 1000:.0f} ms, max {ordered[-1] * 1000:.0f} ms", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=4)
    parser.add_argument("--mebibytes", type=int, default=1024)
    parser.add_argument("--total-mbps", default="200")
    parser.add_argument("--latency-ms", default="30")
    parser.add_argument("--compress", default="none")
    parser.add_argument("--max-memory", default="1G")
    wanted = parser.parse_args()
    simulator = Simulator("--total-mbps", wanted.total_mbps, "--latency-ms", wanted.latency_ms)
    mount = None
    try:
        simulator.set_model(latency_ms=0)
        for number in range(NAMES):
            simulator.put(f"names/{number}/file", b"x")
        simulator.set_model(latency_ms=float(wanted.latency_ms))
        mount = Mount(f"s3://{BUCKET}/", simulator.environment(), "--compress", wanted.compress, "--max-memory",
                      wanted.max_memory)
        names = iter(range(NAMES))

        def measure(goes_on, call) -> list[float]:
            taken = []
            while goes_on() and (number := next(names, None)) is not None:
                begun = time.monotonic()
                call(f"names/{number}/file")
                taken.append(time.monotonic() - begun)
                time.sleep(0.02)
            return taken

        def stat(name: str) -> None:
            (mount / name).stat()

        client = simulator.client()

        def head(name: str) -> None:
            client.head_object(Bucket=BUCKET, Key=name)

        idle = time.monotonic() + 3
        told("stat, idle", measure(lambda: time.monotonic() < idle, stat))
        block = open("/dev/urandom", "rb").read(4 * MIB)
        savers = [threading.Thread(target=save, args=(mount / f"large{number}", wanted.mebibytes, block))
                  for number in range(wanted.files)]
        begun = time.monotonic()
        for saver in savers:
            saver.start()
        with concurrent.futures.ThreadPoolExecutor() as pool:
            saving = lambda: any(saver.is_alive() for saver in savers)  # noqa: E731
            heads = pool.submit(measure, saving, head)
            told("stat while saving", measure(saving, stat))
            told("HEAD past ckptfs while saving", heads.result())
        for saver in savers:
            saver.join()
        seconds = time.monotonic() - begun
        print(f"saved {wanted.files * wanted.mebibytes * MIB / seconds / 1e6:.0f} MB/s")
    finally:
        if mount:
            mount.remove()
        simulator.stop()


if __name__ == "__main__":
    main()
