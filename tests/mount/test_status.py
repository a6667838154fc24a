# SPDX-License-Identifier: Apache-2.0
"""What a mount says of itself."""

import json
import os
import re
import subprocess

import pytest

from harness.programs import CKPTFS, wait_until

MIB = 1 << 20


def status(*arguments) -> subprocess.CompletedProcess:
    return subprocess.run([CKPTFS, "status", *arguments], text=True, timeout=60, check=False, capture_output=True)


def told(made) -> dict:
    answer = status(made.path, "--json")
    assert answer.returncode == 0, answer.stderr
    return json.loads(answer.stdout)


def test_a_mount_at_rest(mount):
    made = mount("--max-memory", "128M")
    answer = told(made)
    assert answer["source"] == made.source
    assert answer["mount_point"] == str(made.path)
    assert answer["pid"] == made.process.pid
    assert answer["safe_to_stop"] and not answer["draining"]
    assert answer["files"] == answer["renames"] == answer["problems"] == []
    assert 100 * MIB < answer["memory_total"] <= 128 * MIB
    words = status(made.path).stdout
    assert words.startswith(f"{made.source} at {made.path}: ckptfs ")
    assert "safe to stop: yes" in words


def test_two_mounts_of_one_path_in_two_mount_namespaces_are_told_apart(mount, tmp_path):
    """Jobs of one user, each with a /tmp of its own, whose daemons share the directory of the control sockets."""
    place = tmp_path / "mnt"
    place.mkdir()
    made = [mount(at=place, within=["unshare", "--mount", "--propagation", "private"]) for _ in range(2)]

    def in_namespace_of(one, *words: str) -> subprocess.CompletedProcess:
        return subprocess.run(["nsenter", f"--mount=/proc/{one.process.pid}/ns/mnt", CKPTFS, *words], text=True,
                              timeout=60, check=False, capture_output=True)

    for one in made:
        answer = in_namespace_of(one, "status", place, "--json")
        assert json.loads(answer.stdout)["pid"] == one.process.pid, answer.stderr
        assert in_namespace_of(one, "status").stdout.count(f"{place}: ") == 1
    assert in_namespace_of(made[0], "unmount", place).returncode == 0
    assert made[0].process.wait(30) == 0
    assert json.loads(in_namespace_of(made[1], "status", place, "--json").stdout)["pid"] == made[1].process.pid
    assert in_namespace_of(made[1], "unmount", place).returncode == 0


def test_another_user_hears_that_it_is_not_theirs_to_ask(mount):
    made = mount("--allow-other")
    answer = subprocess.run(["setpriv", "--reuid=nobody", "--clear-groups", CKPTFS, "status", made.path], text=True,
                            timeout=60, check=False, capture_output=True)
    assert answer.returncode != 0
    assert "Permission denied; a daemon answers only root and the user who mounted it" in answer.stderr
    assert "ended" not in answer.stderr


def test_a_file_that_is_being_written(mount, simulator, prefix):
    made = mount()
    with open(made / "model.pt", "wb", buffering=0) as file:
        for _ in range(40):
            file.write(os.urandom(MIB))
        answer = told(made)
        assert not answer["safe_to_stop"]
        assert answer["files_open"] == answer["files_unsaved"] == 1
        assert answer["files"][0]["key"] == prefix + "model.pt"
        assert answer["files"][0]["size"] == 40 * MIB
        assert "safe to stop: no, 1 file not saved yet" in status(made.path).stdout
        os.fsync(file.fileno())
        answer = told(made)
        assert answer["safe_to_stop"] and answer["files_open"] == 1
    wait_until(lambda: told(made)["files"] == [], "the file to be closed")


def test_what_moves_and_what_is_read(mount):
    made = mount("--compress", "none")
    data = os.urandom(24 * MIB)
    (made / "model.pt").write_bytes(data)
    with open(made / "model.pt", "rb") as file:
        file.read(2 * MIB)
        answer = told(made)
        assert answer["files_read"] == 1
        assert answer["reads"][0]["key"].endswith("model.pt") and answer["reads"][0]["size"] == 24 * MIB
        # The kernel asks for several ranges at once; the one that was answered last counts.
        assert MIB <= answer["reads"][0]["position"] <= 24 * MIB
        assert "being read: 1 file\n" in status(made.path).stdout
    answer = told(made)
    assert answer["totals"]["written"] == 24 * MIB <= answer["totals"]["sent"]
    # Of the last seconds only.
    wait_until(lambda: (made / "more.pt").write_bytes(data) and told(made)["rates"]["written"] > 0, "a rate")
    assert answer["store"]["requests"] > 4 and answer["store"]["retries"] == 0
    assert answer["cache_hits"] + answer["cache_misses"] > 0
    assert re.search(r"^now: [0-9.]+ MiB/s written, ", status(made.path).stdout, re.MULTILINE)


def test_requests_that_are_tried_again_are_counted(mount, simulator):
    made = mount()
    simulator.inject({"op": "PutObject", "action": "503", "times": 2})
    (made / "small").write_bytes(b"x")
    answer = told(made)
    assert answer["store"]["retries"] == answer["store"]["slow_downs"] == 2


