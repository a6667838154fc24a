# SPDX-License-Identifier: Apache-2.0
"""Removing name after name: requests, time, failures, and what is seen meanwhile."""

import errno
import os
import shutil
import subprocess
import sys
import threading
import time

import pytest
from harness.programs import wait_until
from harness.simulator import BUCKET, Simulator


def put_files(simulator, prefix, count, directories=1):
    client = simulator.client()
    for i in range(count):
        client.put_object(Bucket=BUCKET, Key=f"{prefix}tree/{i % directories}/file{i:05}", Body=b"")


def deletions(simulator) -> int:
    """DeleteObjects requests so far."""
    return simulator.counters()["operations"].get("DeleteObjects", {"requests": 0})["requests"]


# The refusal comes once all names of a test are removed: the next removal would be told of it.
REFUSED_LATE = ({"op": "DeleteObjects", "action": "hang", "ms": 1500, "times": 1},
                {"op": "DeleteObjects", "action": "access-denied"})


def start_a_run(made, simulator, prefix):
    """From the 17th removal on the mount knows whether the store honours conditional deletes."""
    put_files(simulator, f"{prefix}first/", 30)
    names = sorted(os.listdir(made / "first/tree/0"))
    for name in names[:20]:
        (made / "first/tree/0" / name).unlink()
    wait_until(lambda: deletions(simulator) >= 1 and not simulator.keys(f"{prefix}.ckptfs/tmp/"), "the mount to know")
    shutil.rmtree(made / "first")
    assert simulator.keys(f"{prefix}first/") == []


def remove_tree(simulator, path) -> float:
    """Seconds, at 30 ms a request."""
    simulator.set_model(latency_ms=30)
    try:
        started = time.monotonic()
        subprocess.run(["rm", "-r", path], check=True)
        return time.monotonic() - started
    finally:
        simulator.set_model(latency_ms=0)


def test_a_thousand_files_go_in_batches(mount, simulator, prefix):
    put_files(simulator, prefix, 1000)
    made = mount()
    simulator.reset_counters()
    # One by one they would take a minute.
    assert remove_tree(simulator, made / "tree") < 20
    operations = simulator.counters()["operations"]
    assert operations["DeleteObjects"]["requests"] <= 60
    assert sum(operation["requests"] for operation in operations.values()) < 250
    assert simulator.keys(prefix) == []


@pytest.mark.full
@pytest.mark.parametrize("directories", [1, 10])
def test_ten_thousand_files_go_within_ten_seconds(mount, simulator, prefix, directories):
    put_files(simulator, prefix, 10_000, directories)
    made = mount()
    assert remove_tree(simulator, made / "tree") < 10
    assert simulator.keys(prefix) == []


def test_a_program_that_stats_each_name(mount, simulator, prefix):
    put_files(simulator, prefix, 100)
    made = mount()
    for name in sorted(os.listdir(made / "tree/0")):
        assert (made / "tree/0" / name).exists()
        (made / "tree/0" / name).unlink()
        assert not (made / "tree/0" / name).exists()
    assert os.listdir(made / "tree/0") == []


def test_what_is_listed_or_made_again_comes_after_the_batch(mount, simulator, prefix):
    put_files(simulator, prefix, 100)
    made = mount()
    names = sorted(os.listdir(made / "tree/0"))
    for name in names[:50]:
        (made / "tree/0" / name).unlink()
    (made / "tree/0" / names[49]).write_bytes(b"again")
    assert sorted(os.listdir(made / "tree/0")) == names[49:]
    assert sorted(os.listdir(mount() / "tree/0")) == names[49:]
    assert simulator.content(f"{prefix}tree/0/{names[49]}") == b"again"


def test_a_failed_batch_is_told_and_its_names_are_there_again(mount, simulator, prefix):
    made = mount()
    start_a_run(made, simulator, prefix)
    put_files(simulator, prefix, 60)
    names = sorted(os.listdir(made / "tree/0"))
    simulator.inject(*REFUSED_LATE)
    for name in names[:40]:
        (made / "tree/0" / name).unlink()
    assert set(names[20:]) <= set(os.listdir(made / "tree/0"))
    with pytest.raises(PermissionError):
        (made / "tree/0" / names[50]).unlink()
    assert "is still there" in made.log()
    with pytest.raises(OSError):
        shutil.rmtree(made / "tree")
    simulator.clear_faults()
    shutil.rmtree(made / "tree", ignore_errors=True)
    shutil.rmtree(made / "tree", ignore_errors=True)
    assert simulator.keys(prefix) == []


