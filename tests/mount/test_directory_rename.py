# SPDX-License-Identifier: Apache-2.0
"""Rename of a directory as a commit: what a second mount sees of it, whoever is killed, and when."""

import errno
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from harness.programs import errno_of, wait_until
from harness.simulator import BUCKET
from test_names import renameat2_noreplace

NAMES = {f"file{i}" for i in range(20)} | {"deep"}
# For the mount that only looks on: nothing is believed, and what is dead is repaired soon.
OBSERVER = ("--metadata-ttl", "0s", "--rename-repair-after", "2s")


@pytest.fixture
def in_background():
    threads = ThreadPoolExecutor()
    yield threads.submit
    # Who hangs is freed by the end of the mount.
    threads.shutdown(wait=False)


def make_tree(made, name="old", files=20):
    (made / name / "deep").mkdir(parents=True)
    for i in range(files):
        (made / name / f"file{i}").write_bytes(b"%d" % i)
    (made / name / "deep/file").write_bytes(b"deep")


def tree(made, name):
    """The names in the directory; None where there is none."""
    try:
        return set(os.listdir(made / name))
    except OSError as error:
        # ESTALE: it was there when it was opened.
        assert error.errno in (errno.ENOENT, errno.ESTALE)
        return None


def check_one_is_whole(made, simulator, prefix, name):
    """Only this directory is there, all of it, and nothing else is left in the bucket."""
    assert os.listdir(made.path) == [name]
    assert tree(made, name) == NAMES
    for i in range(20):
        assert (made / f"{name}/file{i}").read_bytes() == b"%d" % i
    assert (made / f"{name}/deep/file").read_bytes() == b"deep"
    assert all(key.startswith(f"{prefix}{name}/") for key in simulator.keys(prefix))


def test_a_thousand_files_take_a_few_round_trips(mount, simulator, prefix):
    client = simulator.client()
    for i in range(1000):
        client.put_object(Bucket=BUCKET, Key=f"{prefix}old/{i}", Body=b"x")
    made = mount()
    os.listdir(made.path)
    simulator.reset_counters()
    simulator.set_model(latency_ms=30)
    try:
        started = time.monotonic()
        os.rename(made / "old", made / "new")
        seconds = time.monotonic() - started
    finally:
        simulator.set_model(latency_ms=0)
    requests = sum(operation["requests"] for operation in simulator.counters()["operations"].values())
    assert requests <= 1030
    # 28 round trips are 0.84 s.
    assert seconds < 5
    assert len(os.listdir(made / "new")) == 1000
    assert len(simulator.keys(prefix)) == 1001


def test_over_an_empty_directory(mount, simulator, prefix):
    made = mount()
    make_tree(made)
    (made / "new").mkdir()
    os.rename(made / "old", made / "new")
    check_one_is_whole(mount(), simulator, prefix, "new")


def test_over_a_directory_that_holds_something_is_refused(mount, simulator, prefix):
    made = mount()
    make_tree(made)
    (made / "new").mkdir()
    simulator.put(prefix + "new/file", b"x")
    with pytest.raises(OSError) as refused:
        os.rename(made / "old", made / "new")
    assert refused.value.errno == errno.ENOTEMPTY
    assert tree(made, "old") == NAMES


def test_noreplace(mount, simulator, prefix):
    made = mount()
    make_tree(made)
    (made / "new").mkdir()
    assert renameat2_noreplace(made / "old", made / "new") == errno.EEXIST
    (made / "new").rmdir()
    assert renameat2_noreplace(made / "old", made / "new") == 0
    check_one_is_whole(mount(), simulator, prefix, "new")


def test_open_files_below_go_on(mount, simulator, prefix):
    made = mount()
    make_tree(made)
    content = os.urandom(3 << 20)
    (made / "old/large").write_bytes(content)
    with open(made / "old/large", "rb", buffering=0) as reader, open(made / "old/log", "wb", buffering=0) as writer:
        assert reader.read(1000) == content[:1000]
        writer.write(b"before ")
        os.rename(made / "old", made / "new")
        writer.write(b"after")
        assert reader.readall() == content[1000:]
    assert simulator.content(prefix + "new/log") == b"before after"
    assert tree(made, "old") is None


