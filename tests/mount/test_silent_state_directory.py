# SPDX-License-Identifier: Apache-2.0
"""--state-dir on a filesystem that stops to answer, as a home on NFS whose server is away."""

import os
import signal
import subprocess
import sys

import pytest
from harness.programs import wait_until

SAVES = ("import os, sys; os.chdir(sys.argv[1])\n"
         "for i in range(4):\n"
         "    with open(f'{i}.pt', 'wb') as file: file.write(os.urandom(20 << 20))\n"
         "    os.rename(f'{i}.pt', f'saved-{i}.pt')")


@pytest.fixture
def silent(mount):
    """A mount, and what lets its state directory answer no more, and again."""
    server = mount("--compress", "none")
    state = server / "state"
    state.mkdir(mode=0o700)
    ours = mount(environment={"CKPTFS_STATE_DIR": str(state)})
    wait_until(lambda: "is mounted at" in ours.log(), "the mount to have its journal")
    try:
        yield ours, server.process.send_signal
    finally:
        server.process.send_signal(signal.SIGCONT)


def test_saves_go_on(silent, simulator, prefix):
    ours, server = silent
    server(signal.SIGSTOP)
    # Ends a save that hangs.
    subprocess.run([sys.executable, "-c", SAVES, ours.path], check=True, timeout=30)
    assert [key for key in simulator.keys(prefix) if "saved-" in key] == [f"{prefix}saved-{i}.pt" for i in range(4)]
    assert ours.log().count("its directory does not answer") == 1
    server(signal.SIGCONT)
    assert ours.unmount() == 0
    wait_until(lambda: not [key for key in simulator.keys(prefix) if ".uploads" in key], "the journal to be removed")
