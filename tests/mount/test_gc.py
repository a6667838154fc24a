# SPDX-License-Identifier: Apache-2.0
"""Uploads that nobody will complete."""

import json
import os
import signal
import subprocess

import pytest
from harness.programs import CKPTFS, wait_until
from harness.simulator import BUCKET

MIB = 1 << 20
TWO_HOURS = 7200


@pytest.fixture
def gc(simulator, prefix):
    def run(*options: str) -> subprocess.CompletedProcess:
        return subprocess.run([CKPTFS, "gc", f"s3://{BUCKET}/{prefix.rstrip('/')}", *options], capture_output=True, text=True,
                              timeout=60, check=False, env={**os.environ, **simulator.environment()})
    return run


@pytest.fixture
def killed(mount, simulator):
    """A mount that was killed two hours ago while it uploaded."""
    made = mount()
    simulator.reset_counters()
    simulator.set_model(clock_offset_s=-TWO_HOURS)
    try:
        descriptor = os.open(made / "model.pt", os.O_WRONLY | os.O_CREAT)
        for _ in range(40):
            os.write(descriptor, os.urandom(MIB))
        wait_until(lambda: any(request["op"] == "UploadPart" for request in simulator.requests()), "a part")
        made.process.send_signal(signal.SIGKILL)
        made.process.wait()
        os.close(descriptor)
    except OSError:
        # close(2) of what leads nowhere any more.
        pass
    finally:
        simulator.set_model(clock_offset_s=0)
    return made


def test_the_uploads_of_a_killed_mount_are_told_and_ended(killed, gc, simulator, prefix):
    assert ", young\n" in gc().stdout
    told = gc("--older-than", "1h")
    assert told.returncode == 0
    assert "abandoned" in told.stdout and "--end aborts or removes them" in told.stdout
    upload, totals = [json.loads(line) for line in gc("--older-than", "1h", "--end", "--json").stdout.splitlines()]
    assert (upload["key"], upload["state"], upload["ended"]) == (prefix + "model.pt", "abandoned", True)
    assert TWO_HOURS - 60 <= upload["age_seconds"] <= TWO_HOURS + 60
    assert (totals["uploads"], totals["ended"], totals["problems"]) == (1, 1, 0)
    assert simulator.open_uploads() == []


def test_hidden_files_of_the_prefix_are_told_and_no_others(gc, simulator, prefix):
    simulator.put(prefix + ".ckptfs/tmp/1", b"hidden")
    simulator.put(prefix.rstrip("/") + "2/.ckptfs/tmp/1", b"of another")
    file, totals = gc().stdout.splitlines()
    assert file == f"{prefix}.ckptfs/tmp/1: hidden file, 0.0 MiB, begun 0 h ago, young"
    assert totals.startswith("0 uploads open and 1 hidden file, 0.0 MiB")


@pytest.fixture
def killed_renaming(mount, simulator, prefix):
    """A mount that was killed two hours ago in the middle of a rename, after a file had failed."""
    made = mount()
    simulator.set_model(clock_offset_s=-TWO_HOURS)
    try:
        (made / "old").mkdir()
        (made / "old/model.pt").write_bytes(b"x" * 100)
        simulator.inject({"op": "PutObject", "key": prefix + "bad.pt", "action": "403"},
                         {"op": "CopyObject", "key": "*new/*", "action": "hang"})
        with pytest.raises(OSError):
            (made / "bad.pt").write_bytes(b"x" * 100)
        wait_until(lambda: any(request["key"] == prefix + ".ckptfs/failed/bad.pt" and request["status"] == 200
                               for request in simulator.requests()), "the record of the failed file")
        renaming = subprocess.Popen(["mv", "-T", made / "old", made / "new"], stderr=subprocess.DEVNULL)
        wait_until(lambda: simulator.fault_hits() > 1, "a copy")
    finally:
        made.process.send_signal(signal.SIGKILL)
        made.process.wait()
        simulator.clear_faults()
        simulator.set_model(clock_offset_s=0)
    assert renaming.wait(30) != 0


def test_records_are_kept_for_those_who_need_them(killed_renaming, mount, gc, simulator, prefix):
    def state_of(*kinds: str) -> list[str]:
        lines = [json.loads(line) for line in gc("--older-than", "1h", "--end", "--json").stdout.splitlines()]
        assert lines[-1]["problems"] == 0
        return [line["state"] for kind in kinds for line in lines if line.get("kind") == kind]

    # As mounts write it after their first ten minutes.
    simulator.put(prefix + ".ckptfs/mounts/1", b"host: node1\n")
    assert state_of("failure") == ["perhaps in use"]
    simulator.client().delete_object(Bucket=BUCKET, Key=prefix + ".ckptfs/mounts/1")
    assert state_of("failure", "rename", "rename-names") == ["abandoned", "unfinished", "unfinished"]
    assert state_of("failure") == []
    # Nothing of it was taken from the mount that ends it.
    made = mount("--rename-repair-after", "2s")
    wait_until(lambda: os.listdir(made.path) == ["old"] and state_of("rename", "rename-names") == [], "the repair")
    assert (made / "old/model.pt").read_bytes() == b"x" * 100


def test_nothing_young_is_ended(gc):
    refused = gc("--older-than", "10m", "--end")
    assert refused.returncode == 2
    assert "at least 1h" in refused.stderr
