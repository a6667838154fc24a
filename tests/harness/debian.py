# SPDX-License-Identifier: Apache-2.0
"""A Debian 12 in a directory: as bare as debootstrap(8) makes it, or booted."""

import os
import pathlib
import shutil
import signal
import subprocess

from .programs import wait_until

_ENTER = """
mount -t proc proc "$0/proc" && mount -t tmpfs tmpfs "$0/run" && mount --rbind /dev "$0/dev" &&
exec chroot "$0" /bin/sh -ec "$1"
"""
_BOOT = """
mount --bind "$0" "$0" && cd "$0"
mount -t proc proc proc
mount -t sysfs -o ro sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs -o mode=0755 tmpfs dev
for device in null zero full random urandom tty fuse; do
    touch "dev/$device" && mount --bind "/dev/$device" "dev/$device"
done
ln -s /proc/self/fd dev/fd
mount -t tmpfs tmpfs run
mkdir -p old && pivot_root . old && umount -l old
exec env -i container=test PATH=/usr/sbin:/usr/bin /lib/systemd/systemd --system --log-target=console
"""


def run(*words, seconds: float = 60, **options) -> str:
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=seconds, check=False, **options)
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done.stdout


def run_in(tree: pathlib.Path, script: str, seconds: float = 60) -> str:
    """As root in there, with mounts that end with the script."""
    return run("unshare", "--mount", "--propagation", "private", "sh", "-c", _ENTER, tree, script, seconds=seconds,
               env={**os.environ, "DEBIAN_FRONTEND": "noninteractive", "HOME": "/root"})


class Debian:
    """The package sources are those of this machine."""

    def __init__(self, tree: pathlib.Path) -> None:
        self.tree = tree
        mirror = run("apt-get", "indextargets", "--format", "$(SITE)", "Codename: bookworm").splitlines()[0]
        run("debootstrap", "--variant=minbase", "bookworm", tree, mirror, seconds=900)
        for name in ("apt/sources.list", "apt/sources.list.d", "apt/apt.conf.d", "apt/auth.conf.d"):
            source = pathlib.Path("/etc") / name
            if source.is_dir():
                shutil.copytree(source, tree / "etc" / name, dirs_exist_ok=True)
            elif source.exists():
                shutil.copy(source, tree / "etc" / name)
        for name in ("resolv.conf", "hosts"):
            shutil.copy(f"/etc/{name}", tree / "etc" / name)
        run("chroot", tree, "apt-get", "update", "-qq", seconds=300)

    def run(self, script: str, seconds: float = 60) -> str:
        return run_in(self.tree, script, seconds)

    def install(self, *packages: str) -> None:
        self.run(f"apt-get install -y -qq --no-install-recommends {' '.join(packages)}", seconds=900)


class Booted:
    """A Debian whose systemd runs, in namespaces of its own."""

    def __init__(self, debian: Debian) -> None:
        self._log = (debian.tree.parent / "boot.log").open("w")
        self._unshare = subprocess.Popen(
            ["unshare", "--pid", "--fork", "--kill-child", "--mount", "--propagation", "private", "--uts", "--ipc",
             "--cgroup", "sh", "-ec", _BOOT, debian.tree], stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log)
        try:
            wait_until(self._is_running, "systemd to have started everything", 60)
        except BaseException:
            self.shut_down()
            raise

    def _first(self) -> str:
        """The process that is number 1 there."""
        children = pathlib.Path(f"/proc/{self._unshare.pid}/task/{self._unshare.pid}/children").read_text().split()
        return children[0] if children else str(self._unshare.pid)

    def _enter(self, *words) -> list[str]:
        return ["nsenter", "-t", self._first(), "-m", "-p", "-u", "-i", "-C", *map(str, words)]

    def _is_running(self) -> bool:
        assert self._unshare.poll() is None, "systemd did not start"
        done = subprocess.run(self._enter("systemctl", "is-system-running"), capture_output=True, text=True, timeout=20,
                              check=False)
        return done.stdout.strip() in ("running", "degraded")

    def run(self, *words, seconds: float = 60, **options) -> str:
        return run(*self._enter(*words), seconds=seconds, **options)

    def start(self, *words) -> subprocess.Popen:
        return subprocess.Popen(self._enter(*words))

    def show(self, unit: str, name: str) -> str:
        return self.run("systemctl", "show", unit, "--property", name, "--value").strip()

    def shut_down(self) -> None:
        if self._unshare.poll() is None:
            subprocess.run(self._enter("systemctl", "poweroff"), timeout=20, check=False, capture_output=True)
            try:
                self._unshare.wait(60)
            except subprocess.TimeoutExpired:
                self._unshare.send_signal(signal.SIGKILL)
                self._unshare.wait()
        self._log.close()
