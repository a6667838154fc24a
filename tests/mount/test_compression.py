# SPDX-License-Identifier: Apache-2.0
"""Files in compressed frames: what lies in the bucket, and that nobody notices who reads the mount."""

import contextlib
import errno
import os
import random
import subprocess
import threading
import time

import numpy
import pytest
from format.container import read_table
from harness.simulator import BUCKET, flipped

pytestmark = pytest.mark.sanitized_too

MIB = 1 << 20


def mixed(size: int, seed: int = 1) -> bytes:
    """Text and random bytes in turn, each piece with its place in it."""
    choose = random.Random(seed)
    pieces = []
    for place in range(0, size, 100_000):
        half = b"%020d\n" % place * 2500
        pieces.append(half[:50_000] + choose.randbytes(50_000))
    return b"".join(pieces)[:size]


@pytest.fixture
def made(mount):
    return mount("--compress", "zstd")


@pytest.fixture(params=["zstd", "auto"])
def either(mount, request):
    """With auto, what this module writes is coded by zstd, too, and what does not shrink is stored as it is."""
    return mount("--compress", request.param)


@pytest.mark.parametrize("size", [MIB, MIB + 1, 3 * MIB, 8 * MIB, 30 * MIB + 17])
def test_the_object_is_what_zstd_decodes(made, mount, simulator, prefix, tmp_path, size):
    content = mixed(size)
    (made / "file").write_bytes(content)
    stored = simulator.stored(prefix + "file")
    assert len(stored) < 0.6 * size + 5000
    assert simulator.content(prefix + "file") == content
    (tmp_path / "file.zst").write_bytes(stored)
    assert subprocess.run(["zstd", "-dc", tmp_path / "file.zst"], capture_output=True, check=True).stdout == content
    head = simulator.client().head_object(Bucket=BUCKET, Key=prefix + "file")
    assert head["ContentEncoding"] == "zstd"
    other = mount()
    assert (other / "file").stat().st_size == size
    assert (other / "file").read_bytes() == content


def test_small_and_excluded_files_are_plain(mount, simulator, prefix):
    made = mount("--compress", "zstd", "--compress-exclude", "*.json,latest")
    text = b"{}\n" * MIB
    for name, size in (("model.pt", MIB - 1), ("empty", 0), ("index.json", 3 * MIB), ("latest", 3 * MIB)):
        (made / name).write_bytes(text[:size])
        assert simulator.stored(prefix + name) == text[:size]
        assert "ckptfs-format" not in simulator.client().head_object(Bucket=BUCKET, Key=prefix + name)["Metadata"]


@pytest.mark.parametrize("compress", ["auto", "zstd"])
@pytest.mark.parametrize("written", [2 * MIB, 12 * MIB, 40 * MIB + 5])
@pytest.mark.parametrize("pieces", [1, 3])
def test_what_is_cut_below_one_mib_is_plain(mount, simulator, prefix, compress, written, pieces):
    """Also where it was encoded, or a part of it had left, before it was cut."""
    made = mount("--compress", compress)
    content, line = mixed(written), os.urandom(1000)
    with open(made / "file", "wb", buffering=0) as file:
        for begin in range(0, written, MIB):
            file.write(content[begin:begin + MIB])
        content = content[:100_000]
        for _ in range(pieces):
            file.truncate(len(content))
            file.seek(len(content))
            file.write(line)
            content += line
    assert simulator.stored(prefix + "file") == content
    assert "ckptfs-format" not in simulator.client().head_object(Bucket=BUCKET, Key=prefix + "file")["Metadata"]
    assert (mount() / "file").read_bytes() == content
    assert simulator.open_uploads(prefix) == []
    with open(made / "file", "ab") as file:
        file.write(b"more")
    assert simulator.content(prefix + "file") == content + b"more"


def test_what_cannot_shrink_hardly_grows(made, simulator, prefix):
    content = os.urandom(64 * MIB)
    (made / "file").write_bytes(content)
    stored = simulator.stored(prefix + "file")
    assert simulator.content(prefix + "file") == content
    assert len(stored) - len(content) < len(content) / 10_000 + 4096


def test_sizes_are_those_of_the_files(made, mount, simulator, prefix):
    sizes = {f"file{number}": MIB + number * 1000 for number in range(20)}
    for name, size in sizes.items():
        (made / name).write_bytes(mixed(size))
    (made / "large").write_bytes(bytes(200 * MIB))
    sizes["large"] = 200 * MIB
    other = mount()
    with os.scandir(other.path) as entries:
        assert {entry.name: entry.stat().st_size for entry in entries} == sizes
    simulator.reset_counters()
    listed = subprocess.run(["ls", "-l", other.path], capture_output=True, text=True, check=True).stdout
    assert {int(line.split()[4]) for line in listed.splitlines()[1:]} == set(sizes.values())
    gets = simulator.counters()["operations"].get("GetObject", {"requests": 0})["requests"]
    assert gets == 0, "sizes of versions that are known are not asked for again"


