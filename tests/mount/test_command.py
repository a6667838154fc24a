# SPDX-License-Identifier: Apache-2.0
"""The command itself: what it checks first and says, going to the background, and unmounting."""

import errno
import json
import os
import pty
import signal
import subprocess
import threading
import time

import pytest

from harness.programs import CKPTFS, wait_until
from harness.simulator import BUCKET, Simulator

MIB = 1 << 20


def command(environment: dict[str, str], *arguments, **options) -> subprocess.CompletedProcess:
    plain = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    return subprocess.run([CKPTFS, *arguments], env={**plain, **environment}, text=True, timeout=60, check=False,
                          capture_output=True, **options)


@pytest.fixture
def point(tmp_path):
    """An empty directory; nothing is mounted there afterwards."""
    directory = tmp_path / "mnt"
    directory.mkdir()
    yield directory
    subprocess.run(["umount", "--lazy", directory], check=False, stderr=subprocess.DEVNULL)


def assert_refused(done: subprocess.CompletedProcess, *words: str) -> None:
    assert done.returncode != 0
    assert done.stderr.startswith("ckptfs: ")
    assert len(done.stderr.splitlines()) == 1, done.stderr
    for word in words:
        assert word in done.stderr


def test_a_variable_that_is_nearly_one_is_named(simulator, point, tmp_path):
    log = tmp_path / "log"
    environment = {**simulator.environment(), "CKPTFS_MAX_MEMROY": "256M"}
    done = command(environment, "mount", f"s3://{BUCKET}/x/", point, "--log-file", log)
    assert done.returncode == 0, done.stderr
    wait_until(lambda: "did you mean CKPTFS_MAX_MEMORY?" in log.read_text(), "the log to say so")
    assert command(environment, "unmount", point).returncode == 0


def test_a_mount_point_that_is_missing_used_or_no_directory(simulator, point):
    environment = simulator.environment()
    source = f"s3://{BUCKET}/x/"
    assert_refused(command(environment, "mount", source, point / "absent"), "does not exist", "mkdir -p")
    (point / "file").write_bytes(b"")
    assert_refused(command(environment, "mount", source, point), "not empty")
    assert_refused(command(environment, "mount", source, point / "file"), "not a directory")


def test_a_mounted_directory_is_not_mounted_again(mount, simulator):
    made = mount()
    assert_refused(command(simulator.environment(), "mount", made.source, made.path), "already mounted", "unmount")


def test_a_wrong_bucket(simulator, point):
    assert_refused(command(simulator.environment(), "mount", "s3://no-such-bucket/x", point), "no-such-bucket")


def test_no_credentials(simulator, point):
    environment = {"AWS_ENDPOINT_URL": simulator.url, "HOME": str(point)}
    assert_refused(command(environment, "mount", f"s3://{BUCKET}/x", point), "no credentials", "AWS_ACCESS_KEY_ID")


def test_wrong_credentials_are_named_without_the_secret(simulator, point):
    environment = {**simulator.environment(), "AWS_SECRET_ACCESS_KEY": "not-the-secret"}
    done = command(environment, "mount", f"s3://{BUCKET}/x", point)
    assert_refused(done, "SignatureDoesNotMatch")
    assert "not-the-secret" not in done.stderr


def test_a_refused_endpoint(simulator, point):
    environment = {**simulator.environment(), "AWS_ENDPOINT_URL": "http://127.0.0.1:9"}
    started = time.monotonic()
    assert_refused(command(environment, "mount", f"s3://{BUCKET}/x", point), "127.0.0.1:9")
    assert time.monotonic() - started < 30


def test_a_clock_that_is_wrong_is_reported_and_made_up_for(point, tmp_path):
    ahead = Simulator("--clock-offset-s", "3600")
    log = tmp_path / "log"
    try:
        done = command(ahead.environment(), "mount", f"s3://{BUCKET}/x", point, "--log-file", log)
        assert done.returncode == 0, done.stderr
        (point / "file").write_bytes(b"content")
        assert (point / "file").read_bytes() == b"content"
        assert command({}, "unmount", point).returncode == 0
    finally:
        ahead.stop()
    assert "clock" in log.read_text()


