# SPDX-License-Identifier: Apache-2.0
"""The ways to write a file that are not one write after the other: append, sync, truncate, patch."""

import base64
import concurrent.futures
import errno
import mmap
import os

import pytest
from harness.mounts import Mount
from harness.programs import wait_until
from harness.simulator import BUCKET, Simulator

pytestmark = pytest.mark.sanitized

MIB = 1 << 20
# Below and above what S3 copies as a part (5 MiB).
SIZES = [0, 1000, 3 * MIB, 12 * MIB + 5]


@pytest.mark.parametrize("size", SIZES)
def test_append_to_a_file_that_is_in_the_bucket(mount, simulator, prefix, size):
    before, more = os.urandom(size), os.urandom(2 * MIB + 77)
    simulator.put(prefix + "file", before)
    made = mount()
    with open(made / "file", "ab", buffering=0) as file:
        file.write(more[:100])
        file.write(more[100:])
        assert (made / "file").stat().st_size == size + len(more)
    assert simulator.content(prefix + "file") == before + more
    assert simulator.open_uploads(prefix) == []


def test_append_to_a_file_of_this_mount_again_and_again(mount, simulator, prefix):
    made = mount()
    content = b""
    for line in range(20):
        with open(made / "log", "a") as file:
            file.write(f"line {line}\n")
        content += f"line {line}\n".encode()
        assert simulator.content(prefix + "log") == content
        assert (made / "log").read_bytes() == content


@pytest.mark.parametrize("appends", [False, True])
def test_requests_of_one_direct_write_keep_their_order(mount, prefix, simulator, appends):
    made = mount("--direct-io", "never", "--compress", "none", "--fuse-threads", "8")
    # Aligned, as O_DIRECT wants it.
    block = mmap.mmap(-1, 32 * MIB)
    for number in range(32):
        block[number * MIB:(number + 1) * MIB] = bytes([number]) * MIB
    file = os.open(made / "file", os.O_CREAT | os.O_WRONLY | os.O_DIRECT | (os.O_APPEND if appends else 0))
    try:
        for _ in range(3):
            assert os.write(file, block) == 32 * MIB
    finally:
        os.close(file)
    content = simulator.content(prefix + "file")
    assert len(content) == 96 * MIB
    assert [content[at] for at in range(0, len(content), MIB)] == list(range(32)) * 3


