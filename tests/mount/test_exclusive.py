# SPDX-License-Identifier: Apache-2.0
"""O_EXCL across mounts, and what is refused in the way that lets programs fall back."""

import ctypes
import errno
import fcntl
import os
import re
import shutil
import stat
import subprocess
import tempfile
import threading

import pytest
from harness.mounts import Mount
from harness.simulator import BUCKET, Simulator
from test_names import renameat2_noreplace

MIB = 1 << 20
O_TMPFILE = 0o20200000
FICLONE = 0x40049409


def exclusive(path, flags=os.O_WRONLY) -> int:
    return os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o600)


@pytest.mark.parametrize("flags", [os.O_WRONLY, os.O_RDWR], ids=["write only", "read and write"])
@pytest.mark.parametrize("size", [10, 20 * MIB], ids=["small", "in parts"])
def test_one_of_two_mounts_makes_the_file(mount, size, flags):
    one, other = mount(), mount()
    first, second = exclusive(one / "file", flags), exclusive(other / "file", flags)
    os.write(first, b"1" * size)
    os.write(second, b"2" * size)
    os.close(first)
    with pytest.raises(FileExistsError):
        os.close(second)
    assert (one / "file").read_bytes() == b"1" * size
    assert (mount() / "file").read_bytes() == b"1" * size
    with pytest.raises(FileExistsError):
        exclusive(other / "file")