def test_lists_of_plain_files_cost_nothing_more(made, mount, simulator, prefix):
    for number in range(50):
        simulator.put(f"{prefix}file{number}", bytes(number * 100))
    other = mount()
    simulator.reset_counters()
    assert len(os.listdir(other.path)) == 50
    subprocess.run(["ls", "-l", other.path], capture_output=True, check=True)
    assert "GetObject" not in simulator.counters()["operations"]


def test_appending_keeps_what_is_there(made, mount, simulator, prefix):
    content = mixed(20 * MIB + 5)
    (made / "file").write_bytes(content)
    simulator.reset_counters()
    for number in range(3):
        more = mixed(700_000, number)
        with open(made / "file", "ab") as file:
            file.write(more)
        content += more
        assert simulator.content(prefix + "file") == content
    assert (mount() / "file").read_bytes() == content
    copied = simulator.counters()["operations"]["UploadPartCopy"]
    assert copied["requests"] >= 3


def test_syncing_while_writing(made, mount, simulator, prefix):
    content = mixed(25 * MIB)
    with open(made / "file", "wb", buffering=0) as file:
        for begin in range(0, len(content), 3 * MIB + 333):
            file.write(content[begin:begin + 3 * MIB + 333])
            os.fsync(file.fileno())
            assert simulator.content(prefix + "file") == content[:begin + 3 * MIB + 333]
    assert (mount() / "file").read_bytes() == content


def test_patches_of_the_header(made, mount):
    content = bytearray(mixed(30 * MIB))
    with open(made / "file", "wb", buffering=0) as file:
        file.write(bytes(4096))
        file.write(content[4096:])
        file.seek(0)
        file.write(content[:4096])
    assert (mount() / "file").read_bytes() == content


def test_renames_and_copies_keep_the_frames(made, mount, simulator, prefix):
    content = mixed(5 * MIB)
    (made / "small").write_bytes(content)
    large = mixed(160 * MIB)
    (made / "large").write_bytes(large)
    (made / "small").rename(made / "moved")
    assert (made / "moved").stat().st_size == len(content)
    (made / "large").rename(made / "moved.large")
    assert (made / "moved.large").stat().st_size == len(large)
    (made / "dir").mkdir()
    (made / "moved").rename(made / "dir" / "inner")
    (made / "dir").rename(made / "other")
    assert (made / "other" / "inner").stat().st_size == len(content)
    assert simulator.content(prefix + "other/inner") == content
    other = mount()
    assert (other / "moved.large").stat().st_size == len(large)
    assert (other / "moved.large").read_bytes() == large
    assert (other / "other" / "inner").read_bytes() == content


def test_random_reads_fetch_only_their_frames(made, mount, simulator):
    content = mixed(64 * MIB)
    (made / "file").write_bytes(content)
    other = mount("--direct-io", "always")
    choose = random.Random(3)
    with open(other / "file", "rb", buffering=0) as file:
        simulator.reset_counters()
        for _ in range(20):
            offset = choose.randrange(len(content))
            assert os.pread(file.fileno(), 1000, offset) == content[offset:offset + 1000]
    assert simulator.counters()["operations"]["GetObject"]["bytes_out"] < 25 * MIB


def test_every_mount_reads_every_object(mount, simulator, prefix):
    content = mixed(3 * MIB)
    for how in ("none", "zstd:1"):
        (mount("--compress", how) / how).write_bytes(content)
    plain = mount("--compress", "none")
    for how in ("none", "zstd:1"):
        assert (plain / how).read_bytes() == content
    with open(plain / "zstd:1", "ab") as file:
        file.write(b"more")
    assert (mount() / "zstd:1").read_bytes() == content + b"more"


@pytest.mark.parametrize("size, kept", [(3 * MIB, False), (24 * MIB, True)])
@pytest.mark.parametrize("mode", ["ab", "r+b", "wb"])
def test_without_compression_a_file_stays_compressed_where_frames_are_kept(mount, simulator, prefix, size, kept, mode):
    content = random.Random(3).randbytes(size)
    (mount("--compress", "auto") / "file").write_bytes(content)
    with open(mount("--compress", "none") / "file", mode) as file:
        if mode == "wb":
            file.write(content)
        file.seek(size)
        file.write(b"more")
    assert simulator.content(prefix + "file") == content + b"more"
    metadata = simulator.client().head_object(Bucket=BUCKET, Key=prefix + "file")["Metadata"]
    assert ("ckptfs-format" in metadata) == (kept and mode != "wb")


