# SPDX-License-Identifier: Apache-2.0
"""What a local disk acknowledges, and the bucket gets behind that (--ack disk)."""

import errno
import json
import os
import pathlib
import random
import resource
import subprocess
import threading

import pytest
from harness.disk_acknowledges import SHARD, SMALL, files, hold, wait
from harness.markers import commit, refuse_to_commit
from harness.mounts import Mount
from harness.programs import CKPTFS, wait_until

pytestmark = pytest.mark.sanitized_too

MIB = 1 << 20


@pytest.fixture
def disk(tmp_path):
    return tmp_path / "disk"


@pytest.fixture
def make(mount, disk):
    return lambda *options, **how: mount("--ack", "disk", "--cache-dir", str(disk), *options, **how)


def status(made: Mount) -> dict:
    answer = subprocess.run([CKPTFS, "status", made.path, "--json"], capture_output=True, text=True, check=True)
    return json.loads(answer.stdout)


def wait_until_it_asks(simulator) -> None:
    """Who waits for another disk asks again and again whether all is in the bucket."""
    def lists() -> int:
        return simulator.counters()["operations"].get("ListObjectsV2", {"requests": 0})["requests"]

    begun = lists()
    wait_until(lambda: lists() >= begun + 4, "the bucket to be asked again")


def kill(made: Mount) -> None:
    made.process.kill()
    made.process.wait()
    made.remove()


def test_close_does_not_wait_for_the_bucket(make, mount, simulator, prefix):
    made, other = make(), mount()
    hold(simulator, prefix, "shard", "small")
    (made / "shard").write_bytes(SHARD)
    (made / "small").write_bytes(SMALL)
    assert (made / "shard").read_bytes() == SHARD
    assert sorted(os.listdir(made.path)) == ["shard", "small"]
    assert os.listdir(other.path) == []
    assert status(made)["unsent"]["changes"] == 2
    assert not status(made)["safe_to_stop"]
    simulator.clear_faults()
    assert wait(made / "shard").returncode == 0
    assert status(made)["safe_to_stop"]
    assert simulator.content(f"{prefix}shard") == SHARD
    wait_until(lambda: sorted(os.listdir(other.path)) == ["shard", "small"], "the other mount to see them")
    assert (other / "shard").read_bytes() == SHARD
    assert (made / "shard").read_bytes() == SHARD


def test_a_kill_loses_nothing_that_was_acknowledged(make, simulator, prefix):
    made = make()
    hold(simulator, prefix, "shard", "step/0", "step/.metadata", "step/.metadata.tmp")
    (made / "shard").write_bytes(SHARD)
    (made / "step").mkdir()
    (made / "step/0").write_bytes(SMALL)
    commit(made / "step")
    os.rename(made / "shard", made / "renamed")
    kill(made)
    assert "step/.metadata" not in files(simulator, prefix)
    made = make()
    # Before anything is sent.
    assert (made / "renamed").read_bytes() == SHARD
    assert (made / "step/.metadata").exists() and not (made / "shard").exists()
    simulator.clear_faults()
    assert wait(made.path).returncode == 0
    assert simulator.content(f"{prefix}renamed") == SHARD
    assert files(simulator, prefix) == ["renamed", "step/", "step/.metadata", "step/0"]
    assert simulator.open_uploads(prefix) == []


def test_unmounting_sends_what_is_on_the_disk(make, simulator, prefix):
    made = make()
    for number in range(20):
        (made / f"shard{number}").write_bytes(SMALL)
    (made / "shard").write_bytes(SHARD)
    assert made.unmount() == 0
    assert simulator.content(f"{prefix}shard") == SHARD
    assert len(files(simulator, prefix)) == 21
    assert simulator.all_keys(f"{prefix}.ckptfs/unsent/") == []


def test_an_unmount_that_cannot_send_says_so_and_the_next_mount_does(make, simulator, prefix):
    made = make("--drain-timeout", "1s")
    hold(simulator, prefix, "shard")
    (made / "shard").write_bytes(SHARD)
    assert made.unmount() != 0
    assert "1 change, 20.0 MiB, are on the disk" in made.log()
    simulator.clear_faults()
    made = make()
    assert (made / "shard").read_bytes() == SHARD
    assert wait(made.path).returncode == 0
    assert simulator.content(f"{prefix}shard") == SHARD


