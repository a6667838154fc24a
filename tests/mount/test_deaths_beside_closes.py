# SPDX-License-Identifier: Apache-2.0
"""A process that only holds a file is killed while its writer closes it."""

import os
import signal
import subprocess

import pytest
from harness.programs import wait_until

from mount.test_half_files import start

pytestmark = pytest.mark.sanitized

MIB = 1 << 20


def close_while_a_child_is_killed(made, simulator, size: int) -> subprocess.Popen:
    writer = start("""
        import os, sys, time
        file = open(sys.argv[1], "wb", buffering=0)
        file.write(b"x" * int(sys.argv[2]))
        child = os.fork()
        if child == 0:
            time.sleep(600)
        print(child, flush=True)
        file.close()
    """, made / "file", str(size))
    child = int(writer.stdout.readline())
    wait_until(lambda: simulator.fault_hits() > 0, "the commit to be under way")
    os.kill(child, signal.SIGKILL)
    writer.communicate()
    return writer


@pytest.mark.parametrize("size", [5, 20 * MIB], ids=["small", "parts"])
def test_a_child_that_only_inherited_the_file_may_be_killed_while_its_writer_closes(mount, simulator, prefix, size):
    made = mount("--compress", "none")
    simulator.inject({"op": "PutObject" if size < MIB else "CompleteMultipartUpload", "key": prefix + "file",
                      "action": "slow", "ms": 600})
    writer = close_while_a_child_is_killed(made, simulator, size)
    assert writer.returncode == 0
    assert simulator.content(prefix + "file") == b"x" * size
    assert "its writer was killed" not in made.log()


def test_where_the_child_was_killed_and_the_close_fails_the_store_is_to_blame(mount, simulator, prefix):
    made = mount("--compress", "none", "--retry-for", "1s")
    simulator.inject({"op": "PutObject", "key": prefix + "file", "action": "500"})
    assert close_while_a_child_is_killed(made, simulator, 5).returncode == 1
    assert simulator.keys(prefix) == []
    assert "InternalError" in made.log() and "its writer was killed" not in made.log()