@pytest.mark.parametrize("faults", [[{"op": "DeleteObjects", "action": "hang"}], REFUSED_LATE], ids=["hang", "refused"])
def test_unmounting_names_removals_that_were_not_made(mount, simulator, prefix, faults):
    made = mount("--drain-timeout", "5s")
    start_a_run(made, simulator, prefix)
    put_files(simulator, prefix, 60)
    names = sorted(os.listdir(made / "tree/0"))
    simulator.inject(*faults)
    for name in names[:40]:
        (made / "tree/0" / name).unlink()
    assert made.unmount() == 1
    assert f"not done: {prefix}tree/0/: removed names" in made.log()
    assert len(simulator.keys(prefix + "tree/0/")) > 20


def test_renaming_the_directory_tells_of_a_failed_batch(mount, simulator, prefix):
    made = mount()
    start_a_run(made, simulator, prefix)
    put_files(simulator, prefix, 60)
    names = sorted(os.listdir(made / "tree/0"))
    simulator.inject(*REFUSED_LATE)
    for name in names[:40]:
        (made / "tree/0" / name).unlink()
    with pytest.raises(PermissionError):
        (made / "tree/0").rename(made / "tree/1")
    simulator.clear_faults()
    assert set(names[20:]) <= set(os.listdir(made / "tree/0"))


@pytest.mark.parametrize("way", [os.O_WRONLY | os.O_TRUNC, os.O_RDWR], ids=["anew", "in place"])
def test_a_rename_of_an_open_file_that_left_its_old_name_can_be_tried_again(mount, simulator, prefix, way):
    """What is left is an earlier version, and does not replace the later one."""
    made = mount("--metadata-ttl", "0")
    (made / "file.tmp").write_bytes(b"version one")
    writer = os.open(made / "file.tmp", way)
    os.write(writer, b"version two")
    simulator.inject({"op": "DeleteObject", "key": prefix + "file.tmp", "action": "403"})
    with pytest.raises(OSError):
        (made / "file.tmp").rename(made / "file")
    simulator.clear_faults()
    assert (made / "file.tmp").read_bytes() == b"version one"
    (made / "file.tmp").rename(made / "file")
    os.close(writer)
    assert {key: simulator.content(key) for key in simulator.keys(prefix)} == {prefix + "file": b"version two"}
    assert (made / "file").read_bytes() == b"version two"


def test_unmounting_waits_for_the_batch(mount, simulator, prefix):
    made = mount()
    start_a_run(made, simulator, prefix)
    put_files(simulator, prefix, 60)
    names = sorted(os.listdir(made / "tree/0"))
    simulator.inject({"op": "DeleteObjects", "action": "slow", "ms": 1000})
    for name in names:
        (made / "tree/0" / name).unlink()
    assert made.unmount() == 0
    assert simulator.keys(prefix) == [f"{prefix}tree/0/"]


def test_a_single_removal_is_made_before_it_returns(mount, simulator, prefix):
    put_files(simulator, prefix, 3)
    made = mount()
    os.unlink(made / "tree/0/file00000")
    assert f"{prefix}tree/0/file00000" not in simulator.keys(prefix)
    with pytest.raises(OSError) as refused:
        os.rmdir(made / "tree/0")
    assert refused.value.errno == errno.ENOTEMPTY
    wait_until(lambda: len(simulator.keys(prefix)) == 2, "nothing else to be gone")


def sync(path):
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def test_fsync_of_the_directory_waits_for_the_batch_and_tells_its_failure(mount, simulator, prefix):
    made = mount()
    start_a_run(made, simulator, prefix)
    put_files(simulator, prefix, 120)
    names = sorted(os.listdir(made / "tree/0"))
    simulator.inject({"op": "DeleteObjects", "action": "slow", "ms": 1000})
    for name in names[:60]:
        (made / "tree/0" / name).unlink()
    sync(made / "tree/0")
    assert simulator.keys(f"{prefix}tree/0/file") == [f"{prefix}tree/0/{name}" for name in names[60:]]
    simulator.clear_faults()
    simulator.inject(*REFUSED_LATE)
    for name in names[60:100]:
        (made / "tree/0" / name).unlink()
    with pytest.raises(PermissionError):
        sync(made / "tree/0")
    sync(made / "tree/0")