def test_wait_tells_what_holds_it_up(make, simulator, prefix, tmp_path):
    made = make("--retry-for", "1s")
    hold(simulator, prefix, "small")
    (made / "small").write_bytes(SMALL)
    waited = wait(made.path, "--timeout", "8s")
    assert waited.returncode == 1
    assert "1 change" in waited.stderr and "not in the bucket yet" in waited.stderr
    wait_until(lambda: status(made)["unsent"]["failing_key"] == f"{prefix}small", "the failure to be told")
    told = subprocess.run([CKPTFS, "status", made.path], capture_output=True, text=True, check=True).stdout
    assert "acknowledged by the disk: 1 change" in told and "small: cannot be sent" in told
    link = tmp_path / "link"
    link.symlink_to(made.path)
    assert "not in the bucket yet" in wait(link, "--timeout", "1s").stderr
    simulator.clear_faults()
    assert wait(link).returncode == 0


def test_wait_of_a_mount_whose_bucket_acknowledges_ends_at_once(mount):
    made = mount()
    (made / "small").write_bytes(SMALL)
    assert wait(made / "small").returncode == 0
    refused = wait(pathlib.Path("/"))
    assert refused.returncode == 1 and "is in no mount of ckptfs" in refused.stderr


@pytest.mark.parametrize("marks_by_disk", [True, False])
def test_a_marker_waits_for_what_another_disk_has_acknowledged(make, mount, simulator, prefix, tmp_path, marks_by_disk):
    """Rank 1's shard is on its node's disk only when rank 0 commits, which both believe to be after it."""
    writes = make()
    marks = (mount("--ack", "disk", "--cache-dir", str(tmp_path / "another")) if marks_by_disk else mount())
    (writes / "step").mkdir()
    wait(writes.path)
    hold(simulator, prefix, "step/1.distcp")
    (marks / "step/0.distcp").write_bytes(SMALL)
    (writes / "step/1.distcp").write_bytes(SHARD)
    committing = threading.Thread(target=commit, args=[marks / "step"])
    committing.start()
    if marks_by_disk:
        committing.join()
    wait_until(lambda: "step/0.distcp" in files(simulator, prefix), "the other shard to be in the bucket")
    if marks_by_disk:
        wait_until(lambda: status(marks)["unsent"]["failing_key"] == f"{prefix}step/.metadata",
                   "the marker to be held back")
    else:
        wait_until_it_asks(simulator)
        assert committing.is_alive()
    assert "step/.metadata" not in files(simulator, prefix)
    simulator.clear_faults()
    committing.join()
    assert wait(marks.path).returncode == 0
    assert simulator.content(f"{prefix}step/1.distcp") == SHARD
    assert "step/.metadata" in files(simulator, prefix)


def test_a_node_that_died_holds_markers_back_until_it_is_mounted_again(make, mount, simulator, prefix):
    writes, marks = make(), mount("--retry-for", "1s")
    (writes / "step").mkdir()
    wait(writes.path)
    hold(simulator, prefix, "step/1.distcp")
    (writes / "step/1.distcp").write_bytes(SHARD)
    kill(writes)
    refuse_to_commit(marks / "step")
    assert "has acknowledged by its disk are not in the bucket yet" in marks.log()
    simulator.clear_faults()
    writes = make()
    assert wait(writes.path).returncode == 0
    commit(marks / "step")
    assert files(simulator, prefix) == ["step/", "step/.metadata", "step/1.distcp"]


@pytest.mark.parametrize("earlier", ["no earlier version", "one that was sent meanwhile"])
def test_a_file_that_was_being_written_at_a_kill_holds_markers_back(make, mount, simulator, prefix, tmp_path, earlier):
    journals = {"CKPTFS_STATE_DIR": str(tmp_path / "journals")}
    writes, marks = make(environment=journals), mount("--retry-for", "1s")
    (writes / "step").mkdir()
    wait(writes.path)
    has_earlier = earlier != "no earlier version"
    if has_earlier:
        hold(simulator, prefix, "step/1.distcp")
        (writes / "step/1.distcp").write_bytes(SMALL)
    file = open(writes / "step/1.distcp", "wb", buffering=0)
    file.write(SHARD)
    if has_earlier:
        simulator.clear_faults()
        wait_until(lambda: "step/1.distcp" in files(simulator, prefix), "the earlier version to be sent")
    wait_until(lambda: simulator.all_keys(f"{prefix}.ckptfs/unsent/"), "others to be told")
    refuse_to_commit(marks / "step")
    writes.process.kill()
    writes.process.wait()
    with pytest.raises(OSError):
        file.close()
    again = make(environment=journals, at=writes.path)
    wait_until(lambda: simulator.failed_files(prefix), "the file to be recorded as unfinished")
    refuse_to_commit(marks / "step")
    (again / "step/1.distcp").write_bytes(SHARD)
    wait(again.path)
    commit(marks / "step")


