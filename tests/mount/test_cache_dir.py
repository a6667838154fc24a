# SPDX-License-Identifier: Apache-2.0
"""Files that are kept on a local disk (--cache-dir)."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading

import pytest
from harness.mounts import Mount
from harness.programs import CKPTFS, wait_until
from harness.simulator import BUCKET

pytestmark = pytest.mark.sanitized_too

MIB = 1 << 20
CONTENT = random.Random(1).randbytes(9 << 20) + b"end"


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "cache"


@pytest.fixture(params=["none", "auto"])
def compress(request):
    return request.param


@pytest.fixture
def content(compress):
    """With --compress auto it is stored as frames, some of them smaller than they are."""
    return CONTENT if compress == "none" else CONTENT[:5 << 20] + b"text " * (1 << 20) + CONTENT[5 << 20:]


@pytest.fixture
def make(mount, directory, compress):
    # What the kernel reads itself is test_passthrough.py's.
    return lambda *options: mount("--cache-dir", str(directory), "--compress", compress, "--passthrough", "never",
                                  *options)


def status(made: Mount) -> dict:
    answer = subprocess.run([CKPTFS, "status", made.path, "--json"], capture_output=True, text=True, check=True)
    return json.loads(answer.stdout)["disk"]


def wait_until_written(made: Mount, size: int) -> None:
    wait_until(lambda: status(made)["bytes_written"] >= size, "the file to be kept")


def write_as_the_disk_keeps_up(made: Mount, path, content: bytes, piece: int = 8 * MIB) -> None:
    kept = status(made)["bytes_written"]
    with path.open("wb", buffering=0) as file:
        for at in range(0, len(content), piece):
            file.write(content[at:at + piece])
            wait_until_written(made, kept + at - piece)


def gets(simulator) -> int:
    return simulator.counters()["operations"].get("GetObject", {"requests": 0})["requests"]


def flip_bits(directory, ending: str, every: int, begin: int = 0) -> None:
    for path in directory.iterdir():
        if path.suffix == ending:
            with path.open("r+b") as file:
                for offset in range(begin, path.stat().st_size, every):
                    file.seek(offset)
                    byte = file.read(1)[0]
                    file.seek(offset)
                    file.write(bytes([byte ^ 4]))


def test_a_restart_fetches_nothing_of_what_was_written(make, simulator, content):
    made = make()
    (made / "shard").write_bytes(content)
    wait_until_written(made, len(content))
    assert made.unmount() == 0
    made = make()
    simulator.reset_counters()
    assert (made / "shard").read_bytes() == content
    assert gets(simulator) == 0
    assert status(made)["bytes_read"] == len(content)


@pytest.mark.parametrize("is_killed", [False, True], ids=["unmounted", "killed"])
def test_a_restart_fetches_nothing_of_what_the_disk_acknowledged(make, simulator, prefix, content, is_killed):
    """The bucket gives it another ETag than the disk did, once for each name."""
    made = make("--ack", "disk")
    if is_killed:
        simulator.inject(*({"op": operation, "key": f"{prefix}shard.tmp", "action": "403"}
                           for operation in ["PutObject", "CreateMultipartUpload"]))
    (made / "shard.tmp").write_bytes(content)
    os.rename(made / "shard.tmp", made / "shard")
    wait_until_written(made, len(content))
    if is_killed:
        made.process.kill()
        made.process.wait()
        made.remove()
        simulator.clear_faults()
        made = make("--ack", "disk")
        assert (made / "shard").read_bytes() == content
    subprocess.run([CKPTFS, "wait", made.path], check=True, timeout=60)
    assert made.unmount() == 0
    for options in [], ["--ack", "disk"]:
        made = make(*options)
        simulator.reset_counters()
        assert (made / "shard").read_bytes() == content
        assert gets(simulator) == 0
        assert status(made)["bytes_read"] == len(content)
        assert made.unmount() == 0


def test_what_the_disk_acknowledges_is_kept_behind_the_save(make, simulator, content):
    """Beside it, everything would be written twice while the job waits."""
    made = make("--ack", "disk", "--part-size", "8M")
    with (made / "shard").open("wb", buffering=0) as file:
        for _ in range(4):
            file.write(content)
        file.flush()
        assert status(made)["bytes_written"] == 0
    wait_until_written(made, len(content) * 4)
    wait_until(lambda: status(made)["files_to_keep"] == 0, "nothing to be left to keep")
    subprocess.run([CKPTFS, "wait", made.path], check=True, timeout=60)
    made.process.kill()
    made.process.wait()
    made.remove()
    made = make("--ack", "disk")
    simulator.reset_counters()
    assert (made / "shard").read_bytes() == content * 4
    assert gets(simulator) == 0


@pytest.mark.parametrize("is_sent", [False, True], ids=["at once", "once it is sent"])
@pytest.mark.parametrize("renamed", ["file", "directory", "neither"])
def test_what_was_not_kept_yet_is_so_when_the_mount_ends(make, simulator, content, renamed, is_sent):
    made = make("--ack", "disk", "--part-size", "8M")
    (made / "step.tmp").mkdir()
    (made / "step.tmp" / "shard").write_bytes(content * 2)
    (made / "step.tmp" / "shard.tmp").write_bytes(content)
    if is_sent:
        subprocess.run([CKPTFS, "wait", made.path], check=True, timeout=60)
    if renamed == "file":
        os.rename(made / "step.tmp" / "shard.tmp", made / "step.tmp" / "other")
    if renamed == "directory":
        os.rename(made / "step.tmp", made / "step")
    assert made.unmount() == 0
    made = make()
    directory = made / ("step" if renamed == "directory" else "step.tmp")
    simulator.reset_counters()
    assert (directory / "shard").read_bytes() == content * 2
    assert (directory / ("other" if renamed == "file" else "shard.tmp")).read_bytes() == content
    assert gets(simulator) == 0


def test_a_restart_fetches_nothing_of_what_was_read(make, mount, simulator, compress, content):
    (mount("--compress", compress) / "shard").write_bytes(content)
    made = make()
    assert (made / "shard").read_bytes() == content
    wait_until_written(made, len(content))
    made.process.kill()
    made.process.wait()
    made.remove()
    made = make()
    (made / "shard").stat()
    simulator.reset_counters()
    assert (made / "shard").read_bytes() == content
    assert gets(simulator) == 0


def test_what_another_mount_has_saved_since_is_read(make, mount, simulator, compress, content):
    made = make()
    (made / "shard").write_bytes(content)
    wait_until_written(made, len(content))
    made.unmount()
    other = bytes(reversed(content))
    (mount("--compress", compress) / "shard").write_bytes(other)
    made = make()
    assert (made / "shard").read_bytes() == other
    (mount() / "shard").unlink()
    with pytest.raises(FileNotFoundError):
        (made / "shard").read_bytes()


def test_a_renamed_file_is_still_kept(make, simulator, content):
    made = make()
    (made / "shard.tmp").write_bytes(content)
    wait_until_written(made, len(content))
    (made / "shard.tmp").rename(made / "shard")
    made.unmount()
    made = make()
    (made / "shard").stat()
    simulator.reset_counters()
    assert (made / "shard").read_bytes() == content
    assert gets(simulator) == 0


def test_files_of_a_renamed_directory_are_still_kept(make, simulator, content):
    """Frameworks save into a directory of another name first."""
    made = make("--part-size", "8M")
    files = {"small": content[:MIB], "whole": content, "twin": content, "in parts": content * 10}
    (made / "step.tmp").mkdir()
    for name, each in files.items():
        write_as_the_disk_keeps_up(made, made / "step.tmp" / name, each)
    wait_until_written(made, sum(map(len, files.values())))
    (made / "step.tmp").rename(made / "step")
    made.unmount()
    made = make()
    for name, each in files.items():
        (made / "step" / name).stat()
        simulator.reset_counters()
        assert (made / "step" / name).read_bytes() == each
        assert gets(simulator) == 0, name


def test_a_file_that_another_mount_has_changed_in_a_renamed_directory_is_read(make, content):
    one, other = make("--part-size", "8M"), make("--part-size", "8M")
    (one / "step.tmp").mkdir()
    (one / "step.tmp" / "shard").write_bytes(content)
    wait_until_written(one, len(content))
    (other / "step.tmp" / "shard").write_bytes(content[::-1])
    (one / "step.tmp").rename(one / "step")
    for made in (one, other, make()):
        assert (made / "step" / "shard").read_bytes() == content[::-1]


def test_changes_of_a_file_that_is_kept_are_read(make, content):
    made = make()
    (made / "shard").write_bytes(content)
    wait_until_written(made, len(content))
    with (made / "shard").open("r+b") as file:
        file.seek(3 << 20)
        file.write(b"changed")
    with (made / "shard").open("ab") as file:
        file.write(b"and more")
    expected = content[:3 << 20] + b"changed" + content[(3 << 20) + 7:] + b"and more"
    assert (made / "shard").read_bytes() == expected
    made.unmount()
    assert (make() / "shard").read_bytes() == expected


@pytest.mark.parametrize("ending, begin", [(".data", 0), (".index", 0), (".index", 4096)])
def test_what_is_damaged_is_fetched_again(make, simulator, directory, content, ending, begin):
    made = make()
    (made / "shard").write_bytes(content)
    wait_until_written(made, len(content))
    made.unmount()
    flip_bits(directory, ending, 300_000 if ending == ".data" else 16, begin)
    made = make()
    assert (made / "shard").read_bytes() == content
    assert gets(simulator) > 0
    # The end is too short to be hit.
    wait_until_written(made, len(content) - (3 if ending == ".data" else 0))
    made.unmount()
    made = make()
    (made / "shard").stat()
    simulator.reset_counters()
    assert (made / "shard").read_bytes() == content
    assert gets(simulator) == 0


def test_files_that_are_taken_away_are_fetched_again(make, directory, content):
    made = make("--direct-io", "always", "--max-memory", "64M")
    # With so little memory, few frames wait for the disk.
    write_as_the_disk_keeps_up(made, made / "shard", content, MIB)
    wait_until_written(made, len(content))
    with (made / "shard").open("rb") as file:
        assert file.read(1 << 20) == content[:1 << 20]
        for path in directory.iterdir():
            path.unlink()
        assert file.read() == content[1 << 20:]

    def remove() -> bool:
        # What is seen of the bucket is recorded there meanwhile.
        shutil.rmtree(directory, ignore_errors=True)
        return not directory.exists()

    wait_until(remove, "the directory to be gone")
    assert (made / "shard").read_bytes() == content
    (made / "other").write_bytes(content)
    assert (made / "other").read_bytes() == content


def test_two_mounts_share_it(make, simulator, content):
    one, other = make(), make()
    (one / "shard").write_bytes(content)
    wait_until_written(one, len(content))
    simulator.reset_counters()
    readers = [threading.Thread(target=(each / "shard").read_bytes) for each in (one, other, one, other)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    assert (other / "shard").read_bytes() == content
    # The end, which the other one fetches as it opens the file.
    assert sum(each["bytes_out"] for each in simulator.requests() if each["op"] == "GetObject") < 1 << 20


def test_it_stays_within_its_size(make, directory, content):
    made = make("--cache-size", "30M", "--max-memory", "64M")
    for number in range(8):
        (made / f"shard_{number}").write_bytes(content)
        (made / f"shard_{number}").read_bytes()
    assert made.unmount() == 0
    assert 0 < sum(path.stat().st_blocks * 512 for path in directory.iterdir()) <= 30 << 20


def test_a_full_disk_is_left_alone(mount, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4M", "tmpfs", disk], check=True)
    try:
        made = mount("--cache-dir", str(disk / "cache"), "--cache-size", "1G", "--compress", "none")
        (made / "shard").write_bytes(CONTENT)
        assert (made / "shard").read_bytes() == CONTENT
        wait_until(lambda: status(made)["failure"], "the failure to be told")
        assert "No space left on device" in status(made)["failure"]
        assert made.log().count("takes nothing for now: cannot") == 1
        told = subprocess.run([CKPTFS, "status", made.path], capture_output=True, text=True, check=True).stdout
        assert "for now: cannot write" in told
        assert made.unmount() == 0
    finally:
        subprocess.run(["umount", disk], check=True)


class FrozenDisk:
    """Of mkfs.ext4(8) on a loop device, frozen by fsfreeze(8)."""

    def __init__(self, directory):
        self.path = directory / "disk"
        self.is_frozen = False
        image = directory / "image"
        self.path.mkdir()
        image.touch()
        os.truncate(image, 128 << 20)
        subprocess.run(["mkfs.ext4", "-q", image], check=True)
        subprocess.run(["mount", "-o", "loop", image, self.path], check=True)

    def freeze(self, made):
        # It makes its directory after it is in the mount table.
        wait_until(lambda: "is mounted at" in made.log(), "the mount to answer")
        subprocess.run(["fsfreeze", "--freeze", self.path], check=True)
        self.is_frozen = True

    def unfreeze(self):
        if self.is_frozen:
            subprocess.run(["fsfreeze", "--unfreeze", self.path], check=True)
            self.is_frozen = False


@pytest.fixture
def disk(tmp_path):
    disk = FrozenDisk(tmp_path)
    yield disk
    disk.unfreeze()
    # A mount that is still there has the directory.
    subprocess.run(["umount", "--lazy", disk.path], check=True)


@pytest.mark.full
def test_a_disk_that_takes_no_writes_holds_up_no_unmount(disk, mount):
    made = mount("--cache-dir", str(disk.path / "cache"), "--compress", "none")
    disk.freeze(made)
    (made / "shard").write_bytes(CONTENT)
    assert (made / "shard").read_bytes() == CONTENT
    made.process.send_signal(signal.SIGTERM)
    wait_until(lambda: "does not answer" in made.log() and not made.is_mounted(), "the mount to end", seconds=40)
    disk.unfreeze()
    # The kernel ends no process before what it waits for.
    assert made.process.wait(30) == 0


def test_a_disk_that_takes_no_writes_takes_no_memory_from_writers_and_readers(mount, disk):
    """It has what it was given to keep until it goes on."""
    made = mount("--cache-dir", str(disk.path / "cache"), "--compress", "auto", "--max-memory", "64M")
    disk.freeze(made)
    copy = "import sys; data = bytes(range(256)) * 4096 * 64; open(sys.argv[1], 'wb').write(data); " \
           "assert open(sys.argv[1], 'rb').read() == data"
    try:
        subprocess.run([sys.executable, "-c", copy, made / "shard"], check=True, timeout=120)
    finally:
        # Before the mount ends.
        disk.unfreeze()


def test_a_disk_that_hangs_is_not_waited_for(mount, directory):
    made = mount("--cache-dir", str(directory))
    (made / "shard").write_bytes(CONTENT)
    wait_until_written(made, len(CONTENT))
    assert made.unmount() == 0
    for index in list(directory.glob("*.index")):
        index.unlink()
        # To open it waits for one that writes.
        os.mkfifo(index)
    made = mount("--cache-dir", str(directory))
    assert (made / "shard").read_bytes() == CONTENT
    assert "does not answer" in status(made)["failure"]
    (made / "other").write_bytes(CONTENT)
    assert (made / "other").read_bytes() == CONTENT
    assert made.unmount() == 0


def test_a_directory_that_others_may_enter_is_refused(simulator, tmp_path, directory):
    directory.mkdir()
    directory.chmod(0o755)
    place = tmp_path / "mnt"
    place.mkdir()
    refused = subprocess.run([CKPTFS, "mount", f"s3://{BUCKET}/x/", place, "--cache-dir", directory],
                             env={**os.environ, **simulator.environment()}, capture_output=True, text=True)
    assert refused.returncode != 0
    assert f"--cache-dir: {directory} is not a directory that only this user can enter" in refused.stderr


def test_files_of_another_prefix_share_the_directory(make, mount, directory, content, simulator, compress):
    made = make()
    (made / "shard").write_bytes(content)
    wait_until_written(made, len(content))
    far = Mount(f"s3://{BUCKET}/far/", simulator.environment(), "--cache-dir", str(directory), "--compress", compress)
    try:
        (far / "shard").write_bytes(content[::-1])
        assert (far / "shard").read_bytes() == content[::-1]
        assert (made / "shard").read_bytes() == content
    finally:
        far.remove()
