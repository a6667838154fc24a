# SPDX-License-Identifier: Apache-2.0
"""ckptfs warm and ckptfs drop: files are fetched to --cache-dir ahead of a job, and taken from it."""

import errno
import json
import os
import random
import subprocess

import pytest
from harness.programs import CKPTFS

pytestmark = pytest.mark.sanitized_too

MIB = 1 << 20
FILES = {"small": b"s" * 1000, "shard-0": random.Random(1).randbytes(9 * MIB + 3), "below/shard-1": b"text " * MIB}
KEPT = [name for name, content in FILES.items() if len(content) > 256 << 10]


@pytest.fixture(params=["none", "auto"])
def make(mount, tmp_path, request):
    def made(*options, cached=True):
        cache = ["--cache-dir", str(tmp_path / "cache")] if cached else []
        return mount("--compress", request.param, *cache, *options)
    return made


def save_all(made) -> None:
    (made / "step" / "below").mkdir(parents=True)
    for name, content in FILES.items():
        (made / "step" / name).write_bytes(content)


def run(command, *paths) -> subprocess.CompletedProcess:
    return subprocess.run([CKPTFS, command, *paths], capture_output=True, text=True)


def kept(path) -> int:
    return int(os.getxattr(path, "user.ckptfs.kept"))


def gets(simulator) -> int:
    return simulator.counters()["operations"].get("GetObject", {"requests": 0})["requests"]


@pytest.fixture
def saved_elsewhere(make):
    """By another node."""
    other = make(cached=False)
    save_all(other)
    other.unmount()


def test_what_was_warmed_is_not_fetched_by_a_job(make, simulator, saved_elsewhere):
    made = make()
    assert {kept(made / "step" / name) for name in FILES} == {0}
    done = run("warm", made / "step", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == {"files": 3, "bytes": sum(map(len, FILES.values())), "failed": 0}
    assert {name: kept(made / "step" / name) for name in KEPT} == {name: len(FILES[name]) for name in KEPT}
    made.unmount()
    made = make()
    for name in KEPT:
        (made / "step" / name).stat()
        simulator.reset_counters()
        assert (made / "step" / name).read_bytes() == FILES[name]
        assert gets(simulator) == 0, name


def test_what_was_warmed_before_is_not_fetched_again(make, simulator, saved_elsewhere):
    made = make()
    assert run("warm", made / "step" / "shard-0", made / "step" / "below").returncode == 0
    simulator.reset_counters()
    assert run("warm", made / "step").returncode == 0
    # The small one comes with the request that opens it.
    assert gets(simulator) == 1


def test_what_was_dropped_is_kept_no_more(make, simulator, saved_elsewhere, tmp_path):
    made = make()
    assert run("warm", made / "step").returncode == 0
    assert run("drop", made / "step").returncode == 0
    assert {kept(made / "step" / name) for name in FILES} == {0}
    assert list((tmp_path / "cache").glob("*.data")) == []
    # What is still in memory goes from there to the disk.
    simulator.reset_counters()
    assert run("warm", made / "step").returncode == 0
    assert {name: kept(made / "step" / name) for name in KEPT} == {name: len(FILES[name]) for name in KEPT}
    assert gets(simulator) == 0


def test_what_is_in_use_is_not_dropped(make, saved_elsewhere):
    made = make()
    assert run("warm", made / "step").returncode == 0
    with (made / "step" / "shard-0").open("rb") as file:
        assert file.read(1) == FILES["shard-0"][:1]
        done = run("drop", made / "step")
        assert done.returncode == 1
        assert done.stderr == f"ckptfs: {made / 'step' / 'shard-0'}: in use, and so still kept\n"
        assert kept(made / "step" / "shard-0") == len(FILES["shard-0"])
        assert kept(made / "step" / "below" / "shard-1") == 0
        assert file.read() == FILES["shard-0"][1:]


def test_a_version_that_another_mount_has_replaced_is_warmed_anew(make, simulator, saved_elsewhere):
    made, other = make(), make(cached=False)
    assert run("warm", made / "step").returncode == 0
    (other / "step" / "shard-0").write_bytes(FILES["shard-0"][::-1])
    assert (made / "step" / "shard-0").read_bytes() == FILES["shard-0"][::-1]
    assert run("warm", made / "step").returncode == 0
    assert kept(made / "step" / "shard-0") == len(FILES["shard-0"])
    made.unmount()
    assert (make() / "step" / "shard-0").read_bytes() == FILES["shard-0"][::-1]


@pytest.mark.parametrize("command", ["warm", "drop"])
def test_a_mount_that_keeps_nothing_says_so(make, tmp_path, command):
    made = make(cached=False)
    save_all(made)
    done = run(command, made / "step" / "shard-0")
    assert done.returncode == 1
    assert done.stderr == f"ckptfs: {made / 'step' / 'shard-0'}: its mount keeps no files; mount it with --cache-dir\n"
    (tmp_path / "local").write_bytes(b"x" * MIB)
    assert "not a saved file in a mount of ckptfs" in run(command, tmp_path / "local").stderr
    done = run(command, tmp_path / "nothing")
    assert (done.returncode, done.stderr) == (1, f"ckptfs: {tmp_path / 'nothing'}: cannot be looked at: "
                                                 f"{os.strerror(errno.ENOENT)}\n")


def test_a_disk_that_is_too_small_is_told(make, saved_elsewhere):
    made = make("--cache-size", "4M")
    done = run("warm", made / "step" / "shard-0")
    assert done.returncode == 1
    assert "bytes are kept; the disk is full or too slow" in done.stderr


def test_only_what_is_kept_can_be_removed(make, saved_elsewhere):
    made = make()
    for name in ("user.ckptfs.etag", "user.other"):
        with pytest.raises(OSError) as refused:
            os.removexattr(made / "step" / "small", name)
        assert refused.value.errno == errno.EOPNOTSUPP
    assert "user.ckptfs.kept" not in os.listxattr(made / "step" / "small")