def test_markers_of_two_mounts_do_not_wait_for_each_other(make, mount, simulator, prefix, tmp_path):
    """Each node commits a directory, and then writes into the one of the other."""
    one, other = make(), mount("--ack", "disk", "--cache-dir", str(tmp_path / "another"))
    (one / "a").mkdir()
    (one / "b").mkdir()
    assert wait(one.path).returncode == 0
    hold(simulator, prefix, "a/0.distcp", "b/1.distcp")
    (one / "a/0.distcp").write_bytes(SMALL)
    (other / "b/1.distcp").write_bytes(SMALL)
    commit(one / "a")
    commit(other / "b")
    (one / "b/0.distcp").write_bytes(SMALL)
    (other / "a/1.distcp").write_bytes(SMALL)
    simulator.clear_faults()
    for made in one, other:
        assert wait(made.path, "--timeout", "1m").returncode == 0
    assert {"a/.metadata", "b/.metadata", "a/1.distcp", "b/0.distcp"} <= set(files(simulator, prefix))


def test_a_marker_that_is_given_up_fails_the_next_fsync_and_close(make, mount, simulator, prefix):
    made, fails = make(), mount()
    (made / "step").mkdir()
    assert wait(made.path).returncode == 0
    hold(simulator, prefix, "step/0.distcp", "step/1.distcp")
    (made / "step/0.distcp").write_bytes(SMALL)
    commit(made / "step")
    with pytest.raises(OSError):
        (fails / "step/1.distcp").write_bytes(SMALL)
    wait_until(lambda: simulator.failed_files(prefix), "the failure to be told")
    simulator.clear_faults()
    waited = wait(made.path)
    assert waited.returncode == 1 and "step/.metadata" in waited.stderr
    assert not (made / "step/.metadata").exists()
    # Not to who reads.
    (made / "step/0.distcp").read_bytes()
    file = open(made / "other", "wb", buffering=0)
    # Nor to the exec of a child, or its end, which close what it inherited.
    subprocess.run(["true"], check=True)
    if (child := os.fork()) == 0:
        os._exit(0)
    os.waitpid(child, 0)
    for call in lambda: os.fsync(file), file.close:
        with pytest.raises(OSError) as told:
            call()
        assert told.value.errno == errno.EIO
    kill(made)
    made = make()
    assert wait(made.path).returncode == 1
    (made / "other").write_bytes(SMALL)
    (fails / "step/1.distcp").write_bytes(SMALL)
    commit(made / "step")
    assert wait(made.path).returncode == 0
    assert "step/.metadata" in files(simulator, prefix)


def test_a_directory_is_renamed_once_all_of_it_is_sent(make, mount, simulator, prefix):
    made, other = make(), mount()
    hold(simulator, prefix, "tmp/1")
    (made / "tmp").mkdir()
    (made / "tmp/1").write_bytes(SHARD)
    (made / "tmp/2").write_bytes(SMALL)
    with open(made / "tmp/1", "rb") as reader:
        renaming = threading.Thread(target=os.rename, args=[made / "tmp", made / "step"])
        renaming.start()
        wait_until(lambda: "tmp/2" in files(simulator, prefix), "the other file to be in the bucket")
        assert renaming.is_alive()
        simulator.clear_faults()
        renaming.join()
        assert files(simulator, prefix) == ["step/", "step/1", "step/2"]
        assert reader.read() == SHARD
    assert sorted(os.listdir(made / "step")) == ["1", "2"]
    assert (made / "step/1").read_bytes() == SHARD
    assert (other / "step/1").read_bytes() == SHARD


