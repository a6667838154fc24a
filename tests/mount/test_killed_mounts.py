# SPDX-License-Identifier: Apache-2.0
"""A daemon is killed while files are being written, and the next mount ends what it left in the bucket: no marker is
committed over the hole, on whatever mount."""

import os
import pathlib
import subprocess
import sys

import pytest

from harness.markers import commit, refuse_to_commit
from harness.programs import wait_until

MIB = 1 << 20
IN_ORDER = "import os, sys; file = open(sys.argv[1], 'wb', 0); [file.write(os.urandom(1 << 20)) for _ in range(40)]"
# A change of what was sent makes it an object under a hidden key.
OUT_OF_ORDER = ("import os, sys; file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)\n"
                "for _ in range(40): os.write(file, os.urandom(1 << 20))\n"
                "os.pwrite(file, b'changed', 20 << 20); print(flush=True); input()")


class Killed:
    """`shard` is being written on one mount while that is killed; `other` commits."""

    def __init__(self, mount, simulator, prefix: str, journals: pathlib.Path, *options: str) -> None:
        self.simulator, self.prefix = simulator, prefix
        self.again = lambda: mount(*options, environment={"CKPTFS_STATE_DIR": str(journals)}, at=self.ours.path)
        self.ours = mount(*options, environment={"CKPTFS_STATE_DIR": str(journals)})
        self.other = mount()
        (self.other / "step").mkdir()
        self.key = prefix + "step/shard"

    def kill_while(self, program: str, is_on_its_way) -> None:
        writer = subprocess.Popen([sys.executable, "-c", program, self.ours / "step/shard"], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        try:
            wait_until(is_on_its_way, "the upload to be on its way", 60)
            self.ours.process.kill()
            self.ours.process.wait()
        finally:
            writer.kill()
            writer.wait()
        self.simulator.clear_faults()

    def kill_in_upload(self) -> None:
        self.simulator.inject({"op": "UploadPart", "key": self.key, "after": 1, "action": "hang"})
        self.kill_while(IN_ORDER, lambda: self.simulator.uploaded_parts(self.prefix))

    def is_ended(self) -> bool:
        return self.simulator.open_uploads(self.prefix) == [] and self.simulator.keys(f"{self.prefix}.ckptfs/tmp/") == []


@pytest.fixture
def killed(mount, simulator, prefix, tmp_path):
    return Killed(mount, simulator, prefix, tmp_path)


def test_a_file_whose_upload_is_ended_holds_the_marker_back(killed):
    killed.kill_in_upload()
    refuse_to_commit(killed.other / "step")
    ours = killed.again()
    wait_until(killed.is_ended, "the upload to be ended")
    assert killed.simulator.failed_files(killed.prefix) == ["step/shard"]
    refuse_to_commit(killed.other / "step")
    refuse_to_commit(ours / "step")
    (ours / "step/shard").write_bytes(b"whole")
    commit(killed.other / "step")


@pytest.mark.parametrize("is_by_disk", [False, True], ids=["store", "disk"])
def test_a_file_that_was_written_out_of_order_counts_too(mount, simulator, prefix, tmp_path, is_by_disk):
    options = ["--ack", "disk", "--cache-dir", str(tmp_path / "disk")] if is_by_disk else []
    killed = Killed(mount, simulator, prefix, tmp_path / "journals", *options)
    killed.kill_while(OUT_OF_ORDER, lambda: killed.simulator.keys(f"{killed.prefix}.ckptfs/tmp/"))
    killed.again()
    wait_until(killed.is_ended, "the hidden object to be removed")
    refuse_to_commit(killed.other / "step")
    (killed.other / "step/shard").write_bytes(b"whole")
    commit(killed.other / "step")


def test_an_upload_that_was_begun_without_an_answer_counts_too(killed):
    # It has begun, and its answer does not get through.
    killed.simulator.inject({"op": "CreateMultipartUpload", "key": killed.key, "action": "hang", "bytes": 10})
    killed.kill_while(IN_ORDER, lambda: killed.simulator.open_uploads(killed.prefix))
    killed.again()
    wait_until(killed.is_ended, "the upload to be ended", 30)
    refuse_to_commit(killed.other / "step")


def test_a_file_that_was_written_again_before_holds_nothing_back(killed):
    killed.kill_in_upload()
    (killed.other / "step/shard").write_bytes(b"whole")
    killed.again()
    wait_until(killed.is_ended, "the upload to be ended")
    assert killed.simulator.failed_files(killed.prefix) == []
    commit(killed.other / "step")


def test_an_upload_stays_until_its_file_is_recorded(killed):
    killed.kill_in_upload()
    killed.simulator.inject({"op": "PutObject", "key": f"{killed.prefix}.ckptfs/failed/step/shard", "action": "403"})
    ours = killed.again()
    wait_until(lambda: "the rest will be cleaned up by the next mount here" in ours.log(), "the record to be refused")
    assert killed.simulator.open_uploads(killed.prefix) == [killed.key]
    refuse_to_commit(killed.other / "step")
    killed.simulator.clear_faults()
    ours.process.kill()
    ours.process.wait()
    killed.again()
    wait_until(killed.is_ended, "the upload to be ended")
    refuse_to_commit(killed.other / "step")


def test_an_upload_without_an_answer_stays_until_its_file_is_recorded(killed):
    killed.simulator.inject({"op": "CreateMultipartUpload", "key": killed.key, "action": "hang", "bytes": 10})
    killed.kill_while(IN_ORDER, lambda: killed.simulator.open_uploads(killed.prefix))
    killed.simulator.inject({"op": "PutObject", "key": f"{killed.prefix}.ckptfs/failed/step/shard", "action": "403"})
    ours = killed.again()
    wait_until(lambda: "stay until other mounts can be told" in ours.log(), "the record to be refused")
    assert killed.simulator.open_uploads(killed.prefix) == [killed.key]
    refuse_to_commit(killed.other / "step")
    killed.simulator.clear_faults()
    ours.process.kill()
    ours.process.wait()
    killed.again()
    wait_until(killed.is_ended, "the upload to be ended", 30)
    refuse_to_commit(killed.other / "step")


def kill_while_writing(killed, name: str) -> None:
    killed.key = f"{killed.prefix}step/{name}"
    killed.simulator.inject({"op": "UploadPart", "key": killed.key, "after": 1, "action": "hang"})
    killed.kill_while(IN_ORDER.replace("sys.argv[1]", f"sys.argv[1].replace('shard', '{name}')"),
                      lambda: killed.simulator.uploaded_parts(killed.prefix))
    killed.again()
    wait_until(killed.is_ended, "the upload to be ended")


def test_a_log_of_a_killed_mount_is_no_failure(killed):
    """Its loss makes no checkpoint wrong."""
    kill_while_writing(killed, "train.log")
    assert os.listdir(killed.other / "step") == []
    assert killed.simulator.failed_files(killed.prefix) == []
    commit(killed.other / "step")


@pytest.mark.parametrize("name", ["latest", "latest_checkpointed_iteration.txt"])
def test_a_pointer_file_of_a_killed_mount_is_a_failure(killed, name):
    kill_while_writing(killed, name)
    assert killed.simulator.failed_files(killed.prefix) == [f"step/{name}"]
    refuse_to_commit(killed.other / "step")
    (killed.other / "step" / name).write_bytes(b"step")
    commit(killed.other / "step")


def test_where_uploads_cannot_be_listed_they_are_ended_all_the_same(killed):
    """There they hold no marker back, so that nothing has to be recorded first."""
    killed.kill_in_upload()
    killed.simulator.inject({"op": "ListMultipartUploads", "action": "403"})
    ours = killed.again()
    wait_until(lambda: "ended 1 of 1 upload or hidden file" in ours.log(), "the upload to be ended")
    killed.simulator.clear_faults()
    assert killed.is_ended()


def test_the_next_file_with_a_temporary_name_makes_good_for_one_that_was_cut_off(killed):
    """The job that starts again chooses another one."""
    killed.key = killed.prefix + "step/shard.a.tmp"
    killed.simulator.inject({"op": "UploadPart", "key": killed.key, "after": 1, "action": "hang"})
    killed.kill_while(IN_ORDER.replace("sys.argv[1]", "sys.argv[1] + '.a.tmp'"),
                      lambda: killed.simulator.uploaded_parts(killed.prefix))
    ours = killed.again()
    wait_until(killed.is_ended, "the upload to be ended")
    refuse_to_commit(ours / "step")
    (ours / "step/shard.b.tmp").write_bytes(b"whole")
    (ours / "step/shard.b.tmp").rename(ours / "step/shard")
    commit(killed.other / "step")
