# SPDX-License-Identifier: Apache-2.0
"""Nothing half appears: who closes, who is killed, and what is visible then."""

import concurrent.futures
import io
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy
import pytest
from harness.programs import wait_until

pytestmark = pytest.mark.sanitized

MIB = 1 << 20


def start(script: str, *arguments) -> subprocess.Popen:
    """A Python program that says "ready" on its standard output and then waits on its standard input."""
    return subprocess.Popen([sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)],
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def wait_ready(process: subprocess.Popen, word: str = "ready") -> None:
    assert process.stdout.readline().strip() == word


def kill(process: subprocess.Popen, number: int = signal.SIGKILL) -> None:
    process.send_signal(number)
    process.wait(20)


WRITE_AND_WAIT = """
    import os, sys
    file = open(sys.argv[1], "wb", buffering=0)
    for _ in range(int(sys.argv[2])):
        file.write(os.urandom(1 << 20))
    print("ready", flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
@pytest.mark.parametrize("mebibytes", [1, 40])
def test_a_killed_writer_publishes_nothing_and_the_earlier_version_stays(mount, simulator, prefix, number, mebibytes):
    made = mount()
    (made / "file").write_bytes(b"the last good version")
    writer = start(WRITE_AND_WAIT, made / "file", mebibytes)
    wait_ready(writer)
    kill(writer, number)
    wait_until(lambda: simulator.open_uploads(prefix) == [], "the upload to be ended")
    assert simulator.content(prefix + "file") == b"the last good version"
    wait_until(lambda: (made / "file").read_bytes() == b"the last good version", "the name to show it again")


@pytest.mark.parametrize("held", [False, True], ids=["alone", "held"])
def test_the_death_of_a_writer_does_not_interrupt_a_rename_that_publishes(mount, simulator, prefix, held):
    made = mount()
    (made / "target").write_bytes(b"earlier")
    writer = start(WRITE_AND_WAIT, made / "file", 1)
    wait_ready(writer)
    bystander = open(made / "file", "r+b") if held else None
    simulator.inject({"op": "PutObject", "key": f"{prefix}target", "action": "hang"})
    with concurrent.futures.ThreadPoolExecutor() as threads:
        renamed = threads.submit(os.rename, made / "file", made / "target")
        wait_until(lambda: simulator.fault_hits() > 0, "the rename to publish the file under its new name")
        kill(writer)
        simulator.clear_faults()
        renamed.result(30)
    assert len((made / "target").read_bytes()) == MIB
    assert simulator.keys(prefix) == [f"{prefix}target"] and len(simulator.content(f"{prefix}target")) == MIB
    # All was saved: it is a file as any other.
    os.rename(made / "target", made / "file")
    if held:
        os.fsync(bystander)
        bystander.close()
    assert simulator.keys(prefix) == [f"{prefix}file"]


def test_a_killed_writer_of_a_new_file_leaves_no_name(mount, simulator, prefix):
    made = mount()
    writer = start(WRITE_AND_WAIT, made / "new", 40)
    wait_ready(writer)
    assert (made / "new").stat().st_size == 40 * MIB
    kill(writer)
    wait_until(lambda: not (made / "new").exists(), "the name to go")
    assert simulator.keys(prefix) == []
    wait_until(lambda: simulator.open_uploads(prefix) == [], "the upload to be ended")


def test_a_log_of_a_killed_writer_is_published(mount, simulator, prefix):
    made = mount()
    writer = start(WRITE_AND_WAIT, made / "train.log", 1)
    wait_ready(writer)
    kill(writer)
    wait_until(lambda: simulator.keys(prefix) == [prefix + "train.log"], "the log to appear")
    assert len(simulator.content(prefix + "train.log")) == MIB


def test_what_was_appended_to_a_file_that_was_saved_is_published_when_its_writer_is_killed(mount, simulator, prefix):
    made = mount()
    script = """
        import os
        import sys
        log = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        with open(sys.argv[1], "wb") as header:
            header.write(b"header ")
        os.write(log, b"line")
        print("ready", flush=True)
        sys.stdin.read()
    """
    writer = start(script, made / "metrics.bin")
    wait_ready(writer)
    assert simulator.content(prefix + "metrics.bin") == b"header "
    kill(writer)
    wait_until(lambda: simulator.content(prefix + "metrics.bin") == b"header line", "what was appended to appear")


def test_three_arrays_in_one_handle_killed_between_the_second_and_the_third(mount, simulator, prefix):
    made = mount()
    script = """
        import sys
        import numpy
        file = open(sys.argv[1], "wb")
        for _ in range(2):
            numpy.save(file, numpy.arange(50_000))
        print("ready", flush=True)
        sys.stdin.read()
        numpy.save(file, numpy.arange(50_000))
    """
    writer = start(script, made / "arrays.npy")
    wait_ready(writer)
    assert simulator.keys(prefix) == []
    kill(writer)
    wait_until(lambda: not (made / "arrays.npy").exists(), "the name to go")
    assert simulator.keys(prefix) == []


def test_three_arrays_in_one_handle_are_one_object(mount, simulator, prefix):
    expected = io.BytesIO()
    with open(mount() / "arrays.npy", "wb") as file:
        for target in (file, expected):
            for factor in (1, 2, 3):
                numpy.save(target, numpy.arange(50_000) * factor)
    assert simulator.content(prefix + "arrays.npy") == expected.getvalue()
    writes = [request for request in simulator.requests() if request["op"] == "PutObject"]
    assert len(writes) == 1


FORK_AND_WAIT = """
    import os, sys, time
    file = open(sys.argv[1], "wb", buffering=0)
    file.write(b"a" * (1 << 20))
    child = os.fork()
    if child == 0:
        time.sleep(60)
        os._exit(0)
    print(child, flush=True)
    sys.stdin.readline()
    file.write(b"b" * (1 << 20))
    file.close()
    print("closed", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_child_that_inherited_the_descriptor_does_not_harm_its_parent(mount, simulator, prefix, number):
    writer = start(FORK_AND_WAIT, mount() / "file")
    child = int(writer.stdout.readline())
    os.kill(child, number)
    wait_until(lambda: process_is_gone(child), "the child to end")
    assert simulator.keys(prefix) == []
    writer.stdin.write("go\n")
    writer.stdin.flush()
    wait_ready(writer, "closed")
    assert writer.wait(20) == 0
    assert simulator.content(prefix + "file") == b"a" * MIB + b"b" * MIB


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_parent_is_not_published_by_its_child(mount, simulator, prefix, number):
    made = mount()
    writer = start(FORK_AND_WAIT, made / "file")
    child = int(writer.stdout.readline())
    kill(writer)
    os.kill(child, number)
    wait_until(lambda: not (made / "file").exists(), "the name to go")
    assert simulator.keys(prefix) == []
    assert "its writer was killed" in made.log()


def process_is_gone(process: int) -> bool:
    try:
        with open(f"/proc/{process}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_a_file_opened_in_one_thread_and_closed_in_another_returns_its_error(mount, simulator, prefix):
    simulator.inject({"op": "PutObject", "key": prefix + "file", "action": "403"})
    opened = {}
    thread = threading.Thread(target=lambda: opened.update(file=open(made / "file", "wb", buffering=0)))
    made = mount()
    thread.start()
    thread.join()
    opened["file"].write(b"content")
    with pytest.raises(OSError):
        opened["file"].close()
    assert simulator.keys(prefix) == []


@pytest.mark.parametrize("leaked", [os.O_WRONLY, os.O_RDWR], ids=["write only", "read and write"])
def test_a_descriptor_left_of_an_earlier_attempt_does_not_count_for_the_next(mount, simulator, prefix, leaked):
    """A save fails and leaks its descriptor; the program tries again under the same name."""
    made = mount()
    simulator.inject({"op": "PutObject", "key": prefix + "file", "action": "403"})
    first = os.open(made / "file", leaked | os.O_CREAT | os.O_TRUNC)
    os.write(first, b"first")
    with pytest.raises(OSError):
        os.fsync(first)
    with pytest.raises(OSError):
        (made / "file").write_bytes(b"refused as well")
    simulator.clear_faults()
    for attempt in (b"second", b"third"):
        (made / "file").write_bytes(attempt)
        assert simulator.content(prefix + "file") == attempt
    with pytest.raises(OSError):
        os.close(first)
    assert simulator.content(prefix + "file") == b"third"


def test_signals_during_write_and_close_change_nothing(mount, simulator, prefix):
    script = """
        import hashlib, os, signal, sys
        signal.signal(signal.SIGALRM, lambda *_: None)
        signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
        digest = hashlib.sha256()
        file = open(sys.argv[1], "wb", buffering=0)
        for _ in range(64):
            block = os.urandom(1 << 20)
            digest.update(block)
            assert file.write(block) == len(block)
        file.close()
        # The interpreter takes its handler away before it ends.
        signal.setitimer(signal.ITIMER_REAL, 0)
        print(digest.hexdigest(), flush=True)
    """
    import hashlib
    simulator.set_model(latency_ms=30)
    try:
        writer = start(script, mount() / "file")
        digest = writer.stdout.readline().strip()
        assert writer.wait(60) == 0
    finally:
        simulator.set_model(latency_ms=0)
    assert hashlib.sha256(simulator.content(prefix + "file")).hexdigest() == digest


@pytest.mark.parametrize("operation, mebibytes", [("PutObject", 1), ("UploadPart", 40), ("CompleteMultipartUpload", 40)])
def test_a_store_that_hangs_lets_a_killed_writer_go(mount, simulator, prefix, operation, mebibytes):
    simulator.inject({"op": operation, "key": prefix + "*", "action": "hang"})
    made = mount()
    script = """
        import os, sys
        file = open(sys.argv[1], "wb", buffering=0)
        print("ready", flush=True)
        for _ in range(int(sys.argv[2])):
            file.write(os.urandom(1 << 20))
        file.close()
    """
    writer = start(script, made / "file", mebibytes)
    wait_ready(writer)
    wait_until(lambda: simulator.counters()["hung"] > 0, "a request to hang")
    started = time.monotonic()
    writer.kill()
    writer.wait(20)
    assert time.monotonic() - started < 1
    simulator.clear_faults()
    # A writer killed while it waited in close() had written everything.
    assert all(len(simulator.content(key)) == mebibytes * MIB for key in simulator.keys(prefix))


def test_a_commit_of_a_killed_writer_does_not_land_over_a_later_one(mount, simulator, prefix):
    # Its first attempt is lost; by the time of the second the name has been written anew.
    simulator.inject({"op": "CompleteMultipartUpload", "key": prefix + "*", "times": 1, "action": "hang"})
    made = mount("--stall-timeout", "1s")
    script = """
        import os, sys
        file = open(sys.argv[1], "wb", buffering=0)
        for _ in range(40):
            file.write(os.urandom(1 << 20))
        file.close()
    """
    killed = start(script, made / "file")
    wait_until(lambda: simulator.counters()["hung"] > 0, "the commit to hang")
    kill(killed)
    (made / "file").write_bytes(b"written later")
    wait_until(lambda: simulator.open_uploads(prefix) == [], "the earlier commit to end")
    assert simulator.content(prefix + "file") == b"written later"
    assert (made / "file").read_bytes() == b"written later"


def test_a_descriptor_duplicated_and_closed_before_the_first_write_is_not_the_end(mount, simulator, prefix):
    made = mount()
    subprocess.run(["sh", "-c", 'echo one > "$1"; dd if=/dev/zero of="$2" bs=1M count=20 status=none', "sh",
                    made / "shell", made / "dd"], check=True)
    assert simulator.content(prefix + "shell") == b"one\n"
    assert simulator.content(prefix + "dd") == bytes(20 * MIB)
    subprocess.run(["sh", "-c", '(echo one; echo two; seq 3) > "$1"; echo more >> "$1"', "sh", made / "group"], check=True)
    assert simulator.content(prefix + "group") == b"one\ntwo\n1\n2\n3\nmore\n"


def test_a_descriptor_duplicated_and_closed_after_a_rename_is_not_the_end(mount, simulator, prefix):
    made = mount()
    file = os.open(made / "tmp", os.O_WRONLY | os.O_CREAT)
    os.write(file, b"one")
    os.rename(made / "tmp", made / "final")
    os.write(file, b"two")
    os.close(os.dup(file))
    assert simulator.content(prefix + "final") == b"one"
    os.close(file)
    assert simulator.content(prefix + "final") == b"onetwo"


def test_touch_and_empty_files_are_durable_at_close(mount, simulator, prefix):
    made = mount()
    subprocess.run(["touch", made / "marker"], check=True)
    assert simulator.keys(prefix) == [prefix + "marker"]
    open(made / "empty", "w").close()
    assert simulator.content(prefix + "empty") == b""


GOOD = b"good" * 76_800
WRITE_MORE = """
    import os, sys
    file = os.open(sys.argv[1], int(sys.argv[2]))
    os.write(file, b"half" * (9 << 18))
    print("ready", flush=True)
    sys.stdin.read()
    try:
        os.close(file)
    except OSError:
        print("refused", flush=True)
"""
OPENED_BY_WRITERS = {"w": os.O_WRONLY | os.O_TRUNC, "w+": os.O_RDWR | os.O_TRUNC, "r+": os.O_RDWR, "wo": os.O_WRONLY}


def give_up(simulator, made, flags: int, ending: str) -> None:
    writer = start(WRITE_MORE, made / "file", flags)
    wait_ready(writer)
    if ending == "killed":
        kill(writer)
        # Without stat(2), by which the kernel learns the size.
        wait_until(lambda: "its writer was killed" in made.log(), "what was written to be given up")
    else:
        simulator.inject({"op": "CompleteMultipartUpload", "action": "access-denied"},
                         {"op": "PutObject", "action": "access-denied"})
        assert writer.communicate("\n", timeout=20)[0] == "refused\n"
        simulator.clear_faults()
    # What has to be fetched is answered after what lies behind the end.
    simulator.inject({"op": "GetObject", "action": "slow", "ms": 100})


# The kernel reads ahead as far as it takes the file to be, and fills up with zeros what is not there.
@pytest.mark.parametrize("direct_io", ["auto", "never"])
@pytest.mark.parametrize("ending", ["killed", "refused"])
@pytest.mark.parametrize("flags", OPENED_BY_WRITERS.values(), ids=OPENED_BY_WRITERS)
@pytest.mark.parametrize("again", [os.O_RDONLY, os.O_RDWR], ids=["r", "r+"])
def test_what_was_given_up_is_not_read_as_zeros_behind_the_version_before(
        mount, simulator, flags, ending, again, direct_io):
    made = mount("--direct-io", direct_io)
    path = made / "file"
    path.write_bytes(GOOD)
    give_up(simulator, made, flags, ending)
    file = os.open(path, again)
    try:
        assert os.pread(file, 1 << 20, 0) == GOOD
        assert os.pread(file, 1 << 20, 5 << 20) == b""
    finally:
        os.close(file)


@pytest.mark.parametrize("direct_io", ["auto", "never"])
@pytest.mark.parametrize("ending", ["killed", "refused"])
@pytest.mark.parametrize("flags", [os.O_RDWR, os.O_WRONLY], ids=["r+", "wo"])
@pytest.mark.parametrize("has_read", [0, 1])
def test_a_reader_sees_no_zeros_for_what_others_gave_up(mount, simulator, flags, ending, has_read, direct_io):
    made = mount("--direct-io", direct_io)
    path = made / "file"
    path.write_bytes(GOOD)
    with open(path, "rb", buffering=0) as reader:
        reader.read(has_read)
        give_up(simulator, made, flags, ending)

        def read_good():
            # The kernel may still have pages of what was given up, and forgets them on a notice.
            got = os.pread(reader.fileno(), 1 << 20, 0)
            assert b"\0" not in got
            return got == GOOD
        wait_until(read_good, "the version before")
        assert os.pread(reader.fileno(), 1 << 20, 5 << 20) == b""


def test_a_size_that_is_set_to_what_it_is_changes_nothing(mount, simulator, prefix):
    path = mount() / "shard"
    path.write_bytes(b"whole")
    script = """
        import os, sys
        os.ftruncate(os.open(sys.argv[1], os.O_RDWR), 5)
        print("ready", flush=True)
        sys.stdin.read()
    """
    other = os.open(path, os.O_WRONLY)
    resizer = start(script, path)
    wait_ready(resizer)
    kill(resizer)
    os.fsync(other)
    os.close(other)
    assert simulator.content(prefix + "shard") == b"whole"
