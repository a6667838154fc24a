# SPDX-License-Identifier: Apache-2.0
"""A name that is written anew while an earlier version of it is still open: by a retry, a leak, or another program."""

import errno
import os
import subprocess
import sys
import textwrap

import pytest
from harness.programs import wait_until

pytestmark = pytest.mark.sanitized

NEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC


def begin(path, content, flags=NEW):
    descriptor = os.open(path, flags)
    os.write(descriptor, content)
    return descriptor


def another_process(script, *arguments):
    """Runs until a line is sent to it; it has said one itself when this returns."""
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout.readline()
    return process


def another_writer(path, content, script, *arguments):
    """A process that has written `content` to a new version at `path`, by `file`, and goes on by the script then."""
    begun = """
        import os, sys
        file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.write(file, sys.argv[2].encode())
        print(flush=True)
        sys.stdin.readline()
    """
    return another_process(textwrap.dedent(begun) + textwrap.dedent(script), path, content, *arguments)


def go_on(process):
    """Until it says the next line."""
    process.stdin.write(b"\n")
    process.stdin.flush()
    assert process.stdout.readline()


def commit_marker(directory):
    (directory / ".metadata.tmp").write_bytes(b"marker")
    (directory / ".metadata.tmp").rename(directory / ".metadata")


@pytest.fixture
def step(mount):
    directory = mount("--publish-interval", "200ms") / "step"
    directory.mkdir()
    return directory


def test_a_leaked_attempt_is_not_published_with_the_marker(step, simulator, prefix):
    leaked = begin(step / "shard", b"half of the first attempt")
    (step / "shard").write_bytes(b"whole")
    commit_marker(step)
    os.close(leaked)
    assert simulator.content(prefix + "step/shard") == b"whole"
    assert simulator.content(prefix + "step/.metadata") == b"marker"
    assert simulator.open_uploads(prefix) == []


@pytest.mark.parametrize("size", [100, 300_000])
def test_what_a_kept_exception_has_buffered_does_not_replace_the_next_attempt(step, simulator, prefix, size):
    """Python writes it when the exception, or the process, is gone."""
    writer = another_process("""
        import sys
        kept = []
        def save(attempt):
            file = open(sys.argv[1], "wb")
            file.write(attempt * int(sys.argv[2]))
            if attempt == b"1":
                raise RuntimeError
            file.close()
        try:
            save(b"1")
        except RuntimeError as error:
            kept.append(error)
        save(b"2")
        print(flush=True)
        sys.stdin.readline()
    """, step / "shard", size)
    assert simulator.content(prefix + "step/shard") == b"2" * size
    writer.communicate(b"\n")
    assert simulator.content(prefix + "step/shard") == b"2" * size


def test_a_process_that_wrote_a_file_anew_cannot_go_on_with_the_earlier_attempt(step, simulator, prefix):
    leaked = begin(step / "shard", b"half")
    (step / "shard").write_bytes(b"whole")
    with pytest.raises(OSError) as refused:
        os.write(leaked, b"the rest")
    assert refused.value.errno == errno.ESTALE
    with pytest.raises(OSError) as refused:
        os.close(leaked)
    assert refused.value.errno == errno.ESTALE
    assert simulator.content(prefix + "step/shard") == b"whole"


def test_who_writes_on_after_another_process_wrote_the_name_wins(step, simulator, prefix):
    other = another_writer(step / "shard", "first ", """
        os.write(file, b"and last")
    """)
    (step / "shard").write_bytes(b"between")
    assert simulator.content(prefix + "step/shard") == b"between"
    other.communicate(b"\n")
    assert simulator.content(prefix + "step/shard") == b"first and last"


