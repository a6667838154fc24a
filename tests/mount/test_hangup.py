# SPDX-License-Identifier: Apache-2.0
"""SIGHUP: the log file is opened again, for those who rotate it; a terminal that goes takes its mount along."""

import os
import pty
import signal
import subprocess

from harness.mounts import Mount
from harness.programs import CKPTFS, wait_until
from harness.simulator import BUCKET


def test_the_log_file_is_opened_again(request, simulator, prefix, tmp_path):
    log, renamed = tmp_path / "ckptfs.log", tmp_path / "ckptfs.log.1"
    made = Mount(f"s3://{BUCKET}/{prefix}", simulator.environment(), "--log-file", str(log), within=["setsid"])
    request.node.mounts = [made]
    request.addfinalizer(made.remove)
    wait_until(lambda: "is mounted at" in log.read_text(), "the daemon to say that it mounts")
    log.rename(renamed)
    made.process.send_signal(signal.SIGHUP)
    wait_until(lambda: log.exists() and "the log file was opened again" in log.read_text(), "a new log file")
    assert "opened again" not in renamed.read_text() and made.is_mounted()
    (made / "file").write_bytes(b"saved")
    assert simulator.content(prefix + "file") == b"saved"
    assert made.unmount() == 0
    assert "signal TERM" in log.read_text(), "and the log goes there"


def test_without_a_log_file_a_hangup_is_no_end(request, simulator, prefix):
    made = Mount(f"s3://{BUCKET}/{prefix}", simulator.environment(), within=["setsid"])
    request.node.mounts = [made]
    request.addfinalizer(made.remove)
    made.process.send_signal(signal.SIGHUP)
    wait_until(lambda: "there is no --log-file to open again" in made.log(), "the daemon to say so")
    assert made.is_mounted() and made.unmount() == 0


def test_a_terminal_that_closes_takes_its_mount_along(simulator, prefix, tmp_path):
    point = tmp_path / "mnt"
    point.mkdir()
    terminal, end = pty.openpty()
    with subprocess.Popen(["setsid", "--ctty", CKPTFS, "mount", f"s3://{BUCKET}/{prefix}", point, "-f"], stdin=end,
                          stdout=subprocess.DEVNULL, stderr=(tmp_path / "log").open("w"),
                          env={**os.environ, **simulator.environment()}) as daemon:
        try:
            os.close(end)
            wait_until(lambda: os.path.ismount(point) or daemon.poll() is not None, "the mount to answer")
            (point / "file").write_bytes(b"saved")
            os.close(terminal)
            assert daemon.wait(30) == 0
            assert "signal HUP: finishing" in (tmp_path / "log").read_text()
            assert not os.path.ismount(point)
        finally:
            daemon.kill()
            if os.path.ismount(point):
                subprocess.run(["umount", "--lazy", point], check=False)
    assert simulator.content(prefix + "file") == b"saved"
