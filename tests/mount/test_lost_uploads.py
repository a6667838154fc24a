# SPDX-License-Identifier: Apache-2.0
"""An upload whose UploadId never arrived: the answer to CreateMultipartUpload was lost, or its mount was killed."""

import os
import signal
import threading
import time

import pytest

from harness.markers import commit
from harness.programs import wait_until
from harness.simulator import BUCKET

MIB = 1 << 20
# In each of them the store has begun the upload.
LOST = [
    pytest.param({"action": "performed-but-reply-lost"}, id="reset"),
    pytest.param({"action": "performed-but-500"}, id="500"),
    pytest.param({"action": "truncate", "bytes": 100}, id="cut"),
]


def lose(simulator, key: str, fault: dict, times: int = 3) -> None:
    simulator.inject({"op": "CreateMultipartUpload", "key": key, "times": times, **fault})


def until_none_is_left(simulator, prefix: str, seconds: float = 30) -> None:
    wait_until(lambda: simulator.open_uploads(prefix) == [], "the uploads to be ended", seconds)


@pytest.mark.parametrize("fault", LOST)
def test_an_upload_whose_answer_was_lost_is_ended(mount, simulator, prefix, fault):
    made, data = mount(), os.urandom(40 * MIB)
    lose(simulator, prefix + "model.pt", fault)
    (made / "model.pt").write_bytes(data)
    assert simulator.fault_hits() == 3
    assert (made / "model.pt").read_bytes() == data
    until_none_is_left(simulator, prefix)
    wait_until(lambda: "aborted 3 uploads" in made.log(), "the log to say so")
    assert made.unmount() == 0


def test_it_is_ended_before_the_mount(mount, simulator, prefix):
    made, committing = mount(), mount()
    (made / "step").mkdir()
    lose(simulator, prefix + "step/shard.tmp", {"action": "performed-but-reply-lost"})
    (made / "step/shard.tmp").write_bytes(os.urandom(40 * MIB))
    (made / "step/shard.tmp").rename(made / "step/shard")
    assert made.unmount() == 0
    assert simulator.open_uploads(prefix) == []
    commit(committing / "step")


@pytest.mark.parametrize("operation", ["AbortMultipartUpload", "ListMultipartUploads"])
def test_one_that_a_mount_could_not_end_before_it_ended_holds_no_marker_back(mount, simulator, prefix, operation):
    saving, committing = mount(), mount()
    (saving / "step").mkdir()
    lose(simulator, prefix + "step/shard", {"action": "performed-but-reply-lost"})
    (saving / "step/shard").write_bytes(os.urandom(40 * MIB))
    simulator.inject({"op": operation, "action": "access-denied"})
    assert saving.unmount() == 0
    simulator.clear_faults()
    assert simulator.open_uploads(prefix) == [prefix + "step/shard"] * 3
    begun = time.monotonic()
    commit(committing / "step")
    assert time.monotonic() - begun < 5, "what is not in the way is not waited for"


def test_one_of_a_killed_mount_is_ended_by_the_next(mount, simulator, prefix, tmp_path):
    journals = {"CKPTFS_STATE_DIR": str(tmp_path)}
    first = mount(environment=journals)
    # It has begun, and its answer does not get through.
    simulator.inject({"op": "CreateMultipartUpload", "key": prefix + "model.pt", "action": "hang", "bytes": 10})

    def write() -> None:
        try:
            (first / "model.pt").write_bytes(os.urandom(40 * MIB))
        except OSError:
            pass

    writer = threading.Thread(target=write)
    try:
        writer.start()
        wait_until(lambda: simulator.open_uploads(prefix) != [], "the upload to begin")
        # A key that is in no journal.
        of_another = simulator.client().create_multipart_upload(Bucket=BUCKET, Key=prefix + "other.pt")
        first.process.send_signal(signal.SIGKILL)
        first.process.wait()
        writer.join()
        simulator.clear_faults()
        mount(environment=journals, at=first.path)
        wait_until(lambda: simulator.open_uploads(prefix) == [of_another["Key"]], "the upload to be ended", 30)
    finally:
        simulator.clear_faults()


def test_an_upload_of_another_mount_under_the_same_name_is_saved(mount, simulator, prefix):
    """It looks the same for as long as its first part is on the way."""
    ours, others = mount("--part-size", "8M"), mount("--part-size", "16M")
    data = os.urandom(40 * MIB)
    simulator.inject({"op": "UploadPart", "key": prefix + "model.pt", "action": "hang", "bytes": 1000})
    failed = []

    def write() -> None:
        try:
            (others / "model.pt").write_bytes(data)
        except OSError as problem:
            failed.append(problem)

    writer = threading.Thread(target=write)
    writer.start()
    wait_until(lambda: simulator.fault_hits() > 0, "its first part to be on the way")
    # An answer is lost, and the next attempt refused: nothing of ours is on the way.
    simulator.inject({"op": "CreateMultipartUpload", "key": prefix + "model.pt", "nth": 2, "action": "403"})
    lose(simulator, prefix + "model.pt", {"action": "performed-but-reply-lost"}, times=1)
    with pytest.raises(OSError):
        (ours / "model.pt").write_bytes(os.urandom(40 * MIB))
    until_none_is_left(simulator, prefix)
    simulator.clear_faults()
    writer.join()
    assert not failed
    assert "starting a new one" in others.log()
    assert (others / "model.pt").read_bytes() == data


@pytest.mark.parametrize("name", ["shard", "shard.tmp"])
def test_it_does_not_hold_a_marker_back(mount, simulator, prefix, name):
    saving, committing = mount(), mount()
    (saving / "step").mkdir()
    lose(simulator, prefix + "step/" + name, {"action": "performed-but-reply-lost"})
    (saving / "step" / name).write_bytes(os.urandom(40 * MIB))
    if name != "shard":
        (saving / "step" / name).rename(saving / "step/shard")
    (committing / "step/.metadata").write_bytes(b"whole")
    assert prefix + "step/.metadata" in simulator.keys(prefix)