def test_waiting_until_it_is_safe_to_stop(mount, simulator, prefix):
    made = mount()
    with open(made / "model.pt", "wb", buffering=0) as file:
        file.write(b"x")
        waiting = subprocess.Popen([CKPTFS, "status", "--wait", made.path], text=True, stdout=subprocess.PIPE)
        # Who does not wait ends before those who are started later.
        for _ in range(3):
            assert not told(made)["safe_to_stop"]
            assert waiting.poll() is None
    words, _ = waiting.communicate(timeout=60)
    assert waiting.returncode == 0
    assert "safe to stop: yes" in words
    assert simulator.keys(prefix) == [prefix + "model.pt"]


def test_the_last_problems_are_told(mount, simulator, prefix):
    made = mount()
    simulator.inject({"op": "PutObject", "key": prefix + "bad", "action": "403"})
    try:
        (made / "bad").write_bytes(b"x")
    except OSError:
        pass
    assert told(made)["safe_to_stop"] and told(made)["files_failed"] == 1
    assert "failed since it was mounted: 1 file" in status(made.path).stdout
    assert any("AccessDenied" in problem and prefix + "bad" in problem for problem in told(made)["problems"])
    # It holds commit markers back until it is made good.
    assert told(made)["files_unwritten"] == 1
    assert told(made)["unwritten"][0]["key"] == prefix + "bad"
    assert f"  {prefix}bad: PutObject" in status(made.path).stdout
    simulator.clear_faults()
    (made / "bad").write_bytes(b"x")
    assert told(made)["files_unwritten"] == 0 and told(made)["files_failed"] == 1
    assert "commit markers are held back" not in status(made.path).stdout


def test_it_is_not_safe_to_stop_before_other_mounts_are_told_what_failed(mount, simulator, prefix):
    made = mount("--retry-for", "2s")
    simulator.inject({"op": "PutObject", "key": prefix + "bad", "action": "403"},
                     {"op": "PutObject", "key": prefix + ".ckptfs/failed/*", "action": "500"})
    with pytest.raises(OSError):
        (made / "bad").write_bytes(b"x")
    assert not told(made)["safe_to_stop"] and told(made)["failures_untold"] == 1
    assert "safe to stop: no, 1 failed file not recorded for other mounts yet\n" in status(made.path).stdout
    simulator.clear_faults()
    waited = status(made.path, "--wait")
    assert waited.returncode == 0 and "safe to stop: yes\n" in waited.stdout
    assert simulator.failed_files(prefix) == ["bad"]


def test_all_mounts_are_told_of_and_none_is_an_error(mount, tmp_path):
    made, other = mount(), mount()
    words = status().stdout
    assert str(made.path) in words and str(other.path) in words
    answer = status(tmp_path)
    assert answer.returncode == 1
    assert answer.stderr == f"ckptfs: no ckptfs is mounted at {tmp_path}\n"


def test_a_daemon_tells_of_what_it_saves_after_its_mount_was_taken_away(mount, simulator, prefix):
    made = mount()
    simulator.inject({"op": "UploadPart", "action": "slow", "ms": 3000})
    with open(made / "model.pt", "wb", buffering=0) as file:
        for _ in range(40):
            file.write(os.urandom(1 << 20))
        subprocess.run(["umount", "-l", made.path], check=True)
        assert told(made)["safe_to_stop"] is False
        # Also to those who ask for all.
        assert f" at {made.path}: " in status().stdout
    assert made.process.wait(60) == 0
    assert f" at {made.path}: " not in status().stdout
    assert len(simulator.content(prefix + "model.pt")) == 40 << 20
    assert status(made.path).returncode == 1


def test_a_daemon_that_still_saves_is_heard_after_its_place_was_mounted_again(mount, simulator, prefix):
    made = mount()
    simulator.inject({"op": "UploadPart", "key": prefix + "model.pt", "action": "slow", "ms": 3000})
    with open(made / "model.pt", "wb", buffering=0) as file:
        for _ in range(40):
            file.write(os.urandom(1 << 20))
        subprocess.run(["umount", "-l", made.path], check=True)
        following = mount(at=made.path)
        for asked in (made.path,), ():
            words = status(*asked).stdout
            assert f"pid {made.process.pid}, " in words and f"pid {following.process.pid}, " in words
        assert '"safe_to_stop":false' in status(made.path, "--json").stdout
    # Its answer comes when both are done.
    assert status(made.path, "--wait").returncode == 0
    assert len(simulator.content(prefix + "model.pt")) == 40 << 20
    assert made.process.wait(60) == 0
    assert f"pid {made.process.pid}, " not in status().stdout
    assert told(following)["safe_to_stop"] is True


def test_a_bind_mount_is_told_of_as_what_it_shows(mount, tmp_path):
    made = mount()
    (made / "directory").mkdir()
    subprocess.run(["mount", "--bind", made / "directory", tmp_path], check=True)
    try:
        shown = json.loads(status(tmp_path, "--json").stdout)
        assert (shown["mount_point"], shown["pid"]) == (str(made.path), made.process.pid)
        words = status()
        assert words.stdout.count(f" at {made.path}: ") == 1
        assert str(tmp_path) not in words.stdout + words.stderr
        refused = subprocess.run([CKPTFS, "unmount", tmp_path], text=True, capture_output=True, check=False)
        assert refused.returncode == 1
        assert f"is a bind mount of {made.path}: remove it with umount" in refused.stderr
        assert told(made)["safe_to_stop"] is True
    finally:
        subprocess.run(["umount", tmp_path], check=True)
