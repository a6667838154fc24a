# SPDX-License-Identifier: Apache-2.0
"""A process that acts: it opens, writes, maps, forks, execs and is killed, as it is told over a socket.

    python agent.py SOCKET NAME [exec SLOT=FD ...]

It says its name, then answers one request after another: a line of JSON each way, after an answer the bytes that it
counts. Descriptors are known by the slot that the driver gave them, in a forked child by the same one.
"""

import ctypes
import errno
import fcntl
import json
import mmap
import os
import signal
import socket
import sys

from pattern import pattern

FLAGS = {"r": os.O_RDONLY, "r+": os.O_RDWR, "wo": os.O_WRONLY, "a": os.O_WRONLY | os.O_APPEND | os.O_CREAT,
         "a+": os.O_RDWR | os.O_APPEND | os.O_CREAT, "w": os.O_WRONLY | os.O_CREAT | os.O_TRUNC,
         "w+": os.O_RDWR | os.O_CREAT | os.O_TRUNC, "x": os.O_WRONLY | os.O_CREAT | os.O_EXCL,
         "x+": os.O_RDWR | os.O_CREAT | os.O_EXCL, "rt": os.O_RDWR | os.O_TRUNC, "c": os.O_RDWR | os.O_CREAT}


LIBC = ctypes.CDLL(None, use_errno=True)
AT_FDCWD, RENAME_NOREPLACE = -100, 1
# Has said its name instead.
SILENT: dict = {"silent": True}


def name_of(problem: OSError) -> str:
    # One number has two names.
    return errno.errorcode.get(problem.errno, str(problem.errno)).replace("ENOTSUP", "EOPNOTSUPP")


def write_all(descriptor: int, data: bytes, offset: int | None) -> None:
    done = 0
    while done < len(data):
        piece = memoryview(data)[done:done + (1 << 20)]
        done += os.write(descriptor, piece) if offset is None else os.pwrite(descriptor, piece, offset + done)


def read_all(descriptor: int) -> bytes:
    pieces, at = [], 0
    while piece := os.pread(descriptor, 1 << 20, at):
        pieces.append(piece)
        at += len(piece)
    return b"".join(pieces)


