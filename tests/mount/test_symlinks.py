# SPDX-License-Identifier: Apache-2.0
"""Symbolic links: made, followed, replaced, and seen on another mount."""

import errno
import os
import subprocess

import pytest


def test_relative_absolute_and_dangling(mount, tmp_path):
    one, other = mount(), mount()
    (one / "step-1").mkdir()
    (one / "step-1" / "weights").write_bytes(b"one")
    (tmp_path / "outside").write_bytes(b"outside")
    os.symlink("step-1/weights", one / "relative")
    os.symlink("../relative", one / "step-1" / "up")
    os.symlink(tmp_path / "outside", one / "absolute")
    os.symlink("nowhere", one / "dangling")
    os.symlink("step-1", one / "latest")
    for made in (one, other):
        assert (made / "relative").read_bytes() == b"one"
        assert (made / "step-1" / "up").read_bytes() == b"one"
        assert (made / "latest" / "weights").read_bytes() == b"one"
        assert (made / "absolute").read_bytes() == b"outside"
        assert os.readlink(made / "dangling") == "nowhere"
        assert not (made / "dangling").exists()
        assert os.lstat(made / "dangling").st_size == len("nowhere")
        kinds = {entry.name: entry.is_symlink() for entry in os.scandir(made.path)}
        assert kinds == {"step-1": False, "relative": True, "absolute": True, "dangling": True, "latest": True}


def test_replaced(mount):
    one, other = mount("--metadata-ttl", "0"), mount("--metadata-ttl", "0")
    for step in ("step-1", "step-2"):
        (one / step).write_bytes(step.encode())
    subprocess.run(["ln", "-s", "step-1", one / "latest"], check=True, timeout=60)
    assert (other / "latest").read_bytes() == b"step-1"
    subprocess.run(["ln", "-sfn", "step-2", one / "latest"], check=True, timeout=60)
    assert (one / "latest").read_bytes() == (other / "latest").read_bytes() == b"step-2"
    # As Lightning does it: unlink, then symlink.
    os.unlink(one / "latest")
    assert not os.path.lexists(other / "latest")
    os.symlink("step-1", one / "latest")
    assert (other / "latest").read_bytes() == b"step-1"
    # A file takes the place of the link, and the reverse.
    (one / "new").write_bytes(b"a file")
    os.replace(one / "new", one / "latest")
    assert (other / "latest").read_bytes() == b"a file" and not os.path.islink(other / "latest")
    os.symlink("step-2", one / "link")
    os.replace(one / "link", one / "latest")
    assert os.readlink(other / "latest") == "step-2"


def test_refusals_are_those_of_a_local_disk(mount):
    made = mount()
    (made / "file").write_bytes(b"x")
    with pytest.raises(FileExistsError):
        os.symlink("a", made / "file")
    with pytest.raises(OSError) as raised:
        os.readlink(made / "file")
    assert raised.value.errno == errno.EINVAL
    os.symlink("loop", made / "loop")
    with pytest.raises(OSError) as raised:
        (made / "loop").read_bytes()
    assert raised.value.errno == errno.ELOOP
    os.symlink("file", made / "link")
    with pytest.raises(OSError) as raised:
        os.open(made / "link", os.O_RDONLY | os.O_NOFOLLOW)
    assert raised.value.errno == errno.ELOOP


def test_what_is_written_through_a_link_goes_to_its_target(mount):
    made = mount()
    os.symlink("target", made / "link")
    (made / "link").write_bytes(b"through the link")
    assert (mount() / "target").read_bytes() == b"through the link"
    os.unlink(made / "link")
    assert (made / "target").read_bytes() == b"through the link"


def test_copies_and_archives_keep_links(mount, tmp_path):
    made = mount()
    source = tmp_path / "source"
    source.mkdir()
    (source / "weights").write_bytes(b"w")
    os.symlink("weights", source / "latest")
    subprocess.run(["cp", "-a", source, made / "copy"], check=True, timeout=60)
    subprocess.run(["tar", "-cf", tmp_path / "a.tar", "-C", source, "."], check=True, timeout=60)
    (made / "tar").mkdir()
    subprocess.run(["tar", "-xf", tmp_path / "a.tar", "-C", made / "tar"], check=True, timeout=60)
    os.rename(made / "copy", made / "moved")
    for directory in ("moved", "tar"):
        assert os.readlink(made / directory / "latest") == "weights"
        assert (made / directory / "latest").read_bytes() == b"w"
    subprocess.run(["cp", "-a", made / "moved", tmp_path / "back"], check=True, timeout=60)
    assert os.readlink(tmp_path / "back" / "latest") == "weights"
    subprocess.run(["rm", "-r", made / "moved", made / "tar"], check=True, timeout=60)
    assert os.listdir(made.path) == []