def test_a_bucket_of_another_region(point):
    far = Simulator("--bucket", "far@eu-west-1")
    try:
        done = command(far.environment(), "mount", "s3://far/x", point, "-f")
        assert_refused(done, "--region eu-west-1")
    finally:
        far.stop()


def test_a_bucket_that_may_not_be_written(simulator, prefix, point):
    simulator.inject({"op": "CreateMultipartUpload", "key": prefix + "*", "action": "403"})
    assert_refused(command(simulator.environment(), "mount", f"s3://{BUCKET}/{prefix}", point), "cannot write",
                   "--read-only", f"ckptfs doctor s3://{BUCKET}/{prefix} says more, with the same options")


def test_a_bucket_that_may_not_be_read(mount, simulator, prefix):
    simulator.put(f"{prefix}file", b"content")
    simulator.inject(*({"op": operation, "key": prefix + "*", "action": "403"}
                       for operation in ("HeadObject", "GetObject")))
    assert "objects cannot be read (s3:GetObject)" in mount().log()


def test_no_fuse_device(simulator, point):
    # A /dev of its own, in a mount namespace of its own.
    script = 'mount -t tmpfs none /dev && exec "$0" "$@"'
    done = subprocess.run(["unshare", "--mount", "sh", "-c", script, CKPTFS, "mount", f"s3://{BUCKET}/x", point],
                          env={**os.environ, **simulator.environment()}, capture_output=True, text=True, check=False)
    assert_refused(done, "/dev/fuse", "modprobe fuse")


def test_options_that_make_no_sense(simulator, point):
    done = command(simulator.environment(), "mount", f"s3://{BUCKET}/x", point, "--part-size", "1M")
    assert done.returncode == 2
    assert "--part-size" in done.stderr
    done = command(simulator.environment(), "mount", f"s3://{BUCKET}/x", point, "--rename-repair-after", "0")
    assert done.returncode == 2
    assert "--rename-repair-after: at least 1s" in done.stderr
    assert command({}, "mount", "--help").returncode == 0
    assert "mount" in command({}, "--help").stdout


def test_it_goes_to_the_background_once_the_mount_answers(simulator, prefix, point, tmp_path):
    log = tmp_path / "log"
    done = command(simulator.environment(), "mount", f"s3://{BUCKET}/{prefix}", point, "--log-file", log)
    assert (done.returncode, done.stderr) == (0, "")
    assert os.path.ismount(point)
    (point / "file").write_bytes(b"content")
    done = command({}, "unmount", point)
    assert (done.returncode, done.stderr) == (0, "")
    assert not os.path.ismount(point)
    assert simulator.content(prefix + "file") == b"content"
    assert "unmounted" in log.read_text()


@pytest.mark.parametrize("closed", ["<&-", ">&-", "<&- >&- 2>&-"])
def test_it_hears_signals_where_it_was_started_with_closed_streams(simulator, prefix, point, closed, tmp_path):
    words = ["mount", f"s3://{BUCKET}/{prefix}", point, "--log-file", tmp_path / "log"]
    subprocess.run(["sh", "-c", f'exec "$0" "$@" {closed}', CKPTFS, *words], check=True, timeout=60,
                   env={**os.environ, **simulator.environment()})
    (point / "file").write_bytes(b"content")
    status = json.loads(command({}, "status", "--json", point).stdout)
    os.kill(status["pid"], signal.SIGTERM)
    wait_until(lambda: not os.path.ismount(point), "the daemon to hear SIGTERM", 30)
    assert simulator.content(prefix + "file") == b"content"


