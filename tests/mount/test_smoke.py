# SPDX-License-Identifier: Apache-2.0
"""The thinnest real path: write, see the object, read it on another mount."""

import os

import pytest

pytestmark = pytest.mark.sanitized

SIZES = [0, 1, 4096, 1 << 20, (8 << 20) - 1, 8 << 20, (8 << 20) + 1, 20_000_003]


@pytest.mark.parametrize("size", SIZES)
def test_a_file_is_the_object_and_reads_back_on_another_mount(mount, simulator, prefix, size):
    content = os.urandom(size)
    (mount() / "file").write_bytes(content)
    assert simulator.content(prefix + "file") == content
    assert simulator.open_uploads(prefix) == []
    other = mount()
    assert (other / "file").stat().st_size == size
    assert (other / "file").read_bytes() == content


def test_unmount_leaves_no_mount_and_ends_well(mount):
    made = mount()
    (made / "file").write_bytes(b"content")
    assert made.unmount() == 0


def test_directories_are_made_listed_and_removed(mount):
    made = mount()
    (made / "a/b").mkdir(parents=True)
    (made / "a/b/file").write_bytes(b"x")
    assert os.listdir(made / "a") == ["b"]
    assert os.listdir(made / "a/b") == ["file"]
    with pytest.raises(OSError):
        os.rmdir(made / "a/b")
    os.unlink(made / "a/b/file")
    os.rmdir(made / "a/b")
    assert os.listdir(made / "a") == []
