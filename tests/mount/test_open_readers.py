# SPDX-License-Identifier: Apache-2.0
"""What those who have a file open see of others that change it in place or append to it, on the same mount."""

import errno
import mmap
import os
import signal
import subprocess
import sys
import threading

import pytest
from harness.programs import wait_until

pytestmark = pytest.mark.sanitized_too

MIB = 1 << 20
KIB = 1 << 10
OLD = b"old-" * (64 * KIB)
NEW = b"new-" * (64 * KIB)


@pytest.fixture(params=["never", "auto", "always"])
def made(mount, request):
    return mount("--direct-io", request.param)


def replace_in_place(path, content, how="write"):
    with open(path, "r+b", buffering=0) as file:
        if how == "mmap":
            with mmap.mmap(file.fileno(), len(content)) as mapped:
                mapped[:] = content
        else:
            assert file.write(content) == len(content)
        os.fsync(file.fileno())


def pieces(file, size, step=64 * KIB):
    """All that is read, up to the error that a version that is gone is."""
    got = b""
    try:
        for offset in range(0, size, step):
            got += os.pread(file.fileno(), step, offset)
    except OSError as error:
        assert error.errno == errno.ESTALE
    return got


@pytest.mark.parametrize("how", ["write", "mmap"])
def test_readers_of_two_versions_share_no_page(made, simulator, prefix, how):
    """The old reader reads first what the new one reads then, and what later ones read after both."""
    simulator.put(prefix + "file", OLD)
    with open(made / "file", "rb", buffering=0) as old:
        assert os.pread(old.fileno(), 4096, 0) == OLD[:4096]
        replace_in_place(made / "file", NEW, how)
        with open(made / "file", "rb", buffering=0) as new:
            assert OLD.startswith(pieces(old, len(OLD)))
            assert pieces(new, len(NEW)) == NEW
        assert (made / "file").read_bytes() == NEW
    assert (made / "file").read_bytes() == NEW


def pages_until_sigbus(mapped, path):
    """What a process reads of a mapping, until it ends or what it needs is gone."""
    child = os.fork()
    if child == 0:
        with open(path, "wb", buffering=0) as read:
            for offset in range(0, len(mapped), 64 * KIB):
                read.write(mapped[offset:offset + 64 * KIB])
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status in (0, signal.SIGBUS)
    return path.read_bytes()


@pytest.mark.parametrize("stored", ["plain", "frames"])
def test_mappings_of_two_versions_share_no_page(mount, made, tmp_path, stored):
    """The old one faults what nothing has read before, after the change; then the new one, and later ones."""
    old, new = OLD * 16, NEW * 16
    writer = mount("--compress", "none" if stored == "plain" else "zstd")
    (writer / "file").write_bytes(old)
    with open(made / "file", "rb") as before, mmap.mmap(before.fileno(), 0, prot=mmap.PROT_READ) as mapped_before:
        assert mapped_before[:4096] == old[:4096]
        replace_in_place(made / "file", new)
        with open(made / "file", "rb") as after, mmap.mmap(after.fileno(), 0, prot=mmap.PROT_READ) as mapped_after:
            read = pages_until_sigbus(mapped_before, tmp_path / "read")
            assert old.startswith(read)
            assert mapped_after[:] == new
        with open(made / "file", "rb") as later, mmap.mmap(later.fileno(), 0, prot=mmap.PROT_READ) as mapped_later:
            assert mapped_later[:] == new
    assert (made / "file").read_bytes() == (writer / "file").read_bytes() == new