def test_a_save_elsewhere_does_not_wait_for_a_batch(mount, simulator, prefix):
    made = mount()
    start_a_run(made, simulator, prefix)
    put_files(simulator, prefix, 60)
    names = sorted(os.listdir(made / "tree/0"))
    (made / "tree/0/sub").mkdir()
    simulator.inject({"op": "DeleteObjects", "action": "slow", "ms": 5000})
    hits = simulator.fault_hits()
    for name in names:
        (made / "tree/0" / name).unlink()
    wait_until(lambda: simulator.fault_hits() > hits, "the batch to be on its way")
    started = time.monotonic()
    (made / "tree/0/beside").write_bytes(b"beside")
    (made / "tree/0/sub/below").write_bytes(b"below")
    (made / "tree/0/sub2").mkdir()
    assert time.monotonic() - started < 2
    assert simulator.content(f"{prefix}tree/0/sub/below") == b"below"
    (made / "tree/0" / names[-1]).write_bytes(b"again")
    assert simulator.content(f"{prefix}tree/0/{names[-1]}") == b"again"


def test_names_that_xml_does_not_keep(mount, simulator, prefix):
    made = mount()
    start_a_run(made, simulator, prefix)
    put_files(simulator, prefix, 40)
    odd = ["Icon\r", "a\x01b", " blank "]
    for name in [*odd, "Icon\n"]:
        (made / "tree/0" / name).write_bytes(name.encode())
        assert simulator.content(f"{prefix}tree/0/{name}") == name.encode()
    (made / "tree/0" / "Icon\r").rename(made / "tree/0" / "Other\r")
    odd[0] = "Other\r"
    assert set(odd) <= set(os.listdir(made / "tree/0"))
    for name in sorted(os.listdir(made / "tree/0")):
        if name != "Icon\n":
            (made / "tree/0" / name).unlink()
    sync(made / "tree/0")
    assert simulator.keys(f"{prefix}tree/0/") == [f"{prefix}tree/0/Icon\n"]
    (made / "tree/0/Icon\r").write_bytes(b"")
    (made / "tree/0").rename(made / "tree/1")
    names = [f"{prefix}tree/1/Icon\n", f"{prefix}tree/1/Icon\r"]
    assert [key for key in simulator.keys(f"{prefix}tree/") if not key.endswith("/")] == names


class TestWhatAnotherMountWrites:
    """Beside stores that honour conditional deletes there are those that ignore them."""

    @pytest.fixture(params=[(), ("--lacks", "delete-conditions")], ids=["honoured", "ignored"])
    def simulator(self, request):
        own = Simulator(*request.param)
        yield own
        own.stop()

    def test_what_another_mount_writes_after_an_unlink_stays(self, mount, simulator, prefix):
        one, other = mount(), mount()
        start_a_run(one, simulator, prefix)
        put_files(simulator, prefix, 96)
        names = sorted(os.listdir(one / "tree/0"))
        simulator.inject({"op": "DeleteObjects", "action": "slow", "ms": 1500})
        for name in names:
            (one / "tree/0" / name).unlink()
            if name >= names[40]:
                (other / "tree/0" / name).write_bytes(b"new")
        assert one.unmount() == 0
        assert simulator.keys(f"{prefix}tree/0/file") == [f"{prefix}tree/0/{name}" for name in names[40:]]
        assert simulator.content(f"{prefix}tree/0/{names[40]}") == b"new"

    def test_a_store_that_ignores_conditional_deletes_is_named_once(self, mount, simulator, prefix, request):
        made = mount()
        start_a_run(made, simulator, prefix)
        put_files(simulator, prefix, 60)
        shutil.rmtree(made / "tree")
        ignored = "ignored" in request.node.name
        assert made.log().count("ignores conditional deletes") == (1 if ignored else 0)
        assert (deletions(simulator) == 1) == ignored


@pytest.mark.parametrize("refused", ["an earlier one", "its own"])
def test_where_a_condition_is_refused_what_was_written_since_stays(mount, simulator, prefix, refused):
    """By a proxy, once: the next ones are sent with it, and instead of this one the name is looked at."""
    made = mount()
    for name in "ab":
        (made / name).write_text("of this mount")
    removed = "a" if refused == "an earlier one" else "b"
    simulator.inject({"op": "DeleteObject", "key": prefix + removed, "action": "501", "times": 1},
                     {"op": "CopyObject", "action": "slow", "ms": 1000})
    os.unlink(made / "a")
    before = simulator.fault_hits()
    renaming = threading.Thread(target=os.rename, args=(made / "b", made / "c"))
    renaming.start()
    wait_until(lambda: simulator.fault_hits() > before, "the copy to be under way")
    simulator.put(prefix + "b", b"of another mount")
    renaming.join()
    assert simulator.fault_hits() == 2
    assert sorted(simulator.keys(prefix)) == [prefix + "b", prefix + "c"]


