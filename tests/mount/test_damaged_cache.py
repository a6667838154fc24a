# SPDX-License-Identifier: Apache-2.0
"""What a bad disk does to --cache-dir while no mount is there: all of it is found, and fetched again; where the store
does not answer, it is an error."""

import concurrent.futures
import errno
import json
import os
import pathlib
import random
import re
import resource
import signal
import subprocess

import pytest
from harness.programs import CKPTFS, errno_of, wait_until
from harness.simulator import Simulator

pytestmark = pytest.mark.sanitized_too

MIB = 1 << 20
# Of the index beside the data: which version it is, with a hash of that at its end, and then a record a frame.
HEADER = 4096
HASH = 8
# Programs that read at the same time.
READERS = 64


def _block() -> bytes:
    """Part of it is stored as it is by --compress auto, and part of it smaller."""
    chance = random.Random(1)
    return b"".join(chance.randbytes(96 << 10) + b"of text " * (4 << 10) for _ in range(48))


BLOCK = _block()


def size_of(number: int) -> int:
    """One in ten is large enough for the kernel to read it itself; none is too small to keep."""
    chance = random.Random(number)
    return chance.randrange(MIB, 4 * MIB) if number % 10 == 0 else chance.randrange((256 << 10) + 1, 320 << 10)


def content_of(number: int) -> bytes:
    begin = number * 131 % MIB
    return BLOCK[begin:begin + size_of(number)]


def name_of(number: int) -> str:
    return f"shard-{number}"


@pytest.fixture(params=["none", "auto"])
def compress(request):
    return request.param


@pytest.fixture(params=[100, pytest.param(1000, marks=[pytest.mark.full, pytest.mark.timeout(900)])])
def numbers(request):
    """Of the files."""
    return range(request.param)


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "cache"


@pytest.fixture
def make(mount, directory, compress):
    return lambda *options, **how: mount("--cache-dir", str(directory), "--compress", compress, *options, **how)


@pytest.fixture
def own_store():
    """One that a test may end."""
    store = Simulator()
    yield store
    # One that was stopped takes no other signal before.
    store.process.send_signal(signal.SIGCONT)
    store.stop()


def disk(made) -> dict:
    answer = subprocess.run([CKPTFS, "status", made.path, "--json"], capture_output=True, text=True, check=True)
    return json.loads(answer.stdout)["disk"]


def save(made, numbers) -> None:
    for number in numbers:
        (made / name_of(number)).write_bytes(content_of(number))


def warm(made) -> None:
    """What the disk was too slow for is kept as well."""
    subprocess.run([CKPTFS, "warm", made.path], check=True, capture_output=True, timeout=120)


def is_kept(made, number: int) -> bool:
    return int(os.getxattr(made / name_of(number), "user.ckptfs.kept")) == size_of(number)


def keep(made, directory, numbers) -> dict:
    """Saves the files, and ends the mount; what the names of their files in the directory begin with, by number."""
    save(made, numbers)
    warm(made)
    etags = {}
    for number in numbers:
        assert is_kept(made, number), number
        etags[os.getxattr(made / name_of(number), "user.ckptfs.etag").strip(b'"')] = number
    assert made.unmount() == 0
    kept = {}
    for index in directory.glob("*.index"):
        etag = index.read_bytes()[:HEADER].split(b"\n", 2)[2].split(b"\0")[1]
        kept[etags[etag.strip(b'"')]] = index.with_suffix("")
    assert sorted(kept) == list(numbers)
    return kept


def flip_a_bit(path, begin: int, end: int, chance: random.Random) -> int:
    """As a disk does it: no time says so."""
    times = os.stat(path)
    place = chance.randrange(begin, end)
    with path.open("r+b") as file:
        file.seek(place)
        byte = file.read(1)[0]
        file.seek(place)
        file.write(bytes([byte ^ 1 << chance.randrange(8)]))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    return place


