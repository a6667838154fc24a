# SPDX-License-Identifier: Apache-2.0
"""What monitoring sees of a mount."""

import json
import os
import re
import stat
import subprocess
import sys
import urllib.error
import urllib.request

import pytest
import yaml
from harness.programs import CKPTFS, ROOT, wait_until
from prometheus_client.parser import text_string_to_metric_families

MIB = 1 << 20
MONITORING = ROOT / "packaging/monitoring"


def port_of(made) -> int:
    wait_until(lambda: "metrics are served at" in made.log(), "the metrics to be served")
    return int(re.search(r"metrics are served at http://127\.0\.0\.1:(\d+)/metrics", made.log()).group(1))


def scrape(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        return answer.read().decode()


def samples(text: str) -> dict[tuple, float]:
    """By name and labels, without the mount."""
    found = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation, family.name
        for sample in family.samples:
            if sample.name.startswith("exposer_"):  # The server's own.
                continue
            labels = dict(sample.labels)
            assert labels.pop("mount"), sample
            found[sample.name, *sorted(labels.items())] = sample.value
    return found


def test_a_save_and_a_load_are_counted(mount, prefix):
    made = mount("--metrics-address", ":0", "--compress", "none")
    port = port_of(made)
    data = os.urandom(24 * MIB)
    with open(made / "model.pt", "wb", buffering=0) as file:
        file.write(data)
        now = samples(scrape(port))
        assert now["ckptfs_files_unsaved",] == now["ckptfs_files_open_for_writing",] == 1
        assert now["ckptfs_safe_to_stop",] == 0
    with open(made / "model.pt", "rb") as file:
        assert file.read() == data
    # What is read as it comes counts as fetched when its request ends.
    wait_until(lambda: samples(scrape(port))["ckptfs_read_fetched_bytes_total",] >= 24 * MIB, "the requests to end")
    now = samples(scrape(port))
    assert now["ckptfs_written_bytes_total",] == now["ckptfs_read_bytes_total",] == 24 * MIB
    assert now["ckptfs_files_committed_total",] == 1
    assert now["ckptfs_committed_bytes_total",] == now["ckptfs_stored_bytes_total",] == 24 * MIB
    assert now["ckptfs_safe_to_stop",] == 1
    assert now["ckptfs_s3_sent_bytes_total",] >= 24 * MIB
    parts = ("operation", "UploadPart")
    assert now["ckptfs_s3_requests_total", parts, ("result", "ok")] == now[
        "ckptfs_s3_request_duration_seconds_count", parts] >= 2


def test_what_failed_is_counted(mount, simulator, prefix):
    made = mount("--metrics-address", ":0")
    port = port_of(made)
    simulator.inject({"op": "PutObject", "key": prefix + "bad", "action": "403"})
    with pytest.raises(OSError):
        (made / "bad").write_bytes(b"x")
    now = samples(scrape(port))
    assert now["ckptfs_s3_requests_total", ("operation", "PutObject"), ("result", "AccessDenied")] >= 1
    assert now["ckptfs_files_failed_total",] == 1
    assert now["ckptfs_log_messages_total", ("level", "error")] >= 1


def test_a_killed_writer_has_not_failed(mount):
    made = mount("--metrics-address", ":0")
    port = port_of(made)
    writer = subprocess.Popen([sys.executable, "-c", "import sys; file = open(sys.argv[1], 'wb', buffering=0); "
                               "file.write(b'x'); print(flush=True); input()", made / "model.pt"],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    writer.stdout.readline()
    writer.kill()
    writer.wait()
    wait_until(lambda: samples(scrape(port))["ckptfs_files_held_back_total",] == 1, "the writer's end to be noticed")
    assert samples(scrape(port))["ckptfs_files_failed_total",] == 0


WHY = "is inside the mount, so the daemon would wait for itself; use a path outside it"


def test_what_the_daemon_writes_is_not_below_its_mount(mount, tmp_path):
    (tmp_path / "mnt").mkdir()
    for option in ("--log-file", "--metrics-file", "--access-log"):
        refused = subprocess.run([CKPTFS, "mount", "s3://bucket/", tmp_path / "mnt", option, tmp_path / "mnt/file"],
                                 capture_output=True, text=True, timeout=30, check=False)
        assert refused.returncode == 1
        assert refused.stderr == f"ckptfs: {tmp_path}/mnt/file {WHY}\n"
    (tmp_path / "link").symlink_to("mnt")
    for option, place in (("--state-dir", "mnt"), ("--state-dir", "link/state"), ("--staging-dir", "mnt"),
                          ("--log-file", "link/file")):
        refused = subprocess.run([CKPTFS, "mount", "s3://bucket/", tmp_path / "mnt", option, tmp_path / place],
                                 capture_output=True, text=True, timeout=30, check=False)
        assert refused.returncode == 1
        assert refused.stderr == f"ckptfs: {tmp_path}/{place} {WHY}\n"


def test_a_file_for_the_node_exporter(mount, tmp_path):
    file = tmp_path / "ckptfs.prom"
    made = mount("--metrics-file", str(file))
    wait_until(file.exists, "the file of metrics")
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    assert samples(file.read_text())["ckptfs_safe_to_stop",] == 1
    assert f'mount="{made.path}"' in file.read_text()
    assert made.unmount() == 0
    assert not file.exists()


def test_a_port_that_is_taken_does_not_keep_a_mount_away(mount):
    first = mount("--metrics-address", ":0")
    address = f"127.0.0.1:{port_of(first)}"
    second = mount("--metrics-address", address)
    wait_until(lambda: f"metrics cannot be served at {address}" in second.log(), "the second mount to say so")
    (second / "a").write_bytes(b"a")


def test_nothing_is_served_unasked(mount):
    made = mount()
    with open(f"/proc/{made.process.pid}/net/tcp") as table:
        listening = {line.split()[9] for line in table if line.split()[3] == "0A"}
    inodes = {os.readlink(f"/proc/{made.process.pid}/fd/{fd}") for fd in os.listdir(f"/proc/{made.process.pid}/fd")}
    assert not {f"socket:[{inode}]" for inode in listening} & inodes


def test_dashboard_and_alerts_ask_for_metrics_that_exist(mount, prefix):
    made = mount("--metrics-address", ":0")
    (made / "a").write_bytes(b"a")
    served = {name for name, *_ in samples(scrape(port_of(made)))}
    dashboard = json.loads((MONITORING / "grafana-dashboard.json").read_text())
    alerts = yaml.safe_load((MONITORING / "prometheus-alerts.yml").read_text())
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    assert len(asked) >= 10
    rules = [rule for group in alerts["groups"] for rule in group["rules"]]
    for rule in rules:
        assert rule["annotations"]["summary"] and rule["annotations"]["description"], rule
    for expression in asked + [rule["expr"] for rule in rules]:
        names = re.findall(r"\bckptfs_\w+", expression)
        assert names and served.issuperset(names), expression


def test_the_access_log_names_every_request(mount, simulator, prefix, tmp_path):
    log = tmp_path / "access.log"
    made = mount("--access-log", str(log), "--compress", "none")
    simulator.inject({"op": "UploadPart", "action": "503", "times": 1})
    (made / "model.pt").write_bytes(os.urandom(24 * MIB))
    assert made.unmount() == 0
    lines = [line.split(" ", 1)[1] for line in log.read_text().splitlines()]
    parts = [line for line in lines if line.startswith(f'UploadPart key="{prefix}model.pt"')]
    assert any("status=503" in line and "error=" in line for line in parts)
    assert any("attempt=2 status=200" in line for line in parts)
    assert all(re.search(r" request=\S+$", line) for line in parts)
    assert any(line.startswith(f'CompleteMultipartUpload key="{prefix}model.pt"') for line in lines)
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


def test_an_access_log_that_cannot_be_written_is_refused(mount, tmp_path):
    with pytest.raises(AssertionError, match="--access-log: cannot write .*: Is a directory"):
        mount("--access-log", str(tmp_path))


def test_a_bad_address_is_refused(mount):
    with pytest.raises(AssertionError, match='--metrics-address: "9464x" is not an address'):
        mount("--metrics-address", "9464x")


def test_http_errors_are_not_a_scrape(mount):
    port = port_of(mount("--metrics-address", ":0"))
    with pytest.raises(urllib.error.HTTPError):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=30)