def test_mount_mounts_it_as_a_line_of_fstab_says(simulator, prefix, point, tmp_path):
    options = f"_netdev,nofail,endpoint_url={simulator.url},log_file={tmp_path / 'log'}"
    environment = {**os.environ, **simulator.environment(), "PATH": f"{CKPTFS.parent}:{os.environ['PATH']}"}
    # What mount(8) calls for a type of fuse.ckptfs; by itself it would look for ckptfs among the installed programs.
    subprocess.run(["/sbin/mount.fuse3", f"s3://{BUCKET}/{prefix}", point, "-o", "rw," + options, "-t", "fuse.ckptfs"],
                   env=environment, check=True, timeout=60)
    (point / "file").write_bytes(b"saved")
    assert simulator.content(prefix + "file") == b"saved"
    assert command(environment, "unmount", point).returncode == 0


def test_a_store_that_fails_is_named_in_the_log(mount, simulator, prefix):
    made = mount("--retry-for", "6s")
    simulator.inject({"op": "*", "key": prefix + "file*", "action": "500"})
    with pytest.raises(OSError) as failed:
        (made / "file").stat()
    assert failed.value.errno == errno.EIO
    assert "retrying for" in made.log()
    assert "given up" in made.log()


def test_unmount_of_what_is_no_mount(point):
    assert_refused(command({}, "unmount", point), "no ckptfs is mounted")


def test_a_mount_that_holds_another_one_is_not_unmounted(mount):
    made = mount()
    (made / "inner").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "none", made / "inner"], check=True)
    try:
        (made / "inner/file").write_bytes(b"only here")
        assert_refused(command({}, "unmount", made.path), "contains other mounts", str(made / "inner"))
        assert (made / "inner/file").read_bytes() == b"only here"
        (made / "file").write_bytes(b"it still serves")
    finally:
        subprocess.run(["umount", made / "inner"], check=True)
    assert command({}, "unmount", made.path).returncode == 0


