# SPDX-License-Identifier: Apache-2.0
"""Who writes a log does not wait for the store, and a log that grows is not sent whole again and again."""

import errno
import os
import signal
import subprocess
import sys
import time

import pytest
from harness.mounts import Mount
from harness.programs import wait_until
from harness.simulator import BUCKET, Simulator

MIB = 1 << 20
INTERVAL = "200ms"
# A writer that waits for the store waits as long as requests are tried.
RETRY_FOR_S = 30
LONGEST_WRITE_S = 5.0
HANGS = {"action": "hang"}
REFUSES = {"action": "503"}
# A small log is one request, and one above 5 MiB an upload that copies what is there.
SIZES = [0, 9 * MIB]


@pytest.fixture(params=["auto", "none"])
def made(mount, request):
    return mount("--publish-interval", INTERVAL, "--compress", request.param, "--retry-for", "1s")


def publishing_fails(prefix, how):
    return [{"op": operation, "key": prefix + "*.log", **how}
            for operation in ("PutObject", "CreateMultipartUpload", "UploadPart*", "CompleteMultipartUpload")]


class Log:
    """A log, and what was written to it so far."""

    def __init__(self, path, size=0, mode="ab"):
        self.path = path
        self.file = open(path, mode, buffering=0)
        self.content = b""
        self.longest = 0.0
        if size > 0:
            self.write(os.urandom(size))

    def write(self, data):
        begun = time.monotonic()
        assert self.file.write(data) == len(data)
        self.longest = max(self.longest, time.monotonic() - begun)
        self.content += data

    def line(self):
        self.write(b"line after %d bytes\n" % len(self.content))

    def lines_until(self, reached, what):
        """Some a second."""
        def line_and_look():
            self.line()
            return reached()
        wait_until(line_and_look, what)


@pytest.fixture
def appears(simulator, prefix):
    def wait(log):
        key = prefix + log.path.name
        wait_until(lambda: key in simulator.keys(prefix) and simulator.content(key) == log.content, "the log to appear")
    return wait


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("how", [HANGS, REFUSES])
@pytest.mark.parametrize("mode, compress", [("ab", "auto"), ("wb", "none")])
def test_who_writes_a_log_does_not_wait_for_the_store(mount, simulator, prefix, appears, size, how, mode, compress):
    made = mount("--publish-interval", INTERVAL, "--compress", compress, "--retry-for", f"{RETRY_FOR_S}s")
    log = Log(made / "run.log", size, mode)
    log.line()
    appears(log)
    simulator.inject(*publishing_fails(prefix, how))
    log.lines_until(lambda: simulator.fault_hits() > 0, "the log to be published")
    log.longest = 0.0
    for _ in range(100):
        log.line()
        time.sleep(0.02)
    assert log.longest < LONGEST_WRITE_S
    simulator.clear_faults()
    appears(log)
    log.line()
    log.file.close()
    assert simulator.content(prefix + "run.log") == log.content
    assert simulator.open_uploads(prefix) == []


@pytest.mark.parametrize("size", SIZES)
def test_a_publish_that_fails_is_tried_again_and_is_no_error(made, simulator, prefix, appears, size):
    """Also one whose answer was lost; a reader does not take the version that it made for another mount's."""
    log = Log(made / "run.log", size)
    log.line()
    appears(log)
    # One look at what is there goes well, before the publish or after it.
    simulator.inject({"op": "HeadObject", "key": prefix + "run.log", "after": 1, "action": "503"},
                     *({"op": operation, "key": prefix + "run.log", "action": "performed-but-reply-lost"}
                       for operation in ("PutObject", "CompleteMultipartUpload")))
    log.lines_until(lambda: made.log().count("will be published later") > 0, "a publish to fail")
    assert any(request["fault"] == "performed-but-reply-lost" for request in simulator.requests())
    log.line()
    simulator.clear_faults()
    with open(log.path, "rb") as reader:
        log.line()
        os.fsync(reader)
        assert simulator.content(prefix + "run.log") == log.content
    appears(log)
    log.line()
    log.file.close()
    assert simulator.content(prefix + "run.log") == log.content
    assert simulator.open_uploads(prefix) == []