def test_who_reads_what_is_written_anew_never_gets_a_part_of_the_next_version(mount):
    """Opened and read after the writer began, and read on when it has saved."""
    made = mount("--direct-io", "always")
    for size in (100, 20 * MIB):
        (made / "file").write_bytes(b"a" * size)
        writer = os.open(made / "file", os.O_WRONLY | os.O_TRUNC)
        os.write(writer, b"b" * 4096)
        reader = os.open(made / "file", os.O_RDONLY)
        assert os.pread(reader, 1 << 16, 0) == b"a" * min(size, 1 << 16)
        for part in range(1, 21):
            os.pwrite(writer, b"b" * MIB, part * MIB - MIB)
        os.close(writer)
        try:
            while piece := os.pread(reader, MIB, size // 2):
                assert set(piece) == {ord("a")}
                break
            assert os.pread(reader, MIB, size) == b""
        except OSError as problem:
            assert problem.errno == errno.ESTALE
        os.close(reader)
        assert set((made / "file").read_bytes()) == {ord("b")}


@pytest.mark.parametrize("how", ["read", "map", "truncate"])
def test_a_reader_served_by_the_page_cache_keeps_its_version(made, simulator, prefix, how):
    """The mount has not heard of its reads: others have read the same before."""
    size = 8 * MIB
    simulator.put(prefix + "file", b"g" * size)
    assert (made / "file").read_bytes() == b"g" * size
    with open(made / "file", "rb", buffering=0) as reader:
        mapped = mmap.mmap(reader.fileno(), size, prot=mmap.PROT_READ) if how == "map" else None
        assert (os.pread(reader.fileno(), 4096, 0) if mapped is None else mapped[:4096]) == b"g" * 4096
        if how == "truncate":
            os.truncate(made / "file", 1000)
            assert os.fstat(reader.fileno()).st_size == size
        else:
            replace_in_place(made / "file", b"X" * size)
        if mapped is None:
            assert set(pieces(reader, size)) <= {ord("g")}
        else:
            # What is not in the page cache is SIGBUS.
            assert mapped[:4096] == b"g" * 4096
    assert (made / "file").read_bytes() == (b"g" * 1000 if how == "truncate" else b"X" * size)


def test_a_reader_keeps_its_version_while_the_file_is_changed_in_place(made, simulator, prefix):
    simulator.put(prefix + "file", OLD)
    with open(made / "file", "rb", buffering=0) as reader:
        assert reader.read() == OLD
        with open(made / "file", "r+b", buffering=0) as writer:
            writer.write(NEW[:100_000])
            assert os.pread(reader.fileno(), len(OLD), 0) == OLD
            writer.truncate(200_000)
            assert os.fstat(writer.fileno()).st_size == 200_000
            assert os.fstat(reader.fileno()).st_size == len(OLD)
            assert os.pread(reader.fileno(), len(OLD), 0) == OLD
        assert os.pread(reader.fileno(), len(OLD), 0) == OLD
        assert (made / "file").read_bytes() == NEW[:100_000] + OLD[100_000:200_000]
        os.truncate(made / "file", 1000)
        assert (made / "file").read_bytes() == NEW[:1000]
        assert os.fstat(reader.fileno()).st_size == len(OLD)
        assert os.pread(reader.fileno(), len(OLD), 0) == OLD


def test_a_mapping_keeps_its_version_while_the_file_is_changed_in_place(made, simulator, prefix):
    simulator.put(prefix + "file", OLD)
    with open(made / "file", "rb") as reader, \
            mmap.mmap(reader.fileno(), 0, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ) as mapped:
        assert mapped[:] == OLD
        replace_in_place(made / "file", NEW, "mmap")
        assert mapped[:] == OLD
        assert (made / "file").read_bytes() == NEW
        assert mapped[:] == OLD


def test_who_opens_a_file_that_is_open_for_changes_sees_them(made, simulator, prefix):
    """As on a local disk, through a descriptor and a mapping, and after the commit as well."""
    simulator.put(prefix + "file", OLD)
    with open(made / "file", "r+b", buffering=0) as writer, open(made / "file", "rb", buffering=0) as reader:
        assert reader.read() == OLD
        content = bytearray(OLD)
        for offset in (0, 100_000, len(OLD) - 5):
            os.pwrite(writer.fileno(), b"value", offset)
            content[offset:offset + 5] = b"value"
            assert os.pread(reader.fileno(), len(OLD), 0) == content
        os.fsync(writer.fileno())
        assert os.pread(reader.fileno(), len(OLD), 0) == content
        writer.close()
        assert os.pread(reader.fileno(), len(OLD), 0) == content
        replace_in_place(made / "file", NEW)
        # The kernel releases the writer after its close has returned. Who opens before that changes the same file.
        seen = pieces(reader, len(OLD))
        assert seen == NEW or bytes(content).startswith(seen)
    assert (made / "file").read_bytes() == NEW


def test_a_descriptor_that_has_not_read_yet_sees_the_changes(made, simulator, prefix):
    """So that a lock that it holds is one with the writer's."""
    simulator.put(prefix + "file", OLD)
    with open(made / "file", "rb", buffering=0) as reader:
        with open(made / "file", "r+b", buffering=0) as writer:
            assert os.fstat(reader.fileno()).st_ino == os.fstat(writer.fileno()).st_ino
            writer.write(NEW)
            assert os.pread(reader.fileno(), 4096, 0) == NEW[:4096]
        assert os.pread(reader.fileno(), len(NEW), 0) == NEW
    with open(made / "file", "rb", buffering=0) as reader:
        replace_in_place(made / "file", OLD)
        assert reader.read(len(OLD)) == OLD


def test_an_open_reader_sees_what_is_appended_and_never_zeros(made, simulator):
    """Whoever follows a log gets its bytes once they are committed, and nothing in their place before."""
    simulator.inject({"op": "PutObject", "action": "slow", "ms": 40})
    content = b"".join(b"line %06d\n" % number for number in range(100))
    (made / "log").write_bytes(content)
    got = bytearray()
    with open(made / "log", "rb", buffering=0) as follower:
        got += follower.read()
        assert got == content
        for number in range(12):
            more = (b"more %06d\n" % number) * (1 + 37 * number)
            with open(made / "log", "ab", buffering=0) as log:
                for begin in range(0, len(more), 1000):
                    log.write(more[begin:begin + 1000])
                    got += follower.read(1 << 16)
                    assert content.startswith(got)
            content += more

            def follow():
                got.extend(follower.read(1 << 16))
                assert content.startswith(got)
                return len(got) == len(content)
            wait_until(follow, "what was appended")
        assert os.pread(follower.fileno(), len(content), 0) == content
    assert (made / "log").read_bytes() == content


def test_a_log_that_one_process_keeps_open_is_followed(made):
    """The reader was there first, the writer syncs now and then."""
    (made / "log").write_bytes(b"first\n")
    content, got = b"first\n", bytearray()
    with open(made / "log", "rb", buffering=0) as follower, open(made / "log", "ab", buffering=0) as log:
        for number in range(8):
            line = b"%d\n" % number * 3000
            log.write(line)
            got += follower.read(1 << 16)
            assert (content + line).startswith(got) and b"\0" not in got
            os.fsync(log.fileno())
            content += line

            def follow():
                got.extend(follower.read(1 << 16))
                assert content.startswith(got)
                return len(got) == len(content)
            wait_until(follow, "the line")
        with open(made / "log", "rb", buffering=0) as late:
            assert late.read() == content
            log.write(b"unsynced")
            assert late.read(100) in (b"", b"unsynced")


def test_what_is_appended_to_a_file_that_its_first_writer_has_open_is_followed(made):
    """As after a close(2) of which the daemon has not heard yet."""
    with open(made / "log", "wb", buffering=0) as first:
        first.write(b"first\n")
        os.fsync(first.fileno())
        with open(made / "log", "rb", buffering=0) as follower:
            assert follower.read(100) == b"first\n"
            with open(made / "log", "ab", buffering=0) as log:
                log.write(b"more\n")
            assert follower.read(100) == b"more\n"
            # That is no appending.
            first.write(b"MORE\n")
            os.fsync(first.fileno())
            try:
                assert os.pread(follower.fileno(), 100, 0) == b"first\nmore\n"
            except OSError as gone:
                assert gone.errno == errno.ESTALE
    assert (made / "log").read_bytes() == b"first\nMORE\n"


def test_what_was_not_read_before_is_read_while_the_file_grows(mount, simulator, prefix):
    """The bucket has the longer version already, and its answer is under way."""
    made = mount("--direct-io", "always", "--compress", "none", "--max-read-ahead", "1M")
    content = os.urandom(24 * MIB)
    (made / "log").write_bytes(content)
    with open(made / "log", "rb", buffering=0) as reader:
        assert os.pread(reader.fileno(), 4096, 0) == content[:4096]
        simulator.inject({"op": "CompleteMultipartUpload", "action": "slow", "ms": 1500})

        def append():
            with open(made / "log", "ab", buffering=0) as log:
                log.write(b"more")
        appending = threading.Thread(target=append)
        appending.start()
        wait_until(lambda: len(simulator.content(prefix + "log")) == len(content) + 4, "the longer version")
        assert os.pread(reader.fileno(), 4096, 16 * MIB) == content[16 * MIB:16 * MIB + 4096]
        appending.join()
        assert os.pread(reader.fileno(), 4096, 24 * MIB) == b"more"


def mapped_bytes(file, size):
    with mmap.mmap(file.fileno(), size, prot=mmap.PROT_READ) as mapped:
        return mapped[:]


@pytest.mark.parametrize("size", [6000, 40 * KIB, 3 * MIB + 7])
@pytest.mark.parametrize("kept_open", [False, True])
def test_a_mapping_of_a_file_that_grows_shows_what_was_appended(made, size, kept_open):
    """Its last page is in memory before that, filled up with zeros."""
    content = os.urandom(size)
    (made / "log").write_bytes(content)
    with open(made / "log", "rb", buffering=0) as reader, \
            mmap.mmap(reader.fileno(), 0, prot=mmap.PROT_READ) as first:
        assert first[:] == content
        log = open(made / "log", "ab", buffering=0)
        for _ in range(4):
            log = open(made / "log", "ab", buffering=0) if log.closed else log
            more = os.urandom(3000)
            log.write(more)
            assert mapped_bytes(reader, len(content)) == content
            os.fsync(log.fileno()) if kept_open else log.close()
            content += more
            wait_until(lambda: os.fstat(reader.fileno()).st_size == len(content), "the size to be told")
            assert mapped_bytes(reader, len(content)) == content
            assert first[:] == content[:size]
        log.close()


POLL = """
import mmap, os, sys
how, last = sys.argv[2], int(sys.argv[3])
with open(sys.argv[1], "rb", buffering=0) as file:
    print("ready", flush=True)
    got = 0
    while got < last:
        seen = file.read(1 << 16)
        got += len(seen)
        if how == "map":
            with mmap.mmap(file.fileno(), got, prot=mmap.PROT_READ) as mapped:
                seen += mapped[:]
        else:
            seen += os.pread(file.fileno(), 4096, max(got - 100, 0))
        if seen.strip(b"x"):
            sys.exit(f"{seen.strip(b'x')[:100]} before {got}")
    print(got)
"""


# Where the page cache is bypassed, read(2) returns what the kernel does not know the file to hold yet.
@pytest.mark.parametrize("direct_io, how", [("never", "read"), ("auto", "read"), ("always", "read"), ("never", "map"),
                                            ("auto", "map")])
def test_a_follower_polls_while_lines_are_added(mount, simulator, direct_io, how):
    """Polled all the time, by a reader that also looks at the end once more: no zero, no hole, nothing twice."""
    made = mount("--direct-io", direct_io, "--metadata-ttl", "100ms")
    simulator.inject({"op": "PutObject", "action": "slow", "ms": 20})
    (made / "log").write_bytes(b"x" * 1000)
    more = [1 + 191 * number for number in range(30)]
    last = 1000 + sum(more)
    with subprocess.Popen([sys.executable, "-c", POLL, made / "log", how, str(last)], stdout=subprocess.PIPE,
                          text=True) as follower:
        try:
            assert follower.stdout.readline() == "ready\n"
            for size in more:
                with open(made / "log", "ab", buffering=0) as log:
                    log.write(b"x" * size)
            assert follower.wait(60) == 0
            assert int(follower.stdout.read()) == last
        finally:
            follower.kill()


def test_a_writer_never_fails_because_others_read(made, simulator, prefix):
    """Readers open, read and close all the time: every open for changing succeeds."""
    simulator.put(prefix + "file", OLD)
    stop = threading.Event()
    wrong = []

    def read():
        while not stop.is_set():
            try:
                with open(made / "file", "rb", buffering=0) as file:
                    file.read(4096)
            except OSError as error:
                # Twice another version since it began to open it.
                if error.errno != errno.ESTALE:
                    wrong.append(error)

    readers = [threading.Thread(target=read) for _ in range(4)]
    for reader in readers:
        reader.start()
    try:
        for number in range(40):
            with open(made / "file", ["r+b", "ab"][number % 2], buffering=0) as file:
                file.write(b"%d" % number)
    finally:
        stop.set()
        for reader in readers:
            reader.join()
    assert not wrong


def test_a_descriptor_for_both_does_not_show_the_earlier_version_while_another_writes_only(mount):
    """Its bytes at the new size would be a third one."""
    path = mount() / "shard"
    path.write_bytes(b"1" * 70_000)
    writer = os.open(path, os.O_WRONLY | os.O_TRUNC)
    os.write(writer, b"2")
    both = os.open(path, os.O_RDWR)
    os.ftruncate(writer, 100)
    with pytest.raises(OSError) as refused:
        os.pread(both, 100, 0)
    assert refused.value.errno == errno.EOPNOTSUPP
    os.fsync(writer)
    assert os.pread(both, 100, 0) == b"2" + b"\0" * 99
    os.close(writer)
    os.close(both)


WRITE_SOME_AND_WAIT = """
import os, sys
descriptor = os.open(sys.argv[1], os.O_RDWR)
os.pwrite(descriptor, b"half" * 1250, 0)
print("ready", flush=True)
sys.stdin.read()
"""


def test_what_a_killed_writer_changed_stays_in_no_page(made, simulator, prefix):
    """5,000 bytes: a whole page, which the kernel keeps, and a part of the next one, which it asks for."""
    simulator.put(prefix + "file", OLD)
    assert (made / "file").read_bytes() == OLD
    with subprocess.Popen([sys.executable, "-c", WRITE_SOME_AND_WAIT, made / "file"], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE) as writer:
        assert writer.stdout.readline() == b"ready\n"
        writer.kill()
    wait_until(lambda: "is not published" in made.log(), "the end of the file")
    assert (made / "file").read_bytes() == OLD


def test_a_reader_does_not_take_what_a_killed_writer_leaves_of_a_new_file_for_an_empty_one(made):
    script = WRITE_SOME_AND_WAIT.replace("os.O_RDWR", "os.O_RDWR | os.O_CREAT")
    with subprocess.Popen([sys.executable, "-c", script, made / "file"], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE) as writer:
        assert writer.stdout.readline() == b"ready\n"
        reader = os.open(made / "file", os.O_RDONLY)
        writer.kill()
    wait_until(lambda: not (made / "file").exists(), "the file to go")
    assert os.fstat(reader).st_size == 5000
    for offset in (0, 4096):
        with pytest.raises(OSError) as gone:
            os.pread(reader, 100, offset)
        assert gone.value.errno == errno.ESTALE
    os.close(reader)


def test_a_reader_of_an_empty_file_that_grew_and_was_replaced_reads_no_zeros(made):
    (made / "file").write_bytes(b"")
    with open(made / "file", "rb", buffering=0) as reader:
        # As the file is empty, this is one file to both; and as it is not any more, the next is another one.
        (made / "file").write_bytes(OLD)
        assert os.fstat(reader.fileno()).st_size == len(OLD)
        (made / "file").write_bytes(NEW)
        for offset in (0, 64 * KIB, len(OLD) - 4096):
            try:
                assert os.pread(reader.fileno(), 4096, offset) == OLD[offset:offset + 4096]
            except OSError as gone:
                assert gone.errno == errno.ESTALE
    assert (made / "file").read_bytes() == NEW


@pytest.mark.parametrize("mode", ["wb", "ab", "r+b"])
def test_a_reader_of_an_empty_file_reads_no_zeros_while_it_is_written(made, simulator, mode):
    """Its size in the kernel grows with the first write, before there is anything to read."""
    (made / "file").touch()
    written = threading.Event()

    def write():
        with open(made / "file", mode, buffering=0) as file:
            file.write(NEW)
            written.set()

    with open(made / "file", "rb", buffering=0) as reader:
        simulator.inject({"op": "*", "action": "slow", "ms": 200})
        writer = threading.Thread(target=write)
        writer.start()
        assert written.wait(30)
        while writer.is_alive():
            assert os.pread(reader.fileno(), len(NEW), 0) in (b"", NEW)
        writer.join()
        assert os.pread(reader.fileno(), len(NEW), 0) == NEW


def test_what_could_not_be_saved_stays_in_no_page(made, simulator, prefix):
    simulator.put(prefix + "file", OLD)
    assert (made / "file").read_bytes() == OLD
    simulator.inject({"op": "PutObject", "key": prefix + "file", "action": "access-denied"})
    descriptor = os.open(made / "file", os.O_RDWR)
    os.pwrite(descriptor, b"half" * 1250, 0)
    with pytest.raises(OSError):
        os.close(descriptor)
    assert (made / "file").read_bytes() == OLD