def test_on_one_mount_the_second_open_fails(mount):
    made = mount()
    made_by = []

    def make(number: int) -> None:
        try:
            os.close(exclusive(made / "lock"))
            made_by.append(number)
        except FileExistsError:
            pass

    threads = [threading.Thread(target=make, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(made_by) == 1


def test_an_exclusive_file_that_is_renamed_replaces(mount, simulator, prefix):
    """safetensors, rsync: a temporary file made with O_EXCL, and renamed over what is there while it is open."""
    made = mount()
    (made / "model").write_bytes(b"old")
    for size in (10, 20 * MIB):
        file = exclusive(made / ".tmp", os.O_RDWR)
        os.write(file, b"n" * size)
        os.rename(made / ".tmp", made / "model")
        os.close(file)
        assert (mount() / "model").read_bytes() == b"n" * size
        assert simulator.keys(prefix) == [prefix + "model"]


def test_removed_and_made_again(mount):
    made = mount()
    for content in (b"1", b"2", b"3"):
        file = exclusive(made / "file")
        os.write(file, content)
        os.fsync(file)
        os.write(file, content)
        os.close(file)
        assert (made / "file").read_bytes() == content * 2
        os.unlink(made / "file")


@pytest.mark.parametrize("compress", ["none", "auto"])
def test_a_store_without_write_conditions(compress):
    """The simulator, as Swift, refuses them of PutObject: two requests, and none after those."""
    simulator = Simulator("--lacks", "known-write-conditions")
    made, other = [Mount(f"s3://{BUCKET}/", simulator.environment(), "--compress", compress) for _ in range(2)]
    try:
        for number in range(3):
            for size in (10, 20 * MIB):
                file = exclusive(made / f"{size}-{number}")
                content = os.urandom(size)
                os.write(file, content)
                os.close(file)
                assert simulator.content(f"{size}-{number}") == content
        assert re.findall(r"the store does not support If-None-Match.*\((\w+)\)", made.log()) == ["PutObject"]
        assert len([request for request in simulator.requests() if request["status"] == 501]) == 2
        file = exclusive(made / "both")
        os.write(file, b"mine")
        (other / "both").write_bytes(b"theirs")
        with pytest.raises(FileExistsError):
            os.close(file)
        assert simulator.content("both") == b"theirs"
    finally:
        made.remove()
        other.remove()
        simulator.stop()


def test_what_one_operation_was_refused_is_not_taken_from_another(mount, simulator, prefix):
    made, other = mount(), mount()
    (made / "source").write_bytes(b"s")
    simulator.inject({"op": "CopyObject", "action": "501", "times": 2})
    assert renameat2_noreplace(made / "source", made / "target") == 0
    assert simulator.fault_hits() == 2
    file = exclusive(made / "file")
    os.write(file, b"mine")
    (other / "file").write_bytes(b"theirs")
    with pytest.raises(FileExistsError):
        os.close(file)
    assert simulator.content(prefix + "file") == b"theirs"
    assert "the store" not in made.log()


@pytest.mark.parametrize("size, compress", [(10, "none"), (20 * MIB, "none"), (20 * MIB, "auto")],
                         ids=["PutObject", "CompleteMultipartUpload", "with frames"])
def test_where_a_condition_is_refused_the_name_is_looked_at(mount, simulator, prefix, size, compress):
    made, other = mount("--compress", compress), mount()
    file = exclusive(made / "file")
    os.write(file, os.urandom(size))
    (other / "file").write_bytes(b"theirs")
    simulator.inject({"op": "PutObject", "key": prefix + "file", "action": "501", "times": 1},
                     {"op": "CompleteMultipartUpload", "action": "501", "times": 1})
    with pytest.raises(FileExistsError):
        os.close(file)
    assert simulator.fault_hits() == 1
    assert simulator.content(prefix + "file") == b"theirs"


def failing(call) -> str:
    with pytest.raises(OSError) as raised:
        call()
    return errno.errorcode[raised.value.errno].replace("ENOTSUP", "EOPNOTSUPP")


def test_a_link_from_a_temporary_name_publishes(mount, simulator, prefix):
    made, other = mount(), mount()
    (made / "zarr.json.0123.partial").write_bytes(b"{}")
    os.link(made / "zarr.json.0123.partial", made / "zarr.json")
    assert (made / "zarr.json").read_bytes() == b"{}"
    assert (made / "zarr.json").stat().st_nlink == 1
    os.unlink(made / "zarr.json.0123.partial")
    assert os.listdir(made.path) == os.listdir(other.path) == ["zarr.json"]
    (other / "zarr.json.4567.partial").write_bytes(b"[]")
    assert failing(lambda: os.link(other / "zarr.json.4567.partial", other / "zarr.json")) == "EEXIST"
    assert simulator.content(prefix + "zarr.json") == b"{}"


def test_what_is_refused(mount):
    made = mount()
    path = made / "file"
    path.write_bytes(b"x" * 10)
    with open(path, "r+b") as file, open(made / "copy", "wb") as copy:
        libc = ctypes.CDLL(None, use_errno=True)

        def fallocate(mode: int) -> None:
            if libc.fallocate(file.fileno(), mode, ctypes.c_long(0), ctypes.c_long(100)) != 0:
                raise OSError(ctypes.get_errno(), "fallocate")

        assert failing(lambda: fallocate(0)) == "EOPNOTSUPP"
        assert failing(lambda: fallocate(3)) == "EOPNOTSUPP"
        assert failing(lambda: fcntl.ioctl(copy, FICLONE, file.fileno())) in ("EOPNOTSUPP", "ENOTTY")
    assert failing(lambda: os.setxattr(path, "user.a", b"b")) == "EOPNOTSUPP"
    assert failing(lambda: os.removexattr(path, "user.a")) == "EOPNOTSUPP"
    assert failing(lambda: os.link(path, made / "hard")) == "EPERM"
    assert failing(lambda: os.mknod(made / "device", stat.S_IFCHR | 0o600, os.makedev(1, 3))) == "EPERM"
    assert failing(lambda: os.open(made.path, O_TMPFILE | os.O_RDWR)) == "EOPNOTSUPP"
    # Programs fall back to a name that they remove.
    with tempfile.TemporaryFile(dir=made.path) as temporary:
        temporary.write(b"fallen back")
        temporary.seek(0)
        assert temporary.read() == b"fallen back"
    assert sorted(os.listdir(made.path)) == ["copy", "file"]


def test_locks_are_those_of_the_node(mount):
    made = mount()
    path = made / "file"
    path.write_bytes(b"x")
    take = "import fcntl, os, sys; file = open(sys.argv[1], 'r+b'); fcntl.{}(file, fcntl.LOCK_EX | fcntl.LOCK_NB)"

    def taken_by_another(kind: str) -> bool:
        done = subprocess.run(["python3", "-c", take.format(kind), path], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0 or "BlockingIOError" in done.stderr, done.stderr
        return done.returncode == 0

    for kind in ("flock", "lockf"):
        with open(path, "r+b") as file:
            getattr(fcntl, kind)(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            assert not taken_by_another(kind), kind
            getattr(fcntl, kind)(file, fcntl.LOCK_UN)
            assert taken_by_another(kind), kind


def test_open_file_description_locks(mount):
    made = mount()
    (made / "file").write_bytes(b"x")
    whole = fcntl.F_WRLCK.to_bytes(2, "little") + bytes(30)
    with open(made / "file", "r+b") as one, open(made / "file", "r+b") as other:
        fcntl.fcntl(one, fcntl.F_OFD_SETLK, whole)
        assert failing(lambda: fcntl.fcntl(other, fcntl.F_OFD_SETLK, whole)) == "EAGAIN"
    with open(made / "file", "r+b") as third:
        fcntl.fcntl(third, fcntl.F_OFD_SETLK, whole)


def test_copies_and_moves_within_the_mount(mount):
    made = mount()
    (made / "one" / "two").mkdir(parents=True)
    content = os.urandom(3 * MIB)
    (made / "one" / "file").write_bytes(content)
    with open(made / "one" / "file", "rb") as source, open(made / "copy", "wb") as target:
        copied = 0
        while count := os.copy_file_range(source.fileno(), target.fileno(), len(content) - copied):
            copied += count
    assert (made / "copy").read_bytes() == content
    os.rename(made / "one" / "file", made / "one" / "two" / "moved")
    os.rename(made / "one" / "two", made / "up")
    shutil.move(made / "up", made / "one" / "down")
    assert (made / "one" / "down" / "moved").read_bytes() == content
