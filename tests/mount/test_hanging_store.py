# SPDX-License-Identifier: Apache-2.0
"""What programs see while the store takes nothing."""

import signal
import subprocess
import sys
import textwrap
import time

import pytest
from harness.programs import wait_until

pytestmark = pytest.mark.sanitized

MIB = 1 << 20

def seconds(action) -> float:
    begun = time.monotonic()
    action()
    return time.monotonic() - begun


@pytest.mark.parametrize("name", ["shard", "train.log"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_a_writer_that_dies_does_not_wait_for_the_store(mount, simulator, prefix, name, number):
    made = mount()
    script = """
        import os, sys
        files = [open(f"{directory}/{sys.argv[2]}", "wb", buffering=0) for directory in sys.argv[3:]]
        for file in files:
            file.write(os.urandom(int(sys.argv[1])))
        print("ready", flush=True)
        sys.stdin.read()
    """
    directories = [made / f"{i}" for i in range(3)]
    for directory in directories:
        directory.mkdir()
    writer = subprocess.Popen([sys.executable, "-c", textwrap.dedent(script), str(12 * MIB), name, *directories],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert writer.stdout.readline().strip() == "ready"
    simulator.inject({"op": "*", "action": "hang"})
    writer.send_signal(number)
    assert seconds(lambda: writer.wait(20)) < 1
    simulator.clear_faults()
    kept = [prefix + f"{i}/train.log" for i in range(3)] if name == "train.log" else []
    wait_until(lambda: [key for key in simulator.keys(prefix) if not key.endswith("/")] == kept, "logs to be published", 60)
    wait_until(lambda: simulator.open_uploads(prefix) == [], "the uploads to be ended", 60)