def test_damage_is_an_error_that_names_the_file(either, mount, simulator, prefix):
    content = mixed(4 * MIB)
    for name in ("frame", "table", "footer", "cut"):
        (either / name).write_bytes(content)
    entries = read_table(simulator.stored(prefix + "frame"))
    simulator.damage(prefix + "frame", flipped(entries[0][0] + 300))
    simulator.damage(prefix + "table", flipped(-9 - 12 * len(entries) + 1))
    simulator.damage(prefix + "footer", flipped(-1))
    simulator.damage(prefix + "cut", lambda data: bytes(data[:-4096]))
    other = mount("--direct-io", "always")
    with open(other / "frame", "rb", buffering=0) as file:
        assert os.pread(file.fileno(), 1000, 0) == content[:1000]
        with pytest.raises(OSError) as failed:
            os.pread(file.fileno(), 1000, MIB)
        assert failed.value.errno == errno.EIO
        assert os.pread(file.fileno(), 1000, 2 * MIB) == content[2 * MIB:2 * MIB + 1000]
    for name in ("table", "footer", "cut"):
        with pytest.raises(OSError) as failed:
            (other / name).read_bytes()
        assert failed.value.errno == errno.EIO, name
        assert name in other.log()
    assert sorted(os.listdir(other.path)) == ["cut", "footer", "frame", "table"]
    for name in os.listdir(other.path):
        (other / name).unlink()


@pytest.mark.parametrize("kept", [300_000, -1])
@pytest.mark.parametrize("name", ["file", "train.log"])
def test_what_is_damaged_is_not_gone_on_with(either, mount, simulator, prefix, name, kept):
    """By its size alone it would be plain: its frames would become the file."""
    (either / name).write_bytes(mixed(9 * MIB))
    key = prefix + name
    cut = simulator.stored(key)[:kept]
    described = simulator.client().head_object(Bucket=BUCKET, Key=key)["Metadata"]
    simulator.client().put_object(Bucket=BUCKET, Key=key, Body=cut, Metadata=described)
    other = mount()
    for mode in ("ab", "r+b", "a+b"):
        with pytest.raises(OSError) as failed, open(other / name, mode) as file:
            file.write(b"more")
        assert failed.value.errno == errno.EIO
    assert simulator.stored(key) == cut
    assert simulator.client().head_object(Bucket=BUCKET, Key=key)["Metadata"] == described


# In the footer, and in the last frame's checksum and sizes.
@pytest.mark.parametrize("back", [1, 6, 9 + 2, 9 + 6, 9 + 12])
def test_an_end_that_came_damaged_is_asked_for_once_more(either, mount, simulator, prefix, back):
    """One bit, on its way down: in what the reader begins with, and in what an appender begins with."""
    content = mixed(3 * MIB)
    (either / "file").write_bytes(content)
    stored = len(simulator.stored(prefix + "file"))

    def flip(asked: int) -> dict:
        return {"op": "GetObject", "key": prefix + "file", "action": "corrupt", "bytes": min(stored, asked) - back,
                "times": 1}

    reader, appender = mount(), mount()
    # As much of its end is asked for at first.
    simulator.inject(flip(256 << 10))
    assert (reader / "file").read_bytes() == content
    assert simulator.fault_hits() == 1
    simulator.clear_faults()
    simulator.inject(flip(64))
    with open(appender / "file", "ab") as file:
        file.write(b"more")
    simulator.clear_faults()
    assert simulator.content(prefix + "file") == content + b"more"


# In the footer: its magic number, the number of frames. Then the size of the last one.
@pytest.mark.parametrize("back", [1, 6, 9, 9 + 8])
@pytest.mark.parametrize("listed", [False, True])
def test_a_size_that_came_damaged_is_asked_for_once_more(either, mount, simulator, prefix, back, listed):
    # In parts, whose object does not tell the size.
    content = mixed(20 * MIB + 7)
    (either / "file").write_bytes(content)
    other = mount()
    simulator.inject({"op": "GetObject", "key": prefix + "file", "action": "corrupt", "bytes": 64 - back, "times": 1})
    if listed:
        with os.scandir(other.path) as entries:
            sizes = [entry.stat().st_size for entry in entries]
    else:
        sizes = [(other / "file").stat().st_size]
    assert simulator.fault_hits() == 1
    assert sizes == [len(content)]


# The number of frames; the size of the last one.
@pytest.mark.parametrize("back", [9, 9 + 8])
def test_a_size_that_came_damaged_cuts_nothing_off(either, mount, simulator, prefix, back):
    content = bytearray(mixed(20 * MIB + 7))
    (either / "file").write_bytes(content)
    other = mount()
    simulator.inject({"op": "GetObject", "key": prefix + "file", "action": "corrupt", "bytes": 64 - back, "times": 1})
    with open(other / "file", "r+b", buffering=0) as file:
        # In each part: what is published is made of the whole base.
        for offset in range(0, 20 * MIB, 4 * MIB):
            file.seek(offset)
            file.write(b"changed")
            content[offset:offset + 7] = b"changed"
    assert simulator.fault_hits() == 1
    simulator.clear_faults()
    assert simulator.content(prefix + "file") == content


