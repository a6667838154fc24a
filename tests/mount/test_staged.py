# SPDX-License-Identifier: Apache-2.0
"""Files that are written anywhere: changes over what is in the bucket, read back before they are committed."""

import errno
import mmap
import os
import random
import subprocess
import sys

import pytest
from harness.programs import wait_until

pytestmark = pytest.mark.sanitized

MIB = 1 << 20
# Below and above what S3 copies as a part (5 MiB), and what streams (8 MiB).
SIZES = [1000, 3 * MIB, 12 * MIB + 5]


def read_all(made, name):
    return (made / name).read_bytes()


@pytest.mark.parametrize("size", SIZES)
def test_changes_in_a_file_that_is_in_the_bucket(mount, simulator, prefix, size):
    content = bytearray(os.urandom(size))
    simulator.put(prefix + "file", bytes(content))
    made, other = mount(), mount()
    with open(made / "file", "r+b", buffering=0) as file:
        for offset in (size // 2, 10, size - 7):
            more = os.urandom(7)
            file.seek(offset)
            file.write(more)
            content[offset:offset + 7] = more
            file.seek(0)
            assert file.read() == content
        assert (made / "file").read_bytes() == content
        assert other.path.joinpath("file").read_bytes() != content
    assert read_all(made, "file") == content
    assert read_all(other, "file") == content
    assert simulator.open_uploads(prefix) == []
    assert simulator.keys(prefix) == [prefix + "file"]


def test_what_lies_between_changes_is_copied_within_the_store(mount, simulator, prefix):
    content = bytearray(os.urandom(80 * MIB + 5))
    made, other = mount(), mount()
    (made / "file").write_bytes(content)
    simulator.reset_counters()
    with open(other / "file", "r+b", buffering=0) as file:
        for offset in (10, 50 * MIB):
            more = os.urandom(7)
            file.seek(offset)
            file.write(more)
            content[offset:offset + 7] = more
        file.seek(0, os.SEEK_END)
        file.write(b"more")
    content += b"more"
    operations = simulator.counters()["operations"]
    # Before the first the store is asked whether it heeds the condition of a copy.
    assert operations["UploadPartCopy"]["requests"] == 3
    assert operations["UploadPart"]["requests"] == 3
    assert operations["UploadPart"]["bytes_in"] < 12 * MIB
    assert read_all(made, "file") == content
    assert read_all(mount(), "file") == content
    assert simulator.keys(prefix) == [prefix + "file"]


@pytest.mark.parametrize("size", SIZES)
def test_truncate_down_and_up(mount, simulator, prefix, size):
    content = os.urandom(size)
    simulator.put(prefix + "file", content)
    made = mount()
    with open(made / "file", "r+b", buffering=0) as file:
        file.truncate(size // 3)
        file.truncate(size)
        file.seek(size - 10)
        file.write(b"x" * 20)
        expected = content[:size // 3] + bytes(size - 10 - size // 3) + b"x" * 20
        file.seek(0)
        assert file.read() == expected
    assert read_all(mount(), "file") == expected
    os.truncate(made / "file", size // 4)
    assert read_all(mount(), "file") == content[:size // 4]
    os.truncate(made / "file", size // 2)
    assert read_all(mount(), "file") == content[:size // 4] + bytes(size // 2 - size // 4)


def test_a_file_is_read_and_changed_right_after_it_was_closed(mount, simulator, prefix):
    """The kernel may send the next call before the RELEASE: about once in a hundred times."""
    made = mount()
    for number in range(1000):
        path = made / str(number % 7)
        written = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.write(written, b"x" * 100)
        os.close(written)
        changed = os.open(path, os.O_RDWR)
        assert os.pread(changed, 100, 0) == b"x" * 100
        os.pwrite(changed, b"y", 50)
        assert os.pread(changed, 100, 50) == b"y" + b"x" * 49
        os.close(changed)
    assert simulator.content(prefix + "0") == b"x" * 50 + b"y" + b"x" * 49


@pytest.mark.parametrize("size", [1000, 9 * MIB, 40 * MIB + 3])
def test_a_new_file_in_order_and_then_back(mount, simulator, prefix, size):
    content = bytearray(os.urandom(size))
    made = mount()
    with open(made / "file", "w+b", buffering=0) as file:
        for begin in range(0, size, MIB):
            file.write(content[begin:begin + MIB])
        for offset in (size // 2, 0):
            file.seek(offset)
            assert file.read(100) == content[offset:offset + 100]
            file.seek(offset)
            file.write(b"changed")
            content[offset:offset + 7] = b"changed"
        file.seek(0)
        assert file.read() == content
        assert simulator.keys(prefix + "file") == []
    assert read_all(mount(), "file") == content
    assert simulator.open_uploads(prefix) == []
    assert simulator.keys(prefix) == [prefix + "file"]


@pytest.mark.parametrize("size", [1000, 30 * MIB])
def test_a_new_file_in_order(mount, simulator, prefix, size):
    content = os.urandom(size)
    made = mount()
    with open(made / "file", "x+b", buffering=0) as file:
        file.truncate(size)
        for begin in range(0, size, MIB):
            file.write(content[begin:begin + MIB])
        os.rename(made / "file", made / "name")
        assert read_all(mount(), "name") == content
    assert simulator.open_uploads(prefix) == []
    assert simulator.keys(prefix) == [prefix + "name"]
    with open(made / "second", "x+b", buffering=0) as file:
        for begin in range(0, size, MIB):
            file.write(content[begin:begin + MIB])
    assert read_all(mount(), "second") == content
    assert simulator.keys(prefix) == [prefix + "name", prefix + "second"]


@pytest.mark.parametrize("size", SIZES)
def test_synced_in_between(mount, simulator, prefix, size):
    made = mount()
    content = bytearray(size)
    dice = random.Random(size)
    with open(made / "file", "w+b", buffering=0) as file:
        for _ in range(4):
            for _ in range(5):
                offset = dice.randrange(size)
                more = dice.randbytes(dice.randrange(1, size // 2))
                file.seek(offset)
                file.write(more)
                content[len(content):offset] = bytes(max(0, offset - len(content)))
                content[offset:offset + len(more)] = more
            os.fsync(file.fileno())
            assert read_all(mount(), "file")[:size] == content[:size]
            file.seek(0)
            assert file.read() == content
    assert read_all(made, "file") == content
    assert simulator.keys(prefix) == [prefix + "file"]


@pytest.mark.parametrize("size", [*SIZES, 40 * MIB])
@pytest.mark.parametrize("end", ["unlinked", "replaced"])
def test_a_file_without_a_name_is_read_and_changed_until_it_is_closed(mount, simulator, prefix, size, end):
    content = bytearray(os.urandom(size))
    made = mount()
    with open(made / "file", "x+b", buffering=0) as file:
        for start in range(0, size // 2, MIB):
            file.write(content[start:min(start + MIB, size // 2)])
        if end == "unlinked":
            (made / "file").unlink()
        else:
            (made / "new").write_bytes(b"new")
            (made / "new").rename(made / "file")
        for start in range(size // 2, size, MIB):
            file.write(content[start:start + MIB])
        assert os.fstat(file.fileno()).st_size == size
        for offset in (size // 3, 10):
            assert os.pread(file.fileno(), MIB, 0) == content[:MIB]
            os.pwrite(file.fileno(), b"changed", offset)
            content[offset:offset + 7] = b"changed"
        file.seek(0)
        assert file.read() == content
        os.fsync(file.fileno())
    left = [] if end == "unlinked" else [prefix + "file"]
    wait_until(lambda: (simulator.keys(prefix), simulator.open_uploads(prefix)) == (left, []), "nothing to be left")
    if left:
        assert read_all(mount(), "file") == b"new"
    assert "warning" not in made.log() and "error" not in made.log()


@pytest.mark.parametrize("size", [2 * MIB, 6 * MIB])
def test_a_file_without_a_name_grows_far_beyond_what_it_began_from(mount, simulator, prefix, size):
    """Nothing that was committed under the name it had is there to go on from."""
    made = mount()
    with open(made / "file", "x+b", buffering=0) as file:
        file.write(os.urandom(size))
        os.fsync(file.fileno())
        (made / "file").unlink()
        more = os.urandom(MIB)
        for offset in range(size, size + 12 * MIB, MIB):
            assert os.pwrite(file.fileno(), more, offset) == MIB
        assert os.pread(file.fileno(), MIB, size + 11 * MIB) == more
    wait_until(lambda: (simulator.keys(prefix), simulator.open_uploads(prefix)) == ([], []), "nothing to be left")


@pytest.mark.parametrize("size", [1 * MIB, 20 * MIB])
def test_shared_writable_mapping(mount, simulator, prefix, size):
    made = mount()
    expected = bytearray(size)
    with open(made / "file", "w+b") as file:
        file.truncate(size)
        with mmap.mmap(file.fileno(), size) as pages:
            for offset in (size - 5, 12345, 0, size // 2):
                pages[offset:offset + 5] = b"bytes"
                expected[offset:offset + 5] = b"bytes"
            pages.flush()
            assert read_all(mount(), "file") == expected
            pages[100:105] = b"later"
            expected[100:105] = b"later"
            file.seek(0)
            assert file.read() == expected
    assert read_all(mount(), "file") == expected


def test_a_file_named_by_stage_is_written_anywhere(mount, simulator, prefix):
    content = bytearray(os.urandom(30 * MIB))
    made = mount("--stage", "*.idx,*.h5", "--stage", "*.bin")
    with open(made / "file.bin", "wb", buffering=0) as file:
        for begin in range(0, len(content), MIB):
            file.write(content[begin:begin + MIB])
        file.seek(15 * MIB)
        file.write(b"changed")
        content[15 * MIB:15 * MIB + 7] = b"changed"
    assert read_all(mount(), "file.bin") == content
    descriptor = os.open(made / "file", os.O_WRONLY | os.O_CREAT)
    for begin in range(0, len(content), MIB):
        os.write(descriptor, content[begin:begin + MIB])
    with pytest.raises(OSError) as refused:
        os.pwrite(descriptor, b"changed", 15 * MIB)
    assert refused.value.errno == errno.EOPNOTSUPP
    with pytest.raises(OSError):
        os.close(descriptor)
    assert "--stage" in made.log()
    with open(made / "file.idx", "wb", buffering=0) as file:
        file.write(bytes(9 * MIB))
        file.seek(5)
        file.write(b"too")
    assert read_all(mount(), "file.idx")[:9] == b"\0\0\0\0\0too\0"
    assert simulator.keys(prefix) == [prefix + "file.bin", prefix + "file.idx"]


@pytest.fixture
def small_disk(tmp_path):
    """A staging directory with room for 4 MiB."""
    directory = tmp_path / "small"
    directory.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4M", "tmpfs", directory], check=True)
    yield directory
    subprocess.run(["umount", "--lazy", directory], check=True)


def free(directory):
    disk = os.statvfs(directory)
    return disk.f_bfree * disk.f_bsize


def test_a_full_staging_directory_fails_the_file_and_harms_nothing(mount, simulator, prefix, small_disk):
    content = os.urandom(12 * MIB)
    simulator.put(prefix + "file", content)
    made = mount("--staging-dir", str(small_disk))
    whole = free(small_disk)
    descriptor = os.open(made / "file", os.O_RDWR)
    with pytest.raises(OSError) as full:
        for offset in range(6 * MIB, 0, -MIB):
            os.pwrite(descriptor, b"x" * MIB, offset)
    assert full.value.errno == errno.ENOSPC
    with pytest.raises(OSError) as kept:
        os.pwrite(descriptor, b"x", 0)
    assert kept.value.errno == errno.ENOSPC
    with pytest.raises(OSError):
        os.fsync(descriptor)
    with pytest.raises(OSError):
        os.close(descriptor)
    lines = [line for line in made.log().splitlines() if "takes no more" in line]
    assert len(lines) == 1 and f"{prefix}file" in lines[0] and str(small_disk) in lines[0]
    # Once the last request has let go of the file.
    wait_until(lambda: free(small_disk) == whole, "the space to be given back")
    assert read_all(made, "file") == content
    with open(made / "file", "r+b") as file:
        file.write(b"now it fits")
    assert read_all(mount(), "file") == b"now it fits" + content[11:]
    wait_until(lambda: free(small_disk) == whole, "the space to be given back")


def test_a_new_file_in_order_needs_no_room_in_the_staging_directory(mount, small_disk):
    content = os.urandom(30 * MIB)
    made = mount("--staging-dir", str(small_disk))
    with open(made / "file", "w+b", buffering=0) as file:
        for begin in range(0, len(content), MIB):
            file.write(content[begin:begin + MIB])
    assert read_all(mount(), "file") == content


@pytest.mark.parametrize("size", [MIB, 30 * MIB])
@pytest.mark.parametrize("there_before", [False, True])
def test_a_killed_writer_publishes_nothing(mount, simulator, prefix, size, there_before):
    made = mount()
    if there_before:
        (made / "file").write_bytes(b"good" * (size // 4))
    before = read_all(made, "file") if there_before else None
    writer = subprocess.Popen([sys.executable, "-c", f"""
import os, sys
file = os.open({str(made / "file")!r}, os.O_RDWR | os.O_CREAT)
for begin in range(0, {size}, 1 << 20):
    os.write(file, os.urandom(1 << 20))
os.pwrite(file, b"back", {size} // 2)
print(flush=True)
sys.stdin.read()"""], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    writer.stdout.readline()
    writer.kill()
    writer.wait()
    wait_until(lambda: "not published" in made.log(), "the killed writer's file to be given up", 30)
    wait_until(lambda: simulator.keys(prefix) == ([prefix + "file"] if there_before else []), "nothing to be left", 30)
    assert simulator.open_uploads(prefix) == []
    if there_before:
        assert read_all(mount(), "file") == before
