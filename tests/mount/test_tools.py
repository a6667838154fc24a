# SPDX-License-Identifier: Apache-2.0
"""The commands that look at objects without a mount: inspect, cat and verify."""

import contextlib
import json
import os
import pty
import signal
import subprocess
import time

import numpy
import pytest
from format.container import read_table
from harness.programs import CKPTFS
from harness.simulator import BUCKET, Simulator, flipped

pytestmark = pytest.mark.sanitized

MIB = 1 << 20
FORMATS = {"none": "plain", "zstd": "zstd-1", "auto": "planes-1"}


def floats_and_text(mib: int) -> bytes:
    """Floats, random bytes and text in turn, a MiB of each."""
    random = numpy.random.default_rng(1)
    pieces = [random.standard_normal(MIB // 4, numpy.float32).tobytes(), random.bytes(MIB), b"text of a file\n" * 69906]
    return b"".join(pieces[place % 3][:MIB - place] for place in range(mib))


@pytest.fixture
def tool(simulator):
    """Runs a command of ckptfs against the simulator."""
    def run(command: str, key: str, *options: str, bucket: str = BUCKET) -> subprocess.CompletedProcess:
        return subprocess.run([CKPTFS, command, f"s3://{bucket}/{key}", *options], capture_output=True, timeout=60,
                              env={**os.environ, **simulator.environment()})
    return run


def fails(ran: subprocess.CompletedProcess, what: str, code: int = 1) -> None:
    assert ran.returncode == code
    lines = ran.stderr.decode().splitlines()
    assert len(lines) == 1 and lines[0].startswith("ckptfs: ") and what in lines[0], lines


@pytest.mark.parametrize("compress", FORMATS)
@pytest.mark.parametrize("size", [0, 1, MIB, MIB + 1, 9 * MIB, 150 * MIB + 17])
def test_cat_writes_the_file(mount, tool, simulator, prefix, compress, size):
    content = floats_and_text(size // MIB + 2)[:size]
    (mount("--compress", compress) / "file").write_bytes(content)
    ran = tool("cat", prefix + "file")
    assert ran.returncode == 0 and ran.stderr == b""
    assert ran.stdout == content
    if size > 100 * MIB:
        assert simulator.counters()["operations"]["GetObject"]["requests"] > 10, "in parallel ranges"


def test_cat_writes_what_comes_before_the_damage(mount, tool, simulator, prefix):
    content = floats_and_text(30)
    (mount("--compress", "auto") / "file").write_bytes(content)
    entries = read_table(simulator.stored(prefix + "file"))
    damaged = 22
    simulator.damage(prefix + "file", flipped(sum(entry[0] for entry in entries[:damaged]) + 300))
    ran = tool("cat", prefix + "file")
    fails(ran, f"frame {damaged}: ")
    assert ran.stdout == content[:damaged * MIB]


def test_cat_ends_with_its_reader(mount, simulator, prefix):
    (mount() / "file").write_bytes(floats_and_text(40))
    with subprocess.Popen([CKPTFS, "cat", f"s3://{BUCKET}/{prefix}file"], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, env={**os.environ, **simulator.environment()}) as ran:
        assert len(ran.stdout.read(1)) == 1
        ran.stdout.close()
        assert ran.wait(30) == -signal.SIGPIPE
        assert ran.stderr.read() == b""


def test_cat_needs_room_for_its_output(mount, tool, simulator, prefix):
    (mount() / "file").write_bytes(floats_and_text(3))
    with open("/dev/full", "wb") as full:
        ran = subprocess.run([CKPTFS, "cat", f"s3://{BUCKET}/{prefix}file"], stdout=full, stderr=subprocess.PIPE,
                             env={**os.environ, **simulator.environment()}, timeout=60)
    fails(ran, "standard output: No space left on device")


@pytest.mark.parametrize("command", ["cat", "inspect"])
def test_what_is_not_there(tool, prefix, command):
    fails(tool(command, prefix + "missing"), "missing")
    fails(tool(command, prefix + "file", bucket="otherbucket"), "otherbucket")
    fails(tool(command, ""), "names no object", code=2)
    fails(tool(command, prefix + "file", "--no-such-option"), "no-such-option", code=2)
    fails(tool(command, prefix + "file", "--endpoint-url", "http://127.0.0.1:1", "--retry-for", "100ms"), "127.0.0.1")


def test_keys_do_not_reach_the_terminal_as_they_are(tool, simulator, prefix):
    key = f"{prefix}red\x1b[31m"
    fails(tool("cat", key), "red\\x1b[31m")
    simulator.put(key, b"content")
    ran = tool("inspect", key)
    assert ran.returncode == 0 and b"red\\x1b[31m" in ran.stdout and b"\x1b" not in ran.stdout


@pytest.mark.parametrize("compress", FORMATS)
def test_inspect_accounts_for_every_byte(mount, tool, simulator, prefix, compress):
    content = floats_and_text(30)
    (mount("--compress", compress) / "file").write_bytes(content)
    head = simulator.client().head_object(Bucket=BUCKET, Key=prefix + "file")
    said = json.loads(tool("inspect", prefix + "file", "--json").stdout)
    assert said["key"] == prefix + "file"
    assert said["format"] == FORMATS[compress]
    assert said["size"] == len(content)
    assert said["stored_size"] == head["ContentLength"]
    assert said["etag"] == head["ETag"]
    assert said["percent_saved"] == pytest.approx(100 - 100 * head["ContentLength"] / len(content))
    text = tool("inspect", prefix + "file").stdout.decode()
    assert FORMATS[compress] in text and str(len(content)) in text and head["ETag"] in text
    if compress == "none":
        assert "frames" not in said and "byte for byte" in text
        return
    entries = read_table(simulator.stored(prefix + "file"))
    kinds = said["frame_kinds"]
    assert said["frames"] == len(entries) == sum(kind["count"] for kind in kinds.values())
    assert sum(kind["size"] for kind in kinds.values()) == len(content)
    assert sum(kind["stored_size"] for kind in kinds.values()) + said["padding"] == sum(entry[0] for entry in entries)
    assert kinds["raw"]["count"] >= 9, "the random bytes"
    if compress == "zstd":
        assert kinds["planes"]["count"] == 0 and said["planes"] == []
        return
    assert kinds["planes"]["count"] >= 1, "the floats, unless this machine was too busy"
    planes = said["planes"]
    assert sum(plane["size"] for plane in planes) == pytest.approx(kinds["planes"]["size"], abs=100)
    stored = sum(plane["stored_size"] for plane in planes)
    assert 0 < kinds["planes"]["stored_size"] - stored < 1000 * kinds["planes"]["count"]
    exponents = [plane for plane in planes if plane["width"] == 4 and plane["plane"] == 3]
    assert sum(plane["stored_size"] for plane in exponents) < 0.6 * sum(plane["size"] for plane in exponents)


def test_inspect_says_what_is_damaged(mount, tool, simulator, prefix):
    for name in ("magic", "footer", "format"):
        (mount("--compress", "zstd") / name).write_bytes(floats_and_text(3))
    simulator.damage(prefix + "magic", flipped(0))
    fails(tool("inspect", prefix + "magic"), "frame 0: ")
    simulator.damage(prefix + "footer", flipped(-1))
    fails(tool("inspect", prefix + "footer"), "the frame table is damaged")
    simulator.client().copy_object(Bucket=BUCKET, Key=prefix + "format", CopySource=f"{BUCKET}/{prefix}format",
                                   Metadata={"ckptfs-format": "planes-9"}, MetadataDirective="REPLACE")
    fails(tool("inspect", prefix + "format"), "planes-9")


def test_verify_finds_all_damage_and_nothing_else(mount, tool, simulator, prefix):
    made = {compress: mount("--compress", compress) for compress in FORMATS}
    (made["auto"] / "dir").mkdir()
    for compress, where in made.items():
        for size in (0, 1, 3 * MIB + 5, 30 * MIB):
            (where / "dir" / f"{compress}{size}").write_bytes(floats_and_text(31)[:size])
    sound = tool("verify", prefix)
    assert sound.returncode == 0 and sound.stderr == b"", sound
    assert sound.stdout == f"12 objects, {3 * (33 * MIB + 6) / MIB:.1f} MiB\n".encode()
    assert json.loads(tool("verify", prefix, "--json").stdout) == {
        "objects": 12, "size": 3 * (33 * MIB + 6), "damaged": 0, "not_checked": 0}

    # The same for a whole bucket, for one object, and for what is below a name without a slash.
    assert tool("verify", "").stdout.startswith(b"12 objects, ")
    assert tool("verify", prefix + "dir/auto1").stdout.startswith(b"1 object, ")
    assert tool("verify", prefix + "dir").stdout.startswith(b"12 objects, ")

    large = prefix + "dir/auto" + str(30 * MIB)
    entries = read_table(simulator.stored(large))
    begins = [sum(entry[0] for entry in entries[:frame]) for frame in range(len(entries))]

    def two_frames(data: bytearray) -> bytes:
        data[begins[22] + 300] ^= 1
        data[begins[7] + 300] ^= 1
        return bytes(data)

    simulator.damage(large, two_frames)
    simulator.damage(prefix + "dir/zstd" + str(30 * MIB), lambda data: bytes(data[:-4096]))
    simulator.damage(prefix + "dir/zstd" + str(3 * MIB + 5), lambda data: b"")
    ran = tool("verify", prefix)
    assert ran.returncode == 1 and ran.stderr == b""
    lines = ran.stdout.decode().splitlines()
    assert lines[-1].startswith("12 objects, ") and lines[-1].endswith(", 3 damaged")
    assert len(lines) == 4 and all(line.startswith("damaged: " + prefix) for line in lines[:-1])
    [of_large] = [line for line in lines if large in line]
    assert "frame 7: " in of_large and "(2 frames are damaged)" in of_large
    said = [json.loads(line) for line in tool("verify", prefix, "--json").stdout.splitlines()]
    assert said[-1]["damaged"] == 3
    [of_large] = [line for line in said if line.get("key") == large]
    assert of_large["state"] == "damaged" and of_large["first_damaged_frame"] == 7 and of_large["damaged_frames"] == 2


@pytest.mark.parametrize("compress", ["auto", "zstd"])
def test_a_copy_without_metadata_is_noticed(mount, tool, simulator, prefix, compress):
    writer = mount("--compress", compress)
    (writer / "file").write_bytes(floats_and_text(3))
    simulator.client().copy_object(Bucket=BUCKET, Key=prefix + "copy", CopySource=f"{BUCKET}/{prefix}file",
                                   Metadata={}, MetadataDirective="REPLACE")
    # As large as a container may be, and none.
    simulator.put(prefix + "plain", bytes(len(simulator.stored(prefix + "file"))))
    (writer / "link").symlink_to("file")
    said = "it looks compressed, but the metadata that says so"
    ran = tool("verify", prefix)
    assert ran.returncode == 1
    [damaged, last] = ran.stdout.decode().splitlines()
    assert damaged.startswith(f"damaged: {prefix}copy: {said}") and last.endswith(", 1 damaged")
    assert said in tool("inspect", prefix + "copy").stdout.decode()
    assert json.loads(tool("inspect", prefix + "copy", "--json").stdout)["may_have_lost_description"] is True
    assert json.loads(tool("inspect", prefix + "plain", "--json").stdout)["may_have_lost_description"] is False

    reader = mount()
    assert (reader / "copy").read_bytes() == simulator.stored(prefix + "copy")
    assert (reader / "plain").read_bytes() == simulator.stored(prefix + "plain")
    assert [said in line for line in reader.log().splitlines() if "warn" in line] == [True]
    assert f"{prefix}copy is read as it is stored" in reader.log()


def test_files_are_named_by_their_paths_in_a_mount(mount, simulator, prefix, tmp_path):
    made = mount("--compress", "auto")
    content = floats_and_text(6)
    for directory in ("step-1", "step-10"):
        (made / directory).mkdir()
        (made / directory / "model.pt").write_bytes(content)
    (made / "latest").symlink_to("step-1")
    shown = tmp_path / "shown"
    shown.mkdir()
    (tmp_path / "link").symlink_to(made.path)
    environment = {**os.environ, **simulator.environment()}

    def run(command, path, where=tmp_path):
        return subprocess.run([CKPTFS, command, path], cwd=where, capture_output=True, timeout=60, env=environment)

    subprocess.run(["mount", "--bind", made / "step-1", shown], check=True)
    try:
        for path, where in ((made / "step-1/model.pt", tmp_path), ("model.pt", made / "step-1"),
                            ("link/latest/model.pt", tmp_path), (shown / "model.pt", tmp_path)):
            assert run("cat", path, where).stdout == content, path
            assert run("inspect", path, where).stdout.decode().startswith(f"key       {prefix}step-1/model.pt\n"), path
    finally:
        subprocess.run(["umount", shown], check=True)
    assert run("verify", "link/step-1").stdout.decode() == "1 object, 6.0 MiB\n"
    assert run("verify", made.path).returncode == 0
    assert run("gc", made.path).returncode == 0
    fails(run("cat", made / "step-1"), f"{made / 'step-1'} is a directory; give a file in it", code=2)
    fails(run("inspect", made / "step-1/other.pt"), f"s3://{BUCKET}/{prefix}step-1/other.pt")
    fails(run("cat", tmp_path / "other.pt"), "is in no mount of ckptfs; give s3://BUCKET/KEY", code=2)


def test_verify_reads_many_objects_page_by_page(tool, simulator, prefix):
    client = simulator.client()
    for number in range(1100):
        client.put_object(Bucket=BUCKET, Key=f"{prefix}{number}", Body=b"content")
    client.put_object(Bucket=BUCKET, Key=f"{prefix}500x", Body=b"content" * 1000,
                                  Metadata={"ckptfs-format": "zstd-1"})
    ran = tool("verify", prefix)
    assert ran.returncode == 1
    assert ran.stdout.decode().splitlines()[-1].startswith("1101 objects, ")
    assert f"damaged: {prefix}500x: ".encode() in ran.stdout


def test_verify_says_what_it_could_not_check(mount, tool, simulator, prefix):
    fails(tool("verify", prefix), "no object", code=2)
    fails(tool("verify", prefix, bucket="otherbucket"), "otherbucket", code=2)
    fails(tool("verify", prefix, "--endpoint-url", "http://127.0.0.1:1", "--retry-for", "100ms"), "127.0.0.1", code=2)
    for name in ("newer", "refused", "sound"):
        (mount("--compress", "zstd") / name).write_bytes(floats_and_text(3))
    simulator.client().copy_object(Bucket=BUCKET, Key=prefix + "newer", CopySource=f"{BUCKET}/{prefix}newer",
                                   Metadata={"ckptfs-format": "planes-9"}, MetadataDirective="REPLACE")
    simulator.inject({"op": "GetObject", "key": prefix + "refused", "action": "403"})
    ran = tool("verify", prefix)
    assert ran.returncode == 2
    lines = ran.stdout.decode().splitlines()
    assert len(lines) == 3 and lines[-1].endswith("3 objects, 3.0 MiB, 2 not checked")
    assert any("planes-9" in line and line.startswith("not checked: ") for line in lines)
    assert any("AccessDenied" in line and line.startswith("not checked: ") for line in lines)
    simulator.damage(prefix + "sound", flipped(1000))
    assert tool("verify", prefix).returncode == 1, "damage comes first"


def test_verify_shows_its_progress_on_a_terminal_only(mount, simulator, prefix):
    (mount() / "file").write_bytes(floats_and_text(60))
    terminal, end = pty.openpty()
    ran = subprocess.run([CKPTFS, "verify", f"s3://{BUCKET}/{prefix}"], stdout=subprocess.PIPE, stderr=end, timeout=60,
                         env={**os.environ, **simulator.environment()})
    os.close(end)
    shown = b""
    # What was written last may come with another read; EIO is the end.
    with contextlib.suppress(OSError):
        while more := os.read(terminal, 100_000):
            shown += more
    os.close(terminal)
    assert ran.returncode == 0 and ran.stdout == b"1 object, 60.0 MiB\n"
    assert shown.startswith(b"checked ") and shown.endswith(b"\r\x1b[K")


def test_the_other_protocol_is_recognised(tool, simulator):
    ran = tool("cat", "key", "--endpoint-url", simulator.url.replace("http:", "https:"), "--retry-for", "2s")
    assert ran.returncode == 1
    assert b"the endpoint does not speak TLS; did you mean http:// instead of https://?" in ran.stderr, ran.stderr
    over_tls = Simulator("--tls")
    try:
        ran = tool("cat", "key", "--endpoint-url", over_tls.url.replace("https:", "http:"), "--retry-for", "100ms")
    finally:
        over_tls.stop()
    assert ran.returncode == 1
    assert b"if the endpoint speaks TLS, it is https:// instead of http://" in ran.stderr, ran.stderr


@pytest.mark.parametrize("command, key", [("gc", ""), ("cat", "key"), ("verify", ""), ("inspect", "key")])
def test_a_dead_endpoint_is_told_of_at_once_and_ctrl_c_ends_the_wait(command, key, simulator):
    environment = {**os.environ, **simulator.environment(), "AWS_ENDPOINT_URL": "http://127.0.0.1:1"}
    began = time.monotonic()
    with subprocess.Popen([CKPTFS, command, f"s3://{BUCKET}/{key}", "--retry-for", "20s"], env=environment,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          # Whoever runs the tests in the background of a shell has it ignored.
                          preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)) as ran:
        try:
            line = ran.stderr.readline()
            assert "connection refused" in line and "retrying for up to " in line, line
            assert time.monotonic() - began < 10 and ran.poll() is None
            ran.send_signal(signal.SIGINT)
            interrupted = time.monotonic()
            assert ran.wait(10) == -signal.SIGINT
            assert time.monotonic() - interrupted < 2
        finally:
            ran.kill()
