# SPDX-License-Identifier: Apache-2.0
"""s3sim, started on a port of the system's choice, and its admin interface."""

import hashlib
import json
import pathlib
import ssl
import subprocess
import tempfile
import urllib.request
from collections.abc import Callable

import boto3
import botocore.config

from format.container import decode_object, pieces_of_object

from .programs import S3SIM, wait_until

ACCESS_KEY = "testkey"
SECRET_KEY = "testsecret"
BUCKET = "bucket"


def flipped(place: int) -> Callable[[bytearray], bytes]:
    """For Simulator.damage: one bit of the byte there."""
    def change(data: bytearray) -> bytes:
        data[place] ^= 1
        return bytes(data)
    return change


class Simulator:
    def __init__(self, *options: str, start_seconds: float = 20) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="s3sim-")
        directory = pathlib.Path(self._directory.name)
        port_file = directory / "port"
        self.log = directory / "log"
        self.certificate = directory / "certificate.pem"
        tls = "--tls" in options
        if tls:
            options += ("--cert-out", str(self.certificate))
        self.process = subprocess.Popen(
            [S3SIM, "--port", "0", "--port-file", port_file, "--bucket", BUCKET, "--access-key", ACCESS_KEY,
             "--secret-key", SECRET_KEY, *options],
            stdout=self.log.open("w"), stderr=subprocess.STDOUT)
        wait_until(lambda: port_file.exists() or self.process.poll() is not None, "s3sim to listen",
                   start_seconds)
        if not port_file.exists():
            raise AssertionError(f"s3sim did not start: {self.log.read_text()}")
        self.port = int(port_file.read_text())
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        self._directory.cleanup()

    def environment(self) -> dict[str, str]:
        """For a client that reads the AWS variables."""
        environment = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
                       "AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL": self.url}
        if self.certificate.exists():
            environment["AWS_CA_BUNDLE"] = str(self.certificate)
        return environment

    def client(self, **settings):
        """A boto3 client: what anything but ckptfs sees of the bucket. `settings`: of botocore."""
        return boto3.client("s3", endpoint_url=self.url, region_name="us-east-1", aws_access_key_id=ACCESS_KEY,
                            aws_secret_access_key=SECRET_KEY,
                            verify=str(self.certificate) if self.certificate.exists() else None,
                            config=botocore.config.Config(retries={"total_max_attempts": 1}, **settings))

    # --- the admin interface

    def _admin(self, method: str, path: str, body: object = None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}/_s3sim/{path}", data=data, method=method)
        trust = ssl.create_default_context(cafile=self.certificate) if self.certificate.exists() else None
        with urllib.request.urlopen(request, timeout=10, context=trust) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def inject(self, *rules: dict) -> None:
        self._admin("POST", "faults", list(rules))

    def clear_faults(self) -> None:
        self._admin("DELETE", "faults")

    def fault_hits(self) -> int:
        """How many requests the present rules have spoilt."""
        return sum(rule["hits"] for rule in self._admin("GET", "faults"))

    def counters(self) -> dict:
        return self._admin("GET", "counters")

    def reset_counters(self) -> None:
        self._admin("DELETE", "counters")

    def requests(self, limit: int = 1000) -> list[dict]:
        return self._admin("GET", f"requests?limit={limit}")

    def set_model(self, **model: float) -> None:
        self._admin("POST", "model", model)

    def add_session(self, access_key: str, secret_key: str, session_token: str, valid_s: float) -> None:
        """Takes these keys, too, until they expire."""
        self._admin("POST", "sessions", {"access_key": access_key, "secret_key": secret_key,
                                         "session_token": session_token, "valid_s": valid_s})

    # --- the bucket as others see it

    def all_keys(self, prefix: str = "") -> list[str]:
        pages = self.client().get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
        return [item["Key"] for page in pages for item in page.get("Contents", [])]

    def keys(self, prefix: str = "") -> list[str]:
        """All but the records of files that failed."""
        return [key for key in self.all_keys(prefix) if "/.ckptfs/failed/" not in key]

    def failed_files(self, prefix: str) -> list[str]:
        """Paths that the mounts of the prefix have recorded as failed."""
        place = prefix + ".ckptfs/failed/"
        return [key.removeprefix(place) for key in self.all_keys(place)]

    def content(self, key: str) -> bytes:
        """The file that the object holds, read without ckptfs."""
        answer = self.client().get_object(Bucket=BUCKET, Key=key)
        return decode_object(answer["Body"].read(), answer["Metadata"])

    def digest(self, key: str) -> str:
        """MD5 of the file that the object holds, however large."""
        answer = self.client().get_object(Bucket=BUCKET, Key=key)
        digest = hashlib.md5()
        for piece in pieces_of_object(answer["Body"].read(), answer["Metadata"]):
            digest.update(piece)
        return digest.hexdigest()

    def stored(self, key: str) -> bytes:
        """The object as it is."""
        return self.client().get_object(Bucket=BUCKET, Key=key)["Body"].read()

    def empty(self) -> None:
        """Its memory is bounded, and shared by all tests."""
        client = self.client()
        for page in client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET):
            if contents := page.get("Contents"):
                client.delete_objects(Bucket=BUCKET, Delete={"Objects": [{"Key": item["Key"]} for item in contents],
                                                             "Quiet": True})
        for upload in client.list_multipart_uploads(Bucket=BUCKET).get("Uploads", []):
            client.abort_multipart_upload(Bucket=BUCKET, Key=upload["Key"], UploadId=upload["UploadId"])

    def put(self, key: str, content: bytes) -> None:
        self.client().put_object(Bucket=BUCKET, Key=key, Body=content)

    def damage(self, key: str, change: Callable[[bytearray], bytes]) -> None:
        """Another client puts the object back with its description, but not as it was."""
        client = self.client()
        answer = client.get_object(Bucket=BUCKET, Key=key)
        client.put_object(Bucket=BUCKET, Key=key, Body=change(bytearray(answer["Body"].read())),
                          Metadata=answer["Metadata"])

    def open_uploads(self, prefix: str = "") -> list[str]:
        answer = self.client().list_multipart_uploads(Bucket=BUCKET, Prefix=prefix)
        return [upload["Key"] for upload in answer.get("Uploads", [])]

    def uploaded_parts(self, prefix: str = "") -> list[tuple[str, int]]:
        """Key and number of every part of an open upload: what is stored and paid for, but not visible."""
        client = self.client()
        parts = []
        for upload in client.list_multipart_uploads(Bucket=BUCKET, Prefix=prefix).get("Uploads", []):
            try:
                answer = client.list_parts(Bucket=BUCKET, Key=upload["Key"], UploadId=upload["UploadId"])
            except client.exceptions.NoSuchUpload:
                # It has ended meanwhile.
                continue
            parts += [(upload["Key"], part["PartNumber"]) for part in answer.get("Parts", [])]
        return parts
