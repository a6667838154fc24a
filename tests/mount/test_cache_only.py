# SPDX-License-Identifier: Apache-2.0
"""What a node can read without the store (--cache-only): what it has seen of it, in the version that it has seen."""

import contextlib
import errno
import json
import os
import pathlib
import random
import sqlite3
import subprocess

import pytest
from harness.programs import CKPTFS, errno_of, wait_until
from harness.simulator import Simulator

pytestmark = pytest.mark.sanitized

MIB = 1 << 20
LARGE = random.Random(1).randbytes(3 * MIB) + b"text " * MIB
# Those of the sizes of a checkpoint's files. The large ones are read by frames, and the small ones come at once.
FILES = {
    "shard": LARGE,
    "just kept": LARGE[:(256 << 10) + 1],
    "not kept": LARGE[1:(256 << 10) + 1],
    ".metadata": b"{}" * 1000,
    "empty": b"",
}


@pytest.fixture(params=["none", "auto"])
def compress(request):
    return request.param


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "cache"


@pytest.fixture
def store():
    """One that can be taken away."""
    simulator = Simulator()
    yield simulator
    simulator.stop()


@pytest.fixture
def other_node(mount, store):
    return lambda: mount(environment=store.environment())


@pytest.fixture
def make(mount, store, directory, compress):
    return lambda *options: mount("--cache-dir", str(directory), "--compress", compress, *options,
                                  environment=store.environment())


def save(directory: pathlib.Path, files: dict[str, bytes] = FILES) -> None:
    directory.mkdir(exist_ok=True)
    for name, content in files.items():
        (directory / name).write_bytes(content)


def status(made) -> dict:
    answer = subprocess.run([CKPTFS, "status", made.path, "--json"], capture_output=True, text=True, check=True)
    return json.loads(answer.stdout)["disk"]


def wait_until_kept(made) -> None:
    kept = sum(len(content) for content in FILES.values() if len(content) > 256 << 10)
    wait_until(lambda: status(made)["bytes_written"] >= kept, "the large files to be kept")


def recorded(directory: pathlib.Path) -> bytes:
    if not (directory / "objects.sqlite").exists():
        return b""
    with contextlib.closing(sqlite3.connect(f"file:{directory}/objects.sqlite?mode=ro", uri=True)) as database:
        is_made = database.execute("PRAGMA user_version").fetchone()[0] > 0
        return b" ".join(name for name, in database.execute("SELECT name FROM objects")) if is_made else b""


def assert_there(directory: pathlib.Path, files: dict[str, bytes] = FILES) -> None:
    assert sorted(os.listdir(directory)) == sorted(files)
    for name, content in files.items():
        assert (directory / name).stat().st_size == len(content), name
        assert (directory / name).read_bytes() == content, name
    assert {entry.name: entry.stat().st_size for entry in os.scandir(directory)} == {
        name: len(content) for name, content in files.items()}


@pytest.mark.parametrize("ack", ["store", "disk"])
def test_what_was_written_is_read_without_the_store(make, store, ack):
    made = make("--ack", ack)
    save(made / "step-1")
    os.symlink("step-1", made / "latest")
    wait_until_kept(made)
    subprocess.run([CKPTFS, "wait", made.path], check=True, timeout=60)
    assert made.unmount() == 0
    store.stop()
    made = make("--cache-only")
    assert_there(made / "step-1")
    assert_there(made / "latest")
    assert status(made)["cache_only"]
    assert "all there is (--cache-only)" in subprocess.run([CKPTFS, "status", made.path], capture_output=True,
                                                            text=True, check=True).stdout
    assert made.unmount() == 0


@pytest.mark.parametrize("passthrough", ["auto", "never"])
def test_what_was_read_is_read_again_without_the_store(make, other_node, store, passthrough):
    save(other_node() / "step-1")
    made = make()
    assert_there(made / "step-1")
    wait_until_kept(made)
    assert made.unmount() == 0
    store.stop()
    # The kernel reads a file itself once it was checked.
    made = make("--cache-only", "--passthrough", passthrough)
    for _ in range(2):
        assert_there(made / "step-1")


def test_it_asks_for_nothing(make, store):
    made = make()
    save(made / "step-1")
    wait_until_kept(made)
    assert made.unmount() == 0
    made = make("--cache-only")
    store.reset_counters()
    assert_there(made / "step-1")
    assert store.counters()["operations"] == {}


@pytest.mark.parametrize("options", [[], ["-o", "rw"]], ids=["as it is", "as mount(8) asks for it"])
def test_changes_are_refused(make, store, options):
    made = make()
    save(made / "step-1")
    assert made.unmount() == 0
    made = make("--cache-only", *options)
    with pytest.raises(OSError, match=os.strerror(errno.EROFS)):
        (made / "step-1" / "new").write_bytes(b"")
    with pytest.raises(OSError, match=os.strerror(errno.EROFS)):
        os.unlink(made / "step-1" / "empty")
    with pytest.raises(OSError, match=os.strerror(errno.EROFS)):
        os.rename(made / "step-1", made / "step-2")


