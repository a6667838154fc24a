# SPDX-License-Identifier: Apache-2.0
"""A file system (FUSE) whose power is cut at a change of choice: what was flushed before is there again afterwards, and
of the rest what Files leaves.

An overlayfs with nothing below lies upon it, as ckptfs takes no FUSE mount for a disk.

The process that serves it keeps the files from one cut to the next, and is told what to do by lines on its input. With
its end the connection ends, so that nothing waits for it.
"""

import ctypes
import errno
import json
import os
import pathlib
import random
import select
import stat
import struct
import subprocess
import sys

from harness.forgetful_files import ROOT, SECTOR, File, Files, Loss, sectors

SIZE = 1 << 30
PAGE = 4096
MOST_WRITTEN = 1 << 20
ONE_HOUR = 3600
MNT_DETACH = 2
UPPER, WORK = "upper", "work"

# linux/fuse.h
IN_HEADER = struct.Struct("<IIQQIIII")
OUT_HEADER = struct.Struct("<IiQ")
ATTRIBUTES = struct.Struct("<QQQQQQIIIIIIIIII")
SET_ATTRIBUTES = struct.Struct("<I4xQQQQQQIIIIIIII")
SET_MODE, SET_SIZE, SET_MTIME, SET_MTIME_NOW = 1 << 0, 1 << 3, 1 << 5, 1 << 8
BIG_WRITES, MAX_PAGES = 1 << 5, 1 << 22
LOOKUP, FORGET, GETATTR, SETATTR, MKNOD, MKDIR, UNLINK, RMDIR, RENAME, LINK, OPEN, READ, WRITE, STATFS, RELEASE = \
    1, 2, 3, 4, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18
FSYNC, SETXATTR, GETXATTR, LISTXATTR, REMOVEXATTR, FLUSH, INIT, OPENDIR, READDIR, RELEASEDIR = range(20, 30)
FSYNCDIR, CREATE = 30, 35
INTERRUPT, BATCH_FORGET, FALLOCATE, RENAME2, TMPFILE = 36, 42, 43, 45, 51
UNANSWERED = {FORGET, BATCH_FORGET, INTERRUPT}
CHANGING = {SETATTR, MKNOD, MKDIR, UNLINK, RMDIR, RENAME, LINK, WRITE, FSYNC, FSYNCDIR, CREATE, FALLOCATE, RENAME2,
            TMPFILE}
PUNCH_HOLE_KEEP_SIZE = 3
RENAME_WHITEOUT = 4

libc = ctypes.CDLL(None, use_errno=True)


def names_in(body: memoryview) -> list[str]:
    return [name.decode() for name in bytes(body).split(b"\0")[:-1]]


