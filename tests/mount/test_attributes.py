# SPDX-License-Identifier: Apache-2.0
"""Extended attributes of files: what ckptfs tells of their objects."""

import errno
import os
import shutil
import subprocess

import pytest
from harness.programs import wait_until
from harness.simulator import BUCKET

pytestmark = pytest.mark.sanitized

MIB = 1 << 20
NAMES = {"user.ckptfs.codec", "user.ckptfs.stored_size", "user.ckptfs.etag"}
FORMATS = {"none": "plain", "zstd": "zstd-1", "auto": "planes-1"}


def attributes(path) -> dict[str, str]:
    return {name: os.getxattr(path, name).decode() for name in os.listxattr(path)}


def refused(what: int, call, *arguments) -> None:
    with pytest.raises(OSError) as failed:
        call(*arguments)
    assert failed.value.errno == what


@pytest.mark.parametrize("compress", FORMATS)
def test_they_say_how_a_file_is_stored(mount, simulator, prefix, compress):
    made = mount("--compress", compress)
    for size in (0, 10, 3 * MIB):
        (made / "file").write_bytes(b"text" * (size // 4) + b"t" * (size % 4))
        head = simulator.client().head_object(Bucket=BUCKET, Key=prefix + "file")
        expected = {"user.ckptfs.codec": FORMATS[compress] if size >= MIB else "plain",
                    "user.ckptfs.stored_size": str(head["ContentLength"]), "user.ckptfs.etag": head["ETag"]}
        assert attributes(made / "file") == expected, "right after writing"
        assert attributes(mount() / "file") == expected, "on a mount that has only looked it up"
    with open(made / "file", "ab") as file:
        file.write(b"more")
        os.fsync(file.fileno())
        head = simulator.client().head_object(Bucket=BUCKET, Key=prefix + "file")
        assert attributes(made / "file")["user.ckptfs.etag"] == head["ETag"], "of what fsync has committed"


def test_there_are_none_before_a_commit(mount):
    made = mount()
    (made / "dir").mkdir()
    with open(made / "new", "wb") as file:
        file.write(b"content")
        file.flush()
        for name in ("dir", "new", "."):
            assert os.listxattr(made / name) == []
            for attribute in NAMES:
                refused(errno.ENODATA, os.getxattr, made / name, attribute)


def test_none_can_be_set(mount):
    made = mount()
    (made / "file").write_bytes(b"content")
    for name in ("user.ckptfs.codec", "user.other", "trusted.other"):
        refused(errno.EOPNOTSUPP, os.setxattr, made / "file", name, b"value")
        refused(errno.EOPNOTSUPP, os.removexattr, made / "file", name)
    for name in ("user.ckptfs.other", "user.other", "security.capability"):
        refused(errno.ENODATA, os.getxattr, made / "file", name)
    assert set(os.listxattr(made / "file")) == NAMES, "asking for others changes nothing"


def test_programs_that_copy_attributes_succeed(mount, tmp_path):
    made = mount()
    (made / "file").write_bytes(b"content")
    shutil.copy2(made / "file", made / "copied")
    shutil.copy2(made / "file", tmp_path / "copied")
    subprocess.run(["cp", "-a", made / "file", made / "archived"], check=True)
    subprocess.run(["cp", "-a", made / "file", tmp_path / "archived"], check=True)
    for path in (made / "copied", made / "archived", tmp_path / "copied", tmp_path / "archived"):
        assert path.read_bytes() == b"content"


def test_they_cost_no_requests(mount, simulator):
    made = mount("--compress", "none")
    (made / "file").write_bytes(bytes(MIB))
    # A request is counted once its answer has been sent.
    wait_until(lambda: "PutObject" in simulator.counters()["operations"], "the save to be counted")
    simulator.reset_counters()
    attributes(made / "file")
    refused(errno.ENODATA, os.getxattr, made / "file", "security.capability")
    assert simulator.counters()["operations"] == {}
