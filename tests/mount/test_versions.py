# SPDX-License-Identifier: Apache-2.0
"""One version at a time: readers keep what they opened, new readers see all of what is new."""

import errno
import os
import time

import pytest
from harness.mounts import Mount
from harness.programs import wait_until
from harness.simulator import BUCKET, Simulator

pytestmark = pytest.mark.sanitized

MIB = 1 << 20
OLD = b"old-" * (3 * MIB)
NEW = b"newer" * MIB


@pytest.fixture(params=["never", "always"])
def made(mount, request):
    return mount("--direct-io", request.param)


def test_a_reader_keeps_its_version_while_the_name_is_rewritten(made):
    (made / "file").write_bytes(OLD)
    with open(made / "file", "rb", buffering=0) as reader:
        assert reader.read(MIB) == OLD[:MIB]
        with open(made / "file", "wb") as writer:
            assert os.fstat(reader.fileno()).st_size == len(OLD)
            writer.write(NEW)
            assert reader.read(MIB) == OLD[MIB:2 * MIB]
        assert os.fstat(reader.fileno()).st_size == len(OLD)
        assert (made / "file").read_bytes() == NEW
        assert (made / "file").stat().st_size == len(NEW)


def test_a_replacement_by_another_client_is_whole_at_the_next_open(made, simulator, prefix):
    simulator.put(prefix + "file", OLD)
    assert (made / "file").read_bytes() == OLD
    simulator.put(prefix + "file", NEW)
    assert (made / "file").read_bytes() == NEW
    simulator.put(prefix + "file", OLD)
    with open(made / "file", "rb") as reader:
        assert os.fstat(reader.fileno()).st_size == len(OLD)
        assert reader.read() == OLD


def test_a_version_that_is_gone_is_an_error_and_never_other_bytes(made, simulator, prefix):
    simulator.put(prefix + "file", OLD)
    with open(made / "file", "rb", buffering=0) as reader:
        assert reader.read(4096) == OLD[:4096]
        simulator.put(prefix + "file", NEW)
        got = b""
        try:
            while piece := reader.read(MIB):
                got += piece
        except OSError as error:
            assert error.errno == 116
        assert OLD[4096:].startswith(got)


def wait_for_the_next_second(simulator, key):
    """Last-Modified is told to the second."""
    saved = simulator.client().head_object(Bucket=BUCKET, Key=key)["LastModified"].timestamp()
    wait_until(lambda: time.time() >= saved + 1, "the second to pass")


@pytest.mark.parametrize("ack", ["store", "disk"])
@pytest.mark.parametrize("compress", ["none", "auto"])
@pytest.mark.parametrize("lacks", [[], ["--lacks", "read-etags"]], ids=["with-etags", "without-etags"])
def test_a_store_that_passes_if_match_over(compress, lacks, ack, tmp_path):
    """What each answer says of itself is compared with what was opened, before a byte of it is used."""
    disk = ["--ack", "disk", "--cache-dir", str(tmp_path / "cache")] if ack == "disk" else []
    simulator = Simulator("--lacks", "read-conditions", *lacks)
    size = 40 * MIB
    versions = [os.urandom(1 << 16) * (size >> 16) for _ in range(2)]
    made = Mount(f"s3://{BUCKET}/p/", simulator.environment(), "--compress", compress, "--max-read-ahead", "1M",
                 *disk)
    try:
        other = Mount(f"s3://{BUCKET}/p/", simulator.environment(), "--compress", compress)
        try:
            (other / "file").write_bytes(versions[0])
            with open(made / "file", "rb", buffering=0) as reader:
                assert os.pread(reader.fileno(), 2 * MIB, 0) == versions[0][:2 * MIB]
                if lacks:
                    wait_for_the_next_second(simulator, "p/file")
                (other / "file").write_bytes(versions[1])
                got = b""
                with pytest.raises(OSError) as failed:
                    for offset in range(0, size, MIB):
                        got += os.pread(reader.fileno(), MIB, offset)
                assert failed.value.errno == 116
                assert versions[0].startswith(got)
            assert (made / "file").read_bytes() == versions[1]
        finally:
            other.remove()
    finally:
        made.remove()
        simulator.stop()


