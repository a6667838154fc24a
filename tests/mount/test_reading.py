# SPDX-License-Identifier: Apache-2.0
"""Reading through the page cache and past it: what is read is the object, however it is asked for."""

import concurrent.futures
import errno
import mmap
import os
import random

import pytest

pytestmark = pytest.mark.sanitized

MIB = 1 << 20
SIZE = 24 * MIB + 17
# Each 16 bytes say where they stand.
CONTENT = b"".join(b"%015d\n" % number for number in range(SIZE // 16 + 1))[:SIZE]


@pytest.fixture(params=["never", "always"])
def made(mount, request):
    return mount("--direct-io", request.param)


@pytest.fixture
def content(simulator, prefix):
    """Of the object `file`, which another client has put there."""
    simulator.put(prefix + "file", CONTENT)
    return CONTENT


def bytes_sent(simulator) -> int:
    return simulator.counters()["operations"]["GetObject"]["bytes_out"]


def test_random_reads(made, content):
    choose = random.Random(1)
    with open(made / "file", "rb", buffering=0) as file:
        for _ in range(300):
            offset = choose.randrange(SIZE + 10)
            size = choose.choice([1, 100, 4096, 128 << 10, 3 * MIB])
            assert os.pread(file.fileno(), size, offset) == content[offset:offset + size]


def test_reading_backwards(made, content):
    with open(made / "file", "rb", buffering=0) as file:
        for offset in reversed(range(0, SIZE, 300_000)):
            assert os.pread(file.fileno(), 300_000, offset) == content[offset:offset + 300_000]


def test_two_readers_share_each_fetch(made, content, simulator):
    def read(step: int) -> bytes:
        with open(made / "file", "rb", buffering=0) as file:
            return b"".join(iter(lambda: file.read(step), b""))

    with concurrent.futures.ThreadPoolExecutor() as readers:
        for got in readers.map(read, [MIB, 100_000]):
            assert got == content
    # The tail comes by itself, once for each of two first opens at the same time.
    assert bytes_sent(simulator) <= SIZE + MIB


def test_a_second_reader_of_the_same_version_fetches_nothing(made, content, simulator):
    assert (made / "file").read_bytes() == content
    before = bytes_sent(simulator)
    assert (made / "file").read_bytes() == content
    assert bytes_sent(simulator) == before


@pytest.mark.parametrize("flags", [mmap.MAP_PRIVATE, mmap.MAP_SHARED], ids=["private", "shared"])
def test_a_mapping_faults_in_any_order(made, content, flags):
    pages = list(range(0, SIZE, 64 << 10))
    random.Random(2).shuffle(pages)
    with open(made / "file", "rb") as file, \
            mmap.mmap(file.fileno(), 0, flags=flags, prot=mmap.PROT_READ) as mapped:
        for offset in pages:
            assert mapped[offset:offset + 5000] == content[offset:offset + 5000]


@pytest.mark.parametrize("flags", [mmap.MAP_PRIVATE, mmap.MAP_SHARED], ids=["private", "shared"])
def test_a_mapping_keeps_its_version_while_the_name_is_rewritten(made, content, flags):
    with open(made / "file", "rb") as file, \
            mmap.mmap(file.fileno(), 0, flags=flags, prot=mmap.PROT_READ) as mapped:
        file.close()
        assert mapped[:MIB] == content[:MIB]
        writer = os.open(made / "file", os.O_WRONLY | os.O_TRUNC)
        os.write(writer, b"new")
        assert mapped[MIB:] == content[MIB:]
        os.close(writer)
        assert (made / "file").read_bytes() == b"new"
        assert mapped[:4096] == content[:4096]


def test_a_private_mapping_can_be_changed_and_the_file_stays(made, content, simulator, prefix):
    with open(made / "file", "rb") as file, \
            mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE) as mapped:
        mapped[:4] = b"mine"
        assert mapped[:16] == b"mine" + content[4:16]
    assert (made / "file").read_bytes() == content
    assert simulator.content(prefix + "file") == content


def test_two_descriptors_of_one_process_may_see_two_versions(made, content, simulator, prefix):
    """The first keeps what it opened; the second sees the replacement. Neither sees the other's bytes."""
    new = bytes(reversed(content))
    with open(made / "file", "rb", buffering=0) as old_reader:
        assert old_reader.read(8 * MIB) == content[:8 * MIB]
        with open(made / "file", "wb") as writer:
            writer.write(new)
        with open(made / "file", "rb", buffering=0) as new_reader:
            for offset in range(0, 8 * MIB, MIB):
                assert os.pread(new_reader.fileno(), MIB, offset) == new[offset:offset + MIB]
                assert os.pread(old_reader.fileno(), MIB, offset) == content[offset:offset + MIB]
            assert os.fstat(old_reader.fileno()).st_ino == os.fstat(new_reader.fileno()).st_ino


def test_an_empty_file_that_another_client_fills_is_seen_at_the_next_open(made, simulator, prefix):
    simulator.put(prefix + "marker", b"")
    assert (made / "marker").read_bytes() == b""
    assert (made / "marker").read_bytes() == b""
    simulator.put(prefix + "marker", b"ready")
    assert (made / "marker").read_bytes() == b"ready"
    simulator.put(prefix + "marker", b"")
    assert (made / "marker").read_bytes() == b""


@pytest.mark.parametrize("fault", [{"action": "truncate", "bytes": 300_000}, {"action": "reset", "bytes": 300_000},
                                   {"action": "close", "bytes": 300_000}, {"action": "500"}],
                         ids=lambda fault: fault["action"])
def test_a_body_that_ends_early_is_fetched_again_from_there(made, content, simulator, prefix, fault):
    simulator.inject({"op": "GetObject", "key": prefix + "*", "after": 1, "every": 2, **fault})
    assert (made / "file").read_bytes() == content
    assert simulator.fault_hits() >= 3
    assert bytes_sent(simulator) < 2 * SIZE


def test_a_body_that_always_ends_early_is_an_error_and_never_other_bytes(mount, content, simulator, prefix):
    made = mount("--retry-for", "2s", "--direct-io", "always")
    with open(made / "file", "rb", buffering=0) as file:
        simulator.inject({"op": "GetObject", "key": prefix + "*", "action": "truncate", "bytes": 0})
        with pytest.raises(OSError) as raised:
            file.read(MIB)
        assert raised.value.errno == errno.EIO
        assert prefix + "file" in made.log()
        simulator.clear_faults()
        assert os.pread(file.fileno(), MIB, 0) == content[:MIB]