def damage(kept: dict, where: str) -> dict[int, int]:
    """A bit of each file. Where it is in the data, by number."""
    chance = random.Random(2)
    places = {}
    for number, path in sorted(kept.items()):
        data, index = path.with_suffix(".data"), path.with_suffix(".index")
        ends = {"data": (data, 0, size_of(number)), "header": (index, 0, HEADER - HASH),
                "hash": (index, HEADER - HASH, HEADER), "records": (index, HEADER, os.stat(index).st_size)}
        # The parts are not as large as each other.
        part = "data" if where == "data" else list(ends)[(number + number // 10) % len(ends)]
        places[number] = flip_a_bit(*ends[part], chance) if part == "data" else -1
        if part != "data":
            flip_a_bit(*ends[part], chance)
    return {number: place for number, place in places.items() if place >= 0}


def fetched(simulator, prefix: str) -> dict[int, list[str]]:
    """Ranges that were fetched of each file."""
    ranges = {}
    for request in simulator.requests(20_000):
        if request["op"] == "GetObject" and request["bytes_out"] > 0:
            number = int(request["key"].removeprefix(prefix + name_of(0)[:-1]))
            ranges.setdefault(number, []).append(request["range"])
    return ranges


def covers(asked: str, size: int, place: int) -> bool:
    """Whether the range of a request has the byte of an object of this size."""
    first, last = re.fullmatch(r"bytes=(\d*)-(\d*)", asked).groups()
    begin = int(first) if first else max(size - int(last), 0)
    return begin <= place <= (int(last) if first and last else size)


def assert_read(made, numbers) -> None:
    for number in numbers:
        # Not as bytes, which pytest would compare for minutes.
        assert ((made / name_of(number)).read_bytes() == content_of(number)) is True, number


def passes(made, number: int) -> bool:
    """The kernel reads it itself."""
    before = disk(made)["opens_passed_through"]
    with (made / name_of(number)).open("rb"):
        return disk(made)["opens_passed_through"] > before


def wait_until_all_pass(made, numbers) -> None:
    for number in numbers:
        wait_until(lambda: passes(made, number), f"the kernel to read file {number} (kernel 6.9, as root)", seconds=60)


@pytest.mark.parametrize("where, passthrough", [("data", "never"), ("data", "auto"), ("anywhere", "auto")])
def test_a_bit_of_each_file_is_found(make, simulator, prefix, directory, numbers, compress, where, passthrough):
    kept = keep(make(), directory, numbers)
    places = damage(kept, where)
    made = make("--passthrough", passthrough)
    if (where, passthrough) == ("data", "auto"):
        # Before anyone asks, and before the kernel is given any of them.
        wait_until(lambda: disk(made)["frames_damaged"] >= len(numbers), "the damage to be found", seconds=120)
    simulator.reset_counters()
    assert_read(made, numbers)
    ranges = fetched(simulator, prefix)
    assert sorted(ranges) == list(numbers)
    assert disk(made)["frames_damaged"] >= len(places)
    if compress == "none":
        for number, place in places.items():
            assert any(covers(asked, size_of(number), place) for asked in ranges[number]), number
    # What was fetched is kept, and the kernel may have it.
    warm(made)
    assert [number for number in numbers if not is_kept(made, number)] == []
    assert_read(made, numbers)
    if passthrough == "auto":
        wait_until_all_pass(made, numbers[::10])
        assert_read(made, numbers[::10])
    assert made.unmount() == 0
    made = make("--passthrough", passthrough)
    simulator.reset_counters()
    assert_read(made, numbers)
    assert fetched(simulator, prefix) == {}
    assert disk(made)["frames_damaged"] == 0


def frames_of(file: int, size: int) -> list[bytes | int]:
    """Each as it is read, or the error number."""
    frames = []
    for offset in range(0, size, MIB):
        wanted = min(MIB, size - offset)
        frame = b""
        try:
            while len(frame) < wanted and (more := os.pread(file, wanted - len(frame), offset + len(frame))):
                frame += more
            frames.append(frame)
        except OSError as error:
            frames.append(error.errno)
    return frames


@pytest.fixture
def many_files():
    """More than a shell allows to be open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def end_answers(store, how: signal.Signals) -> None:
    store.process.send_signal(how)
    if how == signal.SIGKILL:
        store.process.wait()
        return
    # Its threads stop one after the other, and one that runs still answers.
    threads = list(pathlib.Path(f"/proc/{store.process.pid}/task").glob("*/stat"))
    wait_until(lambda: all(") T " in thread.read_text() for thread in threads), "the store to stop")


@pytest.mark.parametrize("where, end",
                         [("data", signal.SIGKILL), ("data", signal.SIGSTOP), ("anywhere", signal.SIGSTOP)],
                         ids=lambda value: getattr(value, "name", value))
def test_without_the_store_it_is_an_error(make, own_store, many_files, directory, numbers, where, end):
    """It is gone, or silent, once the files are open: an open asks it which version there is."""
    made = make(environment=own_store.environment())
    kept = keep(made, directory, numbers)
    places = damage(kept, where)
    # What was found before the open is known by then: the end of the object may have come along with that.
    passthrough = "never" if where == "data" else "auto"
    made = make("--retry-for", "1s", "--stall-timeout", "500ms", "--passthrough", passthrough,
                environment=own_store.environment())
    files = {number: os.open(made / name_of(number), os.O_RDONLY) for number in numbers[1:]}
    end_answers(own_store, end)
    try:
        with concurrent.futures.ThreadPoolExecutor(READERS) as threads:
            read = dict(zip(files, threads.map(lambda number: frames_of(files[number], size_of(number)), files)))
        for number, frames in read.items():
            content = content_of(number)
            failed = {at for at, frame in enumerate(frames) if frame == errno.EIO}
            right = {at for at, frame in enumerate(frames) if frame == content[at * MIB:(at + 1) * MIB]}
            assert failed | right == set(range(len(frames))), number
            if where == "data":
                assert failed == {places[number] // MIB}, number
            else:
                assert failed or len(frames) > 1, number
        # So is an open.
        assert errno_of((made / name_of(0)).read_bytes) == errno.EIO
        if end == signal.SIGSTOP:
            own_store.process.send_signal(signal.SIGCONT)
            wait_until(lambda: errno_of((made / name_of(0)).read_bytes) == 0, "the store to answer again", seconds=60)
            assert_read(made, numbers)
    finally:
        for file in files.values():
            os.close(file)
    assert made.unmount() == 0


def lengthen(one, _) -> None:
    with one.with_suffix(".data").open("ab") as file:
        file.write(b"of another file")


def shorten(one, _) -> None:
    os.truncate(one.with_suffix(".data"), size_of(0) - 1)


def exchange(one, other, ending: str) -> None:
    paths = [each.with_suffix(ending) for each in (one, other)]
    paths[0].rename(one.with_suffix(".third"))
    paths[1].rename(paths[0])
    one.with_suffix(".third").rename(paths[1])


def exchange_data(one, other) -> None:
    exchange(one, other, ".data")


def exchange_indexes(one, other) -> None:
    exchange(one, other, ".index")


def exchange_both(one, other) -> None:
    exchange_data(one, other)
    exchange_indexes(one, other)


@pytest.mark.parametrize("change", [lengthen, shorten, exchange_data, exchange_indexes, exchange_both])
@pytest.mark.parametrize("passthrough", ["never", "auto"])
def test_files_that_are_not_as_they_were_kept(make, directory, passthrough, change):
    """Two large ones: those the kernel may be given."""
    numbers = [0, 10]
    kept = keep(make(), directory, numbers)
    change(kept[0], kept[10])
    made = make("--passthrough", passthrough)
    assert_read(made, numbers)
    warm(made)
    if passthrough == "auto":
        wait_until_all_pass(made, numbers)
    assert_read(made, numbers)