def test_a_last_size_that_came_damaged_is_asked_for_once_more(either, mount, simulator, prefix):
    content = mixed(20 * MIB + 7)
    (either / "file").write_bytes(content)
    other = mount()
    assert (other / "file").stat().st_size == len(content)
    # In the end that a reader begins with.
    simulator.inject({"op": "GetObject", "key": prefix + "file", "action": "corrupt", "bytes": (256 << 10) - 17,
                      "times": 1})
    assert (other / "file").read_bytes() == content
    assert simulator.fault_hits() == 1


def test_a_frame_that_came_with_another_version_is_asked_for_once_more(either, mount, simulator, prefix):
    content = numpy.random.default_rng(1).standard_normal(MIB, dtype=numpy.float32).tobytes()
    (either / "file").write_bytes(content)
    # The first request is for the end; the version stands behind the magic number of the first frame.
    simulator.inject({"op": "GetObject", "key": prefix + "file", "action": "corrupt", "bytes": 4, "nth": 2})
    assert (mount("--direct-io", "always") / "file").read_bytes() == content
    assert simulator.fault_hits() == 1


def test_an_unknown_format_is_not_asked_for_once_more(made, mount, simulator, prefix):
    (made / "file").write_bytes(mixed(3 * MIB))
    stored = simulator.stored(prefix + "file")
    simulator.client().put_object(Bucket=BUCKET, Key=prefix + "file", Body=stored,
                                  Metadata={"ckptfs-format": "planes-2"})
    other = mount()
    simulator.reset_counters()
    with pytest.raises(OSError) as failed:
        (other / "file").read_bytes()
    assert failed.value.errno == errno.EIO
    assert "planes-2" in other.log()
    # For its size, and to read it.
    assert simulator.counters()["operations"]["GetObject"]["requests"] == 2


@pytest.mark.parametrize("nth", range(1, 6))
def test_a_table_that_came_damaged_is_not_written_back(either, mount, simulator, prefix, nth):
    """The records of frames that are copied go into the next table: one bit of them, on the way down."""
    content = mixed(24 * MIB)
    (either / "file").write_bytes(content)
    appender, reader = mount(), mount()
    # Of the first frame its checksum, where the whole table is asked for.
    simulator.inject({"op": "GetObject", "key": prefix + "file", "action": "corrupt", "bytes": 8 + 8, "nth": nth})
    with open(appender / "file", "ab") as file:
        file.write(b"more")
    simulator.clear_faults()
    assert (reader / "file").read_bytes() == content + b"more"
    assert simulator.content(prefix + "file") == content + b"more"


@pytest.mark.parametrize("listed", [False, True])
def test_a_size_that_could_not_be_asked_for_does_not_cut_what_is_read(made, mount, simulator, prefix, listed):
    # In parts, whose object does not tell the size.
    content = os.urandom(20 * MIB)
    (made / "file").write_bytes(content)
    other = mount("--metadata-ttl", "60")
    simulator.inject({"op": "GetObject", "key": prefix + "file", "times": 1, "action": "403"})
    if listed:
        assert subprocess.run(["ls", "-l", other.path], capture_output=True, text=True, check=True).stdout
    else:
        with pytest.raises(OSError):
            os.stat(other / "file")
    simulator.clear_faults()
    assert (other / "file").read_bytes() == content
    assert (other / "file").stat().st_size == len(content)


def test_a_look_at_a_small_file_is_one_look(made, mount, simulator, prefix):
    (made / "file").write_bytes(bytes(3 * MIB))
    other = mount()
    simulator.inject({"op": "GetObject", "key": prefix + "file", "action": "403"})
    assert os.stat(other / "file").st_size == 3 * MIB


def test_files_that_are_replaced_while_they_are_looked_at(made, mount):
    sizes = [3 * MIB, 5 * MIB, 2 * MIB - 4096, MIB - 1]
    other = mount("--metadata-ttl", "0")
    stop = threading.Event()
    (made / "file").write_bytes(mixed(sizes[0]))

    def replace() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            (made / "file.tmp").write_bytes(mixed(sizes[number % len(sizes)], number))
            (made / "file.tmp").rename(made / "file")

    writer = threading.Thread(target=replace)
    writer.start()
    try:
        deadline = time.monotonic() + 4
        while time.monotonic() < deadline:
            assert (other / "file").stat().st_size in sizes
            with os.scandir(other.path) as entries:
                assert {entry.stat().st_size for entry in entries if entry.name == "file"} <= set(sizes)
            with contextlib.suppress(OSError):
                assert len((other / "file").read_bytes()) in sizes
    finally:
        stop.set()
        writer.join()