@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_a_saved_file_that_is_open_and_gone_by_another_mount_holds_nothing_back(mount, simulator, prefix, how):
    """It is renamed twice: what the first has found must not fail the second."""
    made, other = mount("--metadata-ttl", "0s"), mount("--metadata-ttl", "0s")
    (made / "old").mkdir()
    (made / "old" / "kept").write_bytes(b"kept")
    file = os.open(made / "old" / "file", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(file, b"saved")
    os.fsync(file)
    if how == "removed":
        os.unlink(other / "old" / "file")
    else:
        (other / "old" / "file").write_bytes(b"another")
    os.rename(made / "old", made / "new")
    (made / "new" / ".metadata").write_bytes(b"marker")
    os.rename(made / "new", made / "newest")
    assert errno_of(lambda: (os.write(file, b"more"), os.fsync(file))) == errno.EIO
    assert errno_of(lambda: os.close(file)) == errno.EIO
    left = {"kept": b"kept", ".metadata": b"marker"} | ({"file": b"another"} if how == "replaced" else {})
    assert {name: (made / "newest" / name).read_bytes() for name in os.listdir(made / "newest")} == left
    assert {key: simulator.content(key) for key in simulator.keys(prefix + "newest/") if key[-1] != "/"} == {
        f"{prefix}newest/{name}": content for name, content in left.items()}


@pytest.mark.parametrize("occupied", [False, True], ids=["new", "over an empty directory"])
def test_a_failed_copy_leaves_the_source_whole(mount, simulator, prefix, occupied):
    made = mount()
    make_tree(made)
    if occupied:
        (made / "new").mkdir()
    simulator.inject({"op": "CopyObject", "key": prefix + "new/file7", "action": "access-denied"})
    with pytest.raises(PermissionError):
        os.rename(made / "old", made / "new")
    other = mount()
    assert tree(other, "old") == tree(made, "old") == NAMES
    assert tree(other, "new") == tree(made, "new") == (set() if occupied else None)
    assert sorted(os.listdir(other.path)) == (["new", "old"] if occupied else ["old"])
    simulator.clear_faults()
    os.rename(made / "old", made / "new")
    check_one_is_whole(other, simulator, prefix, "new")


def test_another_mount_sees_the_one_or_the_other(mount, simulator, prefix):
    made, other = mount(), mount(*OBSERVER)
    make_tree(made)
    done = threading.Event()
    seen = set()
    wrong = []

    def look():
        while not done.is_set():
            names = frozenset(os.listdir(other.path))
            # The source first: what is there no more must not come back, and what has come must not go.
            source, target = tree(other, "old"), tree(other, "new")
            seen.add(names)
            if names == {"old", "new"} or source not in (None, NAMES) or target not in (None, NAMES):
                wrong.append((names, source, target))

    looking = [threading.Thread(target=look) for _ in range(2)]
    for thread in looking:
        thread.start()
    simulator.set_model(latency_ms=10)
    os.rename(made / "old", made / "new")
    simulator.set_model(latency_ms=0)
    done.set()
    for thread in looking:
        thread.join()
    assert wrong == []
    assert frozenset({"old"}) in seen
    check_one_is_whole(other, simulator, prefix, "new")


class Bucket:
    """What is in the bucket below the prefix, for telling whether a request has taken effect."""

    def __init__(self, simulator, prefix):
        pages = simulator.client().get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
        self.sizes = {item["Key"][len(prefix):]: item["Size"] for page in pages for item in page.get("Contents", [])}
        self.records = [key for key in self.sizes if key.startswith(".ckptfs/renames/")]
        self.copies = [key for key in self.sizes if key.startswith("new/") and key != "new/"]
        self.decided = [key for key in self.records if simulator.stored(prefix + key)[8] == 4]


# The request at which the renaming daemon is killed, what shows its effect, and where it leads without and with it.
RECORD, COPY = "*.ckptfs/renames/*", "*new/*"
STEPS = {
    "1, record": ("PutObject", RECORD, 1, lambda b: b.records, "old", "old"),
    "2, destination hidden": ("PutObject", "*new/", 1, lambda b: "new/" in b.sizes, "old", "old"),
    "3, first copy": ("CopyObject", COPY, 1, lambda b: b.copies, "old", "old"),
    "3, a copy in the middle": ("CopyObject", COPY, 11, lambda b: len(b.copies) >= 11, "old", "old"),
    "3, last copy": ("CopyObject", COPY, 22, lambda b: len(b.copies) == 22, "old", "old"),
    "4, source hidden": ("PutObject", "*old/", 1, lambda b: b.sizes["old/"] > 0, "old", "old"),
    "5, decision": ("PutObject", RECORD, 2, lambda b: b.decided, "old", "new"),
    "5, destination shown": ("PutObject", "*new/", 2, lambda b: b.sizes["new/"] == 0, "new", "new"),
    "6, source deleted": ("DeleteObjects", "*", 1, lambda b: "old/file0" not in b.sizes, "new", "new"),
    "6, its marker deleted": ("DeleteObject", "*old/", 1, lambda b: "old/" not in b.sizes, "new", "new"),
    "6, record deleted": ("DeleteObjects", "*", 2, lambda b: not b.records, "new", "new"),
}


def let_probe_end(made, simulator, prefix):
    # The first rename asks in the background whether the store honours conditional deletes: 2 of its DeleteObjects.
    simulator.reset_counters()
    (made / "first").mkdir()
    os.rename(made / "first", made / "second")
    (made / "second").rmdir()

    def is_idle():
        return (simulator.counters()["operations"].get("DeleteObjects", {}).get("requests", 0) >= 3
                and not any(".ckptfs" in key for key in simulator.keys(prefix)))

    wait_until(is_idle, "the probe of conditional deletes")


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("effect", ["not performed", "performed"])
def test_killed_at(mount, simulator, prefix, in_background, step, effect):
    made, other = mount(), mount(*OBSERVER)
    make_tree(made)
    let_probe_end(made, simulator, prefix)
    operation, key, nth, shown_by, without, with_effect = STEPS[step]
    remains = with_effect if effect == "performed" else without
    # A reply that takes minutes is as good as none.
    action = {"action": "slow", "ms": 300_000} if effect == "performed" else {"action": "hang"}
    simulator.inject({"op": operation, "key": key, "nth": nth, **action})
    renaming = in_background(os.rename, made / "old", made / "new")
    wait_until(lambda: simulator.fault_hits() > 0, "the step to be reached")
    if effect == "performed":
        wait_until(lambda: shown_by(Bucket(simulator, prefix)), "the request to take effect")
    made.process.send_signal(signal.SIGKILL)
    made.process.wait()
    assert isinstance(renaming.exception(timeout=30), OSError)
    simulator.clear_faults()

    def is_repaired():
        names = set(os.listdir(other.path))
        source, target = tree(other, "old"), tree(other, "new")
        assert names != {"old", "new"}
        assert source in (None, NAMES) and target in (None, NAMES)
        assert target is None if remains == "old" else source is None
        return names == {remains} and not any(".ckptfs" in key for key in simulator.keys(prefix))

    wait_until(is_repaired, "the repair", 30)
    check_one_is_whole(other, simulator, prefix, remains)


def test_a_renamer_that_is_taken_for_dead_fails(mount, simulator, prefix, in_background):
    made, other = mount("--rename-repair-after", "2s"), mount(*OBSERVER)
    make_tree(made)
    simulator.inject({"op": "CopyObject", "key": "*new/file7", "action": "slow", "ms": 1000})
    renaming = in_background(os.rename, made / "old", made / "new")
    wait_until(lambda: simulator.fault_hits() > 0, "a copy to be under way")
    made.process.send_signal(signal.SIGSTOP)
    wait_until(lambda: [os.listdir(other.path)] and not any(".ckptfs" in key for key in simulator.keys(prefix)),
               "the repair", 30)
    check_one_is_whole(other, simulator, prefix, "old")
    made.process.send_signal(signal.SIGCONT)
    assert renaming.exception(timeout=30).errno == errno.EIO
    check_one_is_whole(other, simulator, prefix, "old")
    os.rename(made / "old", made / "new")
    check_one_is_whole(other, simulator, prefix, "new")


def test_a_renamer_that_lives_is_left_alone(mount, simulator, prefix, in_background):
    made, other = mount("--rename-repair-after", "2s"), mount(*OBSERVER)
    make_tree(made)
    simulator.inject({"op": "CopyObject", "key": "*new/file7", "action": "slow", "ms": 5000})
    renaming = in_background(os.rename, made / "old", made / "new")

    def is_renamed():
        assert not {"old", "new"} <= set(os.listdir(other.path))
        assert tree(other, "old") in (None, NAMES)
        return renaming.done()

    wait_until(is_renamed, "the rename")
    renaming.result()
    check_one_is_whole(other, simulator, prefix, "new")


def test_a_repair_leaves_what_was_committed_since(mount, simulator, prefix):
    """The rename is decided; what another mount has open in the old directory is saved there before that is deleted."""
    renaming, other = mount(*OBSERVER, "--retry-for", "1s"), mount(*OBSERVER)
    make_tree(renaming)
    with open(other / "old/file7", "ab", buffering=0) as log:
        simulator.inject({"op": "DeleteObject*", "action": "access-denied"})
        (renaming / "old").rename(renaming / "new")
        simulator.clear_faults()
        log.write(b" and more")
        os.fsync(log.fileno())
    wait_until(lambda: os.listdir(other.path) and "was finished" in other.log() + renaming.log(), "the repair")
    assert tree(other, "new") == NAMES
    assert tree(other, "old") == {"file7"}
    assert (other / "old/file7").read_bytes() == b"7 and more"
    assert (other / "new/file7").read_bytes() == b"7"


def test_a_hidden_name_cannot_be_made(mount, simulator, prefix, in_background):
    made, other = mount(), mount("--metadata-ttl", "0s")
    make_tree(made)
    simulator.inject({"op": "CopyObject", "key": "*new/file7", "action": "slow", "ms": 3000})
    renaming = in_background(os.rename, made / "old", made / "new")
    wait_until(lambda: simulator.fault_hits() > 0, "a copy to be under way")
    with pytest.raises(OSError) as refused:
        (other / "new").mkdir()
    assert refused.value.errno == errno.EBUSY
    (other / "third").mkdir()
    (other / "file").write_bytes(b"x")
    for take in (lambda: os.rename(other / "third", other / "new"),
                 lambda: os.rename(other / "file", other / "new"),
                 lambda: (other / "new").write_bytes(b"x"),
                 lambda: (other / "new").symlink_to("file"),
                 lambda: os.mkfifo(other / "new")):
        with pytest.raises(OSError) as refused:
            take()
        assert refused.value.errno == errno.EBUSY
    (other / "third").rmdir()
    (other / "file").unlink()
    renaming.result(timeout=30)
    check_one_is_whole(other, simulator, prefix, "new")
