# SPDX-License-Identifier: Apache-2.0
"""A commit marker does not appear over a file that failed, on whatever mount; and no false alarm holds it back."""

import errno
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import threading

import pytest
from harness.markers import commit, refuse_to_commit
from harness.programs import errno_of, wait_until
from harness.simulator import BUCKET

MIB = 1 << 20
# More than one part, so that its upload can be made to fail.
LARGE = 12 * MIB


def write_large(path: pathlib.Path, mebibytes: int = LARGE // MIB) -> None:
    with open(path, "wb", buffering=0) as file:
        for _ in range(mebibytes):
            file.write(os.urandom(MIB))


def fail_to_write(simulator, key: str, path: pathlib.Path) -> None:
    """Leaves the store as it was."""
    simulator.inject({"op": "UploadPart", "key": key, "action": "403"})
    with pytest.raises(OSError):
        write_large(path, 200)
    simulator.clear_faults()


@pytest.fixture
def step(mount, simulator, prefix):
    """A checkpoint directory of one mount, in which one file failed."""
    directory = mount() / "step"
    directory.mkdir()
    write_large(directory / "good.bin")
    fail_to_write(simulator, prefix + "step/bad.bin", directory / "bad.bin")
    assert simulator.failed_files(prefix) == ["step/bad.bin"], "the record is there before the writer hears of it"
    return directory


@pytest.mark.parametrize("offset", [-7200, 7200, 300])
def test_a_failure_counts_whatever_this_machines_clock_says(mount, simulator, prefix, offset):
    """The store has its own time, by which it dates what it holds."""
    simulator.set_model(clock_offset_s=offset)
    try:
        directory = mount() / "step"
        directory.mkdir()
        fail_to_write(simulator, prefix + "step/bad.bin", directory / "bad.bin")
        refuse_to_commit(directory)
        other = mount() / "step"
        refuse_to_commit(other)
        (other / "bad.bin").write_bytes(b"good")
        commit(other)
    finally:
        simulator.set_model(clock_offset_s=0)


def test_a_failed_file_holds_the_marker_back_until_it_is_written_again(request, step, simulator, prefix):
    refuse_to_commit(step)
    log = request.node.mounts[0].log()
    lines = [line for line in log.splitlines() if "step/.metadata is not committed" in line]
    assert len(lines) == 1, log
    assert "step/bad.bin" in lines[0] and socket.gethostname() in lines[0] and "write that file again" in lines[0]
    write_large(step / "bad.bin")
    wait_until(lambda: simulator.failed_files(prefix) == [], "the record to go")
    commit(step)
    assert (step / ".metadata").exists()


def test_a_failed_file_on_another_mount_holds_the_marker_back(mount, step, simulator, prefix):
    other = mount()
    refuse_to_commit(other / "step")
    assert prefix + "step/.metadata" not in simulator.keys(prefix)
    assert "step/bad.bin" in other.log() and socket.gethostname() in other.log()
    # By a third, which knows of nothing.
    write_large(mount() / "step" / "bad.bin")
    commit(other / "step")
    assert simulator.content(prefix + "step/.metadata") == b"what makes it a checkpoint"


def test_a_failed_overwrite_holds_the_marker_back_although_the_old_file_is_there(mount, simulator, prefix):
    directory = mount() / "step"
    directory.mkdir()
    write_large(directory / "shard")
    fail_to_write(simulator, prefix + "step/shard", directory / "shard")
    refuse_to_commit(directory)
    refuse_to_commit(mount() / "step")
    write_large(directory / "shard")
    commit(directory)


def test_other_directories_and_other_names_are_not_held_back(mount, step):
    os.rename(step / "good.bin", step / "renamed.bin")
    (step.parent / "next").mkdir()
    commit(step.parent / "next")
    # The record of a directory is not that of one whose name begins alike.
    (step.parent / "st").mkdir()
    commit(step.parent / "st")


def test_a_failed_file_below_a_subdirectory_counts(mount, simulator, prefix):
    made = mount()
    (made / "snapshot/0").mkdir(parents=True)
    fail_to_write(simulator, prefix + "snapshot/0/weight", made / "snapshot/0/weight")
    refuse_to_commit(made / "snapshot", ".snapshot_metadata")


def test_removing_the_directory_clears_it(step, simulator, prefix):
    shutil.rmtree(step)
    step.mkdir()
    commit(step)
    assert simulator.failed_files(prefix) == []


def test_removing_a_failed_file_while_it_is_open_clears_it(mount, simulator, prefix):
    directory = mount() / "step"
    directory.mkdir()
    simulator.inject({"op": "UploadPart", "key": prefix + "step/bad.bin", "action": "403"})
    with pytest.raises(OSError):
        with open(directory / "bad.bin", "wb", buffering=0) as file:
            try:
                for _ in range(200):
                    file.write(os.urandom(MIB))
            except OSError:
                os.unlink(directory / "bad.bin")
                raise
    commit(directory)
    assert simulator.failed_files(prefix) == []


def test_a_record_is_forgotten_after_its_time(mount, simulator, prefix):
    # It runs while the failure is told, and a commit is tried.
    made = mount("--failed-sibling-ttl", "10s")
    (made / "step").mkdir()
    fail_to_write(simulator, prefix + "step/bad.bin", made / "step/bad.bin")
    refuse_to_commit(made / "step")

    def committed() -> bool:
        try:
            commit(made / "step")
        except OSError:
            return False
        return True
    wait_until(committed, "the record to be forgotten")


def test_a_temporary_file_that_failed_and_was_written_again_under_another_name(mount, simulator, prefix):
    directory = mount() / "step"
    directory.mkdir()
    # Nobody removes it.
    fail_to_write(simulator, prefix + "step/.tmpA1b2C3", directory / ".tmpA1b2C3")
    refuse_to_commit(directory)
    write_large(directory / ".tmpD4e5F6")
    os.rename(directory / ".tmpD4e5F6", directory / "model.bin")
    commit(directory)
    assert simulator.failed_files(prefix) == []


def test_a_failed_file_can_be_unlinked_although_nothing_is_there(mount, simulator, prefix):
    directory = mount() / "step"
    directory.mkdir()
    fail_to_write(simulator, prefix + "step/.tmpA1b2C3", directory / ".tmpA1b2C3")
    os.unlink(directory / ".tmpA1b2C3")
    assert simulator.failed_files(prefix) == []
    write_large(directory / ".tmpD4e5F6")
    os.rename(directory / ".tmpD4e5F6", directory / "model.bin")
    commit(directory)
    with pytest.raises(FileNotFoundError):
        os.unlink(directory / ".tmpA1b2C3")


def test_a_failed_file_is_otherwise_not_there(mount, simulator, prefix):
    made = mount()
    for look in (lambda path: path.stat(), lambda path: path.open("rb"), lambda path: os.truncate(path, 0)):
        fail_to_write(simulator, prefix + "bad.bin", made / "bad.bin")
        assert os.listdir(made.path) == []
        # The kernel tells of the last close after close().
        wait_until(lambda: errno_of(look, made / "bad.bin") == errno.ENOENT, "the name to lead nowhere")
        with pytest.raises(FileNotFoundError):
            os.unlink(made / "bad.bin")
        (made / "bad.bin").write_bytes(b"written again")
        os.unlink(made / "bad.bin")
    assert simulator.failed_files(prefix) == []
    fail_to_write(simulator, prefix + "bad.bin", made / "bad.bin")
    with open(made / "bad.bin", "wb") as file:
        file.write(b"written again")
    assert simulator.content(prefix + "bad.bin") == b"written again"


def test_a_failed_file_exists_to_an_exclusive_open_until_it_is_looked_at(mount, simulator, prefix):
    made = mount()
    fail_to_write(simulator, prefix + "bad.bin", made / "bad.bin")
    with pytest.raises(FileExistsError):
        os.open(made / "bad.bin", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    wait_until(lambda: errno_of(os.stat, made / "bad.bin") == errno.ENOENT, "the name to lead nowhere")
    with open(made / "bad.bin", "xb") as file:
        file.write(b"written again")
    assert simulator.content(prefix + "bad.bin") == b"written again"


def test_a_failed_rename_tells_what_the_file_was_to_be(mount, simulator, prefix):
    directory = mount() / "step"
    directory.mkdir()
    simulator.inject({"op": "UploadPart", "key": prefix + "step/part-a", "action": "403"})
    descriptor = os.open(directory / "part-a", os.O_WRONLY | os.O_CREAT)
    with pytest.raises(OSError):
        for _ in range(200):
            os.write(descriptor, os.urandom(MIB))
    simulator.clear_faults()
    with pytest.raises(OSError):
        os.rename(directory / "part-a", directory / "model.bin")
    with pytest.raises(OSError):
        os.close(descriptor)
    refuse_to_commit(directory)
    write_large(directory / "part-b")
    os.rename(directory / "part-b", directory / "model.bin")
    commit(directory)


def test_a_failed_rename_over_an_earlier_file_holds_the_marker_back(mount, simulator, prefix):
    """The earlier file is whole, and is not what the checkpoint was to hold."""
    made, other = mount(), mount()
    (made / "step").mkdir()
    (made / "step/model").write_bytes(b"of the checkpoint before")
    with open(made / "step/model.tmp", "wb", buffering=0) as file:
        file.write(b"next")
        simulator.inject({"op": "PutObject", "key": prefix + "step/model", "action": "403"})
        assert errno_of(os.rename, made / "step/model.tmp", made / "step/model") == errno.EIO
        simulator.clear_faults()
        assert errno_of(os.fsync, file.fileno()) == errno.EIO
        assert errno_of(file.close) == errno.EIO
    for each in (made, other):
        refuse_to_commit(each / "step")
    (made / "step/model").write_bytes(b"next")
    commit(made / "step")


def test_a_killed_writer_counts_until_its_file_is_written_again(mount, simulator, prefix):
    made = mount()
    (made / "step").mkdir()
    script = """if True:
        import os, sys
        file = open(sys.argv[1], "wb", buffering=0)
        file.write(os.urandom(1 << 20))
        print("ready", flush=True)
        sys.stdin.read()
    """
    writer = subprocess.Popen([sys.executable, "-c", script, made / "step/shard"], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, text=True)
    assert writer.stdout.readline() == "ready\n"
    writer.kill()
    writer.wait(20)
    wait_until(lambda: simulator.failed_files(prefix) == ["step/shard"], "the record")
    refuse_to_commit(mount() / "step")
    (made / "step/shard").write_bytes(b"whole")
    commit(made / "step")


def test_a_marker_that_is_written_in_place_is_held_back_too(mount, step, simulator, prefix):
    for directory in (step, mount() / "step"):
        file = open(directory / "commit_success.txt", "wb")
        file.write(b"done")
        with pytest.raises(OSError) as refused:
            file.close()
        assert refused.value.errno == errno.EIO
        descriptor = os.open(directory / ".snapshot_metadata", os.O_RDWR | os.O_CREAT)
        os.write(descriptor, b"done")
        with pytest.raises(OSError) as refused:
            os.fsync(descriptor)
        assert refused.value.errno == errno.EIO
        with pytest.raises(OSError):
            os.close(descriptor)
    assert [key for key in simulator.keys(prefix) if key.endswith(("success.txt", "metadata"))] == []
    write_large(step / "bad.bin")
    (step / "commit_success.txt").write_bytes(b"done")
    assert simulator.content(prefix + "step/commit_success.txt") == b"done"


def test_a_directory_with_a_marker_is_not_renamed_over_a_failed_file(mount, simulator, prefix):
    made = mount()
    (made / "step.tmp").mkdir()
    commit(made / "step.tmp", "commit_success.txt")
    fail_to_write(simulator, prefix + "step.tmp/shard", made / "step.tmp/shard")
    with pytest.raises(OSError) as refused:
        os.rename(made / "step.tmp", made / "step")
    assert refused.value.errno == errno.EIO
    assert not (made / "step").exists()
    write_large(made / "step.tmp/shard")
    os.rename(made / "step.tmp", made / "step")
    assert sorted(os.listdir(made / "step")) == ["commit_success.txt", "shard"]


@pytest.mark.parametrize("failed", ["before", "meanwhile"])
def test_a_marker_that_is_open_is_not_published_by_a_rename_of_its_directory(mount, simulator, prefix, failed):
    made = mount()
    (made / "new").mkdir()
    simulator.inject({"op": "PutObject", "key": prefix + "new/shard", "action": "403"})
    shard = open(made / "new/shard", "wb", buffering=0)
    shard.write(b"data")
    if failed == "before":
        assert errno_of(shard.close) == errno.EIO
    marker = open(made / "new/.metadata", "wb", buffering=0)
    marker.write(b"what makes it a checkpoint")
    assert errno_of(os.rename, made / "new", made / "step") == errno.EIO
    assert errno_of(marker.close) == errno.EIO
    errno_of(shard.close)
    assert [key for key in simulator.keys(prefix) if key.endswith(".metadata")] == []


def test_a_failed_file_goes_with_its_directory(mount, step, simulator, prefix):
    os.rename(step, step.parent / "renamed")
    refuse_to_commit(step.parent / "renamed")
    refuse_to_commit(mount() / "renamed")
    assert simulator.failed_files(prefix) == ["renamed/bad.bin"]


def test_what_another_mount_is_still_writing_holds_the_marker_back(mount, simulator, prefix):
    committing, writing = mount(), mount()
    (committing / "step").mkdir()
    with open(writing / "step/shard", "wb", buffering=0) as file:
        for _ in range(40):
            file.write(os.urandom(MIB))
        wait_until(lambda: simulator.uploaded_parts(prefix) != [], "a part to arrive")
        refuse_to_commit(committing / "step")
        assert "step/shard is being written by another mount" in committing.log()
    commit(committing / "step")


@pytest.mark.parametrize("change", [os.rename, os.link])
def test_a_large_copy_that_this_mount_makes_does_not_hold_the_marker_back(mount, simulator, prefix, change):
    step = mount("--compress", "none") / "step"
    # Of another directory than the marker's: the kernel changes the names of one directory one after the other.
    shards = step / "shards"
    shards.mkdir(parents=True)
    (shards / "large.tmp").write_bytes(os.urandom(MIB) * 70)
    # The first asks whether the store heeds the condition.
    simulator.inject({"op": "UploadPartCopy", "action": "hang", "after": 2})
    copying = threading.Thread(target=change, args=(shards / "large.tmp", shards / "large"))
    copying.start()
    try:
        wait_until(lambda: simulator.uploaded_parts(prefix) != [], "a part to be copied")
        commit(step)
        assert copying.is_alive()
    finally:
        simulator.clear_faults()
        copying.join()
    assert simulator.digest(prefix + "step/shards/large")


@pytest.mark.parametrize("stage", ["uploading", "uploaded"])
def test_what_another_mount_writes_out_of_order_holds_the_marker_back(mount, simulator, prefix, stage):
    committing, writing = mount(), mount()
    (committing / "step").mkdir()
    with open(writing / "step/shard", "x+b", buffering=0) as file:
        for _ in range(40):
            file.write(os.urandom(MIB))
        wait_until(lambda: simulator.uploaded_parts(prefix) != [], "a part to arrive")
        if stage == "uploaded":
            os.pwrite(file.fileno(), b"changed", 20 * MIB)
            assert simulator.open_uploads(prefix) == []
        assert prefix + "step/shard" not in simulator.keys(prefix)
        refuse_to_commit(committing / "step")
        assert "step/shard is being written by another mount" in committing.log()
        (committing / "elsewhere").mkdir()
        commit(committing / "elsewhere")
        # Its own mount saves it first.
        commit(writing / "step", "commit_success.txt")
    commit(committing / "step")


def test_a_file_without_a_name_holds_nothing_back(mount, simulator, prefix):
    committing, writing = mount(), mount()
    (committing / "step").mkdir()
    with tempfile.TemporaryFile(dir=writing / "step", buffering=0) as file:
        for _ in range(40):
            file.write(os.urandom(MIB))
        wait_until(lambda: simulator.uploaded_parts(prefix) != [], "a part to arrive")
        commit(committing / "step")
    wait_until(lambda: simulator.keys(prefix) == [f"{prefix}step/", f"{prefix}step/.metadata"], "it to be gone")


def test_what_is_still_open_on_the_same_mount_is_saved_first(mount, simulator, prefix):
    directory = mount() / "step"
    directory.mkdir()
    content = os.urandom(40 * MIB)
    with open(directory / "shard", "wb", buffering=0) as file, open(directory / "small", "wb", buffering=0) as small:
        for start in range(0, len(content), MIB):
            file.write(content[start:start + MIB])
        small.write(b"a few bytes")
        commit(directory)
        assert simulator.content(prefix + "step/shard") == content
        assert simulator.content(prefix + "step/small") == b"a few bytes"


def test_what_is_still_open_and_cannot_be_saved_holds_the_marker_back(mount, simulator, prefix):
    directory = mount() / "step"
    directory.mkdir()
    file = open(directory / "small", "wb", buffering=0)
    file.write(b"a few bytes")
    simulator.inject({"op": "PutObject", "key": prefix + "step/small", "action": "403"})
    refuse_to_commit(directory)
    with pytest.raises(OSError):
        file.close()


def test_an_upload_that_a_dead_mount_left_is_made_good_by_writing_the_file_again(mount, simulator, prefix):
    client = simulator.client()
    for name in ("step/shard", "step/train.log", "elsewhere/shard"):
        client.create_multipart_upload(Bucket=BUCKET, Key=prefix + name)
    directory = mount() / "step"
    directory.mkdir()
    refuse_to_commit(directory)
    (directory / "shard").write_bytes(b"whole")
    commit(directory)


def test_logs_and_locks_hold_nothing_back(mount, simulator, prefix):
    directory = mount() / "step"
    directory.mkdir()
    simulator.inject({"op": "PutObject", "key": prefix + "step/train.log", "action": "403"})
    with pytest.raises(OSError):
        (directory / "train.log").write_text("a line\n")
    assert simulator.failed_files(prefix) == []
    with open(directory / "other.log", "w") as log, open(directory / ".lock", "w"):
        log.write("a line\n")
        log.flush()
        commit(directory)
    simulator.clear_faults()


def test_a_record_that_cannot_be_written_is_kept_in_memory_and_written_later(mount, simulator, prefix):
    made = mount()
    (made / "step").mkdir()
    simulator.inject({"op": "PutObject", "key": prefix + ".ckptfs/failed/*", "action": "403"},
                     {"op": "UploadPart", "key": prefix + "step/bad.bin", "action": "403"})
    with pytest.raises(OSError):
        write_large(made / "step/bad.bin", 200)
    assert simulator.failed_files(prefix) == []
    refuse_to_commit(made / "step")
    simulator.clear_faults()
    wait_until(lambda: simulator.failed_files(prefix) == ["step/bad.bin"], "the record to be written after all")
    refuse_to_commit(mount() / "step")


def test_a_commit_costs_five_requests_more(mount, simulator, prefix):
    made = mount()
    (made / "step").mkdir()
    (made / "step/shard").write_bytes(b"whole")
    (made / "step/.metadata.tmp").write_bytes(b"metadata")
    (made / "step/other.tmp").write_bytes(b"metadata")

    def requests(old: str, new: str) -> list[str]:
        simulator.reset_counters()
        os.rename(made / "step" / old, made / "step" / new)
        return sorted(request["op"] for request in simulator.requests())

    ordinary = requests("other.tmp", "other")
    assert requests(".metadata.tmp", ".metadata") == sorted(
        [*ordinary, "ListObjectsV2", *(["ListObjectsV2", "ListMultipartUploads"] * 2)])


def test_a_store_that_does_not_list_uploads_is_asked_no_more(mount, simulator, prefix):
    simulator.inject({"op": "ListMultipartUploads", "action": "403"})
    made = mount()
    (made / "a").mkdir()
    commit(made / "a")
    asked = simulator.fault_hits()
    assert asked > 0
    (made / "b").mkdir()
    commit(made / "b")
    assert simulator.fault_hits() == asked
    assert "do not hold a commit back" in made.log()
    simulator.clear_faults()


def test_it_can_be_switched_off(mount, simulator, prefix):
    made = mount("--commit-marker", "")
    (made / "step").mkdir()
    fail_to_write(simulator, prefix + "step/bad.bin", made / "step/bad.bin")
    commit(made / "step")