@pytest.mark.parametrize("direct_io", ["never", "always"])
@pytest.mark.parametrize("lacks", [[], ["--lacks", "head-etags"]], ids=["of-downloads", "at-all"])
@pytest.mark.parametrize("grows", [False, True], ids=["as-large", "larger"])
def test_another_version_of_a_store_without_etags_is_whole_at_the_next_open(direct_io, lacks, grows):
    """Whatever the kernel and the mount have of the one before."""
    simulator = Simulator("--lacks", "read-etags", *lacks)
    size = 8 * MIB
    versions = [os.urandom(1 << 16) * (size >> 16) for _ in range(2)]
    versions[1] += b"more" if grows else b""
    made = Mount(f"s3://{BUCKET}/p/", simulator.environment(), "--compress", "none", "--metadata-ttl", "60s",
                 "--direct-io", direct_io)
    try:
        simulator.put("p/file", versions[0])
        for _ in range(2):
            with open(made / "file", "rb", buffering=0) as reader:
                assert os.pread(reader.fileno(), size // 2, 0) == versions[0][:size // 2]
        wait_for_the_next_second(simulator, "p/file")
        simulator.put("p/file", versions[1])
        for _ in range(2):
            assert (made / "file").read_bytes() == versions[1]
    finally:
        made.remove()
        simulator.stop()


def test_a_file_removed_by_another_client_is_gone_at_the_next_open(made, simulator, prefix):
    simulator.put(prefix + "file", OLD)
    assert (made / "file").read_bytes() == OLD
    simulator.client().delete_object(Bucket="bucket", Key=prefix + "file")
    with pytest.raises(FileNotFoundError):
        open(made / "file", "rb")


def test_of_writers_on_two_mounts_the_last_commit_wins_whole(mount):
    """Both have the file open at once, and what is read is always all of one of them."""
    one, other, third = (mount("--metadata-ttl", "0") for _ in range(3))
    size = 12 * MIB
    for round_ in range(3):
        first, second = open(one / "file", "wb", buffering=0), open(other / "file", "wb", buffering=0)
        for _ in range(12):
            first.write(b"1" * MIB)
            second.write(b"2" * MIB)
        order = [(first, b"1"), (second, b"2")]
        if round_ % 2:
            order.reverse()
        for file, content in order:
            file.close()
            assert (third / "file").read_bytes() == content * size
        for reader in (one, other):
            assert (reader / "file").read_bytes() == order[-1][1] * size


@pytest.mark.parametrize("mode", ["wb", "ab", "r+b"])
def test_a_rename_of_what_another_mount_has_replaced_moves_that(mount, simulator, prefix, mode):
    """The writer that has the name open here fails as soon as it writes again, and is told why."""
    made, other = mount(), mount("--metadata-ttl", "0")
    (made / "source").write_bytes(b"at first")
    with pytest.raises(OSError), open(made / "source", mode, buffering=0) as file:
        file.write(b"of this mount")
        os.fsync(file.fileno())
        (other / "source").write_bytes(b"of the other")
        (made / "source").rename(made / "target")
        assert simulator.content(prefix + "target") == b"of the other"
        assert simulator.keys(prefix) == [prefix + "target"]
        file.write(b" and more")
        os.fsync(file.fileno())
    assert simulator.content(prefix + "target") == b"of the other"
    assert simulator.keys(prefix) == [prefix + "target"]
    if mode != "r+b":
        assert f"{prefix}source: another mount had replaced it when it was renamed" in made.log()


def test_a_new_name_of_another_mount_is_seen_at_once(mount):
    one, other = mount("--metadata-ttl", "60"), mount("--metadata-ttl", "60")
    (other / "step").mkdir()
    assert os.listdir(other / "step") == []
    assert not (other / "step/model.pt").exists()
    (one / "step/model.pt").write_bytes(b"model")
    assert (other / "step/model.pt").read_bytes() == b"model"
    assert os.listdir(other.path) == ["step"]
    (one / "done").mkdir()
    (one / "done/flag").write_bytes(b"")
    assert (other / "done/flag").stat().st_size == 0


@pytest.mark.parametrize("flags", (os.O_WRONLY | os.O_APPEND, os.O_RDWR, os.O_RDONLY, os.O_WRONLY | os.O_TRUNC))
def test_a_name_that_another_mount_removed_is_made_anew(mount, flags):
    one, other = mount("--metadata-ttl", "60"), mount("--metadata-ttl", "60")
    (one / "log").write_bytes(b"earlier")
    assert (one / "log").stat().st_size == 7
    (other / "log").unlink()
    with pytest.raises(FileNotFoundError):
        os.open(one / "log", flags) if not flags & os.O_TRUNC else (other / "log").stat()
    (one / "again").write_bytes(b"earlier")
    (other / "again").rename(other / "elsewhere")
    descriptor = os.open(one / "again", flags | os.O_CREAT)
    if flags & os.O_ACCMODE != os.O_RDONLY:
        os.write(descriptor, b"anew")
    os.close(descriptor)
    assert (other / "again").read_bytes() == (b"" if flags == os.O_RDONLY else b"anew")


def test_a_version_that_goes_while_it_is_opened_gives_way_to_the_next(mount, simulator, prefix):
    """As where another mount replaces it between two requests of one open: the open succeeds, and those after it see
    what was committed before them."""
    writing, reading = mount(), mount()

    def put(version: int) -> None:
        (writing / "file.tmp").write_bytes(b"%06d" % version)
        os.replace(writing / "file.tmp", writing / "file")

    put(1)
    assert (reading / "file").read_bytes() == b"000001"
    put(2)
    simulator.inject({"op": "GetObject", "key": prefix + "file", "action": "412", "times": 1})
    assert (reading / "file").read_bytes() == b"000002"
    assert simulator.fault_hits() == 1
    for version in range(3, 6):
        put(version)
        assert (reading / "file").read_bytes() == b"%06d" % version


def test_stat_sees_another_mounts_commit_within_the_metadata_ttl(mount):
    one, other = mount("--metadata-ttl", "1"), mount("--metadata-ttl", "1")
    for size in (10, 20, 30):
        (one / "file").write_bytes(b"x" * size)
        committed = time.monotonic()
        wait_until(lambda: (other / "file").exists() and (other / "file").stat().st_size == size, "the new size", 20)
        # The TTL, and time for a slow machine to look.
        assert time.monotonic() - committed < 1 + 4
        assert (other / "file").stat().st_size == size


@pytest.mark.parametrize("direct_io", ["never", "auto", "always"])
@pytest.mark.parametrize("way", ["r+b", "a+b"])
def test_who_joins_a_writer_that_cannot_read_back_reads_no_zeros(mount, simulator, prefix, direct_io, way):
    """Pages that were written whole would be seen, and those that were written in part filled up."""
    made = mount("--direct-io", direct_io)
    begun, expected = b"begun" * 20, b"begun" * 20 + b"more" * 16384
    writer = os.open(made / "file", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.write(writer, begun)
    os.fsync(writer)
    with open(made / "file", way, buffering=0) as joined:
        joined.seek(0, os.SEEK_END)
        joined.write(expected[len(begun):])
        for size, offset in ((len(expected), 0), (4096, 0), (4096, 65536), (100, 50)):
            try:
                found = os.pread(joined.fileno(), size, offset)
            except OSError as error:
                assert error.errno in (errno.EBUSY, errno.EOPNOTSUPP)
            else:
                assert found == expected[offset:offset + len(found)]
    os.close(writer)
    assert simulator.content(prefix + "file") == expected
