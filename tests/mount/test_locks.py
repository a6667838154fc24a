# SPDX-License-Identifier: Apache-2.0
"""Locks within one node: files that programs open anew, truncating them, to lock them."""

import fcntl
import os
import subprocess
import sys
import textwrap

import filelock
import pytest
from harness.programs import wait_until

# Each takes the lock and, while it has it, makes a directory that it finds taken where another has it, too.
TAKE = """
    import fcntl, os, sys, time
    path, rounds = sys.argv[1], int(sys.argv[2])
    for _ in range(rounds):
        {take}
        os.mkdir(path + ".held")
        time.sleep(0.002)
        os.rmdir(path + ".held")
        {give}
"""
WAYS = {
    "flock": ('file = open(path, "w"); fcntl.flock(file, fcntl.LOCK_EX)', "file.close()"),
    "lockf": ('file = open(path, "w"); fcntl.lockf(file, fcntl.LOCK_EX)', "file.close()"),
    "read and write": ('file = open(path, "w+"); fcntl.flock(file, fcntl.LOCK_EX)', "file.close()"),
    "its pid": ('file = open(path, "w"); fcntl.flock(file, fcntl.LOCK_EX); file.write(str(os.getpid())); file.flush()',
                "file.close()"),
    "its pid, by lockf": ('file = open(path, "w"); fcntl.lockf(file, fcntl.LOCK_EX); file.write(str(os.getpid())); '
                          "file.flush()", "file.close()"),
    "filelock": ("import filelock; lock = filelock.FileLock(path); lock.acquire()", "lock.release()"),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("is_there", [False, True], ids=["new", "there"])
def test_eight_processes_that_truncate_a_lock_file_take_turns(mount, tmp_path_factory, way, is_there):
    made = mount()
    if is_there:
        (made / "lock").touch()
    take, give = WAYS[way]
    # What they see of one another is on a local disk: only the lock is on the mount.
    script = textwrap.dedent(TAKE).format(take=take, give=give).replace("path + \".held\"", "sys.argv[3]")
    held = tmp_path_factory.mktemp("held") / "held"
    processes = [subprocess.Popen([sys.executable, "-c", script, made / "lock", "10", held], stderr=subprocess.PIPE)
                 for _ in range(8)]
    failures = [process.communicate(timeout=120)[1].decode() for process in processes]
    assert [failure for failure in failures if failure] == []


def test_the_lock_is_kept_from_one_that_truncates(mount):
    made = mount()
    with filelock.FileLock(made / "lock"):
        with pytest.raises(filelock.Timeout):
            filelock.FileLock(made / "lock", timeout=0).acquire()
        with pytest.raises(subprocess.CalledProcessError) as refused:
            subprocess.run(["flock", "--nonblock", "--conflict-exit-code", "7", made / "lock", "true"], check=True)
        assert refused.value.returncode == 7
    subprocess.run(["flock", "--nonblock", made / "lock", "true"], check=True)


def waiter(path) -> subprocess.Popen:
    """Opens it, as a process does that goes on to wait for its lock."""
    script = "import sys; file = open(sys.argv[1], 'w'); print(flush=True); input()"
    process = subprocess.Popen([sys.executable, "-c", script, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    process.stdout.readline()
    return process


def test_the_lock_of_who_has_written_its_pid_outlives_the_death_of_one_that_waits_for_it(mount, simulator, prefix):
    made = mount()
    with open(made / "lock", "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        held.write("pid")
        held.flush()
        waits = waiter(made / "lock")
        waits.kill()
        waits.communicate()
        script = "import fcntl, sys; fcntl.flock(open(sys.argv[1], 'w'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
        refused = subprocess.run([sys.executable, "-c", script, made / "lock"], capture_output=True, text=True)
        assert "BlockingIOError" in refused.stderr
    assert simulator.content(prefix + "lock") == b"pid"


@pytest.mark.parametrize("how", ["w", "r+", "a"])
@pytest.mark.parametrize("before", ["nothing", "a file", "a maker that is killed", "one that had the lock"])
def test_the_lock_outlives_the_death_of_one_that_waits_for_it(mount, before, how):
    made = mount()
    if before == "a file" or (before == "nothing" and how == "r+"):
        (made / "lock").touch()
    first = waiter(made / "lock") if before in ("a maker that is killed", "one that had the lock") else None
    with open(made / "lock", how) as held:
        if first is not None:
            if before == "a maker that is killed":
                first.kill()
            first.communicate(b"\n")
        fcntl.flock(held, fcntl.LOCK_EX)
        waits = waiter(made / "lock")
        waits.kill()
        waits.communicate()
        with open(made / "lock", "w") as other, pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    # No file failed.
    (made / ".metadata").write_bytes(b"whole")


def test_flock_of_the_shell(mount):
    made = mount()
    script = 'for i in 1 2 3 4 5; do flock "$1" sh -c \'mkdir "$1" && rmdir "$1"\' sh "$2" || exit 1; done'
    held = made.path.parent / "held"
    processes = [subprocess.Popen(["sh", "-c", script, "sh", made / "lock", held]) for _ in range(8)]
    assert [process.wait(120) for process in processes] == [0] * 8


def test_writers_that_truncated_one_file_before_either_wrote_do_not_mix(mount, simulator, prefix):
    made = mount()
    for way in (os.O_WRONLY, os.O_RDWR):
        one, other = (os.open(made / "file", way | os.O_CREAT | os.O_TRUNC) for _ in range(2))
        os.write(one, b"1" * 10)
        os.write(other, b"2" * 5)
        os.write(one, b"1" * 10)
        os.close(one)
        assert simulator.content(prefix + "file") == b"1" * 20
        os.close(other)
        assert simulator.content(prefix + "file") == b"2" * 5
        assert (made / "file").read_bytes() == b"2" * 5


def test_who_truncated_and_sets_a_size_does_not_cut_what_another_wrote(mount, simulator, prefix):
    made = mount()
    for size in (5, 0, 50):
        one, other = (os.open(made / "file", os.O_RDWR | os.O_CREAT | os.O_TRUNC) for _ in range(2))
        os.write(one, b"1" * 20)
        os.ftruncate(other, size)
        os.close(one)
        assert simulator.content(prefix + "file") == b"1" * 20
        os.close(other)
        assert simulator.content(prefix + "file") == bytes(size)


def test_a_close_without_a_write_leaves_a_size_that_another_process_has_set_to_it(mount, simulator, prefix):
    made = mount()
    script = textwrap.dedent("""
        import os, sys
        file = os.open(sys.argv[1], os.O_WRONLY | os.O_TRUNC)
        os.ftruncate(file, 20)
        print(flush=True)
        input()
        os.write(file, b"1" * 20)
    """)
    with open(made / "file", "wb"):
        other = subprocess.Popen([sys.executable, "-c", script, made / "file"], stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE)
        other.stdout.readline()
    assert simulator.keys(prefix + "file") == []
    other.communicate(b"\n")
    assert simulator.content(prefix + "file") == b"1" * 20


def test_who_writes_is_not_harmed_by_the_death_of_one_that_only_truncated(mount, simulator, prefix):
    made = mount()
    other = waiter(made / "file")
    with open(made / "file", "wb", buffering=0) as file:
        file.write(b"whole")
        other.kill()
        other.communicate()
    assert simulator.content(prefix + "file") == b"whole"


def test_who_truncates_is_not_harmed_by_the_death_of_another_that_only_truncated(mount, simulator, prefix):
    made = mount()
    (made / "file").write_bytes(b"earlier")
    other = waiter(made / "file")
    with open(made / "file", "wb"):
        other.kill()
        other.communicate()
        assert simulator.content(prefix + "file") == b"earlier"
    assert simulator.content(prefix + "file") == b""


def test_the_last_of_those_that_truncated_it_is_killed_where_the_others_are_gone(mount, simulator, prefix):
    made = mount()
    (made / "file").write_bytes(b"earlier")
    with open(made / "file", "wb") as file:
        child = subprocess.Popen(["sleep", "1000"], stdout=file)
    other = waiter(made / "file")
    for each in (child, other):
        each.kill()
        each.communicate()
    wait_until(lambda: "its writer was killed" in made.log(), "the version to be given up")
    assert simulator.content(prefix + "file") == b"earlier"
    assert simulator.failed_files(prefix) == ["file"]


RENAMES_AND_READS = """
    import os, sys, time
    path, end = sys.argv[1], time.monotonic() + 3
    while time.monotonic() < end:
        try:
            with open(path + ".tmp", "wb") as file:
                file.write(b"early" * 1000)
            os.rename(path + ".tmp", path)
            open(path, "rb", buffering=0).read(10000)
        except OSError:
            pass
"""
TRUNCATES = """
    import sys, time
    path, end, rounds = sys.argv[1], time.monotonic() + 3, 0
    while time.monotonic() < end:
        with open(path, "wb", buffering=0) as file:
            file.write(b"late" * 30)
        rounds += 1
    print(rounds)
"""


@pytest.mark.parametrize("direct_io", ["auto", "never"])
def test_who_truncates_beside_renames_and_readers_succeeds(mount, direct_io):
    made = mount("--direct-io", direct_io)
    renames, truncates = (subprocess.Popen([sys.executable, "-c", textwrap.dedent(script), made / "file"],
                                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                          for script in (RENAMES_AND_READS, TRUNCATES))
    output, failure = truncates.communicate(timeout=60)
    assert (renames.wait(60), truncates.returncode, failure) == (0, 0, "")
    assert int(output) > 10


@pytest.mark.parametrize("direct_io", ["auto", "never"])
def test_each_of_those_that_truncated_one_file_sees_its_own_size_and_bytes(mount, direct_io):
    made = mount("--direct-io", direct_io)
    one, other = (os.open(made / "file", os.O_RDWR | os.O_CREAT | os.O_TRUNC) for _ in range(2))
    os.write(one, b"1" * 20)
    os.write(other, b"2" * 30)
    for descriptor, content in ((one, b"1" * 20), (other, b"2" * 30)) * 2:
        assert os.lseek(descriptor, 0, os.SEEK_END) == len(content)
        assert os.pread(descriptor, 100, 0) == content
    os.close(one)
    os.close(other)


def test_versions_behind_one_inode_share_no_page(mount):
    made = mount("--direct-io", "never")
    with open(made / "file", "wb"):
        with open(made / "file", "wb"):
            pass
        # Nothing is left to save now.
        one, other = (os.open(made / "file", os.O_RDWR | os.O_TRUNC) for _ in range(2))
        os.write(one, b"1" * 20)
        os.write(other, b"2" * 30)
        assert os.pread(one, 100, 0) == b"1" * 20
        assert os.pread(other, 100, 0) == b"2" * 30
        os.close(one)
        os.close(other)


def test_an_empty_file_that_is_truncated_while_its_name_is_written_reads_as_empty(mount):
    made = mount("--direct-io", "always")
    with open(made / "file", "wb", buffering=0) as writer:
        writer.write(bytes(1000))
        with open(made / "file", "wb"):
            with open(made / "file", "rb") as reader:
                writer.write(bytes(1000))
                assert reader.read() == b""


def test_who_truncated_and_did_not_write_does_not_empty_what_was_written_since(mount, simulator, prefix):
    made = mount()
    idle = open(made / "file", "w")
    (made / "file").write_bytes(b"written since")
    idle.close()
    assert simulator.content(prefix + "file") == b"written since"


@pytest.mark.parametrize("size", [0, 5000])
def test_who_opened_a_truncated_file_reads_what_is_saved_of_it_while_another_version_is_written(mount, size):
    made = mount()
    (made / "file").write_bytes(b"1" * size)
    script = """
        import os, sys
        file = os.open(sys.argv[1], os.O_WRONLY | os.O_TRUNC)
        print(flush=True)
        sys.stdin.readline()
        os.pwrite(file, b"3" * 300_000, 65_536)
        print(flush=True)
        sys.stdin.readline()
    """
    other = subprocess.Popen([sys.executable, "-c", textwrap.dedent(script), made / "file"], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE)
    other.stdout.readline()
    with open(made / "file", "rb") as reader:
        (made / "file").write_bytes(b"2" * 65_536)
        other.stdin.write(b"\n")
        other.stdin.flush()
        other.stdout.readline()
        assert reader.read() == b"2" * 65_536
    other.communicate(b"\n")


@pytest.mark.parametrize("size", [1, 3 << 20])
@pytest.mark.parametrize("direct_io", ["auto", "never"])
def test_eight_processes_that_write_one_name_all_succeed(mount, simulator, prefix, direct_io, size):
    made = mount("--direct-io", direct_io)
    script = textwrap.dedent("""
        import os, sys
        for round in range(20):
            with open(sys.argv[1], "wb") as file:
                file.write(sys.argv[2].encode() * int(sys.argv[3]))
    """)
    processes = [subprocess.Popen([sys.executable, "-c", script, made / "file", str(number), str(size)],
                                  stderr=subprocess.PIPE) for number in range(8)]
    failures = [process.communicate(timeout=300)[1].decode() for process in processes]
    assert [failure for failure in failures if failure] == []
    content = simulator.content(prefix + "file")
    assert len(content) == size and len(set(content)) == 1


@pytest.mark.parametrize("access", [os.O_WRONLY, os.O_RDWR])
@pytest.mark.parametrize("before", [None, b"earlier"])
def test_who_opens_a_truncated_file_without_truncating_it_writes_the_same_version(mount, simulator, prefix, access, before):
    """A header that is written last, and what another process fills by dd conv=notrunc."""
    path = mount() / "shard"
    if before is not None:
        path.write_bytes(before)
    first = os.open(path, access | os.O_CREAT | os.O_TRUNC)
    fill = "import os, sys; os.pwrite(os.open(sys.argv[1], os.O_WRONLY), b'body' * 25_000, 6)"
    subprocess.run([sys.executable, "-c", fill, path], check=True)
    os.pwrite(first, b"header", 0)
    os.pwrite(first, b"trailer", 100_006)
    os.close(first)
    assert simulator.content(prefix + "shard") == b"header" + b"body" * 25_000 + b"trailer"


def test_who_had_the_file_open_before_it_was_truncated_writes_another_version(mount, simulator, prefix):
    """They do not mix; the last commit wins, whole."""
    path = mount() / "shard"
    leaked = os.open(path, os.O_WRONLY | os.O_CREAT)
    saved = os.open(path, os.O_WRONLY | os.O_TRUNC)
    os.write(leaked, b"half of the first attempt")
    os.write(saved, b"whole")
    os.close(saved)
    assert simulator.content(prefix + "shard") == b"whole"
    os.close(leaked)
    assert simulator.content(prefix + "shard") == b"half of the first attempt"