def interrupt_a_mount(simulator, prefix, point, log) -> None:
    """Ctrl-C while the daemon waits for the store; returns once the daemon has ended."""
    simulator.inject({"op": "ListObjectsV2", "key": "*", "action": "slow", "ms": 1500})
    mounting = subprocess.Popen([CKPTFS, "mount", f"s3://{BUCKET}/{prefix}", point, "--log-file", log],
                                env={**os.environ, **simulator.environment()}, start_new_session=True,
                                # A shell lets what it runs in the background ignore it.
                                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    wait_until(lambda: simulator.fault_hits() > 0, "the daemon to ask the store")
    os.killpg(mounting.pid, signal.SIGINT)
    assert mounting.wait(20) == -signal.SIGINT
    wait_until(lambda: "the mount command was interrupted" in log.read_text(), "the daemon to end")


def test_a_command_that_is_interrupted_does_not_mount_later(simulator, prefix, point, tmp_path):
    interrupt_a_mount(simulator, prefix, point, tmp_path / "log")
    assert not os.path.ismount(point)


def test_a_command_that_is_interrupted_leaves_a_dead_mount_there(mount, simulator, prefix, tmp_path):
    made = mount()
    made.process.kill()
    made.process.wait()
    interrupt_a_mount(simulator, prefix, made.path, tmp_path / "log")
    # What is written there now fails, and does not lie in a bare directory.
    with pytest.raises(OSError) as refused:
        (made.path / "file").write_bytes(b"lost")
    assert refused.value.errno == errno.ENOTCONN


def slow_writer(point) -> subprocess.Popen:
    return subprocess.Popen(["dd", "if=/dev/urandom", f"of={point / 'file'}", "bs=1M", "count=40", "status=none"],
                            stderr=subprocess.DEVNULL)


def wait_for_the_first_part(simulator, prefix) -> None:
    """The store is slower until then, as a look at it may take longer than the whole upload."""
    wait_until(lambda: simulator.uploaded_parts(prefix), "the first part")
    simulator.set_model(total_mbps=20)


@pytest.mark.parametrize("way", ["command", "SIGTERM"])
def test_unmounting_waits_for_uploads_in_flight(mount, simulator, prefix, way):
    made = mount()
    simulator.set_model(total_mbps=4)
    try:
        writer = slow_writer(made.path)
        wait_for_the_first_part(simulator, prefix)
        if way == "command":
            assert command({}, "unmount", made.path).returncode == 0
            assert made.process.wait(60) == 0
        else:
            made.process.send_signal(signal.SIGTERM)
            assert made.process.wait(60) == 0
        assert writer.wait(60) == 0
    finally:
        simulator.set_model(total_mbps=0)
    assert len(simulator.content(prefix + "file")) == 40 * MIB
    assert not made.is_mounted()


def test_unmount_shows_progress_on_a_terminal(mount, simulator, prefix):
    made = mount()
    simulator.inject({"op": "UploadPart", "key": prefix + "file", "after": 1, "action": "hang"})
    ours, theirs = pty.openpty()
    try:
        writer = slow_writer(made.path)
        wait_until(lambda: simulator.fault_hits() > 0, "a part that hangs")
        unmount = subprocess.Popen([CKPTFS, "unmount", made.path], stderr=theirs)
        os.close(theirs)
        shown = bytearray()
        reader = threading.Thread(target=lambda: read_all(ours, shown))
        reader.start()
        wait_until(lambda: b"saving 1 file: " in shown, "the progress to be shown")
        simulator.clear_faults()
        assert unmount.wait(60) == 0
        reader.join(10)
        assert writer.wait(60) == 0
    finally:
        simulator.clear_faults()
        os.close(ours)


def read_all(descriptor: int, into: bytearray) -> None:
    try:
        while data := os.read(descriptor, 4096):
            into += data
    except OSError:
        pass  # The other end of a terminal that is closed reads as EIO.


def test_what_is_not_saved_in_time_is_named(mount, simulator, prefix):
    made = mount("--drain-timeout", "1s", "--retry-for", "30s")
    # It is not to end before its parts are looked at.
    simulator.set_model(total_mbps=4)
    try:
        writer = slow_writer(made.path)
        wait_for_the_first_part(simulator, prefix)
        simulator.inject({"op": "*", "key": prefix + "*", "action": "hang"})
    finally:
        simulator.set_model(total_mbps=0)
    done = command({}, "unmount", made.path)
    assert done.returncode == 1
    assert prefix + "file" in done.stderr
    assert made.process.wait(60) == 1
    assert writer.wait(60) != 0


def test_what_is_given_up_leaves_no_upload(mount, simulator, prefix):
    made = mount("--drain-timeout", "1s")
    simulator.inject({"op": "UploadPart", "key": prefix + "*", "after": 1, "action": "hang"})
    writer = slow_writer(made.path)
    wait_until(lambda: simulator.counters()["hung"] > 0, "a part to hang")
    assert made.unmount() == 1
    assert simulator.open_uploads(prefix) == []
    assert writer.wait(60) != 0


def test_a_mount_whose_memory_is_waited_for_ends_in_order(mount, simulator, prefix):
    for i in range(4):
        simulator.put(f"{prefix}read{i}", os.urandom(80 * MIB))
    made = mount("--drain-timeout", "1s", "--max-memory", "64M")
    # Not those of other tests.
    simulator.reset_counters()
    simulator.inject({"op": "UploadPart", "key": prefix + "*", "action": "hang"},
                     {"op": "GetObject", "key": prefix + "*", "after": 6, "action": "hang"})
    programs = [subprocess.Popen(["dd", *names, "bs=1M", "status=none"], stderr=subprocess.DEVNULL)
                for i in range(4) for names in ((f"if={made / f'read{i}'}", "of=/dev/null"),
                                                ("if=/dev/urandom", f"of={made / f'written{i}'}", "count=200"))]
    def answered(operation: str) -> int:
        return simulator.counters()["operations"].get(operation, {}).get("requests", 0)

    wait_until(lambda: answered("CreateMultipartUpload") > 0 and simulator.counters()["hung"] > 8, "requests to hang")
    # Behind the writers that wait for memory.
    assert not (made / "nothing").exists()
    assert made.unmount() == 1
    assert "memory pool" not in made.log()
    for program in programs:
        assert program.wait(60) != 0
