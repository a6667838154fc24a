# SPDX-License-Identifier: Apache-2.0
"""Removing name after name: requests, time, failures, and what is seen meanwhile."""

import errno
import os
import shutil
import subprocess
import time

import pytest
from harness.programs import wait_until
from harness.simulator import BUCKET


def put_files(simulator, prefix, count, directories=1):
    client = simulator.client()
    for i in range(count):
        client.put_object(Bucket=BUCKET, Key=f"{prefix}tree/{i % directories}/file{i:05}", Body=b"")


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
    put_files(simulator, prefix, 60)
    made = mount()
    names = sorted(os.listdir(made / "tree/0"))
    simulator.inject({"op": "DeleteObjects", "action": "access-denied"})
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


def test_unmounting_waits_for_the_batch(mount, simulator, prefix):
    put_files(simulator, prefix, 60)
    made = mount()
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