def test_a_name_without_its_bytes_is_an_error_that_says_what_to_do(make, other_node, store):
    """Rather than a checkpoint that looks as if it had fewer files."""
    made = make()
    save(made / "step-1")
    save(other_node() / "step-2")
    wait_until(lambda: sorted(os.listdir(made.path)) == ["step-1", "step-2"] and
               sorted(os.listdir(made / "step-2")) == sorted(FILES), "the other node's files to be seen")
    assert made.unmount() == 0
    store.stop()
    made = make("--cache-only")
    assert sorted(os.listdir(made.path)) == ["step-1", "step-2"]
    assert sorted(os.listdir(made / "step-2")) == sorted(FILES)
    for name in set(FILES) - {"empty"}:
        assert errno_of((made / "step-2" / name).read_bytes) == errno.EIO, name
    assert "step-2/shard: not all of it is in --cache-dir; mount without --cache-only to fetch it" in made.log()


def test_names_are_those_that_were_seen_last(make, other_node, store):
    made = make()
    for name in "renamed.tmp", "overwritten", "removed", "taken away":
        save(made / name, {"shard": LARGE, "small": name.encode()})
    os.rename(made / "renamed.tmp", made / "renamed")
    save(made / "overwritten", {"shard": LARGE[::-1], "small": b"anew"})
    for name in "shard", "small":
        os.unlink(made / "removed" / name)
    os.rmdir(made / "removed")
    other = other_node()
    for name in "shard", "small":
        wait_until(lambda name=name: (other / "taken away" / name).exists(), "it to be seen")
        os.unlink(other / "taken away" / name)
    os.rmdir(other / "taken away")
    wait_until(lambda: sorted(os.listdir(made.path)) == ["overwritten", "renamed"], "the removal to be seen")
    assert made.unmount() == 0
    store.stop()
    made = make("--cache-only")
    assert sorted(os.listdir(made.path)) == ["overwritten", "renamed"]
    assert_there(made / "renamed", {"shard": LARGE, "small": b"renamed.tmp"})
    assert_there(made / "overwritten", {"shard": LARGE[::-1], "small": b"anew"})


def test_a_newer_version_that_was_only_seen_is_not_mixed_with_the_kept_one(make, other_node, store):
    made = make()
    save(made / "last", {"shard": LARGE, "small": b"one"})
    other = other_node()
    wait_until(lambda: (other / "last" / "small").exists(), "it to be seen")
    save(other / "last", {"shard": LARGE[1:], "small": b"other"})
    wait_until(lambda: (made / "last" / "small").read_bytes() == b"other", "the newer one to be seen")
    wait_until(lambda: (made / "last" / "shard").stat().st_size == len(LARGE) - 1, "the newer one to be seen")
    assert made.unmount() == 0
    store.stop()
    made = make("--cache-only")
    assert (made / "last" / "small").read_bytes() == b"other"
    assert errno_of((made / "last" / "shard").read_bytes) == errno.EIO


def test_what_is_damaged_is_an_error(make, store, directory):
    made = make("--passthrough", "never")
    save(made / "step-1")
    wait_until_kept(made)
    assert made.unmount() == 0
    store.stop()
    for path in directory.glob("*.data"):
        with path.open("r+b") as file:
            byte = file.read(1)[0]
            file.seek(0)
            file.write(bytes([byte ^ 4]))
    made = make("--cache-only", "--passthrough", "never")
    assert errno_of((made / "step-1" / "shard").read_bytes) == errno.EIO
    assert (made / "step-1" / ".metadata").read_bytes() == FILES[".metadata"]


def test_a_killed_mount_has_recorded_what_it_wrote(make, store, directory):
    made = make()
    save(made / "step-1")
    wait_until_kept(made)
    wait_until(lambda: b"step-1/empty" in recorded(directory), "the last name to be recorded")
    made.process.kill()
    made.process.wait()
    made.remove()
    store.stop()
    assert_there(make("--cache-only") / "step-1")


def test_dropped_files_are_dropped_whole(make, store):
    made = make()
    save(made / "step-1")
    wait_until_kept(made)
    subprocess.run([CKPTFS, "drop", made / "step-1"], check=True, timeout=60)
    assert made.unmount() == 0
    store.stop()
    made = make("--cache-only")
    assert sorted(os.listdir(made / "step-1")) == sorted(FILES)
    for name in set(FILES) - {"empty"}:
        assert errno_of((made / "step-1" / name).read_bytes) == errno.EIO, name


def test_another_mount_may_write_meanwhile(make, store):
    made = make()
    save(made / "step-1")
    wait_until_kept(made)
    assert made.unmount() == 0
    alone, writing = make("--cache-only"), make()
    assert_there(alone / "step-1")
    save(writing / "step-2")
    wait_until_kept(writing)
    wait_until(lambda: "step-2" in os.listdir(alone.path), "the other mount's files")
    assert writing.unmount() == 0
    wait_until(lambda: sorted(os.listdir(alone / "step-2")) == sorted(FILES), "the other mount's files")
    assert_there(alone / "step-2")


def test_a_directory_that_has_nothing_says_so(make, directory):
    with pytest.raises(AssertionError, match="nothing was read or written with --cache-dir"):
        make("--cache-only")


@pytest.mark.parametrize("options, message", [
    (["--cache-only"], "--cache-only: set --cache-dir"),
    (["--cache-only", "--cache-dir", "/tmp/none", "--ack", "disk"], "--cache-only and --ack disk exclude each other"),
])
def test_options_that_contradict_each_other(options, message):
    answer = subprocess.run([CKPTFS, "mount", "s3://bucket", "/mnt", *options], capture_output=True, text=True)
    assert answer.returncode != 0
    assert message in answer.stderr