def test_a_save_cuts_away_what_came_before_although_another_has_emptied_the_file_earlier(step, simulator, prefix):
    first = another_writer(step / "shard", "half", """
        os.write(file, b" more")
        print(flush=True)
        sys.stdin.readline()
    """)
    emptied = os.open(step / "shard", NEW)
    go_on(first)
    (step / "shard").write_bytes(b"whole")
    assert simulator.content(prefix + "step/shard") == b"whole"
    first.communicate(b"\n")
    assert simulator.content(prefix + "step/shard") == b"whole"
    os.close(emptied)
    assert simulator.content(prefix + "step/shard") == b"whole"


def test_a_log_goes_on_after_it_was_emptied(step, simulator, prefix):
    """exec > train.log; : > train.log: the process writes on by its first descriptor."""
    log = begin(step / "train.log", b"first\n")
    (step / "train.log").write_bytes(b"")
    os.write(log, b"second\n")
    os.close(log)
    assert simulator.content(prefix + "step/train.log").endswith(b"second\n")


APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND


@pytest.mark.parametrize("saved", ["before", "after"])
def test_what_is_appended_lands_behind_what_was_written_anew(step, simulator, prefix, saved):
    """exec >> train.log; : > train.log, and then another run's lines."""
    log = begin(step / "train.log", b"first\n", APPEND)
    if saved == "before":
        os.fsync(log)
    (step / "train.log").write_bytes(b"")
    os.write(log, b"second\n")
    os.fsync(log)
    assert simulator.content(prefix + "step/train.log") == b"second\n"
    (step / "train.log").write_bytes(b"another run\n")
    os.write(log, b"third\n")
    assert os.fstat(log).st_size == len(b"another run\nthird\n")
    os.close(log)
    assert simulator.content(prefix + "step/train.log") == b"another run\nthird\n"
    assert (step / "train.log").read_bytes() == b"another run\nthird\n"
    assert simulator.open_uploads(prefix) == []


def test_who_appends_to_an_earlier_version_does_not_bring_it_back(step, simulator, prefix):
    """The file was empty to all, was saved by one, and then saved anew."""
    other = os.open(step / "train.log", NEW)
    log = os.open(step / "train.log", APPEND)
    (step / "train.log").write_bytes(b"1")
    (step / "train.log").write_bytes(b"whole" * 60_000)
    os.write(log, b"!")
    os.close(log)
    assert simulator.content(prefix + "step/train.log") == b"whole" * 60_000 + b"!"
    os.close(other)
    assert simulator.content(prefix + "step/train.log") == b"whole" * 60_000 + b"!"


def test_what_is_appended_joins_what_another_appends_to(step, simulator, prefix):
    log = begin(step / "train.log", b"first\n", APPEND)
    (step / "train.log").write_bytes(b"anew\n")
    other = begin(step / "train.log", b"appended\n", APPEND)
    os.write(log, b"second\n")
    os.write(other, b"more\n")
    os.close(log)
    os.close(other)
    assert simulator.content(prefix + "step/train.log") == b"anew\nappended\nsecond\nmore\n"


def test_what_is_appended_joins_what_is_being_written_anew(step, simulator, prefix):
    """As on a local disk; it does not publish its own version over that."""
    log = begin(step / "train.log", b"first\n", APPEND)
    anew = begin(step / "train.log", b"anew\n" * (1 << 20))
    os.fsync(anew)
    os.write(log, b"appended\n")
    os.fsync(log)
    assert simulator.content(prefix + "step/train.log") == b"anew\n" * (1 << 20) + b"appended\n"
    os.close(anew)
    os.close(log)
    assert simulator.content(prefix + "step/train.log") == b"anew\n" * (1 << 20) + b"appended\n"


def test_who_reads_what_is_appended_to_by_an_earlier_descriptor_sees_it_grow(step, simulator, prefix):
    log = begin(step / "train.log", b"first\n", APPEND)
    (step / "train.log").write_bytes(b"another run\n")
    with open(step / "train.log", "rb") as reader:
        assert reader.read() == b"another run\n"
        os.write(log, b"second\n")
        os.fsync(log)
        wait_until(lambda: os.fstat(reader.fileno()).st_size == len(b"another run\nsecond\n"), "the file to grow")
        assert reader.read() == b"second\n"
    os.close(log)