def test_a_directory_is_not_renamed_before_what_another_disk_has_of_it(make, mount, simulator, prefix):
    writes, renames = make(), mount()
    (renames / "tmp").mkdir()
    hold(simulator, prefix, "tmp/1")
    (writes / "tmp/1").write_bytes(SHARD)
    renaming = threading.Thread(target=os.rename, args=[renames / "tmp", renames / "step"])
    renaming.start()
    wait_until_it_asks(simulator)
    assert renaming.is_alive()
    simulator.clear_faults()
    renaming.join()
    assert (renames / "step/1").read_bytes() == SHARD
    assert files(simulator, prefix) == ["step/", "step/1"]


def test_close_waits_once_the_limit_is_reached(make, simulator, prefix, tmp_path):
    made = make("--ack-limit", "30M")
    hold(simulator, prefix, *(f"shard{number}" for number in range(4)))
    (tmp_path / "shard").write_bytes(SHARD)
    # Not threads: a child that a fork gives their files would wait as well.
    writers = [subprocess.Popen(["cp", tmp_path / "shard", made / f"shard{number}"]) for number in range(4)]
    try:
        wait_until(lambda: status(made)["unsent"]["waiting"] == 2, "two of them to wait for room")
        wait_until(lambda: sum(writer.poll() is None for writer in writers) == 2, "the others to end")
    finally:
        simulator.clear_faults()
    assert [writer.wait() for writer in writers] == [0] * 4
    assert wait(made.path).returncode == 0
    assert len(files(simulator, prefix)) == 4


def test_the_last_version_is_what_the_bucket_gets(make, simulator, prefix):
    made = make()
    for number in range(5):
        (made / "latest").write_text(str(number))
        (made / "shard").write_bytes(SHARD[number:])
    with (made / "log").open("a") as log:
        for number in range(5):
            log.write(f"{number}\n")
            log.flush()
            os.fsync(log.fileno())
    assert (made / "log").read_text() == "0\n1\n2\n3\n4\n"
    assert (made / "latest").read_text() == "4"
    assert wait(made.path).returncode == 0
    assert simulator.content(f"{prefix}latest") == b"4"
    assert simulator.content(f"{prefix}shard") == SHARD[4:]
    assert simulator.content(f"{prefix}log") == b"0\n1\n2\n3\n4\n"


def test_what_is_removed_stays_so(make, simulator, prefix):
    made = make()
    (made / "step").mkdir()
    for number in range(30):
        (made / f"step/{number}").write_bytes(SMALL)
    wait(made.path)
    hold(simulator, prefix, *(f"step/{number}" for number in range(30)))
    subprocess.run(["rm", "-r", made / "step"], check=True)
    assert os.listdir(made.path) == []
    kill(made)
    made = make()
    assert os.listdir(made.path) == []
    simulator.clear_faults()
    assert wait(made.path).returncode == 0
    assert files(simulator, prefix) == []


def test_a_file_that_was_changed_in_place_is_sent_as_it_is(make, simulator, prefix):
    made = make()
    (made / "shard").write_bytes(SHARD)
    with (made / "shard").open("r+b") as file:
        file.seek(MIB)
        file.write(b"changed")
    expected = SHARD[:MIB] + b"changed" + SHARD[MIB + 7:]
    assert (made / "shard").read_bytes() == expected
    assert wait(made.path).returncode == 0
    assert simulator.content(f"{prefix}shard") == expected


@pytest.mark.parametrize("size", [5 * MIB - 1, 5 * MIB, 5 * MIB + 1])
def test_what_is_appended_to_a_file_of_one_part_is_sent(make, simulator, prefix, size):
    """S3 copies no range of an object of up to 5 MiB, and the whole of it as a part only from there on."""
    made = make("--compress", "none")
    (made / "log").write_bytes(SHARD[:size])
    with (made / "log").open("ab") as file:
        file.write(SHARD[size:])
    assert wait(made.path).returncode == 0
    assert simulator.content(prefix + "log") == SHARD


def test_it_needs_a_disk(mount):
    with pytest.raises(AssertionError, match="--ack disk: set --cache-dir"):
        mount("--ack", "disk")


