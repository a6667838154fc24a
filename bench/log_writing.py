#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a log costs that is published while it grows, and how long its writer waits for the store.

    CKPTFS_BUILD=build/release CKPTFS_S3SIM=build/release/s3sim python bench/log_writing.py [--mebibytes 4] [--seconds 6]

A log that grows in so many seconds, and its requests and bytes; then lines every 20 ms while each PUT hangs, or is refused.
"""

import argparse
import os
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "tests"))

from harness.mounts import Mount  # noqa: E402
from harness.simulator import BUCKET, Simulator  # noqa: E402

MIB = 1 << 20
LINE = 4096


def grow(mount: Mount, simulator: Simulator, size: int, seconds: float) -> None:
    simulator.reset_counters()
    longest = 0.0
    begun = time.monotonic()
    with open(mount / "growing.log", "ab", buffering=0) as log:
        for written in range(0, size, LINE):
            time.sleep(max(0.0, begun + seconds * written / size - time.monotonic()))
            before = time.monotonic()
            log.write(os.urandom(LINE))
            longest = max(longest, time.monotonic() - before)
    counts = simulator.counters()["operations"]
    requests = ", ".join(f"{count['requests']} {name}" for name, count in counts.items())
    print(f"grown to {size / MIB:.0f} MiB in {time.monotonic() - begun:.1f} s: longest write {longest * 1000:.0f} ms; "
          f"{sum(count['bytes_out'] for count in counts.values()) / 1e6:.1f} MB down, "
          f"{sum(count['bytes_in'] for count in counts.values()) / 1e6:.1f} MB up; {requests}", flush=True)


def print_lines(mount: Mount, simulator: Simulator, seconds: float, fault: dict) -> None:
    longest, lines, error = 0.0, 0, "no error"
    log = open(mount / f"{fault['action']}.log", "ab", buffering=0)
    simulator.inject({"op": "PutObject", "key": "*.log", **fault})
    begun = time.monotonic()
    while time.monotonic() < begun + seconds and error == "no error":
        before = time.monotonic()
        try:
            log.write(b"line %d\n" % lines)
            lines += 1
        except OSError as failed:
            error = f"a write failed: {failed.strerror}"
        longest = max(longest, time.monotonic() - before)
        time.sleep(0.02)
    simulator.clear_faults()
    try:
        log.close()
        error += ", closed"
    except OSError as failed:
        error += f", close failed: {failed.strerror}"
    print(f"PutObject {fault['action']} for {seconds:.0f} s: {lines} lines, longest write {longest * 1000:.0f} ms, {error}",
          flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mebibytes", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--publish-interval", default="200ms")
    parser.add_argument("--retry-for", default="3s")
    parser.add_argument("--compress", default="none")
    wanted = parser.parse_args()
    simulator = Simulator()
    mount = None
    try:
        mount = Mount(f"s3://{BUCKET}/", simulator.environment(), "--compress", wanted.compress, "--publish-interval",
                      wanted.publish_interval, "--retry-for", wanted.retry_for)
        grow(mount, simulator, wanted.mebibytes * MIB, wanted.seconds)
        for fault in ({"action": "hang"}, {"action": "503"}):
            print_lines(mount, simulator, wanted.seconds, fault)
    finally:
        if mount:
            mount.remove()
        simulator.stop()


if __name__ == "__main__":
    main()