def test_what_is_appended_where_nothing_has_the_name_fails(mount, simulator, prefix):
    one, other = mount("--publish-interval", "0"), mount("--publish-interval", "0")
    log = begin(one / "train.log", b"first\n", APPEND)
    (one / "train.log").write_bytes(b"another run\n")
    (other / "train.log").unlink()
    wait_until(lambda: not (one / "train.log").exists(), "the other mount's removal to show")
    with pytest.raises(OSError) as refused:
        os.write(log, b"second\n")
    assert refused.value.errno == errno.ESTALE
    os.close(log)
    assert simulator.keys(prefix) == []


def test_who_truncates_what_is_still_open_and_empty_replaces_what_another_mount_has_saved(mount, simulator, prefix):
    one, other = mount(), mount()
    log = os.open(one / "train.log", APPEND)
    (one / "train.log").write_bytes(b"")
    assert simulator.content(prefix + "train.log") == b""
    (other / "train.log").write_bytes(b"another mount")
    (one / "train.log").write_bytes(b"anew")
    assert simulator.content(prefix + "train.log") == b"anew"
    os.close(log)
    assert simulator.content(prefix + "train.log") == b"anew"


@pytest.mark.parametrize("access", [os.O_WRONLY, os.O_RDWR, APPEND])
def test_who_truncates_what_is_open_and_empty_empties_what_another_mount_has_saved(mount, simulator, prefix, access):
    one, other = mount(), mount()
    held = os.open(one / "run.lock", access | os.O_CREAT | os.O_TRUNC)
    (one / "run.lock").write_bytes(b"")
    assert simulator.content(prefix + "run.lock") == b""
    (other / "run.lock").write_bytes(b"another mount")
    (one / "run.lock").write_bytes(b"")
    assert simulator.content(prefix + "run.lock") == b""
    os.close(held)


def test_a_leaked_log_is_not_published_over_a_later_one(step, simulator, prefix):
    leaked = begin(step / "train.log", b"half")
    (step / "train.log").write_bytes(b"whole")
    # Published once more, after what the earlier one would have been.
    with open(step / "other.log", "w") as other:
        for lines in range(1, 4):
            other.write("line\n")
            other.flush()
            wait_until(lambda: simulator.keys(prefix + "step/other.log")
                       and simulator.content(prefix + "step/other.log") == b"line\n" * lines, "the log to appear")
    assert simulator.content(prefix + "step/train.log") == b"whole"
    os.close(leaked)
    assert simulator.content(prefix + "step/train.log") == b"whole"


@pytest.mark.parametrize("written", ["before", "after"])
@pytest.mark.parametrize("how", ["unlink", "replace", "remove the tree", "rename", "rename the directory"])
def test_what_removes_or_renames_a_name_ends_earlier_versions(step, simulator, prefix, how, written):
    """Also where the earlier one was written to after the later one was saved."""
    earlier = another_writer(step / "file", "earlier ", """
        if sys.argv[3] == "after":
            os.write(file, b"and more")
        print(flush=True)
        sys.stdin.readline()
        try:
            os.close(file)
        except OSError as error:
            print(error.errno)
    """, written)
    (step / "file").write_bytes(b"later")
    go_on(earlier)
    expected = {prefix + "step/": b""}
    if how == "unlink":
        (step / "file").unlink()
    elif how == "replace":
        (step / "new").write_bytes(b"third")
        (step / "new").rename(step / "file")
        expected[prefix + "step/file"] = b"third"
    elif how == "remove the tree":
        (step / "file").unlink()
        step.rmdir()
        expected = {}
    elif how == "rename":
        (step / "file").rename(step / "name")
        expected[prefix + "step/name"] = b"later"
    else:
        step.rename(step.parent / "done")
        expected = {prefix + "done/": b"", prefix + "done/file": b"later"}
    said, _ = earlier.communicate(b"\n")
    assert {key: simulator.content(key) for key in simulator.keys(prefix)} == expected
    # What cannot be saved any more is told, but for what was cut away or removed.
    assert said.split() == ([b"%d" % errno.EIO] if written == "after" and how.startswith("rename") else [])


