# SPDX-License-Identifier: Apache-2.0
"""Credentials that the store refuses while a mount is up: asked for anew and waited for, never an error at once."""

import os
import pathlib
import subprocess
import threading
import time
from collections.abc import Callable

import pytest
from harness.markers import commit
from harness.mounts import Mount
from harness.programs import CKPTFS, wait_until
from harness.simulator import ACCESS_KEY, BUCKET, SECRET_KEY, Simulator

MIB = 1 << 20
SMALL = b"s" * 1000
LARGE = os.urandom(MIB) * 20


def append(file: pathlib.Path) -> None:
    with file.open("ab") as end:
        end.write(SMALL)


def save_anew(file: pathlib.Path) -> None:
    file.with_name("new").write_bytes(LARGE)
    file.with_name("new").rename(file)


def remove_all(directory: pathlib.Path) -> None:
    for file in list(directory.iterdir()):
        file.unlink()
    directory.rmdir()


def requests_of(simulator: Simulator, operation: str) -> int:
    return simulator.counters()["operations"].get(operation, {"requests": 0})["requests"]


# Name, operation that is refused, what the program does.
OPERATIONS: list[tuple[str, str, Callable[[pathlib.Path], object]]] = [
    ("save", "PutObject", lambda place: (place / "new").write_bytes(SMALL)),
    ("mkdir", "PutObject", lambda place: (place / "directory").mkdir()),
    ("begin", "CreateMultipartUpload", lambda place: (place / "new").write_bytes(LARGE)),
    ("part", "UploadPart", lambda place: (place / "new").write_bytes(LARGE)),
    ("complete", "CompleteMultipartUpload", lambda place: (place / "new").write_bytes(LARGE)),
    ("replace", "UploadPart", lambda place: save_anew(place / "large")),
    ("probe", "UploadPartCopy", lambda place: append(place / "large")),
    ("append", "UploadPartCopy", lambda place: append(place / "large")),
    ("read", "GetObject", lambda place: (place / "small").read_bytes()),
    ("stat", "HeadObject", lambda place: (place / "small").stat()),
    ("stat of an empty file", "HeadObject", lambda place: (place / "empty").stat()),
    ("list", "ListObjectsV2", lambda place: os.listdir(place)),
    ("copy", "CopyObject", lambda place: (place / "small").rename(place / "other")),
    ("rename", "DeleteObject", lambda place: (place / "small").rename(place / "other")),
    ("unlink", "DeleteObject*", lambda place: (place / "small").unlink()),
    ("rm", "DeleteObject*", lambda place: remove_all(place / "many")),
    ("a marker", "ListMultipartUploads", commit)]
# What sends or changes frames.
WITH_FRAMES = ["begin", "part", "complete", "replace", "probe", "append"]
OF_THE_BUCKET = ["ListObjectsV2", "DeleteObject*", "ListMultipartUploads"]


@pytest.mark.parametrize("compress, name, operation, act", [
    pytest.param(compress, *each, id=f"{each[0]}-{compress}") for each in OPERATIONS
    for compress in (["none", "auto"] if each[0] in WITH_FRAMES else ["none"])])
def test_one_refusal_of_each_operation_is_outlived(mount, simulator, prefix, compress, name, operation, act):
    simulator.put(prefix + "empty", b"")
    simulator.put(prefix + "small", SMALL)
    for number in range(20 if name == "rm" else 0):
        simulator.put(f"{prefix}many/{number}", SMALL)
    if name in WITH_FRAMES:
        (mount("--compress", compress) / "large").write_bytes(LARGE)
    made = mount("--compress", compress)
    simulator.inject({"op": operation, "key": "*" if operation in OF_THE_BUCKET else prefix + "*", "action": "expired-token",
                      # The first finds out whether parts can be copied.
                      "nth": 2 if name == "append" else 1})
    act(made.path)
    wait_until(lambda: simulator.fault_hits() == 1, "the operation to be refused once")
    if name in WITH_FRAMES:
        assert simulator.content(prefix + "large") == (LARGE + SMALL if operation == "UploadPartCopy" else LARGE)
    assert "expired" not in made.log()


