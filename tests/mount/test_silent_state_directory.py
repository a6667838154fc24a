# SPDX-License-Identifier: Apache-2.0
"""--state-dir on a filesystem that stops to answer, as a home on NFS whose server is away."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from harness.mounts import Mount
from harness.programs import wait_until
from harness.simulator import BUCKET

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
    ours.state = str(state)
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


def threads_of(process: subprocess.Popen) -> list[str]:
    return [task.read_text().strip() for task in Path(f"/proc/{process.pid}/task").glob("*/comm")]


@pytest.mark.full
def test_the_look_for_what_an_earlier_mount_leaves_holds_up_no_unmount(silent, simulator, prefix, request):
    first, server = silent
    with open(first / "file", "w"):
        subprocess.run(["umount", "--lazy", first.path], check=True)
        next_one = Mount(f"s3://{BUCKET}/{prefix}", {**simulator.environment(), "CKPTFS_STATE_DIR": first.state},
                         at=first.path)
        request.node.mounts.append(next_one)
        server(signal.SIGSTOP)
        wait_until(lambda: "ckptfs-left" in threads_of(next_one.process), "the mount to look for what is left")
        os.mkdir(next_one / "d")
        os.rename(next_one / "d", next_one / "renamed")
        next_one.process.terminate()
        # The process goes once the look, which no signal ends, has its answer.
        wait_until(lambda: "info: unmounted" in next_one.log(), "the mount to end")
        server(signal.SIGCONT)
        assert next_one.process.wait(20) == 0
