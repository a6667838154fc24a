# SPDX-License-Identifier: Apache-2.0
"""ckptfs doctor: what it finds in a store, what it makes of it, and that it leaves nothing behind."""

import json
import os
import re
import signal
import subprocess
import sys

import pytest
from harness.programs import CKPTFS, wait_until
from harness.servers import start_moto, start_rclone
from harness.simulator import ACCESS_KEY, BUCKET, SECRET_KEY, Simulator


class Report:
    def __init__(self, ran: subprocess.CompletedProcess) -> None:
        assert ran.stderr == "" and ran.stdout.count("\n") == 1, ran
        self.exit_code = ran.returncode
        self.all = json.loads(ran.stdout)
        self.findings = {each["name"]: each for each in self.all["findings"]}
        assert self.all["usable"] == (self.exit_code == 0)

    def __getitem__(self, name: str) -> str:
        return self.findings[name]["state"]

    def found(self, name: str) -> str:
        return self.findings[name]["found"]

    def with_state(self, *states: str) -> set[str]:
        return {name for name, each in self.findings.items() if each["state"] in states}


def run_doctor(server, *options: str, bucket: str = BUCKET, **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run([CKPTFS, "doctor", f"s3://{bucket}/run", *options], capture_output=True, text=True,
                          timeout=120, env={**os.environ, **server.environment(), **environment})


def examine(server, *options: str, **more: str) -> Report:
    options = options if "--probe-mib" in options else (*options, "--probe-mib", "0")
    return Report(run_doctor(server, "--json", *options, **more))


@pytest.mark.parametrize("wrong", ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"])
def test_refused_keys_are_named_by_where_they_come_from(simulator, wrong):
    report = examine(simulator, **{wrong: "wrong"})
    assert "; they come from the environment" in report.found("credentials"), report.found("credentials")


def is_clean(server) -> bool:
    client = server.client()
    return not (client.list_objects_v2(Bucket=BUCKET).get("Contents")
                or client.list_multipart_uploads(Bucket=BUCKET).get("Uploads"))


@pytest.fixture
def own_simulator(request):
    """With the options of its own that the test is marked with."""
    started = Simulator(*request.param)
    yield started
    started.stop()


def lacking(*options: str):
    return pytest.mark.parametrize("own_simulator", [options], indirect=True)


def test_a_store_that_lacks_nothing(simulator):
    simulator.put("run/model.pt", b"weights")
    report = examine(simulator, "--probe-mib", "64")
    assert report.exit_code == 0
    assert report.with_state("set", "limit", "unknown", "fails") == set(), report.all
    assert report.all["options"] == [] and report.all["server"] == "s3sim"
    assert abs(report.all["clock_skew_seconds"]) < 3
    for way in ("upload", "download"):
        assert report.all[way]["bytes_per_second_on_one_connection"] > 1e6 and report.all[way]["connections"] > 1
    assert simulator.all_keys() == ["run/model.pt"] and simulator.open_uploads() == []
    assert all(request["key"] in ("", "run/model.pt") or request["key"].startswith("run/.ckptfs/tmp/doctor-")
               for request in simulator.requests(10000))
    moved = simulator.counters()["operations"]
    assert sum(operation["bytes_in"] for operation in moved.values()) < 100 << 20


def test_for_a_person(simulator):
    ran = run_doctor(simulator, "--probe-mib", "0")
    assert ran.returncode == 0 and ran.stderr == ""
    lines = ran.stdout.splitlines()
    assert lines[0] == f"s3://{BUCKET}/run/" and lines[-1] == "ckptfs can be used here"
    assert any(line.startswith("ok    if_none_match ") for line in lines)


def test_tls(request):
    server = Simulator("--tls")
    request.addfinalizer(server.stop)
    assert examine(server).exit_code == 0
    report = examine(server, AWS_CA_BUNDLE="/etc/ssl/certs/ca-certificates.crt")
    assert report.exit_code == 1 and report["endpoint"] == "fails"
    assert "--ca-bundle FILE" in report.findings["endpoint"]["options"]
    assert report.found("put") == "not asked: because of endpoint"


def test_nobody_listens(simulator):
    report = examine(simulator, "--endpoint-url", "http://127.0.0.1:1")
    assert report.exit_code == 1
    assert report["endpoint"] == "fails" and "connection refused" in report.found("endpoint")
    assert report["staging_directory"] == "ok", "this machine is looked at all the same"
    assert report.with_state("fails") == {"endpoint"}


@pytest.mark.parametrize("name, variables, options", [
    ("credentials", {"AWS_ACCESS_KEY_ID": "somebody"}, "--profile NAME"),
    ("credentials", {"AWS_SECRET_ACCESS_KEY": "wrong"}, "--profile NAME"),
    ("credentials", {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "AWS_SHARED_CREDENTIALS_FILE": "/none",
                     "AWS_CONFIG_FILE": "/none"}, "--no-sign-request"),
    ("region", {"AWS_REGION": "eu-west-9"}, "--region us-east-1"),
])
def test_what_keeps_everything_out_is_named(simulator, name, variables, options):
    report = examine(simulator, **variables)
    assert report.exit_code == 1
    assert report.with_state("fails") == {name}, report.all
    assert options in report.findings[name]["options"]
    assert report["endpoint"] == "ok" and report["clock"] == "ok", "needs no credentials"
    assert report.found("put") == f"not asked: because of {name}"
    assert is_clean(simulator)


def test_a_clock_that_the_store_refuses(simulator):
    simulator.inject({"op": "*", "action": "skew"})
    report = examine(simulator, "--retry-for", "500ms")
    assert report.with_state("fails") == {"credentials"}, report.all
    assert "clock" in report.found("credentials") and "s3:" not in report.found("list")


def test_a_log_that_cannot_be_written_is_not_the_endpoint(simulator):
    report = examine(simulator, "--access-log", "/dev/null/log")
    assert report.exit_code == 1 and report.with_state("fails") == {"endpoint"}
    assert report.found("endpoint").startswith("could not be determined: --access-log: ")
    assert report.findings["endpoint"]["options"] == [] and report.findings["endpoint"]["means"] == ""


def test_no_such_bucket(simulator):
    report = examine(simulator, bucket="otherbucket")
    assert report.exit_code == 1 and report.with_state("fails") == {"bucket"}


def test_a_server_that_is_no_store(simulator, tmp_path):
    with subprocess.Popen([sys.executable, "-u", "-m", "http.server", "0", "--bind", "127.0.0.1"], cwd=tmp_path,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            port = re.search(r"port (\d+)", server.stdout.readline())[1]
            report = examine(simulator, "--endpoint-url", f"http://127.0.0.1:{port}")
        finally:
            server.kill()
    assert report.exit_code == 1 and report.with_state("fails") == {"bucket"}
    assert "--endpoint-url URL" in report.findings["bucket"]["options"]


def test_a_store_that_is_busy(simulator):
    simulator.inject({"op": "*", "action": "slowdown", "every": 10})
    report = examine(simulator)
    assert report.exit_code == 0 and report["slow_down"] == "note"
    simulator.clear_faults()
    assert is_clean(simulator)


def test_words_that_are_not_understood(simulator):
    for words in (["doctor"], ["doctor", "bucket"], ["doctor", "s3://bucket", "--probe-mib", "many"]):
        ran = subprocess.run([CKPTFS, *words], capture_output=True, text=True, timeout=60)
        assert ran.returncode == 2 and ran.stderr.startswith("ckptfs: ")


@pytest.mark.parametrize("ahead, state", [(3600, "limit"), (-3600, "limit"), (-10, "note")])
def test_clocks_that_differ(request, ahead, state):
    server = Simulator("--clock-offset-s", str(ahead))
    request.addfinalizer(server.stop)
    report = examine(server)
    assert report.exit_code == 0, "requests are signed with the store's time"
    assert report["clock"] == state
    assert report.all["clock_skew_seconds"] == pytest.approx(ahead, abs=2)
    server.set_model(clock_offset_s=0)
    assert is_clean(server)


NEEDS_READING = {"ranges", "if_match", "copy", "copy_conditions", "part_copy", "part_again", "latency"}
NEEDS_UPLOADS = {"abort", "list_uploads", "list_parts", "checksum_of_part", "if_none_match_of_uploads", "parts",
                 "unequal_parts", "part_order", "part_again", "part_copy"}
NEEDS_LISTS = {"list_after_write", "list_order", "key_names"}


@pytest.mark.parametrize("operations, missing, unknown, exit_code", [
    (("ListObjectsV2",), {"list"}, NEEDS_LISTS, 1),
    (("PutObject", "CreateMultipartUpload"), {"put"}, None, 1),
    (("CreateMultipartUpload",), {"multipart"}, NEEDS_UPLOADS, 1),
    (("GetObject", "HeadObject"), {"head", "get"}, NEEDS_READING | {"metadata", "etag"}, 1),
    (("GetObject",), {"get"}, NEEDS_READING, 1),
    (("ListMultipartUploads",), {"list_uploads"}, set(), 0),
    (("ListParts",), {"list_parts"}, set(), 0),
])
def test_a_right_that_is_missing(simulator, operations, missing, unknown, exit_code):
    simulator.inject(*({"op": operation, "action": "access-denied"} for operation in operations))
    report = examine(simulator)
    assert report.exit_code == exit_code
    assert report.with_state("set", "limit", "fails") == missing, report.all
    if unknown is not None:
        assert report.with_state("unknown") == unknown | {"upload", "download"}, report.all
    assert "s3:" in report.found(min(missing)) or "refused" in report.found(min(missing)) or not exit_code
    simulator.clear_faults()
    assert is_clean(simulator)


@pytest.mark.parametrize("operation, name", [("CopyObject", "copy"), ("UploadPartCopy", "part_copy"),
                                             ("DeleteObjects", "delete_batch")])
@pytest.mark.parametrize("action", ["access-denied", "503", "reset"])
def test_what_is_not_answered_is_no_verdict_on_the_store(simulator, operation, name, action):
    simulator.inject({"op": operation, "action": action})
    report = examine(simulator, "--retry-for", "500ms")
    assert report.found(name).startswith("could not be determined: "), report.found(name)
    assert report.with_state("set", "limit", "fails") <= {name}
    simulator.clear_faults()
    assert is_clean(simulator)


@pytest.mark.parametrize("operation, name", [("DeleteObject", "delete"), ("AbortMultipartUpload", "abort")])
def test_what_cannot_be_tidied_up_is_named(simulator, operation, name):
    simulator.inject({"op": operation, "action": "access-denied"})
    report = examine(simulator)
    assert report.exit_code == 1
    assert report.with_state("fails") == {name}
    assert report["cleanup"] == "limit" and "run/.ckptfs/tmp/doctor-" in report.found("cleanup")
    assert len(simulator.all_keys()) + len(simulator.open_uploads()) <= 3, "whoever cannot tidy up does not litter"


def test_a_mount_that_only_reads(simulator):
    simulator.put("run/model.pt", b"weights")
    simulator.inject({"op": "PutObject", "action": "access-denied"},
                     {"op": "CreateMultipartUpload", "action": "access-denied"})
    assert examine(simulator).exit_code == 1
    simulator.reset_counters()
    report = examine(simulator, "--read-only")
    assert report.exit_code == 0 and report["get"] == "ok" and report["latency"] == "ok"
    assert set(simulator.counters()["operations"]) <= {"HeadBucket", "ListObjectsV2", "HeadObject", "GetObject"}


def test_files_that_need_several_parts_cannot_be_saved(simulator):
    simulator.inject({"op": "UploadPart", "part": 2, "action": "400", "code": "EntityTooSmall"})
    report = examine(simulator)
    assert report.exit_code == 1 and report.with_state("fails") == {"parts"}
    assert report.findings["parts"]["options"] == ["--part-size SIZE"]
    assert report.found("part_copy") == "not asked: because of parts"
    simulator.clear_faults()
    assert is_clean(simulator)


def test_without_part_copies_a_store_can_be_used(simulator):
    simulator.inject({"op": "UploadPartCopy", "action": "501"})
    report = examine(simulator)
    assert report.exit_code == 0 and report.with_state("set", "limit", "fails") == {"part_copy"}
    assert is_clean(simulator)


@pytest.mark.parametrize("operation, name", [("CopyObject", "copy"), ("DeleteObjects", "delete_batch")])
def test_an_operation_that_is_not_there(simulator, operation, name):
    simulator.inject({"op": operation, "action": "501"})
    report = examine(simulator)
    assert report.exit_code == 1 and report.with_state("fails") == {name}
    assert is_clean(simulator)


@lacking("--lacks", "unequal-parts")
def test_a_store_that_wants_equal_parts(own_simulator):
    report = examine(own_simulator)
    assert report.exit_code == 0
    assert report.with_state("set", "limit", "fails") == {"unequal_parts"}
    assert report.all["options"] == ["--equal-parts"]
    assert run_doctor(own_simulator, "--probe-mib", "0").stdout.endswith(
        "ckptfs can be used here with --equal-parts\n")
    assert is_clean(own_simulator)


@lacking("--lacks", "metadata")
def test_a_store_that_drops_metadata(own_simulator):
    report = examine(own_simulator)
    assert report.exit_code == 0 and report.with_state("set") == {"metadata"}
    assert report.all["options"] == ["--compress none"]


@lacking("--lacks", "write-conditions", "--lacks", "read-conditions", "--lacks", "copy-conditions")
def test_a_store_that_heeds_no_conditions(own_simulator):
    report = examine(own_simulator)
    assert report.exit_code == 0
    assert report.with_state("set", "limit", "fails") == {
        "if_none_match", "if_none_match_of_uploads", "if_match_of_put", "copy_conditions", "delete_conditions"}
    assert is_clean(own_simulator)


@lacking("--lacks", "known-write-conditions")
def test_a_store_that_refuses_conditions_of_writes(own_simulator):
    # A mount looks at the key instead, which leaves others a moment in between.
    report = examine(own_simulator)
    assert report.exit_code == 0
    assert report.with_state("set", "limit", "fails") == {"if_none_match", "if_match_of_put", "copy_conditions"}
    assert is_clean(own_simulator)


@lacking("--lacks", "delete-conditions")
def test_a_store_that_ignores_conditional_deletes(own_simulator):
    report = examine(own_simulator)
    assert report.exit_code == 0
    assert report.with_state("set", "limit", "fails") == {"delete_conditions"}
    assert is_clean(own_simulator)


@lacking("--lacks", "delete-checksums")
def test_a_store_that_wants_md5_of_deletes(own_simulator):
    report = examine(own_simulator)
    assert report.exit_code == 0
    assert report.with_state("set", "limit", "fails") == set()
    assert is_clean(own_simulator)


@lacking("--lacks", "checksums")
def test_a_store_that_refuses_checksum_headers(own_simulator):
    report = examine(own_simulator)
    assert report.exit_code == 0
    assert report.with_state("set", "limit", "fails") == {"checksum_headers"}
    assert report.all["options"] == ["--checksum none"]
    assert report["parts"] == "ok" and report["part_copy"] == "ok", "asked without them"
    assert is_clean(own_simulator)


@lacking("--no-verify-checksums")
def test_a_store_that_checks_no_checksums(own_simulator):
    report = examine(own_simulator)
    assert report.exit_code == 0
    assert report.with_state("note") - {"latency"} == {"checksum_of_put", "checksum_of_part"}


def test_no_checksums_are_sent(simulator):
    report = examine(simulator, "--checksum", "none")
    assert report.exit_code == 0
    assert report.with_state("unknown") == {"checksum_headers", "checksum_of_put", "checksum_of_part", "upload",
                                            "download"}


def test_a_request_that_hangs_does_not_hide_the_others(simulator):
    simulator.inject({"op": "CopyObject", "action": "hang"})
    report = examine(simulator, "--stall-timeout", "500ms", "--retry-for", "1s")
    assert report["copy"] == "fails" and report["unequal_parts"] == "ok" and report["part_copy"] == "ok"
    simulator.clear_faults()
    assert is_clean(simulator)


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_leaves_nothing_behind(simulator, sent):
    simulator.inject({"op": "UploadPart", "action": "hang", "after": 4})
    with subprocess.Popen([CKPTFS, "doctor", f"s3://{BUCKET}/run", "--json"], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True,
                          env={**os.environ, **simulator.environment()}) as running:
        wait_until(lambda: simulator.fault_hits() > 0, "an upload to hang", 60)
        running.send_signal(sent)
        out, err = running.communicate(timeout=60)
    report = Report(subprocess.CompletedProcess([], running.returncode, out, err))
    assert report.exit_code == 1 and report.all["interrupted"]
    assert report["put"] == "ok" and report["cleanup"] == "ok"
    simulator.clear_faults()
    assert is_clean(simulator)


def test_the_link_is_measured(simulator):
    # The model is the shared simulator's: it is set back.
    simulator.set_model(latency_ms=60, conn_mbps=20, total_mbps=60)
    try:
        report = examine(simulator, "--probe-mib", "256")
    finally:
        simulator.set_model(latency_ms=0, conn_mbps=0, total_mbps=0)
    assert report.exit_code == 0
    assert 60 <= report.all["median_latency_ms"] < 300 and report["latency"] == "note"
    for way in ("upload", "download"):
        assert 5e6 < report.all[way]["bytes_per_second_on_one_connection"] < 25e6, way
        assert 20e6 < report.all[way]["bytes_per_second"] < 70e6, way


@pytest.mark.parametrize("start, exit_code, limits, fails", [
    (start_moto, 0, {"copy_conditions", "delete_conditions"}, set()),
    (start_rclone, 1, {"etag", "if_none_match", "if_none_match_of_uploads", "if_match_of_put", "copy_conditions",
                       "delete_conditions", "part_again"}, {"part_copy"}),
], ids=["moto", "rclone"])
def test_other_servers(request, start, exit_code, limits, fails):
    server = start()
    request.addfinalizer(server.stop)
    report = examine(server, "--retry-for", "3s")
    assert report.exit_code == exit_code, report.found("part_copy")
    assert report.with_state("limit") == limits and report.with_state("fails") == fails
    assert report.with_state("note") - {"latency"} == {"checksum_of_put", "checksum_of_part"}, "neither compares them"
    assert report.with_state("unknown") == {"upload", "download"}, "not wanted"
    assert is_clean(server)


def doctor_of(directory, *options: str, **variables: str) -> subprocess.CompletedProcess:
    return subprocess.run([CKPTFS, "doctor", directory, "--probe-mib", "0", *options], capture_output=True, text=True,
                          timeout=120, env={**os.environ, **variables})


def test_a_directory_of_fstab(simulator, tmp_path):
    """Its line has all that is needed: nothing comes from the environment."""
    (tmp_path / "credentials").write_text(
        f"[default]\naws_access_key_id = {ACCESS_KEY}\naws_secret_access_key = {SECRET_KEY}\n")
    (tmp_path / "credentials").chmod(0o600)
    options = f"_netdev,ro,uid=0,endpoint_url={simulator.url},credentials_file={tmp_path}/credentials"
    (tmp_path / "mnt").mkdir()
    (tmp_path / "fstab").write_text(f"s3://{BUCKET}/run {tmp_path}/mnt ckptfs {options} 0 0\n")
    ran = doctor_of(tmp_path / "mnt", LIBMOUNT_FSTAB=str(tmp_path / "fstab"))
    assert ran.returncode == 0, ran.stdout
    lines = ran.stdout.splitlines()
    assert lines[:2] == [f"s3://{BUCKET}/run/", f"as {tmp_path}/fstab has it for {tmp_path}/mnt"]
    unasked = [line for line in lines if "not asked" in line]
    assert len(unasked) == 1 and "--read-only: " in unasked[0] and "put" in unasked[0], "and the line says ro"
    (tmp_path / "credentials").unlink()
    ran = doctor_of(tmp_path / "mnt", LIBMOUNT_FSTAB=str(tmp_path / "fstab"))
    assert ran.returncode == 1 and f"--credentials-file {tmp_path}/credentials: No such file" in ran.stdout
    ran = doctor_of(tmp_path / "other", LIBMOUNT_FSTAB=str(tmp_path / "fstab"))
    assert ran.returncode == 2 and f"is neither a mount of ckptfs nor in {tmp_path}/fstab" in ran.stderr


def test_a_line_of_fstab_that_cannot_be_mounted(simulator, tmp_path):
    place = tmp_path / "mnt"
    place.mkdir()
    environment = {"LIBMOUNT_FSTAB": str(tmp_path / "fstab"), **simulator.environment()}

    def doctor_with(options):
        (tmp_path / "fstab").write_text(f"s3://{BUCKET}/run {place} ckptfs {options} 0 0\n")
        return doctor_of(place, **environment)

    ran = doctor_with("part_size=64X")
    assert ran.returncode == 2 and f"as {tmp_path}/fstab has it for {place}: --part-size: " in ran.stderr
    (place / "file").touch()
    ran = doctor_with("ro")
    assert ran.returncode == 1 and f"the mount point {place} is not empty" in ran.stdout


def test_a_staging_directory_without_room(simulator, tmp_path):
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4M", "tmpfs", tmp_path], check=True)
    try:
        ran = doctor_of(f"s3://{BUCKET}/run", "--staging-dir", tmp_path, "--read-only", **simulator.environment())
        assert ran.returncode == 1 and f"{tmp_path} has room for 4.0 MiB" in ran.stdout
    finally:
        subprocess.run(["umount", "--lazy", tmp_path], check=True)


def test_a_disk_that_keeps_files(simulator, mount, tmp_path):
    made = mount("--cache-dir", str(tmp_path / "cache"))
    report = Report(doctor_of(made.path, "--json", **simulator.environment()))
    assert report["cache_directory"] == report["passthrough"] == "ok", report.findings
    (tmp_path / "cache").chmod(0o755)
    report = Report(doctor_of(made.path, "--json", **simulator.environment()))
    assert report["cache_directory"] == "fails", report.findings


def test_a_directory_that_is_mounted(simulator, mount, prefix):
    made = mount("--read-only", "--metadata-ttl", "2s", "-o", "region=us-east-1")
    keys = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}
    ran = doctor_of(made.path, "--json", AWS_ENDPOINT_URL=simulator.url, AWS_REGION="elsewhere-1", **keys)
    report = Report(ran)
    assert report.all["source"] == f"s3://{BUCKET}/{prefix}"
    assert report["mount_point"] == "ok"
    assert "us-east-1" in report.found("region") and report["put"] == "unknown", "as it was started"
    shown = doctor_of(made.path, AWS_ENDPOINT_URL=simulator.url, **keys).stdout.splitlines()[1]
    assert f"process {made.process.pid}, which is mounted at {made.path}" in shown
