# SPDX-License-Identifier: Apache-2.0
"""Failures of the store reach the writer, and leave nothing visible and nothing behind."""

import errno
import os
import subprocess
import time

import pytest
import torch
from harness.programs import wait_until
from safetensors.torch import save_file

MIB = 1 << 20


def state() -> dict[str, torch.Tensor]:
    return {"weight": torch.rand(40 * MIB // 4)}


def test_torch_save_raises_when_no_part_can_be_uploaded(mount, simulator, prefix):
    simulator.inject({"op": "UploadPart", "key": prefix + "*", "action": "403"})
    made = mount()
    with pytest.raises(Exception):
        torch.save(state(), made / "model.pt")
    assert simulator.keys(prefix) == []
    wait_until(lambda: simulator.open_uploads(prefix) == [], "the upload to be ended")
    assert not (made / "model.pt").exists()


def test_safetensors_raises_when_no_part_can_be_uploaded(mount, simulator, prefix):
    simulator.inject({"op": "UploadPart", "key": prefix + "*", "action": "403"})
    with pytest.raises(Exception):
        save_file(state(), mount() / "model.safetensors")
    assert simulator.keys(prefix) == []
    wait_until(lambda: simulator.open_uploads(prefix) == [], "the upload to be ended")


def test_the_first_failure_is_kept_for_every_later_call(mount, simulator, prefix):
    simulator.inject({"op": "UploadPart", "key": prefix + "*", "action": "403"})
    made = mount()
    descriptor = os.open(made / "file", os.O_WRONLY | os.O_CREAT)
    with pytest.raises(OSError) as first:
        for _ in range(200):
            os.write(descriptor, os.urandom(MIB))
    simulator.clear_faults()
    for call in (lambda: os.write(descriptor, b"x"), lambda: os.pwrite(descriptor, b"x", 0),
                 lambda: os.fsync(descriptor), lambda: os.rename(made / "file", made / "other"),
                 lambda: os.close(descriptor)):
        with pytest.raises(OSError) as later:
            call()
        assert later.value.errno == first.value.errno
    assert simulator.keys(prefix) == []
    wait_until(lambda: simulator.open_uploads(prefix) == [], "the upload to be ended")


def test_a_failure_is_kept_after_the_same_process_has_written_the_file_anew(mount, simulator, prefix):
    simulator.inject({"op": "PutObject", "key": prefix + "file", "action": "403"})
    made = mount()
    descriptor = os.open(made / "file", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.write(descriptor, b"lost")
    with pytest.raises(OSError) as first:
        os.fsync(descriptor)
    simulator.clear_faults()
    (made / "file").write_bytes(b"anew")
    for call in (os.fsync, os.close):
        with pytest.raises(OSError) as later:
            call(descriptor)
        assert later.value.errno == first.value.errno
    assert (made / "file").read_bytes() == simulator.content(prefix + "file") == b"anew"


@pytest.mark.parametrize("mode", ["wb", "w+b"])
@pytest.mark.parametrize("operation, mebibytes", [("UploadPart", 40), ("CompleteMultipartUpload", 40), ("PutObject", 2)])
def test_what_the_store_refuses_is_an_io_error(mount, simulator, prefix, operation, mebibytes, mode):
    made = mount()
    simulator.inject(*({"op": operation, "key": prefix + name, "action": "403"} for name in ("file", ".ckptfs/tmp/*")))
    with pytest.raises(OSError) as refused:
        with open(made / "file", mode, buffering=0) as file:
            if mode == "w+b":
                file.seek(mebibytes * MIB)
                file.write(b"end")
                file.seek(0)
            for _ in range(mebibytes):
                file.write(os.urandom(MIB))
    assert refused.value.errno == errno.EIO
    assert simulator.keys(prefix) == []


@pytest.mark.parametrize("operation, mebibytes", [("CompleteMultipartUpload", 40), ("PutObject", 2)])
def test_a_commit_whose_reply_was_lost_is_a_success(mount, simulator, prefix, operation, mebibytes):
    simulator.inject({"op": operation, "key": prefix + "*", "times": 1, "action": "performed-but-reply-lost"})
    content = os.urandom(mebibytes * MIB)
    (mount() / "file").write_bytes(content)
    assert simulator.content(prefix + "file") == content
    assert simulator.open_uploads(prefix) == []


@pytest.mark.parametrize("action", ["500", "503", "reset", "corrupt", "truncate", "slowdown"])
def test_passing_faults_are_outlived(mount, simulator, prefix, action):
    # Bytes that were damaged twice on their way are no passing fault: they are sent again once only.
    often = {"times": 1} if action == "corrupt" else {"every": 5}
    simulator.inject({"op": "*" if action != "corrupt" else "UploadPart", "key": prefix + "*", "action": action, **often})
    content = os.urandom(100 * MIB)
    (mount() / "file").write_bytes(content)
    assert (mount() / "file").read_bytes() == content
    simulator.clear_faults()
    assert simulator.content(prefix + "file") == content
    assert simulator.uploaded_parts(prefix) == [], "an upload whose Create was answered to nobody stays, but empty"


def test_a_write_out_of_order_fails_and_says_so(mount, simulator, prefix):
    made = mount()
    descriptor = os.open(made / "file", os.O_WRONLY | os.O_CREAT)
    for _ in range(64):
        os.write(descriptor, os.urandom(MIB))
    with pytest.raises(OSError) as refused:
        os.pwrite(descriptor, b"x" * 4096, 30 * MIB)
    assert refused.value.errno == errno.EOPNOTSUPP
    with pytest.raises(OSError) as closed:
        os.close(descriptor)
    assert closed.value.errno == errno.EOPNOTSUPP
    assert simulator.keys(prefix) == []
    wait_until(lambda: simulator.open_uploads(prefix) == [], "the upload to be ended")
    lines = [line for line in made.log().splitlines() if prefix + "file" in line]
    assert len(lines) == 1, lines
    assert str(30 * MIB) in lines[0] and str(64 * MIB) in lines[0]
    assert "--stage GLOB" in lines[0] and "stage=GLOB" in lines[0]


def test_moving_a_file_that_may_not_be_deleted_names_key_and_right(mount, simulator, prefix):
    made = mount()
    (made / "old").write_bytes(b"content")
    simulator.inject({"op": "DeleteObject", "key": prefix + "*", "action": "access-denied"})
    moved = subprocess.run(["mv", made / "old", made / "new"], capture_output=True, text=True)
    assert moved.returncode == 1
    assert "Permission denied" in moved.stderr and "same file" not in moved.stderr, moved.stderr
    assert f"{prefix}old was copied to {prefix}new but cannot be deleted" in made.log()
    assert "(s3:DeleteObject)" in made.log()
    assert (made / "old").read_bytes() == (made / "new").read_bytes() == b"content"
    simulator.clear_faults()
    (made / "old").rename(made / "new")
    assert simulator.keys(prefix) == [prefix + "new"]


def test_the_end_of_an_outage_is_told_of(mount, simulator, prefix):
    simulator.inject({"op": "PutObject", "key": prefix + "file", "action": "500"})
    made = mount()
    writer = subprocess.Popen(["dd", "if=/dev/zero", f"of={made / 'file'}", "bs=1000", "count=1", "status=none"])
    wait_until(lambda: "retrying for up to" in made.log(), "the failures to be told of")
    assert "answers again" not in made.log()
    simulator.clear_faults()
    assert writer.wait(60) == 0
    wait_until(lambda: "the store answers again" in made.log(), "the end to be told of")
    (made / "other").write_bytes(b"more")
    assert made.log().count("answers again") == 1


@pytest.mark.parametrize("compress", ["none", "auto"])
@pytest.mark.parametrize("call", ["append", "read"])
def test_an_outage_is_waited_for_once(mount, simulator, prefix, compress, call):
    """What cannot be read is not taken for damaged, and read again."""
    writer = mount("--compress", compress)
    (writer / "file").write_bytes(os.urandom(3 * MIB))
    made = mount("--compress", compress, "--retry-for", "3s")
    simulator.inject({"op": "GetObject", "key": prefix + "file", "action": "500"})
    started = time.monotonic()
    with pytest.raises(OSError) as raised:
        if call == "read":
            (made / "file").read_bytes()
        else:
            with open(made / "file", "ab", buffering=0) as file:
                file.write(b"x")
                os.fsync(file.fileno())
    assert raised.value.errno == errno.EIO
    assert time.monotonic() - started < 5