class Requests:
    """Answers the requests of the kernel for these files."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self.answers = {
            INIT: self.init, LOOKUP: self.lookup, GETATTR: self.getattr, SETATTR: self.setattr, MKNOD: self.mknod,
            MKDIR: self.mkdir, UNLINK: self.remove, RMDIR: self.remove, RENAME: self.rename, RENAME2: self.rename2,
            LINK: self.link, OPEN: self.open, OPENDIR: self.open, READ: self.read, READDIR: self.readdir,
            WRITE: self.write, STATFS: self.statfs, RELEASE: self.nothing, RELEASEDIR: self.nothing,
            FLUSH: self.nothing, FSYNC: self.fsync, FSYNCDIR: self.fsync, CREATE: self.create, TMPFILE: self.tmpfile,
            FALLOCATE: self.fallocate, SETXATTR: self.setxattr, GETXATTR: self.getxattr, LISTXATTR: self.listxattr,
            REMOVEXATTR: self.removexattr}

    def answer(self, operation: int, node: int, body: memoryview) -> tuple[int, bytes]:
        """An error and what else is said."""
        if operation not in self.answers:
            return errno.ENOSYS, b""
        try:
            return 0, self.answers[operation](self.files.files[node] if node else None, body)
        except OSError as error:
            return error.errno, b""

    @staticmethod
    def attributes(file: File) -> bytes:
        size, links = len(file.data), 2 if file.is_directory() else file.links
        seconds, nanoseconds = divmod(file.modified, 10**9)
        return ATTRIBUTES.pack(file.number, size, sectors(size), *[seconds] * 3, *[nanoseconds] * 3, file.mode, links,
                               os.getuid(), os.getgid(), 0, PAGE, 0)

    def entry(self, file: File) -> bytes:
        return struct.pack("<QQQQII", file.number, 0, ONE_HOUR, ONE_HOUR, 0, 0) + self.attributes(file)

    def nothing(self, _file: File, _body: memoryview) -> bytes:
        return b""

    def init(self, _file: None, _body: memoryview) -> bytes:
        return struct.pack("<IIIIHHIIHHI28x", 7, 31, 1 << 17, BIG_WRITES | MAX_PAGES, 12, 9, MOST_WRITTEN, 1,
                           MOST_WRITTEN // PAGE, 0, 0)

    def lookup(self, directory: File, body: memoryview) -> bytes:
        return self.entry(self.files.find(directory.number, *names_in(body)))

    def getattr(self, file: File, _body: memoryview) -> bytes:
        return struct.pack("<QII", ONE_HOUR, 0, 0) + self.attributes(file)

    def setattr(self, file: File, body: memoryview) -> bytes:
        valid, _, size, _, _, mtime, _, _, mtime_ns, _, mode, *_ = SET_ATTRIBUTES.unpack_from(body)
        if valid & SET_SIZE:
            file.resize(size)
        if valid & SET_MODE:
            file.mode = stat.S_IFMT(file.mode) | stat.S_IMODE(mode)
        if valid & SET_MTIME and not valid & SET_MTIME_NOW:
            file.modified = mtime * 10**9 + mtime_ns
        return self.getattr(file, body)

    def mknod(self, directory: File, body: memoryview) -> bytes:
        made = self.files.make(struct.unpack_from("<I", body)[0])
        self.files.add(directory.number, *names_in(body[16:]), made)
        return self.entry(made)

    def mkdir(self, directory: File, body: memoryview) -> bytes:
        made = self.files.make(stat.S_IFDIR | struct.unpack_from("<I", body)[0])
        self.files.add(directory.number, *names_in(body[8:]), made)
        return self.entry(made)

    def remove(self, directory: File, body: memoryview) -> bytes:
        self.files.remove(directory.number, *names_in(body))
        return b""

    def rename(self, directory: File, body: memoryview) -> bytes:
        name, new_name = names_in(body[8:])
        self.files.rename(directory.number, name, struct.unpack_from("<Q", body)[0], new_name)
        return b""

    def rename2(self, directory: File, body: memoryview) -> bytes:
        new_directory, flags = struct.unpack_from("<QI", body)
        if flags & ~RENAME_WHITEOUT:
            raise OSError(errno.EINVAL, "not one that is served")
        left = self.files.make(stat.S_IFCHR) if flags else None
        name, new_name = names_in(body[16:])
        self.files.rename(directory.number, name, new_directory, new_name, left)
        return b""

    def link(self, directory: File, body: memoryview) -> bytes:
        file = self.files.files[struct.unpack_from("<Q", body)[0]]
        self.files.add(directory.number, *names_in(body[8:]), file)
        return self.entry(file)

    def open(self, _file: File, _body: memoryview) -> bytes:
        return struct.pack("<QII", 0, 0, 0)

    def _made(self, body: memoryview) -> File:
        return self.files.make(stat.S_IFREG | stat.S_IMODE(struct.unpack_from("<4xI", body)[0]))

    def create(self, directory: File, body: memoryview) -> bytes:
        made = self._made(body)
        self.files.add(directory.number, *names_in(body[16:]), made)
        return self.entry(made) + self.open(made, body)

    def tmpfile(self, _directory: File, body: memoryview) -> bytes:
        made = self._made(body)
        return self.entry(made) + self.open(made, body)

    def read(self, file: File, body: memoryview) -> bytes:
        _, offset, length = struct.unpack_from("<QQI", body)
        return bytes(memoryview(file.data)[offset:offset + length])

    def write(self, file: File, body: memoryview) -> bytes:
        _, offset, length = struct.unpack_from("<QQI", body)
        if self.files.bytes_taken() + length > SIZE:
            raise OSError(errno.ENOSPC, "full")
        file.write(offset, body[40:40 + length])
        return struct.pack("<II", length, 0)

    def fallocate(self, file: File, body: memoryview) -> bytes:
        _, offset, length, mode = struct.unpack_from("<QQQI", body)
        if mode != PUNCH_HOLE_KEEP_SIZE:
            raise OSError(errno.EOPNOTSUPP, "not one that is served")
        length = min(length, max(len(file.data) - offset, 0))
        if length > 0:
            file.write(offset, memoryview(bytes(length)))
        return b""

    # Extended attributes: overlayfs wants them, ckptfs has none.

    def setxattr(self, file: File, body: memoryview) -> bytes:
        name, value = bytes(body[8:]).split(b"\0", 1)
        file.attributes[name.decode()] = value[:struct.unpack_from("<I", body)[0]]
        return b""

    def _sized(self, value: bytes, body: memoryview) -> bytes:
        room, = struct.unpack_from("<I", body)
        if 0 < room < len(value):
            raise OSError(errno.ERANGE, "no room")
        return value if room else struct.pack("<I4x", len(value))

    def getxattr(self, file: File, body: memoryview) -> bytes:
        name, = names_in(body[8:])
        if name not in file.attributes:
            raise OSError(errno.ENODATA, "not there")
        return self._sized(file.attributes[name], body)

    def listxattr(self, file: File, body: memoryview) -> bytes:
        return self._sized(b"".join(name.encode() + b"\0" for name in file.attributes), body)

    def removexattr(self, file: File, body: memoryview) -> bytes:
        if file.attributes.pop(*names_in(body), None) is None:
            raise OSError(errno.ENODATA, "not there")
        return b""

    def fsync(self, file: File, _body: memoryview) -> bytes:
        self.files.flush(file)
        return b""

    def readdir(self, directory: File, body: memoryview) -> bytes:
        _, offset, room = struct.unpack_from("<QQI", body)
        listing = b""
        for place, (name, number) in list(enumerate(directory.entries.items(), 1))[offset:]:
            kind = stat.S_IFMT(self.files.files[number].mode) >> 12
            entry = struct.pack("<QQII", number, place, len(name.encode()), kind) + name.encode()
            entry += bytes(-len(entry) % 8)
            if len(listing) + len(entry) > room:
                break
            listing += entry
        return listing

    def statfs(self, _file: File, _body: memoryview) -> bytes:
        free = max(SIZE - self.files.bytes_taken(), 0) // PAGE
        return struct.pack("<QQQQQIIII24x", SIZE // PAGE, free, free, 1 << 20, 1 << 20, PAGE, 255, PAGE, 0)


class Server:
    def __init__(self, served: str, path: str) -> None:
        self.served, self.path = served, path
        self.files = Files()
        for name in UPPER, WORK:
            self.files.add(ROOT, name, self.files.make(stat.S_IFDIR | 0o755))
        self.files.note_names()
        self.requests = Requests(self.files)
        self.device: int | None = None
        self.has_power = True
        # Changes until the cut; and whether the last one comes to the disk, which is never told.
        self.left: int | None = None
        self.makes_last = False
        self.buffer = bytearray(MOST_WRITTEN + (64 << 10))

    def mount(self) -> None:
        self.device = os.open("/dev/fuse", os.O_RDWR | os.O_NONBLOCK)
        options = f"fd={self.device},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()}"
        if libc.mount(b"forgetful", self.served.encode(), b"fuse", 0, options.encode()) != 0:
            raise OSError(ctypes.get_errno(), "cannot mount", self.served)
        self.has_power = True

    def end_connection(self) -> None:
        if self.device is not None:
            # Whoever still waits for an answer gets an error.
            os.close(self.device)
            self.device = None
            for mount_point in self.path, self.served:
                libc.umount2(mount_point.encode(), MNT_DETACH)

    def cut(self) -> None:
        """Nothing is answered any more."""
        self.has_power = False
        self.left = None
        self.say("cut")

    @staticmethod
    def say(*words: str) -> None:
        print(*words, flush=True)

    def serve_one(self) -> None:
        try:
            length = os.readv(self.device, [self.buffer])
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EINTR, errno.ENOENT):
                return
            raise
        _, operation, unique, node, *_ = IN_HEADER.unpack_from(self.buffer)
        if operation in UNANSWERED:
            return
        is_last = False
        if operation in CHANGING and self.left is not None:
            self.left -= 1
            is_last = self.left <= 0
        if is_last and not self.makes_last:
            self.cut()
            return
        error, data = self.requests.answer(operation, node, memoryview(self.buffer)[IN_HEADER.size:length])
        if is_last:
            self.cut()
            return
        try:
            os.writev(self.device, [OUT_HEADER.pack(OUT_HEADER.size + len(data), -error, unique), data])
        except OSError as failed:
            # Who asked has been killed.
            if failed.errno != errno.ENOENT:
                raise

    def obey(self, command: str, arguments: dict) -> None:
        if command == "mount":
            self.mount()
            self.say("mounted")
        elif command == "cut-after":
            self.left, self.makes_last = arguments["changes"], arguments["makes_last"]
        elif command == "cut-now":
            if self.has_power:
                self.cut()
        else:
            assert command == "lose"
            self.end_connection()
            self.say(self.files.lose(Loss(**arguments["loss"]), random.Random(arguments["seed"])))

    def run(self) -> None:
        while True:
            asked = [self.device] if self.device is not None and self.has_power else []
            ready, _, _ = select.select([sys.stdin, *asked], [], [])
            if sys.stdin in ready:
                # Not by readline(): what it had read ahead would be waited for.
                lines = os.read(sys.stdin.fileno(), PAGE).splitlines()
                if not lines:
                    return
                for line in lines:
                    self.obey(*json.loads(line))
            elif ready:
                self.serve_one()


class ForgetfulDisk:
    """Served by a process of its own: what waits for the disk in this one would keep it from answering."""

    def __init__(self, place: pathlib.Path) -> None:
        self.path, self.served, self.lower = place / "disk", place / "served", place / "lower"
        for each in self.path, self.served, self.lower:
            each.mkdir(parents=True)
        self.server = subprocess.Popen(
            [sys.executable, "-m", "harness.forgetful_disk", self.served, self.path],
            cwd=pathlib.Path(__file__).parents[1], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)

    def _tell(self, command: str, **arguments: object) -> None:
        self.server.stdin.write(json.dumps([command, arguments]) + "\n")

    def _hear(self) -> str:
        said = self.server.stdout.readline()
        assert said, "the disk's server has ended"
        return said.strip()

    def attach(self) -> None:
        self._tell("mount")
        assert self._hear() == "mounted"
        directories = f"lowerdir={self.lower},upperdir={self.served / UPPER},workdir={self.served / WORK}"
        subprocess.run(["mount", "-t", "overlay", "-o", directories, "overlay", self.path], check=True, timeout=20)

    def cut_after(self, changes: int, makes_last: bool) -> None:
        self._tell("cut-after", changes=changes, makes_last=makes_last)

    def wait_for_cut(self, seconds: float) -> bool:
        """Cuts the power after that time otherwise. Returns whether that was needed."""
        is_late = not select.select([self.server.stdout], [], [], seconds)[0]
        if is_late:
            self._tell("cut-now")
        assert self._hear() == "cut"
        return is_late

    def lose(self, loss: Loss, seed: int) -> str:
        """After a cut; what it leaves is what the next attach() finds. What waits for the disk fails."""
        self._tell("lose", loss=vars(loss), seed=seed)
        return self._hear()

    def end(self) -> None:
        self.server.stdin.close()
        assert self.server.wait(20) == 0


if __name__ == "__main__":
    server = Server(*sys.argv[1:])
    try:
        server.run()
    finally:
        server.end_connection()