def test_what_is_written_during_an_outage_waits_for_its_end(made, simulator, prefix, appears):
    """Also where a publish does not even come to know what is there."""
    log = Log(made / "run.log")
    log.line()
    appears(log)
    simulator.inject({"op": "*", "key": prefix + "run.log", "action": "503"})
    log.lines_until(lambda: made.log().count("will be published later") > 0, "a publish to fail")
    log.longest = 0.0
    for _ in range(40):
        log.write(os.urandom(MIB))
    failures = made.log().count("will be published later")
    wait_until(lambda: made.log().count("will be published later") > failures, "another one to fail")
    log.line()
    assert log.longest < LONGEST_WRITE_S
    simulator.clear_faults()
    appears(log)
    log.file.close()
    assert simulator.open_uploads(prefix) == []


@pytest.mark.parametrize("compress", ["none", "auto"])
@pytest.mark.parametrize("hanging", ["HeadObject", "PutObject"])
def test_a_log_is_cut_to_nothing_while_the_store_does_not_answer(mount, simulator, prefix, appears, hanging, compress):
    """As logrotate's copytruncate does."""
    made = mount("--publish-interval", INTERVAL, "--compress", compress, "--retry-for", f"{RETRY_FOR_S}s")
    log = Log(made / "run.log")
    log.line()
    appears(log)
    simulator.inject({"op": hanging, "key": prefix + "*.log", **HANGS})
    log.lines_until(lambda: simulator.fault_hits() > 0, "the log to be published")
    begun = time.monotonic()
    log.file.truncate(0)
    assert time.monotonic() - begun < LONGEST_WRITE_S
    log.content = b""
    log.longest = 0.0
    log.line()
    assert log.longest < LONGEST_WRITE_S
    simulator.clear_faults()
    appears(log)
    log.line()
    log.file.close()
    assert simulator.content(prefix + "run.log") == log.content


@pytest.mark.parametrize("how", ["close", "fsync"])
def test_close_and_fsync_tell_what_is_not_saved(made, simulator, prefix, appears, how):
    log = Log(made / "run.log")
    log.line()
    appears(log)
    saved = log.content
    simulator.inject(*publishing_fails(prefix, REFUSES))
    log.lines_until(lambda: made.log().count("will be published later") > 0, "a publish to fail")
    with pytest.raises(OSError) as failed:
        os.fsync(log.file.fileno()) if how == "fsync" else log.file.close()
    assert failed.value.errno == errno.EIO
    if how == "fsync":
        with pytest.raises(OSError):
            log.line()
        with pytest.raises(OSError):
            log.file.close()
    simulator.clear_faults()
    assert simulator.content(prefix + "run.log") == saved


@pytest.mark.parametrize("how", ["close", "fsync"])
def test_close_and_fsync_wait_for_a_publish_under_way_and_for_what_came_after(made, simulator, prefix, appears, how):
    log = Log(made / "run.log")
    log.line()
    appears(log)
    simulator.inject({"op": "PutObject", "key": prefix + "*.log", "action": "slow", "ms": 500})
    log.lines_until(lambda: simulator.fault_hits() > 0, "the log to be published")
    log.line()
    os.fsync(log.file.fileno()) if how == "fsync" else log.file.close()
    assert simulator.content(prefix + "run.log") == log.content


@pytest.mark.parametrize("compress", ["none", "auto"])
def test_a_growing_log_is_not_fetched_and_not_sent_whole_each_time(mount, simulator, prefix, compress):
    made = mount("--publish-interval", INTERVAL, "--compress", compress)
    log = Log(made / "run.log")
    begun = time.monotonic()
    while len(log.content) < 4 * MIB:
        log.write(os.urandom(16 << 10))
        time.sleep(0.01)
    log.file.close()
    intervals = (time.monotonic() - begun) / 0.2
    operations = simulator.counters()["operations"]
    assert "GetObject" not in operations
    # Twice while it grows, at its end, and some for each interval (publish_pace.h).
    assert operations["PutObject"]["bytes_in"] <= 3 * len(log.content) + intervals * (128 << 10)
    assert simulator.content(prefix + "run.log") == log.content


