# SPDX-License-Identifier: Apache-2.0
"""Answers that hang while others come: a thousand nodes that restore at once meet some."""

import hashlib
import os
import re
import subprocess
import time

from harness.programs import CKPTFS

MIB = 1 << 20
# Long enough that a read which waited for it would be seen.
STALL = ["--stall-timeout", "60s"]


def asked_again(made) -> int:
    words = subprocess.run([CKPTFS, "status", made.path], text=True, check=True, capture_output=True).stdout
    counted = re.search(r"(\d+) late reads? asked again", words)
    return int(counted.group(1)) if counted else 0


def learned(mount, simulator, prefix, *options):
    """A mount that knows how long reads of all sizes take, and looks at names, and may ask some again."""
    for number in range(40):
        simulator.put(f"{prefix}small{number}", os.urandom(1000))
    simulator.put(prefix + "large", os.urandom(MIB) * 256)
    for _ in range(5):
        made = mount(*options, *STALL)
        for number in range(40):
            (made / f"small{number}").read_bytes()
        (made / "large").read_bytes()
        # On a busy machine some are late by themselves, and use up what may be asked again.
        if asked_again(made) < 4:
            break
    return made


def test_downloads_that_hang_are_asked_again(mount, simulator, prefix, tmp_path):
    content = os.urandom(MIB) * 256
    simulator.put(prefix + "file", content)
    made = learned(mount, simulator, prefix, "--max-memory", "128M", "--access-log", str(tmp_path / "requests"))
    simulator.inject({"op": "GetObject", "key": prefix + "file", "after": 3, "every": 3, "times": 4, "action": "hang"})
    begun = time.monotonic()
    assert hashlib.md5((made / "file").read_bytes()).digest() == hashlib.md5(content).digest()
    assert time.monotonic() - begun < 45
    assert simulator.fault_hits() == 4
    assert asked_again(made) >= 4


def test_a_download_that_hangs_in_the_middle_goes_on_there(mount, simulator, prefix, tmp_path):
    content = os.urandom(MIB) * 256
    simulator.put(prefix + "file", content)
    made = learned(mount, simulator, prefix, "--max-memory", "128M")
    begun = time.monotonic()
    simulator.inject({"op": "GetObject", "key": prefix + "file", "nth": 5, "action": "hang", "bytes": 100_000})
    assert hashlib.md5((made / "file").read_bytes()).digest() == hashlib.md5(content).digest()
    assert time.monotonic() - begun < 45
    assert simulator.fault_hits() == 1


def test_looks_at_names_that_hang_are_asked_again(mount, simulator, prefix):
    simulator.put(prefix + "file", b"content")
    made = learned(mount, simulator, prefix)
    simulator.inject({"op": "HeadObject", "key": prefix + "file", "nth": 1, "action": "hang"})
    begun = time.monotonic()
    assert (made / "file").stat().st_size == 7
    assert time.monotonic() - begun < 45
    assert simulator.fault_hits() == 1