def test_two_appenders_do_not_overwrite_each_other(mount, simulator, prefix):
    made = mount()
    first = os.open(made / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    second = os.open(made / "log", os.O_WRONLY | os.O_APPEND)
    for line in range(50):
        os.write(first, b"first %d\n" % line)
        os.write(second, b"second %d\n" % line)
    os.close(first)
    os.close(second)
    assert simulator.content(prefix + "log") == b"".join(b"first %d\nsecond %d\n" % (n, n) for n in range(50))


@pytest.mark.parametrize("size", SIZES)
def test_writing_goes_on_at_the_end_of_a_file_opened_without_truncation(mount, simulator, prefix, size):
    before, more = os.urandom(size), os.urandom(MIB)
    simulator.put(prefix + "file", before)
    with open(mount() / "file", "r+b", buffering=0) as file:
        file.seek(0, os.SEEK_END)
        file.write(more)
    assert simulator.content(prefix + "file") == before + more


@pytest.mark.parametrize("first, second", [(10, 10), (3 * MIB, 20 * MIB), (20 * MIB + 3, 3 * MIB), (20 * MIB, 20 * MIB)])
def test_what_was_synced_is_visible_and_writing_goes_on(mount, simulator, prefix, first, second):
    content = os.urandom(first + second)
    made, other = mount(), mount()
    with open(made / "file", "wb", buffering=0) as file:
        file.write(content[:first])
        assert simulator.keys(prefix) == []
        os.fsync(file.fileno())
        assert simulator.content(prefix + "file") == content[:first]
        assert (other / "file").read_bytes() == content[:first]
        file.write(content[first:])
        assert simulator.content(prefix + "file") == content[:first]
    assert simulator.content(prefix + "file") == content
    assert simulator.open_uploads(prefix) == []


def test_what_was_written_is_never_read_as_the_version_before(mount, simulator, prefix):
    """By a descriptor for both, of a file that another had opened for writing only and has published once."""
    made = mount()
    writer = os.open(made / "file", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    both = os.open(made / "file", os.O_RDWR | os.O_CREAT)
    os.write(writer, b"first")
    os.close(writer)
    assert os.pread(both, 100, 0) == b"first"
    os.pwrite(both, b" and second", 5)
    with pytest.raises(OSError) as refused:
        os.pread(both, 100, 0)
    assert refused.value.errno == errno.EOPNOTSUPP
    os.fsync(both)
    assert os.pread(both, 100, 0) == b"first and second"
    os.close(both)
    assert simulator.content(prefix + "file") == b"first and second"


def test_who_truncates_what_another_truncated_reads_nothing_of_the_version_before(mount, simulator, prefix):
    simulator.put(prefix + "file", b"the version before")
    made = mount()
    with open(made / "file", "wb"), open(made / "file", "w+b", buffering=0) as both:
        assert both.read() == b""
    assert simulator.content(prefix + "file") == b""


def test_many_syncs_in_one_file(mount, simulator, prefix):
    content = b""
    with open(mount() / "file", "wb", buffering=0) as file:
        for _ in range(10):
            more = os.urandom(MIB + 1)
            file.write(more)
            content += more
            os.fdatasync(file.fileno())
            assert simulator.content(prefix + "file") == content


def test_a_sync_before_the_first_write_publishes_nothing(mount, simulator, prefix):
    with open(mount() / "file", "wb", buffering=0) as file:
        os.fsync(file.fileno())
        assert simulator.keys(prefix) == []
        file.write(b"content")
    assert simulator.content(prefix + "file") == b"content"


@pytest.mark.parametrize("told, written", [(40 * MIB, 40 * MIB), (40 * MIB, 17 * MIB + 5), (1000, 0), (100, 3000)])
def test_a_size_told_before_the_first_write_is_a_hint_and_zeros(mount, simulator, prefix, told, written):
    content = os.urandom(written)
    made = mount()
    with open(made / "file", "wb", buffering=0) as file:
        os.ftruncate(file.fileno(), told)
        assert (made / "file").stat().st_size == told
        file.write(content)
    assert simulator.content(prefix + "file") == content + bytes(max(0, told - written))


def test_a_file_truncated_to_nothing_starts_over(mount, simulator, prefix):
    with open(mount() / "file", "wb", buffering=0) as file:
        file.write(os.urandom(30 * MIB))
        file.seek(0)
        file.truncate(0)
        file.write(b"another beginning")
    assert simulator.content(prefix + "file") == b"another beginning"
    # The upload of the first beginning ends by itself, after its parts in flight; close() does not wait for that.
    wait_until(lambda: simulator.open_uploads(prefix) == [], "the first upload to be ended")


@pytest.mark.parametrize("offset, size", [(0, 1024), (1000, 3 * MIB), (8 * MIB - 10, 10), (39 * MIB, 4096),
                                          (40 * MIB - 3, 100), (32 * MIB + 1, MIB)])
def test_the_first_and_the_last_part_can_be_changed_until_the_end(mount, simulator, prefix, offset, size):
    content, change = bytearray(os.urandom(40 * MIB)), os.urandom(size)
    made = mount()
    with open(made / "file", "wb", buffering=0) as file:
        for begin in range(0, len(content), MIB):
            file.write(content[begin:begin + MIB])
        assert os.pwrite(file.fileno(), change, offset) == size
    content[offset:offset + size] = change
    assert simulator.content(prefix + "file") == content
    assert made.log().count("error") == 0


def test_a_hole_is_zeros(mount, simulator, prefix):
    with open(mount() / "file", "wb", buffering=0) as file:
        file.write(b"head")
        file.seek(30 * MIB)
        file.write(b"tail")
    assert simulator.content(prefix + "file") == b"head" + bytes(30 * MIB - 4) + b"tail"


@pytest.mark.parametrize("compress", ["none", "auto"])
def test_what_is_written_while_a_synced_file_is_copied_goes_to_the_new_name(mount, simulator, prefix, monkeypatch,
                                                                           compress):
    """The copy is there while what was synced is fetched to be sent again."""
    # What is used after it was freed is not what it was.
    monkeypatch.setenv("MALLOC_PERTURB_", "165")
    made = mount("--compress", compress)
    content = os.urandom(4 * MIB + 77)
    (made / "old").mkdir()
    with open(made / "old/file", "wb", buffering=0) as file:
        for begin in range(0, len(content), MIB):
            file.write(content[begin:begin + MIB])
        os.fsync(file.fileno())
        simulator.inject({"op": "CopyObject", "action": "slow", "ms": 1500},
                         {"op": "GetObject", "action": "slow", "ms": 600})
        with concurrent.futures.ThreadPoolExecutor() as threads:
            renaming = threads.submit(os.rename, made / "old", made / "new")
            wait_until(lambda: simulator.fault_hits() > 0, "the copy to be under way")
            file.write(b"x")
            renaming.result()
        simulator.clear_faults()
    assert simulator.content(prefix + "new/file") == content + b"x"


def change_within(path, content: bytearray) -> None:
    with open(path, "r+b") as file:
        file.seek(len(content) // 2)
        file.write(b"changed")
    content[len(content) // 2:len(content) // 2 + 7] = b"changed"


def append_and_read(path, content: bytearray) -> None:
    with open(path, "a+b") as file:
        file.write(b"more")
    content += b"more"


def append(path, content: bytearray) -> None:
    with open(path, "ab") as file:
        file.write(b"more")
    content += b"more"


def cut(path, content: bytearray) -> None:
    os.truncate(path, len(content) - 5)
    del content[-5:]


CHANGES = [change_within, append_and_read, cut]


@pytest.mark.parametrize("compress", ["none", "auto"])
@pytest.mark.parametrize("size", [1000, 3 * MIB + 7])
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("read_before", [False, True])
@pytest.mark.parametrize("times", [1, 100])
def test_what_is_damaged_on_its_way_down_is_not_written_back_by_a_change(mount, simulator, prefix, compress, size,
                                                                         change, read_before, times):
    """What is not changed in it is sent as it is in the bucket, also where a read has left damaged bytes in memory and
    where they come damaged in the same way each time, or not at all."""
    content = bytearray(os.urandom(size))
    writer = mount("--compress", compress)
    (writer / "file").write_bytes(content)
    for damaged_at in (1, size - 9):
        changer = mount("--compress", compress)
        simulator.inject({"op": "GetObject", "key": prefix + "file", "action": "corrupt", "bytes": damaged_at % MIB,
                          "times": times})
        if read_before and (times == 1 or compress == "none"):
            (changer / "file").read_bytes()
            assert simulator.fault_hits() > 0
        before = bytes(content)
        try:
            change(changer / "file", content)
        except OSError as error:
            assert error.errno == errno.EIO and times > 1
            content = bytearray(before)
        else:
            assert times == 1
        simulator.clear_faults()
        assert simulator.content(prefix + "file") == content


@pytest.mark.parametrize("compress", ["none", "auto"])
@pytest.mark.parametrize("change", [append, *CHANGES])
@pytest.mark.parametrize("after", [0, 1, 2])
def test_what_has_no_checksum_is_compared_with_a_second_request(mount, simulator, prefix, compress, change, after):
    """Of an object of another program the store may have none: whichever answer is damaged, the change succeeds. That
    holds for frames, too, which have a checksum in the table."""
    content = bytearray(os.urandom(3 * MIB + 7))
    writer, changer = mount("--compress", compress, "--checksum", "none"), mount("--compress", compress)
    (writer / "file").write_bytes(content)
    # Of the table there are two readings of two requests each, or one.
    of_table = 0 if compress == "none" else 4 if change == append else 1
    simulator.inject({"op": "GetObject", "key": prefix + "file", "action": "corrupt", "bytes": 1000,
                      "after": of_table + after, "times": 1})
    change(changer / "file", content)
    assert simulator.fault_hits() == 1
    simulator.clear_faults()
    assert simulator.content(prefix + "file") == content


@pytest.mark.parametrize("size, compress", [(1000, "none"), (3 * MIB + 7, "none"), (3 * MIB + 7, "auto")])
@pytest.mark.parametrize("times", [1, 100])
def test_what_is_damaged_on_its_way_down_is_not_written_back(mount, simulator, prefix, size, compress, times):
    """Appending to a small file sends what is there again: as it is, or not at all."""
    content = os.urandom(size)
    writer, appender = mount("--compress", compress), mount("--compress", compress)
    (writer / "file").write_bytes(content)
    for damaged_at in (1, size - 3) if compress == "none" else (1000, 500_000):
        simulator.clear_faults()
        # Behind those for the table.
        simulator.inject({"op": "GetObject", "key": prefix + "file", "action": "corrupt", "bytes": damaged_at % MIB,
                          "times": times, "after": 4 if compress == "auto" else 0})
        try:
            with open(appender / "file", "ab") as file:
                file.write(b"more")
        except OSError as error:
            assert error.errno == 5 and times > 1
        else:
            assert times == 1
            content += b"more"
        assert simulator.fault_hits() > 0
        simulator.clear_faults()
        assert simulator.content(prefix + "file") == content


def crc64_nvme(content: bytes) -> str:
    """boto3 cannot make it without a library of its own."""
    register = (1 << 64) - 1
    for byte in content:
        register ^= byte
        for _ in range(8):
            register = register >> 1 ^ (0x9A6C9329AC4BC9B5 if register & 1 else 0)
    return base64.b64encode((register ^ (1 << 64) - 1).to_bytes(8, "big")).decode()


@pytest.fixture(scope="module")
def md5_store():
    """Its ETags are those of S3."""
    store = Simulator("--md5-etags")
    yield store
    store.stop()


@pytest.mark.parametrize("change", [append, *CHANGES])
@pytest.mark.parametrize("checksum", ["CRC32", "CRC64NVME", "SHA1", "SHA256", "the ETag"])
def test_what_other_programs_wrote_is_compared_with_what_the_store_says_of_it(md5_store, change, checksum):
    """Also where it comes damaged in the same way each time."""
    content = bytearray(os.urandom(1000))
    # boto3 sends one of its own choice otherwise.
    client = md5_store.client(request_checksum_calculation="when_required")
    named = {"CRC64NVME": {"ChecksumCRC64NVME": crc64_nvme(content)}, "the ETag": {}}.get(
        checksum, {"ChecksumAlgorithm": checksum})
    for key in ("p/file", "p/other"):
        client.put_object(Bucket=BUCKET, Key=key, Body=bytes(content), **named)
    made = Mount(f"s3://{BUCKET}/p/", md5_store.environment(), "--compress", "none")
    try:
        # That its ETags are MD5s is known when one was.
        change(made / "other", bytearray(content))
        md5_store.inject({"op": "GetObject", "key": "p/file", "action": "corrupt", "bytes": 1})
        with pytest.raises(OSError) as failed:
            change(made / "file", bytearray(content))
        assert failed.value.errno == errno.EIO
        md5_store.clear_faults()
        assert md5_store.stored("p/file") == content
        change(made / "file", content)
        assert md5_store.content("p/file") == content
    finally:
        made.remove()


@pytest.mark.parametrize("option, compress", [("--part-size=8M", "none"), ("--part-size=8M", "auto"),
                                              ("--equal-parts", "none")])
@pytest.mark.parametrize("after", [0, 1])
def test_what_is_damaged_on_its_way_down_is_not_written_back_behind_copied_parts(mount, simulator, prefix, option,
                                                                                  compress, after):
    """Parts of one size end before the object does: what lies behind the last is sent again."""
    content = os.urandom(36 * MIB + 5)
    appender = mount("--compress", compress, option)
    (mount("--compress", compress, "--checksum", "none") / "file").write_bytes(content)
    simulator.inject({"op": "GetObject", "key": prefix + "file", "action": "corrupt", "bytes": 100, "after": after,
                      "times": 1})
    with open(appender / "file", "ab") as file:
        file.write(b"more")
    assert simulator.fault_hits() == 1
    simulator.clear_faults()
    if compress == "none":
        # What is copied was not fetched. Frames are no parts of one size.
        assert simulator.counters()["operations"]["GetObject"]["bytes_out"] < 14 * MIB
    assert simulator.content(prefix + "file") == content + b"more"