def test_two_mounts_share_a_disk_and_each_sends_its_own(make, simulator, prefix):
    one, other = make(), make()
    hold(simulator, prefix, "one", "other")
    (one / "one").write_bytes(SMALL)
    (other / "other").write_bytes(SMALL)
    assert status(one)["unsent"]["changes"] == status(other)["unsent"]["changes"] == 1
    kill(one)
    kill(other)
    # What both have left is sent by whoever comes.
    again = make()
    assert status(again)["unsent"]["changes"] == 2
    simulator.clear_faults()
    wait_until(lambda: files(simulator, prefix) == ["one", "other"], "both to be sent")
    # The disk notes that they were.
    wait_until(lambda: status(again)["safe_to_stop"], "the mount to know")


def test_a_mount_does_not_go_on_without_what_was_left_elsewhere(make, disk, simulator, prefix, tmp_path):
    """It would be sent by a later mount, over what this one saves, and nothing would tell of it until then."""
    one, other = make(), make()
    hold(simulator, prefix, "one", "other")
    (one / "one").write_bytes(SMALL)
    (other / "other").write_bytes(SMALL)
    kill(one)
    kill(other)
    log = next(disk.rglob("*-1/*.log"))
    readable = log.rename(disk / "log")
    log.mkdir()
    place = tmp_path / "mnt"
    place.mkdir()
    with pytest.raises(AssertionError, match=f"cannot read .*{log.name}"):
        make(at=place)
    log.rmdir()
    readable.rename(log)
    simulator.clear_faults()
    again = make()
    assert wait(again.path).returncode == 0
    assert files(simulator, prefix) == ["one", "other"]


def test_a_name_is_sent_after_what_was_left_elsewhere_of_it(make, simulator, prefix):
    one, other = make(), make()
    hold(simulator, prefix, "shard", "latest")
    (other / "shard").write_bytes(SMALL)
    (other / "latest").write_bytes(b"old")
    kill(one)
    kill(other)
    simulator.clear_faults()
    hold(simulator, prefix, "shard")
    made = make("--retry-for", "1s")
    (made / "first").write_bytes(SMALL)
    # The other place has been tried for long enough.
    wait_until(lambda: "first" in files(simulator, prefix), "this mount to send its own")
    (made / "latest").write_bytes(b"new")
    begun = simulator.counters()["operations"]["PutObject"]["requests"]
    wait_until(lambda: simulator.counters()["operations"]["PutObject"]["requests"] > begun, "another try")
    assert "latest" not in files(simulator, prefix)
    simulator.clear_faults()
    assert wait(made.path).returncode == 0
    assert simulator.content(f"{prefix}latest") == b"new"


def test_a_full_disk_fails_the_file_and_no_other(mount, small_disk, simulator, prefix):
    made = mount("--ack", "disk", "--cache-dir", str(small_disk / "cache"), "--cache-size", "1M")
    (made / "small").write_bytes(SMALL)
    with pytest.raises(OSError) as failed:
        (made / "shard").write_bytes(SHARD * 4)
    assert failed.value.errno in (errno.ENOSPC, errno.EIO)
    wait_until(lambda: not (made / "shard").exists(), "the file that failed to be gone")
    (made / "after").write_bytes(SMALL)
    assert wait(made.path).returncode == 0
    assert files(simulator, prefix) == ["after", "small"]


def test_what_is_only_to_be_kept_gives_way_to_the_next_save(mount, small_disk, simulator, prefix):
    made = mount("--ack", "disk", "--cache-dir", str(small_disk / "cache"), "--cache-size", "1M", "--ack-limit", "64M",
                 "--compress", "none")
    for step in range(5):
        # Of three, two are on the disk: nothing is kept while files are being saved.
        (made / f"step-{step}").write_bytes(SHARD)
        assert wait(made.path).returncode == 0
    assert files(simulator, prefix) == [f"step-{step}" for step in range(5)]


def test_more_files_than_a_shell_allows_to_be_open(make, simulator, prefix):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        made = make("--compress", "none")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    content = random.Random(3).randbytes(300_000)
    # Without a pause in which one of them could be kept.
    for number in range(400):
        (made / str(number)).write_bytes(content)
    assert wait(made.path).returncode == 0
    assert len(files(simulator, prefix)) == 400


@pytest.fixture
def small_disk(tmp_path):
    place = tmp_path / "small"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=48M,mode=0700", "none", place], check=True)
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)