@pytest.mark.parametrize("compress", ["none", "auto"])
def test_one_refusal_of_an_abort_is_outlived(mount, simulator, prefix, compress):
    made = mount("--compress", compress)
    simulator.inject({"op": "AbortMultipartUpload", "key": prefix + "*", "nth": 1, "action": "expired-token"})
    with (made / "new").open("wb", buffering=0) as stream:
        stream.write(LARGE)
        wait_until(lambda: simulator.open_uploads(prefix), "the upload to begin")
        stream.truncate(0)
        stream.seek(0)
        stream.write(SMALL)
    # The end of an upload is not waited for.
    wait_until(lambda: simulator.fault_hits() == 1, "the abort to be refused once")
    wait_until(lambda: simulator.open_uploads(prefix) == [], "the uploads to be ended")
    assert simulator.content(prefix + "new") == SMALL
    assert "expired" not in made.log()


@pytest.mark.parametrize("refused", [1, 2, 3], ids=["first probe", "second probe", "batch"])
def test_one_refusal_of_a_batch_is_outlived(mount, simulator, prefix, refused):
    """Two requests find out whether the store honours conditions."""
    for number in range(20):
        simulator.put(f"{prefix}first/{number}", SMALL)
        simulator.put(f"{prefix}second/{number}", SMALL)
    made = mount()
    simulator.inject({"op": "DeleteObjects", "nth": refused, "action": "expired-token"})
    remove_all(made / "first")
    wait_until(lambda: requests_of(simulator, "DeleteObjects") >= 2 and simulator.keys(prefix + ".ckptfs/") == [],
               "the probes to end")
    remove_all(made / "second")
    assert simulator.fault_hits() == 1
    assert requests_of(simulator, "DeleteObjects") >= 4
    assert simulator.keys(prefix) == []
    assert "expired" not in made.log()


# The end of the object and its frames, in as many requests.
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_one_refusal_of_each_request_of_a_read_is_outlived(mount, simulator, prefix, nth):
    (mount("--compress", "auto") / "large").write_bytes(LARGE)
    made = mount("--compress", "auto")
    simulator.inject({"op": "GetObject", "key": prefix + "large", "nth": nth, "action": "expired-token"})
    assert (made / "large").read_bytes() == LARGE
    assert simulator.fault_hits() == 1
    assert "expired" not in made.log()


def test_an_empty_file_is_looked_at_while_front_ends_refuse_in_turn(mount, simulator, prefix):
    """There is no byte of it by which the code of the refusal could be had."""
    simulator.put(prefix + "empty", b"")
    made = mount()
    simulator.inject({"op": "HeadObject", "key": prefix + "empty", "times": 3, "action": "expired-token"})
    assert (made.path / "empty").stat().st_size == 0
    assert simulator.fault_hits() == 3


class KeysFile:
    """A file of credentials that a program rotates."""

    def __init__(self, path: pathlib.Path, simulator: Simulator) -> None:
        self.path = path
        self._simulator = simulator
        self._sessions = 0

    def rotate(self) -> None:
        self._sessions += 1
        key, secret, token = self._keys()
        self._simulator.add_session(key, secret, token, 600)
        text = f"[default]\naws_access_key_id = {key}\naws_secret_access_key = {secret}\naws_session_token = {token}\n"
        # As programs do that think of their readers.
        beside = self.path.with_name("beside")
        beside.write_text(text)
        beside.chmod(0o600)
        beside.rename(self.path)

    def expire(self) -> None:
        """Those of the last rotation, now."""
        self._simulator.add_session(*self._keys(), 0)

    def _keys(self) -> list[str]:
        return [f"{kind}{self._sessions}-{self.path.parent.name}" for kind in ("KEY", "secret", "token")]


@pytest.fixture
def keys_file(simulator, tmp_path):
    return KeysFile(tmp_path / "credentials", simulator)


def mount_with(request, simulator: Simulator, prefix: str, file: pathlib.Path, *options: str) -> Mount:
    environment = {"AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL": simulator.url}
    made = Mount(f"s3://{BUCKET}/{prefix}", environment, "--credentials-file", str(file), *options)
    request.node.mounts = [*getattr(request.node, "mounts", []), made]
    return made