@pytest.mark.parametrize("compress", ["none", "auto"])
def test_what_was_there_is_fetched_once(mount, simulator, prefix, appears, compress):
    made = mount("--publish-interval", INTERVAL, "--compress", compress)
    before = os.urandom(3 * MIB)
    (mount("--compress", compress) / "run.log").write_bytes(before)
    log = Log(made / "run.log")
    log.content = before
    log.line()
    if compress == "none":
        appears(log)
    else:
        # That takes ten seconds.
        os.fsync(log.file.fileno())
    simulator.reset_counters()
    for size in (100, MIB, 100):
        log.write(os.urandom(size))
        os.fsync(log.file.fileno())
    log.file.close()
    assert "GetObject" not in simulator.counters()["operations"]
    assert simulator.content(prefix + "run.log") == log.content


@pytest.mark.parametrize("compress", ["none", "auto"])
def test_without_part_copies_a_log_is_fetched_once_and_sent_less_often(request, compress):
    simulator = Simulator("--lacks", "part-copy")
    made = Mount(f"s3://{BUCKET}/run/", simulator.environment(), "--publish-interval", INTERVAL, "--compress", compress)
    request.node.mounts = [made]
    try:
        log = Log(made / "run.log", 9 * MIB)
        for _ in range(100):
            log.line()
            time.sleep(0.02)
        log.file.close()
        operations = simulator.counters()["operations"]
        # For its checksums, and to be staged.
        assert operations["GetObject"]["bytes_out"] <= 2 * len(log.content) + MIB
        # When it is first published, when that is found out, and at its end.
        assert operations["UploadPart"]["bytes_in"] <= 3.5 * len(log.content)
        assert simulator.content("run/run.log") == log.content
    finally:
        made.remove()
        simulator.stop()


WRITER = """
import sys, time
with open(sys.argv[1], "ab", buffering=0) as log:
    number = 0
    while True:
        log.write(b"line %d\\n" % number)
        number += 1
        print(number, flush=True)
        time.sleep(0.02)
"""


def test_what_a_killed_writer_wrote_during_an_outage_is_published(made, simulator, prefix):
    with subprocess.Popen([sys.executable, "-c", WRITER, made / "run.log"], stdout=subprocess.PIPE, text=True) as writer:
        wait_until(lambda: prefix + "run.log" in simulator.keys(prefix), "the log to appear")
        simulator.inject(*publishing_fails(prefix, HANGS))
        wait_until(lambda: simulator.fault_hits() > 0, "a publish to hang")
        for _ in range(20):
            written = int(writer.stdout.readline())
        writer.send_signal(signal.SIGKILL)
        begun = time.monotonic()
        written = max([written, *(int(line) for line in writer.stdout)])
        writer.wait()
        assert time.monotonic() - begun < 5
    simulator.clear_faults()
    whole = b"".join(b"line %d\n" % number for number in range(written))
    wait_until(lambda: simulator.content(prefix + "run.log").startswith(whole), "what was written to be published")


def test_another_mount_that_replaces_a_log_is_not_overwritten(made, simulator, prefix, appears):
    log = Log(made / "run.log")
    log.line()
    appears(log)
    simulator.put(prefix + "run.log", b"of another")

    def refused():
        try:
            log.line()
        except OSError as error:
            return error.errno == errno.ESTALE
        return False
    wait_until(refused, "the writer to be told")
    with pytest.raises(OSError):
        log.file.close()
    assert simulator.content(prefix + "run.log") == b"of another"


@pytest.mark.parametrize("compress", ["none", "auto"])
def test_a_log_that_grows_by_much_replaces_no_version_of_another_mount(mount, simulator, prefix, compress):
    made = mount("--publish-interval", "1h", "--compress", compress)
    log = Log(made / "run.log")
    log.line()
    os.fsync(log.file.fileno())
    for _ in range(40):
        log.write(os.urandom(MIB))
    wait_until(lambda: simulator.open_uploads(prefix), "it to be sent while it is written")
    simulator.put(prefix + "run.log", b"of another")
    with pytest.raises(OSError) as told:
        log.file.close()
    assert told.value.errno == errno.ESTALE
    assert simulator.content(prefix + "run.log") == b"of another"
    assert made.log().count("another version is there now") == 1
    assert simulator.open_uploads(prefix) == []
