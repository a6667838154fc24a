# SPDX-License-Identifier: Apache-2.0
"""Mounts that always go away again."""

import os
import pathlib
import signal
import subprocess
import tempfile

from .programs import CKPTFS, wait_until


class Mount:
    """One `ckptfs mount -f`, after the words of `within`, at a directory of its own or `at` that of a mount that died;
    its log is kept in a file, and shown when a test fails."""

    # Whether the daemon has a process group of its own, which can be killed.
    own_group = False

    def __init__(self, source: str, environment: dict[str, str], *options: str, within: list[str] = (),
                 at: pathlib.Path | None = None, program: pathlib.Path = CKPTFS) -> None:
        if not os.path.exists("/dev/fuse"):
            raise AssertionError("/dev/fuse is missing: the mount tests need FUSE")
        self._directory = tempfile.TemporaryDirectory(prefix="ckptfs-test-")
        base = pathlib.Path(self._directory.name)
        self.path = at or base / "mnt"
        if at is None:
            self.path.mkdir()
        self._log = base / "log"
        self._kept_log: str | None = None
        self.source = source
        self._is_second = at is not None
        self.process = subprocess.Popen(
            [*within, program, "mount", source, self.path, "-f", *options],
            env={**os.environ, **environment}, stdout=self._log.open("w"), stderr=subprocess.STDOUT,
            start_new_session=self.own_group)
        wait_until(lambda: self._answers() or self.process.poll() is not None, "the mount to answer", 30)
        if self.process.poll() is not None:
            raise AssertionError(f"ckptfs mount failed: {self.log()}")

    def __truediv__(self, name: str) -> pathlib.Path:
        return self.path / name

    def is_mounted(self) -> bool:
        with open("/proc/self/mountinfo") as table:
            return any(line.split()[4] == str(self.path) for line in table)

    def _answers(self) -> bool:
        # A dead one is there before.
        return f"is mounted at {self.path}" in self.log() if self._is_second else self.is_mounted()

    def log(self) -> str:
        return self._kept_log if self._kept_log is not None else self._log.read_text(errors="replace")

    def peak_memory(self) -> int:
        """Bytes resident at most so far."""
        with open(f"/proc/{self.process.pid}/status") as status:
            return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))

    def unmount(self, seconds: float = 60) -> int:
        """Asks the daemon to drain and end; returns its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(seconds)
        assert not self.is_mounted(), "the daemon ended and left its mount behind"
        return code

    def remove(self) -> None:
        """For the end of a test, whatever happened in it."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        if self.is_mounted():
            subprocess.run(["umount", "--lazy", self.path], check=False)
        self._kept_log = self.log()
        self._directory.cleanup()