def test_keys_that_are_rotated_late_are_waited_for(request, simulator, prefix, keys_file, mount):
    for number in range(8):
        simulator.put(f"{prefix}read{number}", SMALL)
    (mount("--compress", "auto") / "compressed").write_bytes(LARGE)
    keys_file.rotate()
    mounts = {compress: mount_with(request, simulator, prefix, keys_file.path, "--compress", compress, "--max-memory",
                                   "256M") for compress in ("none", "auto")}
    failures: list[BaseException] = []

    def run(act: Callable[[], object]) -> threading.Thread:
        def guarded() -> None:
            try:
                act()
            except BaseException as problem:
                failures.append(problem)
        thread = threading.Thread(target=guarded)
        thread.start()
        return thread

    def read(file: pathlib.Path, content: bytes) -> None:
        assert file.read_bytes() == content

    def act(made: Mount, name: str) -> list[threading.Thread]:
        acts = [lambda n=number: (made / f"{name}-save{n}").write_bytes(SMALL) for number in range(8)]
        acts += [lambda n=number: read(made / f"read{n}", SMALL) for number in range(8)]
        acts += [lambda: read(made / "compressed", LARGE), lambda: (made / f"{name}-large").write_bytes(LARGE),
                 lambda: (made / f"{name}-before").rename(made / f"{name}-after"),
                 lambda: append(made / f"{name}-grows")]
        return [run(each) for each in acts]

    try:
        for name, made in mounts.items():
            (made / f"{name}-before").write_bytes(SMALL)
            (made / f"{name}-grows").write_bytes(LARGE)
        keys_file.expire()
        threads = [thread for name, made in mounts.items() for thread in act(made, name)]
        for made in mounts.values():
            wait_until(lambda log=made.log: "retrying for up to" in log(), "the mount to tell of it")
        assert failures == []
        keys_file.rotate()
        for thread in threads:
            thread.join(60)
        assert not [thread for thread in threads if thread.is_alive()]
        assert failures == []
        keys = simulator.keys(prefix)
        for name in mounts:
            assert simulator.content(f"{prefix}{name}-large") == LARGE
            assert simulator.content(f"{prefix}{name}-grows") == LARGE + SMALL
            assert {f"{prefix}{name}-after", *(f"{prefix}{name}-save{number}" for number in range(8))} <= set(keys)
            assert f"{prefix}{name}-before" not in keys
    finally:
        for made in mounts.values():
            made.remove()


def test_keys_that_never_come_are_an_error_after_retry_for(request, simulator, prefix, keys_file):
    keys_file.rotate()
    made = mount_with(request, simulator, prefix, keys_file.path, "--retry-for", "3s")
    try:
        (made / "before").write_bytes(SMALL)
        keys_file.expire()
        with pytest.raises(PermissionError):
            os.listdir(made.path)
        with pytest.raises(OSError):
            (made / "file").write_bytes(SMALL)
        assert "the session has expired; renew the credentials" in made.log()
        assert "given up after" in made.log()
    finally:
        made.remove()


def test_a_wrong_key_fails_the_mount_at_once(simulator, prefix, tmp_path):
    (tmp_path / "mnt").mkdir()
    begun = time.monotonic()
    done = subprocess.run([CKPTFS, "mount", f"s3://{BUCKET}/{prefix}", tmp_path / "mnt", "-f"], timeout=200,
                          env={**os.environ, **simulator.environment(), "AWS_SECRET_ACCESS_KEY": "wrong"},
                          capture_output=True, text=True)
    assert done.returncode != 0
    assert "check the secret access key" in done.stderr and "given up" not in done.stderr
    # Of the five minutes of --retry-for.
    assert time.monotonic() - begun < 100
    done = subprocess.run([CKPTFS, "mount", f"s3://{BUCKET}/{prefix}", tmp_path / "mnt", "-f"], timeout=200,
                          env={**os.environ, **simulator.environment(), "AWS_ACCESS_KEY_ID": ACCESS_KEY + "x",
                               "AWS_SECRET_ACCESS_KEY": SECRET_KEY}, capture_output=True, text=True)
    assert done.returncode != 0 and "does not know this access key" in done.stderr
