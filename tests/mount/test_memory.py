# SPDX-License-Identifier: Apache-2.0
"""Memory stays under --max-memory and 64 MiB for everything else, and nothing fails or stalls meanwhile."""

import concurrent.futures
import errno
import hashlib
import http.client
import json
import os
import random
import struct
import subprocess
import sys
import textwrap

import pytest
from harness.mounts import Mount
from harness.programs import CKPTFS, wait_until
from harness.simulator import BUCKET, Simulator

MIB = 1 << 20
BUDGET = 128 * MIB
OVERHEAD = 64 * MIB
# Of a mount that does nothing.
IDLE = 64 * MIB

WRITE_PATTERN = """
    import random
    import sys
    path, number, mebibytes = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    with open(path, "wb", buffering=0) as file:
        for index in range(mebibytes):
            noise = random.Random(f"{number}.{index}").randbytes(1 << 19)
            file.write(b"%08d%08d" % (number, index) * (1 << 15) + noise)
"""


def block(number: int, index: int) -> bytes:
    """One MiB that tells its file and its place; half of it can be compressed."""
    noise = random.Random(f"{number}.{index}").randbytes(1 << 19)
    return b"%08d%08d" % (number, index) * (1 << 15) + noise


def digest_of(number: int, mebibytes: int) -> str:
    digest = hashlib.md5()
    for index in range(mebibytes):
        digest.update(block(number, index))
    return digest.hexdigest()


def assert_within_budget(mount: Mount) -> None:
    peak = mount.peak_memory()
    assert peak < BUDGET + OVERHEAD, f"{peak // MIB} MiB resident"


@pytest.fixture
def slow_store():
    """A store that takes 50 MB/s in total."""
    simulator = Simulator("--total-mbps", "50")
    yield simulator
    simulator.stop()


@pytest.fixture
def slow_mount(slow_store):
    made = Mount(f"s3://{BUCKET}/", slow_store.environment(), "--max-memory", "128M")
    yield made
    made.remove()


def resident(mount: Mount) -> int:
    with open(f"/proc/{mount.process.pid}/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS"))


@pytest.mark.full
def test_an_idle_mount_gives_its_memory_back(mount):
    made = mount("--max-memory", "512M")
    assert resident(made) < IDLE
    for number in range(4):
        with open(made / f"file{number}", "wb", buffering=0) as file:
            for index in range(96):
                file.write(block(number, index))
    reader = mount("--max-memory", "512M")
    for number in range(4):
        subprocess.run(["cat", reader / f"file{number}"], check=True, stdout=subprocess.DEVNULL)
    full = resident(reader)
    assert full > 2 * IDLE
    wait_until(lambda: resident(reader) < IDLE, f"{full // MIB} MiB to be given back", 70)
    assert resident(made) < IDLE
    with open(reader / "file1", "rb") as file:
        assert hashlib.md5(file.read()).hexdigest() == digest_of(1, 96)


def put_empty(simulator: Simulator, prefix: str, count: int) -> None:
    def put(numbers: range) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", simulator.port)
        for number in numbers:
            connection.request("PUT", f"/{BUCKET}/{prefix}{number:06d}", b"")
            answer = connection.getresponse()
            answer.read()
            assert answer.status == 200

    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        list(threads.map(put, [range(first, count, 4) for first in range(4)]))


def names_known(made: Mount) -> int:
    told = subprocess.run([CKPTFS, "status", "--json", made.path], check=True, capture_output=True, text=True)
    return json.loads(told.stdout)["names_known"]


@pytest.mark.full
@pytest.mark.timeout(600)
def test_names_take_bounded_memory_and_give_it_back():
    """Beyond what the kernel evicts and what a listing makes nodes for."""
    store = Simulator("--allow-anonymous")
    put_empty(store, "many/", 200_000)
    made = Mount(f"s3://{BUCKET}/", store.environment())
    try:
        before = resident(made)
        with os.scandir(made / "many") as entries:
            sizes = [entry.stat().st_size for number, entry in enumerate(entries) if number < 90_000]
        assert sizes == [0] * 90_000
        assert len(os.listdir(made / "many")) == 200_000
        full = resident(made)
        assert full - before < 64 * MIB
        assert 1000 < names_known(made) <= 51_200
        # What the kernel forgets the mount forgets.
        with open("/proc/sys/vm/drop_caches", "w") as drop:
            drop.write("2")
        wait_until(lambda: names_known(made) < 1000, "the names to be forgotten")
        # Less than that is left where the kernel had forgotten many before.
        wait_until(lambda: resident(made) < max(full - 16 * MIB, before + 16 * MIB),
                   "their memory to go back to the system", 30)
    finally:
        made.remove()
        store.stop()


