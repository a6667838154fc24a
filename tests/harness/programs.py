# SPDX-License-Identifier: Apache-2.0
"""The build under test, errors of calls, and waiting for conditions."""

import os
import pathlib
import re
import time
from collections.abc import Callable

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("CKPTFS_BUILD", ROOT / "build/release"))
CKPTFS = BUILD / "ckptfs"
S3SIM = pathlib.Path(os.environ.get("CKPTFS_S3SIM", BUILD / "s3sim"))
VERSION = re.search(r"project\(ckptfs VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text())[1]


def errno_of(operation: Callable, *arguments) -> int:
    """0 where it succeeds."""
    try:
        operation(*arguments)
    except OSError as error:
        return error.errno
    return 0


def wait_until(condition: Callable[[], object], what: str, seconds: float = 20) -> None:
    """Waits for the condition, and fails naming it."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"still waiting after {seconds} s: {what}")
        time.sleep(0.01)
