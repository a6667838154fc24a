# SPDX-License-Identifier: Apache-2.0
"""For tests of --ack disk: what the bucket has, and a store that does not take what is sent to it."""

import pathlib
import random
import subprocess

from harness.programs import CKPTFS

# A part and more, and a file that goes at once.
SHARD = random.Random(1).randbytes((20 << 20) + 3)
SMALL = random.Random(2).randbytes(100_000)
CHANGES = ["PutObject", "CopyObject", "CreateMultipartUpload", "DeleteObject"]


def hold(simulator, prefix: str, *names: str) -> None:
    """The store refuses changes of these files; what mounts tell each other it takes."""
    simulator.inject(*({"op": operation, "key": f"{prefix}{name}", "action": "403"}
                       for operation in CHANGES for name in names))


def wait(path: pathlib.Path, *options: str, timeout: float = 60) -> subprocess.CompletedProcess:
    return subprocess.run([CKPTFS, "wait", path, *options], capture_output=True, text=True, timeout=timeout)


def files(simulator, prefix: str) -> list[str]:
    return [key.removeprefix(prefix) for key in simulator.keys(prefix) if "/.ckptfs/" not in key]
