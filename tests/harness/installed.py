# SPDX-License-Identifier: Apache-2.0
"""A machine that has ckptfs installed: a mount namespace with its own /usr, /run and /etc/fstab."""

import os
import pathlib
import shutil
import signal
import subprocess
import tempfile

from .programs import BUILD, wait_until

_ENTER = """
set -e
mount -t overlay overlay -o "lowerdir=$1/usr:/usr" /usr
mount -t tmpfs -o mode=0755 tmpfs /run
mount --bind "$1/fstab" /etc/fstab
# Open to every user, as udev makes it.
mknod -m 0666 "$1/fuse" c 10 229
mount --bind "$1/fuse" /dev/fuse
echo ready
exec cat
"""


class InstalledMachine:
    """All users may enter `directory`; mount points and logs go there."""

    def __init__(self) -> None:
        self._kept = tempfile.TemporaryDirectory(prefix="ckptfs-machine-")
        self.directory = pathlib.Path(self._kept.name)
        self.directory.chmod(0o755)
        self.fstab = self.directory / "fstab"
        self.fstab.write_text("")
        subprocess.run(["cmake", "--install", BUILD, "--strip", "--prefix", self.directory / "usr"], check=True,
                       stdout=subprocess.DEVNULL, timeout=60)
        self._holder = subprocess.Popen(
            ["unshare", "--mount", "--propagation", "slave", "sh", "-c", _ENTER, "sh", self.directory],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if self._holder.stdout.readline() != "ready\n":
            raise AssertionError("no mount namespace with an overlay over /usr: these tests need root and overlayfs")
        self.namespace = f"/proc/{self._holder.pid}/ns/mnt"

    def run(self, *words, user: int = 0, environment: dict[str, str] | None = None, **options):
        """Runs a command there, without the caller's environment."""
        as_user = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"] if user else []
        return subprocess.run(["nsenter", f"--mount={self.namespace}", *as_user, *words], text=True, timeout=60,
                              capture_output=True, check=False,
                              env={"PATH": "/usr/sbin:/usr/bin", "CKPTFS_STATE_DIR": str(self.directory / "state"),
                                   **(environment or {})}, **options)

    def mount_point(self, name: str, owner: int = 0) -> pathlib.Path:
        point = self.directory / name
        point.mkdir()
        os.chown(point, owner, owner)
        return point

    def mounts(self) -> list[tuple[str, str, str]]:
        """Mount point, source and options of the mounts of ckptfs that were made there."""
        table = pathlib.Path(f"/proc/{self._holder.pid}/mountinfo").read_text().splitlines()
        found = (line.split() for line in table)
        return [(fields[4], fields[fields.index("-") + 2], fields[5]) for fields in found
                if fields[fields.index("-") + 1] == "fuse.ckptfs" and fields[4].startswith(f"{self.directory}/")]

    def daemons(self) -> list[int]:
        """Every ckptfs that was started there and still runs; not what watches over one, its child."""
        found = {int(path.name): self._parent_of_daemon(path) for path in pathlib.Path("/proc").glob("[0-9]*")}
        return [daemon for daemon, parent in found.items() if parent is not None and found.get(parent) is None]

    def _parent_of_daemon(self, process: pathlib.Path) -> int | None:
        try:
            # mount.ckptfs where mount(8) has started it.
            if ((process / "comm").read_text().strip() not in ("ckptfs", "mount.ckptfs")
                    or os.readlink(process / "ns/mnt") != os.readlink(self.namespace)):
                return None
            # proc_pid_stat(5): after the name, which may hold anything, come the state and the parent.
            return int((process / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            return None  # It has ended.

    def remove(self) -> None:
        for daemon in self.daemons():
            os.kill(daemon, signal.SIGTERM)
        try:
            wait_until(lambda: not self.daemons(), "the daemons to end", 30)
        finally:
            for daemon in self.daemons():
                os.kill(daemon, signal.SIGKILL)
            # The namespace goes with its last process.
            self._holder.communicate(timeout=20)
            shutil.rmtree(self.directory, ignore_errors=True)
            self._kept.cleanup()