@pytest.mark.full
def test_many_files_written_in_turn(mount, simulator, prefix):
    made = mount("--max-memory", "128M")
    files = [open(made / f"file{number}", "wb", buffering=0) for number in range(256)]
    for index in range(8):
        for number, file in enumerate(files):
            assert file.write(block(number, index)) == MIB
    for file in files:
        file.close()
    assert_within_budget(made)
    for number in range(256):
        expected = b"".join(block(number, index) for index in range(8))
        assert simulator.content(f"{prefix}file{number}") == expected, number
    assert simulator.open_uploads(prefix) == []


def write_side_by_side(mount: Mount, mebibytes: int, seconds: int) -> None:
    writers = [subprocess.Popen([sys.executable, "-c", textwrap.dedent(WRITE_PATTERN), mount / f"file{number}",
                                 str(number), str(mebibytes)]) for number in range(8)]
    assert [writer.wait(seconds) for writer in writers] == [0] * 8


def check_side_by_side(simulator: Simulator, mebibytes: int) -> None:
    simulator.set_model(total_mbps=0)
    for number in range(8):
        assert simulator.digest(f"file{number}") == digest_of(number, mebibytes), number
    assert simulator.open_uploads() == []


def test_processes_that_write_faster_than_the_store_takes(slow_store, slow_mount):
    write_side_by_side(slow_mount, 64, 60)
    assert_within_budget(slow_mount)
    check_side_by_side(slow_store, 64)


@pytest.mark.full
@pytest.mark.timeout(900)
def test_processes_that_write_a_gibibyte_each(slow_store, slow_mount):
    write_side_by_side(slow_mount, 1024, 600)
    assert_within_budget(slow_mount)
    check_side_by_side(slow_store, 1024)


def copy_within(mount: Mount, simulator: Simulator, prefix: str, mebibytes: int) -> None:
    with open(mount / "source", "wb", buffering=0) as file:
        for index in range(mebibytes):
            file.write(block(7, index))
    subprocess.run(["cp", mount / "source", mount / "copy"], check=True, timeout=280)
    assert_within_budget(mount)
    assert simulator.digest(prefix + "copy") == digest_of(7, mebibytes)


def test_a_copy_within_the_mount(mount, simulator, prefix):
    copy_within(mount("--max-memory", "128M"), simulator, prefix, 256)


@pytest.mark.full
@pytest.mark.timeout(600)
def test_a_copy_of_four_gibibytes_within_the_mount(mount, simulator, prefix):
    copy_within(mount("--max-memory", "128M"), simulator, prefix, 4096)


def test_a_file_without_room_on_the_staging_disk_fails_and_says_so(mount, simulator, prefix, tmp_path):
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", small], check=True)
    try:
        made = mount("--max-memory", "64M", "--staging-dir", str(small))
        files = [os.open(made / f"file{number}", os.O_WRONLY | os.O_CREAT) for number in range(80)]
        failures = []
        for descriptor in files * 3:
            try:
                os.write(descriptor, os.urandom(MIB))
            except OSError as error:
                failures.append(error)
        for descriptor in files:
            try:
                os.close(descriptor)
            except OSError as error:
                failures.append(error)
        assert failures
        assert "--staging-dir" in made.log() and "No space left" in made.log()
        assert made.unmount() == 0
    finally:
        subprocess.run(["umount", small], check=True)
    assert simulator.open_uploads(prefix) == []
    for key in simulator.keys(prefix):
        assert len(simulator.content(key)) == 3 * MIB