LATE = {"action": "performed-late", "ms": 2000, "times": 1}


def stays(simulator, key, content):
    """Also when what was lost on the way arrives."""
    deadline = time.monotonic() + 3
    while time.monotonic() < deadline:
        assert simulator.content(key) == content


def test_a_late_batch_spares_what_was_written_since(mount, simulator, prefix):
    one, other = mount(), mount()
    start_a_run(one, simulator, prefix)
    put_files(simulator, prefix, 60)
    names = sorted(os.listdir(one / "tree/0"))
    simulator.inject({"op": "DeleteObjects", **LATE})
    for name in names:
        (one / "tree/0" / name).unlink()
    sync(one / "tree/0")
    assert simulator.fault_hits() == 1
    for name in names:
        (other / "tree/0" / name).write_bytes(b"new")
    stays(simulator, f"{prefix}tree/0/{names[-1]}", b"new")
    assert len(simulator.keys(f"{prefix}tree/0/file")) == 60


def test_a_late_unlink_spares_what_was_written_since(mount, simulator, prefix):
    one, other = mount(), mount()
    (one / "file").write_bytes(b"old")
    simulator.inject({"op": "DeleteObject", "key": f"{prefix}file", **LATE})
    (one / "file").unlink()
    assert simulator.fault_hits() == 1
    (other / "file").write_bytes(b"new")
    stays(simulator, f"{prefix}file", b"new")


def test_a_late_end_of_a_rename_spares_what_was_written_since(mount, simulator, prefix):
    one, other = mount(), mount()
    (one / "file").write_bytes(b"old")
    simulator.inject({"op": "DeleteObject", "key": f"{prefix}file", **LATE})
    (one / "file").rename(one / "moved")
    assert simulator.fault_hits() == 1
    (other / "file").write_bytes(b"new")
    stays(simulator, f"{prefix}file", b"new")
    assert simulator.content(f"{prefix}moved") == b"old"


def test_a_late_end_of_a_directorys_rename_spares_what_was_written_since(mount, simulator, prefix):
    one, other = mount(), mount()
    start_a_run(one, simulator, prefix)
    (one / "dir").mkdir()
    (one / "dir/file").write_bytes(b"old")
    simulator.inject({"op": "DeleteObjects", **LATE})
    (one / "dir").rename(one / "moved")
    assert simulator.fault_hits() == 1
    (other / "dir").mkdir()
    (other / "dir/file").write_bytes(b"new")
    stays(simulator, f"{prefix}dir/file", b"new")
    assert simulator.content(f"{prefix}moved/file") == b"old"


def test_a_failed_rename_leaves_the_file_that_it_was_to_replace(mount, simulator, prefix):
    made = mount()
    (made / "source").write_bytes(b"source")
    with open(made / "target", "wb", buffering=0) as target:
        target.write(b"kept")
        simulator.inject({"op": "CopyObject", "action": "access-denied"})
        with pytest.raises(PermissionError):
            (made / "source").rename(made / "target")
        target.write(b"!")
        os.fsync(target.fileno())
    assert simulator.content(f"{prefix}target") == b"kept!"
    assert simulator.content(f"{prefix}source") == b"source"


CHANGES = {"removed": ("DeleteObject", "os.unlink(sys.argv[1])"),
           "renamed": ("CopyObject", "os.rename(sys.argv[1], sys.argv[1] + '.old')"),
           "replaced": ("CopyObject", "os.rename(sys.argv[1] + '.tmp', sys.argv[1])")}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("sees_it", [True, False], ids=["seen", "unseen"])
def test_what_is_saved_after_a_killed_process_began_to_change_the_name_stays(mount, simulator, prefix, change, sees_it):
    """By a cleanup that is killed while the store is slow, and by the next attempt."""
    made = mount("--metadata-ttl", "1s" if sees_it else "0s")
    for name in ("file", "file.tmp"):
        (made / name).write_bytes(name.encode())
    operation, script = CHANGES[change]
    simulator.inject({"op": operation, "key": prefix + "*", "action": "slow", "ms": 600})
    process = subprocess.Popen([sys.executable, "-c", "import os, sys; " + script, made / "file"])
    wait_until(lambda: simulator.fault_hits() > 0, "the request to be under way")
    process.kill()
    process.wait()
    (made / "file").write_bytes(b"saved since")
    assert simulator.content(prefix + "file") == b"saved since"
    assert (made / "file").read_bytes() == b"saved since"
    if change == "renamed":
        assert simulator.content(prefix + "file.old") == b"file"
