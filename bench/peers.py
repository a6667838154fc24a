# SPDX-License-Identifier: Apache-2.0
"""What people use in the place of ckptfs, on the same simulated store: other mounts of a bucket, and libraries that talk
to S3 without one. Their options are those that their own pages recommend for large files."""

import importlib.util
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

from harness.programs import wait_until
from harness.simulator import BUCKET

LIBRARY_CLIENT = pathlib.Path(__file__).with_name("library_client.py")
# Of one file at once.
CONNECTIONS = "16"

# Both tell the program that a file is closed once the store has it.
MOUNTS = {
    "rclone": ("rclone", "mount", f":s3:{BUCKET}", "{path}", "--s3-provider", "Other", "--s3-env-auth",
               "--s3-endpoint", "{url}", "--s3-force-path-style", "--vfs-cache-mode", "off", "--dir-cache-time", "1s",
               # The simulated store's ETags are no MD5.
               "--ignore-checksum",
               "--s3-chunk-size", "16M", "--s3-upload-concurrency", CONNECTIONS, "--buffer-size", "64M"),
    "s3fs": ("s3fs", BUCKET, "{path}", "-f", "-o", "url={url},use_path_request_style,endpoint=us-east-1",
             "-o", f"parallel_count={CONNECTIONS},multipart_size=16,stat_cache_expire=1"),
}
# The modules that they need.
LIBRARIES = {"obstore": "obstore", "connector": "s3torchconnector"}
NAMES = (*MOUNTS, *LIBRARIES)
PACKAGES = "bench/requirements-peers.txt, and the Debian packages rclone and s3fs"


def missing(names) -> list[str]:
    return [name for name in names
            if (name in MOUNTS and not shutil.which(name))
            or (name in LIBRARIES and not importlib.util.find_spec(LIBRARIES[name]))]


class PeerMount:
    """A mount by another program, with the names of harness.mounts.Mount."""

    def __init__(self, name: str, url: str, environment: dict[str, str]) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="ckptfs-peer-", ignore_cleanup_errors=True)
        base = pathlib.Path(self._directory.name)
        self.path = base / "mnt"
        self.path.mkdir()
        self._log = base / "log"
        # s3fs has names of its own for the keys.
        keys = {"AWSACCESSKEYID": environment["AWS_ACCESS_KEY_ID"],
                "AWSSECRETACCESSKEY": environment["AWS_SECRET_ACCESS_KEY"]}
        environment = {**os.environ, **environment, **keys}
        # rclone ends with an error where it is given one that it does not use.
        environment.pop("AWS_CA_BUNDLE", None)
        self.process = subprocess.Popen([word.format(path=self.path, url=url) for word in MOUNTS[name]],
                                        env=environment, stdout=self._log.open("w"), stderr=subprocess.STDOUT)
        wait_until(lambda: os.path.ismount(self.path) or self.process.poll() is not None, f"{name} to answer", 30)
        if self.process.poll() is not None:
            raise AssertionError(f"{name} failed: {self.log()}")

    def __truediv__(self, name: str) -> pathlib.Path:
        return self.path / name

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def peak_memory(self) -> int:
        with open(f"/proc/{self.process.pid}/status") as status:
            return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))

    def unmount(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)

    def remove(self) -> None:
        if os.path.ismount(self.path):
            subprocess.run(["umount", "--lazy", self.path], check=False)
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._directory.cleanup()


def library_command(name: str, action: str) -> tuple[object, ...]:
    return (sys.executable, LIBRARY_CLIENT, name, action)