@pytest.mark.parametrize("command", ["cat", "verify", "inspect"])
def test_tools_stay_within_their_memory(mount, simulator, prefix, command):
    (mount("--compress", "zstd") / "file").write_bytes((os.urandom(MIB) + b"text" * (MIB // 4)) * 300)
    run = f"import resource, subprocess; subprocess.run({[str(CKPTFS), command, f's3://{BUCKET}/{prefix}file']}, " \
          "stdout=subprocess.DEVNULL, check=True); print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    ran = subprocess.run([sys.executable, "-c", run], capture_output=True, timeout=100, check=True,
                         env={**os.environ, **simulator.environment()})
    assert int(ran.stdout) * 1024 < 256 * MIB


@pytest.mark.parametrize("compress", ["none", "auto"])
def test_many_threads_read_a_file_that_is_being_changed(mount, simulator, prefix, compress):
    """Each of their reads needs what was changed and what was there: none waits for memory that another such holds."""
    content = bytearray(b"".join(block(1, index) for index in range(64)))
    made = mount("--max-memory", "64M", "--direct-io", "always", "--compress", compress)
    if compress == "none":
        simulator.put(prefix + "file", bytes(content))
    else:
        (mount("--compress", compress) / "file").write_bytes(content)
        # A frame is decoded from one buffer into another.
        assert simulator.client().head_object(Bucket=BUCKET, Key=prefix + "file")["Metadata"]["ckptfs-format"]
    with open(made / "file", "r+b", buffering=0) as file:
        for offset in range(MIB // 2, len(content), MIB):
            os.pwrite(file.fileno(), b"changed", offset)
            content[offset:offset + 7] = b"changed"
        readers = concurrent.futures.ThreadPoolExecutor(40)
        offsets = random.Random(1).sample(range(0, len(content), MIB), 64) * 2
        reads = [readers.submit(os.pread, file.fileno(), MIB, offset) for offset in offsets]
        try:
            for offset, read in zip(offsets, reads):
                assert read.result(timeout=60) == content[offset:offset + MIB]
        except concurrent.futures.TimeoutError:
            made.process.kill()
            raise
    assert simulator.content(prefix + "file") == content


def put_hostile_table(simulator, key: str) -> int:
    """An object of 68 MB whose seek table claims frames of one byte for the largest file there is; none can be read."""
    frames = (5 << 40) // MIB
    table = (struct.pack("<II", 0x184D2A5E, 12 * frames + 9) + struct.pack("<III", 1, MIB, 0) * frames +
             struct.pack("<IBI", frames, 0x80, 0x8F92EAB1))
    least = frames + 8 + len(table)
    # As ckptfs-format(5) has it.
    padding = (3223 - least) % 4096
    body = bytes(frames) + struct.pack("<II", 0x184D2A5D, padding) + bytes(padding) + table
    simulator.client().put_object(Bucket=BUCKET, Key=key, Body=body, Metadata={"ckptfs-format": "planes-1"})
    return frames * MIB


def read_errno(file: int, offset: int) -> int:
    with pytest.raises(OSError) as raised:
        os.pread(file, 4096, offset)
    return raised.value.errno


def test_a_seek_table_that_takes_too_much_memory_is_refused(mount, simulator, prefix):
    size = put_hostile_table(simulator, prefix + "file")
    made = mount("--max-memory", "128M")
    assert (made / "file").stat().st_size == size
    for flags in (os.O_RDONLY, os.O_WRONLY | os.O_APPEND):
        with pytest.raises(OSError) as raised:
            file = os.open(made / "file", flags)
            try:
                os.write(file, b"more")
            finally:
                os.close(file)
        assert raised.value.errno == errno.EFBIG
    assert "use --max-memory 481M or more" in made.log()
    assert_within_budget(made)
    (made / "file").unlink()


def test_many_bad_frames_take_no_memory(mount, simulator, prefix):
    put_hostile_table(simulator, prefix + "file")
    made = mount("--max-memory", "512M")
    file = os.open(made / "file", os.O_RDONLY)
    with concurrent.futures.ThreadPoolExecutor(16) as threads:
        found = list(threads.map(lambda reader: read_errno(file, reader << 30), range(64)))
    os.close(file)
    assert set(found) == {errno.EIO}
    # Its table, and what another reading of it takes.
    assert made.peak_memory() < (512 + 64) * MIB
