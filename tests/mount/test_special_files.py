# SPDX-License-Identifier: Apache-2.0
"""Sockets and FIFOs, by which processes of one machine find each other: of the mount they are made in, and no other."""

import errno
import os
import pathlib
import socket
import stat
import subprocess
import sys
import threading

import pytest

# What multiprocessing does in TMPDIR, in a process of its own.
_MANAGER = """
import multiprocessing

def add(shared, lock, queue):
    with lock:
        shared["n"] = shared.get("n", 0) + 1
    queue.put(1)

if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    with context.Manager() as manager:
        shared, lock, queue = manager.dict(), manager.Lock(), manager.Queue()
        workers = [context.Process(target=add, args=(shared, lock, queue)) for _ in range(2)]
        for worker in workers:
            worker.start()
        assert [queue.get(timeout=30) for _ in workers] == [1, 1]
        for worker in workers:
            worker.join()
        assert shared["n"] == 2
"""

_LISTENER = """
import multiprocessing.connection, os

def child(address):
    with multiprocessing.connection.Client(address, authkey=b"key") as connection:
        connection.send("hello")

if __name__ == "__main__":
    with multiprocessing.connection.Listener(family="AF_UNIX", authkey=b"key") as listener:
        assert listener.address.startswith(os.environ["TMPDIR"]), listener.address
        process = multiprocessing.get_context("spawn").Process(target=child, args=(listener.address,))
        process.start()
        with listener.accept() as connection:
            assert connection.recv() == "hello"
        process.join()
"""

# Datagrams and file descriptors between processes, as DataLoader workers hand them over.
_QUEUE = """
import multiprocessing, multiprocessing.reduction, os

def child(queue, back):
    back.put(os.read(queue.get(timeout=30).detach(), 5))

if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    queue, back = context.Queue(), context.Queue()
    process = context.Process(target=child, args=(queue, back))
    process.start()
    read, write = os.pipe()
    os.write(write, b"bytes")
    queue.put(multiprocessing.reduction.DupFd(read))
    assert back.get(timeout=30) == b"bytes"
    process.join()
"""