def test_what_another_mount_replaced_is_read_while_it_is_written_here(mount, simulator, prefix):
    """And the name stays with the writer: renaming the directory takes its bytes along."""
    made, other = mount("--metadata-ttl", "0"), mount("--metadata-ttl", "0")
    (made / "step").mkdir()
    (made / "step/file").write_bytes(b"old")
    writer = begin(made / "step/file", b"written here")
    (other / "step/file").write_bytes(b"written elsewhere")
    for _ in range(2):
        assert (made / "step/file").read_bytes() == b"written elsewhere"
    (made / "step").rename(made / "done")
    os.write(writer, b", more")
    os.close(writer)
    assert simulator.content(prefix + "done/file") == b"written here, more"
    assert simulator.keys(prefix + "step") == []


def test_a_follower_of_a_log_does_not_follow_the_next_one(mount):
    made = mount()
    (made / "log").write_bytes(b"a" * 1000)
    with open(made / "log", "rb", buffering=0) as reader:
        assert reader.read(10) == b"a" * 10
        os.close(begin(made / "log", b"b" * 1000, os.O_WRONLY | os.O_APPEND))
        wait_until(lambda: os.fstat(reader.fileno()).st_size == 2000, "the log to grow")
        os.close(begin(made / "log", b"N" * 5000, os.O_WRONLY | os.O_APPEND | os.O_TRUNC))
        assert os.fstat(reader.fileno()).st_size == 2000
        try:
            assert b"N" not in os.pread(reader.fileno(), 8000, 0)
        except OSError as error:
            assert error.errno == errno.ESTALE


def test_who_truncated_a_name_that_went_by_a_rename_does_not_make_it_again(step, simulator, prefix):
    """As on a local disk, where that file has the new name, and nothing the old one."""
    writer = another_process("""
        import os, sys
        first = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        second = os.open(sys.argv[1], os.O_WRONLY | os.O_TRUNC)
        print(flush=True)
        sys.stdin.readline()
        os.pwrite(second, b"of the second", 4096)
        print(flush=True)
        sys.stdin.readline()
        try:
            os.write(first, b"of the first")
            os.close(first)
            print("done", flush=True)
        except OSError as error:
            print(error.errno, flush=True)
        sys.stdin.readline()
    """, step / "shard")
    other = os.open(step / "shard", os.O_WRONLY | os.O_TRUNC)
    (step / "shard").write_bytes(b"whole")
    go_on(writer)
    os.close(other)
    (step / "shard").rename(step / "model")
    writer.stdin.write(b"\n")
    writer.stdin.flush()
    assert writer.stdout.readline() == b"%d\n" % errno.EIO
    writer.communicate(b"\n")
    assert os.listdir(step) == ["model"]
    assert [key for key in simulator.keys(prefix) if not key.endswith("/")] == [f"{prefix}step/model"]


@pytest.mark.parametrize("name", ["shard", "train.log"])
def test_who_cut_a_file_to_nothing_does_not_empty_what_was_written_since(step, simulator, prefix, name):
    writer = another_process("""
        import os, sys
        file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        print(flush=True)
        sys.stdin.readline()
        os.ftruncate(file, 0)
        print(flush=True)
        sys.stdin.readline()
        os.close(file)
        print(flush=True)
        sys.stdin.readline()
    """, step / name)
    (step / name).write_bytes(b"first")
    go_on(writer)
    (step / name).write_bytes(b"second")
    go_on(writer)
    assert simulator.content(f"{prefix}step/{name}") == b"second"
    writer.communicate(b"\n")
    assert simulator.content(f"{prefix}step/{name}") == b"second"
