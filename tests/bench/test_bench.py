# SPDX-License-Identifier: Apache-2.0
"""The benchmark's driver: that it runs everything it promises and tells it right. It measures nothing here."""

import csv
import subprocess
import sys

import pytest
import torch
from harness.programs import BUILD, ROOT

sys.path.insert(0, str(ROOT / "bench"))

import bench_plan  # noqa: E402
import report  # noqa: E402

CHECKPOINTS = ["torch.save", "torch.load", "torch.load, mmap", "DCP save, 2 ranks", "DCP load, 2 ranks"]
FILES = ["1 MiB write", "1 MiB read"]


@pytest.mark.full
def test_a_quick_run_covers_every_row_and_writes_its_results(tmp_path):
    done = subprocess.run([sys.executable, ROOT / "bench/compare.py", "--quick", "--output", tmp_path, "--disk", tmp_path],
                          env={"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "CKPTFS_BUILD": str(BUILD)},
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=280)
    assert done.returncode == 0, done.stdout
    with (tmp_path / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    raw = [f"raw {connections}" for connections in bench_plan.RAW_CONNECTIONS]
    expected = {(model, workload, target) for model in bench_plan.MODELS for workload in FILES
                for target in [*raw, "mount", "disk"]}
    expected |= {("loopback", workload, "mount") for workload in CHECKPOINTS}
    assert {(row["model"], row["workload"], row["target"]) for row in rows} == expected
    for row in rows:
        assert float(row["wall_s"]) > 0, row
        assert float(row["client_peak_mb"]) > 0, row
        assert (float(row["daemon_peak_mb"]) > 0) == (row["target"] == "mount"), row
        for counter in ("requests", "connections"):
            assert (int(row[counter]) > 0) == (row["target"] != "disk"), row
    table = (tmp_path / "report.md").read_text()
    assert table in done.stdout
    for model in bench_plan.MODELS.values():
        assert f"## {model.title}" in table
    assert (tmp_path / "rates.png").read_bytes().startswith(b"\x89PNG")
    assert not list(tmp_path.glob("disk-*")), "the files on the local disk were left behind"


@pytest.fixture
def checkpoint(tmp_path):
    path = tmp_path / "checkpoint.pt"
    torch.save({"weight": torch.randn(256, 1024), "moment": torch.randn(256, 1024) ** 2}, path)
    return path


def script(name: str, *arguments) -> str:
    done = subprocess.run([sys.executable, ROOT / "bench" / name, *arguments],
                          env={"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "CKPTFS_BUILD": str(BUILD)},
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=280)
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_codecs_beside_their_peers(tmp_path, checkpoint):
    table = script("codec_peers.py", "--mib", "1", "--passes", "1", "--output", tmp_path, checkpoint)
    rows = [line.split(" | ") for line in table.splitlines() if line.startswith("| checkpoint.pt")]
    for method in ("ckptfs", "zstd 1", "zstd 3", "DCP ZStandard"):
        assert any(row[1] == method for row in rows), table
    assert (tmp_path / "codec.png").read_bytes().startswith(b"\x89PNG")
    assert table.strip() == (tmp_path / "codec.md").read_text().strip()


def test_dcp_with_its_extension_and_without(checkpoint):
    printed = script("dcp_extension.py", checkpoint, "--copies", "1", "--pairs", "1", "--max-memory", "64M")
    assert [line.split("save")[0].strip() for line in printed.splitlines()[1:]] == ["ckptfs", "ZStandard extension", "neither"]


def result(target: str, wall_s: float, repetition: int = 1, **more) -> bench_plan.Result:
    return bench_plan.Result("s3", "1 MiB write", target, repetition, 4 * 10**9, wall_s, 1.0, 50.0, **more)


def test_a_row_is_the_median_of_its_repetitions():
    walls = [9.0, 2.0, 2.5]
    results = [result("mount", wall, at + 1, daemon_cpu_s=2.0, daemon_peak_mb=10.0 * at) for at, wall in enumerate(walls)]
    (summary,) = report.summarize(results)
    assert summary.wall_s == 2.5
    row = dict(zip(report.COLUMNS, summary.row(), strict=True))
    assert row["range s"] == "2.00–9.00"
    assert row["daemon CPU s/GB"] == "0.50"
    assert row["daemon peak MiB"] == "20"


def test_the_mount_is_compared_with_the_best_of_plain_libcurl():
    results = [result("raw 16", 4.0), result("raw 32", 2.0), result("raw 64", 3.0), result("mount", 2.5)]
    line = report.verdict(report.summarize(results))
    assert "**0.80** of the rate of plain libcurl with 32 connections" in line
    assert "(goal 0.85)" in line
    assert "does not count" not in line


def test_the_mount_is_compared_with_the_best_of_its_peers():
    results = [result("s3fs", 8.0), result("connector", 5.0), result("mount", 2.5)]
    assert "5.00 s by connector, 2.00 times as long" in report.verdict(report.summarize(results))


def test_the_mount_is_compared_with_another_version():
    plan = bench_plan.plan(["s3", "io", "mount"]).beside(bench_plan.BEFORE)
    assert plan.rounds(bench_plan.MODELS["s3"], quick=False) == [("io", ("mount", "before"))]
    line = report.verdict(report.summarize([result("before", 4.0), result("mount", 3.0)]))
    assert "4.00 s before, now **0.75** times as long" in line


def test_a_slow_plain_libcurl_does_not_count():
    line = report.verdict(report.summarize([result("raw 16", 4.0), result("mount", 4.0)]))
    assert "does not count" in line


def test_only_picks_within_each_kind():
    plan = bench_plan.plan(["raw", "mount", "tls"])
    assert [model.name for model in plan.models] == ["tls"]
    assert plan.rounds(bench_plan.MODELS["tls"], quick=False) == [("io", ("raw", "mount"))]
    assert [workload for workload, _ in plan.rounds(bench_plan.MODELS["s3"], quick=False)] == list(
        bench_plan.WORKLOADS)
    assert bench_plan.plan(["dcp", "disk"]).rounds(bench_plan.MODELS["tls"], quick=False) == [("dcp", ("disk",))]
    assert bench_plan.plan(["s3", "mount", "peers"]).targets == ("mount", *bench_plan.PEERS)
    with pytest.raises(ValueError, match="mont"):
        bench_plan.plan(["mont"])