class Agent:
    def __init__(self, address: str, name: str, after: str, slots: dict[str, int]) -> None:
        self.address = address
        self.slots = slots
        self.connect(name, after)

    def connect(self, name: str, after: str) -> None:
        self.name = name
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(self.address)
        self.stream = self.socket.makefile("rb")
        self.answer({"name": name, "after": after, "pid": os.getpid()})

    def answer(self, head: dict, data: bytes = b"") -> None:
        self.socket.sendall(json.dumps({**head, "bytes": len(data)}).encode() + b"\n" + data)

    def serve(self) -> None:
        while line := self.stream.readline():
            request = json.loads(line)
            try:
                found = getattr(self, request.pop("do"))(**request)
                head, data = found if isinstance(found, tuple) else (found or {}, b"")
                if head is not SILENT:
                    self.answer({"ok": True, **head}, data)
            except OSError as problem:
                self.answer({"ok": False, "errno": name_of(problem)})

    # --- descriptors

    def open(self, path, flags, slot, syncs=False):
        self.slots[slot] = os.open(path, FLAGS[flags] | (os.O_DSYNC if syncs else 0))

    def close(self, slot):
        os.close(self.slots.pop(slot))

    def dup(self, slot, other):
        self.slots[other] = os.dup(self.slots[slot])

    def fork(self, name):
        if os.fork() == 0:
            self.socket.close()
            self.connect(name, "fork")
            return SILENT
        return None

    def exec(self):
        for descriptor in self.slots.values():
            os.set_inheritable(descriptor, True)
        os.execv(sys.executable, [sys.executable, "-S", "-E", __file__, self.address, self.name, "exec",
                                  *(f"{slot}={descriptor}" for slot, descriptor in self.slots.items())])

    # --- data

    def write(self, slot, tag, at, size):
        write_all(self.slots[slot], pattern(tag, at, size), None)

    def pwrite(self, slot, tag, at, size):
        write_all(self.slots[slot], pattern(tag, at, size), at)

    def map_write(self, slot, tag, at, size):
        with mmap.mmap(self.slots[slot], at + size) as pages:
            pages[at:at + size] = pattern(tag, at, size)
            pages.flush()

    def read(self, slot):
        return {}, read_all(self.slots[slot])

    def map_read(self, slot):
        size = os.fstat(self.slots[slot]).st_size
        if size == 0:
            return {}, b""
        with mmap.mmap(self.slots[slot], size, prot=mmap.PROT_READ) as pages:
            return {}, pages[:]

    def truncate(self, slot, size):
        os.ftruncate(self.slots[slot], size)

    def fsync(self, slot):
        os.fsync(self.slots[slot])

    def lock(self, slot):
        fcntl.flock(self.slots[slot], fcntl.LOCK_EX | fcntl.LOCK_NB)

    # --- names

    def save_again(self, path, way, early, tag, size):
        """Without a pause, so that a close(2) is answered before the daemon has its RELEASE."""
        self.save(path, "w", early, size)
        if way == "renamed":
            self.save(path + ".tmp", "w", tag, size)
            os.rename(path + ".tmp", path)
        else:
            if way == "removed":
                os.unlink(path)
            self.save(path, "w", tag, size)
        return self.load(path)

    def save(self, path, flags, tag, size, mapped=False):
        descriptor = os.open(path, FLAGS[flags])
        if mapped:
            # As numpy.memmap does.
            try:
                os.ftruncate(descriptor, size)
                pages = mmap.mmap(descriptor, size)
            finally:
                os.close(descriptor)
            with pages:
                pages[:] = pattern(tag, 0, size)
                pages.flush()
            return
        try:
            write_all(descriptor, pattern(tag, 0, size), None)
        finally:
            os.close(descriptor)

    def mark(self, path, tag, size, renamed=False):
        temporary = f"{path}.tmp" if renamed else path
        self.save(temporary, "w", tag, size)
        if renamed:
            # As DCP does.
            os.rename(temporary, path)

    def load(self, path):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            return {}, read_all(descriptor)
        finally:
            os.close(descriptor)

    def unlink(self, path):
        os.unlink(path)

    def rename(self, path, other, keeps=False):
        if not keeps:
            os.rename(path, other)
        elif LIBC.renameat2(AT_FDCWD, os.fsencode(path), AT_FDCWD, os.fsencode(other), RENAME_NOREPLACE) != 0:
            raise OSError(ctypes.get_errno(), "renameat2")

    def mkdir(self, path):
        os.mkdir(path)

    def remove_tree(self, path):
        """As rm -r."""
        found = self.remove_files(path)
        try:
            if found.get("ok", True):
                os.rmdir(path)
            return found
        except OSError as problem:
            return {**found, "ok": False, "errno": name_of(problem)}

    def remove_files(self, path):
        removed = []
        try:
            for name in sorted(os.listdir(path)):
                os.unlink(os.path.join(path, name))
                removed.append(name)
        except OSError as problem:
            return {"ok": False, "errno": name_of(problem), "removed": removed}
        return {"removed": removed}

    def cut(self, path, size):
        os.truncate(path, size)

    def fill(self, path, count, tag, size, ending=""):
        for number in range(count):
            self.save(f"{path}/n{number:02}{ending}", "w", tag + number, size)

    def sync_directory(self, path):
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def list(self, path):
        return {"names": sorted(os.listdir(path))}


if __name__ == "__main__":
    # Children are nobody's to wait for.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    given = dict(word.split("=") for word in sys.argv[4:])
    descriptors = {slot: int(number) for slot, number in given.items()}
    Agent(sys.argv[1], sys.argv[2], "".join(sys.argv[3:4]), descriptors).serve()
