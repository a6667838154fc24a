# SPDX-License-Identifier: Apache-2.0
"""Keys that others made: what can be a path is shown, what cannot is hidden and reported once; nothing is lost."""

import errno
import os
import subprocess

import pytest
from harness.simulator import BUCKET

LONGEST_KEY = 1024


def names(directory) -> list[str]:
    return sorted(os.listdir(directory))


def test_names_that_are_only_unusual(mount, simulator, prefix):
    shown = [" ", " leading", "trailing ", "new\nline", "tab\t", "percent%2Fslash", "plus+plus", "a&b<c>", "quote\"'", "back\\slash",
             "~", "-rf", "*", "?", "#", "ünïcödé", "日本", "e\u0301", "\x01", "\x7f", "..x", "...", ".hidden", "x" * 255]
    for name in shown:
        simulator.put(prefix + name, name.encode())
    made = mount()
    assert names(made.path) == sorted(shown)
    for name in shown:
        assert (made / name).read_bytes() == name.encode(), repr(name)
    moved = mount()
    (moved / "directory").mkdir()
    for name in shown:
        os.rename(moved / name, moved / "directory" / name)
    assert names(moved / "directory") == sorted(shown)
    os.rename(moved / "directory", moved / "other")
    for name in shown:
        assert (moved / "other" / name).read_bytes() == name.encode(), repr(name)
    subprocess.run(["rm", "-rf", moved / "other"], check=True, timeout=60)
    assert simulator.keys(prefix) == []


def test_what_cannot_be_a_path_is_hidden_and_reported_once(mount, simulator, prefix):
    hidden = ["dir//below", "dir/../up", "dir/./here", "dir/" + "x" * 256, "x" * 300 + "/below", "both", "/leading", "../above"]
    for key in (*hidden, "dir/good", "both/below"):
        simulator.put(prefix + key, key.encode())
    # A neighbour whose name begins like the prefix, and one that a careless "..", resolved, would lead to.
    simulator.put(prefix[:-1] + "2/file", b"neighbour")
    made = mount()
    for _ in range(2):
        assert names(made.path) == ["both", "dir"]
        assert names(made / "dir") == ["good"]
        assert names(made / "both") == ["below"]
    log = made.log()
    # Below a level that cannot be shown nothing is looked at.
    levels = ["dir//", "dir/../", "dir/./", "dir/" + "x" * 256, "x" * 300 + "/", "both", "/", "../"]
    reported = [line.split('the key "')[1].split('" cannot')[0] for line in made.log().splitlines() if "hidden: " in line]
    assert sorted(reported) == sorted(prefix + level for level in levels)


def test_hidden_keys_are_never_lost(mount, simulator, prefix):
    hidden = {"dir//below": b"1", "dir/../up": b"2", "dir/./here": b"3", "dir/" + "x" * 256: b"4"}
    for key, content in hidden.items():
        simulator.put(prefix + key, content)
    simulator.put(prefix + "dir/good", b"good")
    simulator.put(prefix + "up", b"untouched")
    made = mount()
    # They go with their directory, and stay below it.
    os.rename(made / "dir", made / "moved")
    assert simulator.content(prefix + "up") == b"untouched"
    for key, content in hidden.items():
        assert simulator.content(prefix + key.replace("dir", "moved", 1)) == content, key
    # What cannot be seen is not removed with what can.
    removed = subprocess.run(["rm", "-r", made / "moved"], capture_output=True, text=True, timeout=60)
    assert removed.returncode != 0 and "not empty" in removed.stderr
    assert not (made / "moved" / "good").exists()
    for key, content in hidden.items():
        assert simulator.content(prefix + key.replace("dir", "moved", 1)) == content, key


def test_markers_of_other_tools(mount, simulator, prefix):
    client = simulator.client()
    client.put_object(Bucket=BUCKET, Key=prefix + "console/", Body=b"", ContentType="application/x-directory")
    client.put_object(Bucket=BUCKET, Key=prefix + "with-content/", Body=b"some tool's own marker")
    client.put_object(Bucket=BUCKET, Key=prefix + "hadoop_$folder$", Body=b"")
    client.put_object(Bucket=BUCKET, Key=prefix + "nested/deep/", Body=b"")
    made = mount()
    assert names(made.path) == ["console", "hadoop_$folder$", "nested", "with-content"]
    for directory in ("console", "with-content", "nested/deep"):
        assert (made / directory).is_dir() and names(made / directory) == []
        (made / directory / "file").write_bytes(b"x")
    assert names(mount() / "with-content") == ["file"]
    os.rename(made / "with-content", made / "renamed")
    assert names(mount() / "renamed") == ["file"]
    subprocess.run(["rm", "-r", *(made / name for name in names(made.path))], check=True, timeout=60)
    assert simulator.keys(prefix) == []


def test_the_longest_key(mount, simulator, prefix):
    part = "d" * 200
    room = LONGEST_KEY - len(prefix) - 4 * (len(part) + 1)
    directory = "/".join([part] * 4)
    simulator.put(f"{prefix}{directory}/{'f' * room}", b"longest")
    made = mount()
    assert (made / directory / ("f" * room)).read_bytes() == b"longest"
    with pytest.raises(OSError, match="too long"):
        (made / directory / ("f" * (room + 1))).write_bytes(b"x")
    os.unlink(made / directory / ("f" * room))
    # A directory's key has a slash more.
    (made / directory / ("e" * (room - 1))).mkdir()
    with pytest.raises(OSError, match="too long"):
        (made / directory / ("e" * room)).mkdir()


def test_names_that_are_not_utf8(mount, simulator, prefix):
    """S3 takes none; a store that holds one shows it."""
    simulator.put(prefix + "here", b"x")
    made = mount()
    for name in (b"\xff", b"caf\xe9", b"\xed\xa0\x80"):
        path = os.fsencode(made.path) + b"/" + name
        here = os.fsencode(made / "here")
        for call in (lambda: os.close(os.open(path, os.O_CREAT | os.O_WRONLY)), lambda: os.mkdir(path),
                     lambda: os.symlink(b"a", path), lambda: os.rename(here, path)):
            with pytest.raises(OSError) as raised:
                call()
            assert raised.value.errno == errno.EILSEQ
        assert not os.path.lexists(path)
    assert simulator.keys(prefix) == [prefix + "here"]


def test_what_must_not_be_removed_is_said(mount, simulator, prefix):
    """Object lock, or rights that allow no delete: the name stays, and the caller is told."""
    simulator.put(prefix + "locked", b"locked")
    simulator.inject({"op": "Delete*", "key": prefix + "*", "action": "access-denied"})
    made = mount()
    for call in (lambda: os.unlink(made / "locked"), lambda: os.rename(made / "locked", made / "other")):
        with pytest.raises(PermissionError):
            call()
        assert (mount() / "locked").read_bytes() == b"locked"
    assert prefix + "locked" in made.log()