@pytest.mark.parametrize("program", [_MANAGER, _LISTENER, _QUEUE], ids=["manager", "listener", "queue"])
def test_multiprocessing_with_tmpdir_on_the_mount(mount, simulator, prefix, tmp_path, program):
    made = mount()
    script = tmp_path / "program.py"
    script.write_text(program)
    done = subprocess.run([sys.executable, script], cwd=made.path, env={**os.environ, "TMPDIR": str(made.path)},
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert simulator.keys(prefix) == []


def _bound(path: pathlib.Path) -> socket.socket:
    listening = socket.socket(socket.AF_UNIX)
    listening.settimeout(30)
    listening.bind(str(path))
    listening.listen()
    return listening


def _is_reached(path: pathlib.Path, listening: socket.socket) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(30)
        client.connect(str(path))
        client.sendall(b"x")
        with listening.accept()[0] as served:
            return served.recv(1) == b"x"


def test_a_reader_and_a_writer_of_a_fifo(mount):
    made = mount()
    os.mkfifo(made / "fifo")
    reader = subprocess.Popen(["cat", made / "fifo"], stdout=subprocess.PIPE)
    writer = subprocess.Popen(["sh", "-c", 'seq 100000 > "$0"', made / "fifo"])
    try:
        out, _ = reader.communicate(timeout=60)
        assert writer.wait(60) == 0
    finally:
        reader.kill()
        writer.kill()
    assert out.splitlines() == [str(n).encode() for n in range(1, 100001)]
    assert os.stat(made / "fifo").st_size == 0


def test_they_are_of_one_mount_and_never_in_the_bucket(mount, simulator, prefix):
    one, other = mount(), mount()
    (one / "step").mkdir()
    (one / "step" / "file").write_bytes(b"x")
    os.mkfifo(one / "step" / "fifo")
    with _bound(one / "step" / "socket") as listening:
        assert {entry.name: (entry.is_file(), stat.S_IFMT(entry.stat(follow_symlinks=False).st_mode))
                for entry in os.scandir(one / "step")} == {
            "file": (True, stat.S_IFREG), "fifo": (False, stat.S_IFIFO), "socket": (False, stat.S_IFSOCK)}
        assert os.listdir(other / "step") == ["file"]
        assert not os.path.lexists(other / "step" / "fifo")
        assert simulator.keys(prefix) == [f"{prefix}step/", f"{prefix}step/file"]
        assert _is_reached(one / "step" / "socket", listening)
    assert one.unmount() == 0
    assert os.listdir(mount() / "step") == ["file"]


def test_names_modes_and_owners_are_as_on_a_local_disk(mount):
    made = mount("--metadata-ttl", "0")
    mask = os.umask(0o027)
    try:
        os.mkfifo(made / "fifo", 0o666)
    finally:
        os.umask(mask)
    with pytest.raises(FileExistsError):
        os.mkfifo(made / "fifo")
    with pytest.raises(FileExistsError):
        (made / "fifo").mkdir()
    with pytest.raises(FileExistsError):
        os.symlink("target", made / "fifo")
    with pytest.raises(OSError) as raised:
        os.mkfifo(made / "nowhere" / "fifo")
    assert raised.value.errno == errno.ENOENT
    assert stat.S_IMODE(os.stat(made / "fifo").st_mode) == 0o640
    os.chmod(made / "fifo", 0o604)
    os.chown(made / "fifo", 1234, 4321)
    os.utime(made / "fifo", (5, 7))
    status = os.stat(made / "fifo")
    assert (stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid, status.st_mtime) == (0o604, 1234, 4321, 7)
    assert status.st_nlink == 1 and stat.S_ISFIFO(status.st_mode)
    with pytest.raises(PermissionError):
        os.link(made / "fifo", made / "second")
    os.unlink(made / "fifo")
    assert os.listdir(made.path) == []
    with pytest.raises(FileNotFoundError):
        os.unlink(made / "fifo")
    (made / "fifo").write_bytes(b"a file")
    assert (made / "fifo").read_bytes() == b"a file"


def test_renames(mount, simulator, prefix):
    made = mount("--metadata-ttl", "0")
    (made / "a").mkdir()
    (made / "empty").mkdir()
    (made / "file").write_bytes(b"a file")
    with _bound(made / "a" / "socket") as listening:
        with pytest.raises(OSError) as raised:
            os.rmdir(made / "a")
        assert raised.value.errno == errno.ENOTEMPTY
        with pytest.raises(OSError) as raised:
            os.rename(made / "empty", made / "a")
        assert raised.value.errno == errno.ENOTEMPTY
        # Its directory takes it along.
        os.rename(made / "a", made / "b")
        assert _is_reached(made / "b" / "socket", listening)
        os.rename(made / "b" / "socket", made / "socket")
        assert os.listdir(made / "b") == []
        assert _is_reached(made / "socket", listening)
        # Over a file, over one of its kind, and the reverse.
        os.rename(made / "socket", made / "file")
        assert simulator.keys(prefix) == [f"{prefix}b/", f"{prefix}empty/"]
        assert _is_reached(made / "file", listening)
        os.mkfifo(made / "fifo")
        os.rename(made / "fifo", made / "file")
        assert stat.S_ISFIFO(os.stat(made / "file").st_mode)
    (made / "new").write_bytes(b"new")
    os.rename(made / "new", made / "file")
    assert (made / "file").read_bytes() == b"new" == simulator.content(f"{prefix}file")
    assert sorted(os.listdir(made.path)) == ["b", "empty", "file"]
    for directory in ("b", "empty"):
        os.rmdir(made / directory)


def test_a_name_that_another_mount_takes_is_theirs_once_it_is_free(mount):
    one, other = mount("--metadata-ttl", "0"), mount("--metadata-ttl", "0")
    with _bound(one / "name") as listening:
        (other / "name").write_bytes(b"of the other mount")
        assert os.listdir(one.path) == ["name"]
        assert stat.S_ISSOCK(os.stat(one / "name").st_mode)
        assert _is_reached(one / "name", listening)
    os.unlink(one / "name")
    assert (one / "name").read_bytes() == b"of the other mount"


def test_they_go_with_a_directory_that_another_mount_removes(mount):
    one, other = mount("--metadata-ttl", "0"), mount("--metadata-ttl", "0")
    (one / "d" / "below").mkdir(parents=True)
    os.mkfifo(one / "d" / "below" / "fifo")
    subprocess.run(["rm", "-r", other / "d"], check=True, timeout=60)
    assert not os.path.lexists(one / "d" / "below" / "fifo")
    (one / "d" / "below").mkdir(parents=True)
    assert os.listdir(one / "d" / "below") == []


def test_a_socket_stays_while_its_directory_is_used_by_many(mount):
    made = mount("--metadata-ttl", "0")
    with _bound(made / "socket") as listening:
        def make_files(worker: int) -> None:
            for number in range(30):
                (made / f"{worker}-{number}").write_bytes(b"x")
                os.unlink(made / f"{worker}-{number}")
        workers = [threading.Thread(target=make_files, args=(worker,)) for worker in range(4)]
        for worker in workers:
            worker.start()
        while any(worker.is_alive() for worker in workers):
            assert _is_reached(made / "socket", listening)
            assert "socket" in os.listdir(made.path)
        for worker in workers:
            worker.join()
    # The reads that follow need no socket that listens: it can be looked at, and removed.
    with pytest.raises(ConnectionRefusedError), socket.socket(socket.AF_UNIX) as client:
        client.connect(str(made / "socket"))
    os.unlink(made / "socket")
    assert os.listdir(made.path) == []
