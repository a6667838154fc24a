# SPDX-License-Identifier: Apache-2.0
"""S3 servers of other makes, started on a port of the system's choice with one empty bucket."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

import boto3
import botocore.config

from .programs import wait_until
from .simulator import ACCESS_KEY, BUCKET, SECRET_KEY

# As many entries hold the lists of this Swift at most.
SWIFT_PAGE = 100


class Server:
    """A program that logs the address it listens at."""

    def __init__(self, command: list[str], address: str, access_key: str = ACCESS_KEY) -> None:
        self._access_key = access_key
        self._directory = tempfile.TemporaryDirectory(prefix="s3server-")
        self._log = pathlib.Path(self._directory.name) / "log"
        (pathlib.Path(self._directory.name) / "data").mkdir()
        self.process = subprocess.Popen(command, cwd=self._directory.name, stdout=self._log.open("w"),
                                        stderr=subprocess.STDOUT)
        try:
            wait_until(lambda: re.search(address, self.log()) or self.process.poll() is not None,
                       f"{command[0]} to listen", 60)
            found = re.search(address, self.log())
            if not found:
                raise AssertionError(f"{command[0]} did not start: {self.log()}")
            self.url = f"http://127.0.0.1:{found[1]}"
            self.client().create_bucket(Bucket=BUCKET)
        except BaseException:
            self.stop()
            raise

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        self._directory.cleanup()

    def environment(self) -> dict[str, str]:
        """For a client that reads the AWS variables."""
        return {"AWS_ACCESS_KEY_ID": self._access_key, "AWS_SECRET_ACCESS_KEY": SECRET_KEY, "AWS_REGION": "us-east-1",
                "AWS_ENDPOINT_URL": self.url}

    def client(self):
        return boto3.client("s3", endpoint_url=self.url, region_name="us-east-1", aws_access_key_id=self._access_key,
                            aws_secret_access_key=SECRET_KEY,
                            config=botocore.config.Config(retries={"total_max_attempts": 3}))


def start_moto() -> Server:
    program = pathlib.Path(sys.executable).with_name("moto_server")
    return Server([str(program), "-H", "127.0.0.1", "-p", "0"], r"Running on http://127\.0\.0\.1:(\d+)")


def start_rclone() -> Server:
    program = pathlib.Path(sys.executable).with_name("rclone")
    return Server([str(program), "serve", "s3", "--addr", "127.0.0.1:0", "--auth-key", f"{ACCESS_KEY},{SECRET_KEY}",
                   "--config", os.devnull, "data"], r"http://127\.0\.0\.1:(\d+)/")


def start_swift() -> Server:
    program = pathlib.Path(__file__).with_name("swift_server.py")
    access_key = "ckptfs:test"
    return Server([sys.executable, "-W", "ignore", str(program), "data", access_key, SECRET_KEY,
                   str(SWIFT_PAGE)],
                  r"listening on http://127\.0\.0\.1:(\d+)", access_key)


def start_radosgw() -> Server:
    program = pathlib.Path(__file__).with_name("rados_server.py")
    return Server([sys.executable, str(program), "data", ACCESS_KEY, SECRET_KEY],
                  r"listening on http://127\.0\.0\.1:(\d+)")
