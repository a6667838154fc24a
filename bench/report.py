# SPDX-License-Identifier: Apache-2.0
"""Results as a table, a CSV and a plot. Medians over the repetitions; rates compare only within one run."""

import csv
import dataclasses
import os
import pathlib
import platform
import statistics
from collections import defaultdict

from bench_plan import GOAL, MODELS, RAW_COUNTS_FROM_MB_PER_S, Result


def progress_line(result: Result) -> str:
    name = f"{result.model:9} {result.workload:18} {result.target:7}"
    unmeasured = " (not measured)" if result.repetition == 0 else ""
    return f"{name} {result.wall_s:7.2f} s {result.mb_per_s:7.0f} MB/s{unmeasured}"


def write_csv(results: list[Result], path: pathlib.Path) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*(field.name for field in dataclasses.fields(Result)), "mb_per_s"])
        for result in results:
            writer.writerow([*dataclasses.astuple(result), f"{result.mb_per_s:.1f}"])


class Summary:
    """The repetitions of one workload on one target."""

    def __init__(self, results: list[Result]) -> None:
        self.results = results
        self.model = results[0].model
        self.workload = results[0].workload
        self.target = results[0].target
        self.wall_s = self.median("wall_s")
        self.mb_per_s = self.median("mb_per_s")

    def median(self, name: str) -> float:
        return statistics.median(getattr(result, name) for result in self.results)

    def per_gb(self, name: str) -> float:
        return self.median(name) / (self.results[0].bytes / 1e9)

    def row(self) -> list[str]:
        spread = f"{min(r.wall_s for r in self.results):.2f}–{max(r.wall_s for r in self.results):.2f}"
        on_mount = self.target == "mount"
        on_store = self.target != "disk"
        return [self.workload, self.target, f"{self.wall_s:.2f}", spread, f"{self.mb_per_s:.0f}",
                f"{self.per_gb('client_cpu_s'):.2f}",
                f"{self.per_gb('daemon_cpu_s'):.2f}" if on_mount else "",
                f"{self.per_gb('store_cpu_s'):.2f}" if on_store else "",
                f"{max(r.daemon_peak_mb for r in self.results):.0f}" if on_mount else "",
                f"{self.median('requests'):.0f}" if on_store else "",
                f"{self.median('connections'):.0f}" if on_store else ""]


COLUMNS = ["workload", "on", "median s", "range s", "MB/s", "client CPU s/GB", "daemon CPU s/GB", "store CPU s/GB",
           "daemon peak MB", "requests", "connections"]


def summarize(results: list[Result]) -> list[Summary]:
    groups: dict[tuple[str, str, str], list[Result]] = defaultdict(list)
    for result in results:
        groups[result.model, result.workload, result.target].append(result)
    return [Summary(group) for group in groups.values()]


def best_raw(summaries: list[Summary], model: str, workload: str) -> Summary | None:
    raw = [s for s in summaries if s.model == model and s.workload == workload and s.target.startswith("raw")]
    return min(raw, key=lambda summary: summary.wall_s, default=None)


def verdict(summaries: list[Summary], model: str, workload: str) -> str | None:
    raw = best_raw(summaries, model, workload)
    mount = next((s for s in summaries if (s.model, s.workload, s.target) == (model, workload, "mount")), None)
    if raw is None or mount is None:
        return None
    ratio = raw.wall_s / mount.wall_s
    line = (f"- {workload}: the mount has {mount.mb_per_s:.0f} MB/s, plain libcurl {raw.mb_per_s:.0f} MB/s "
            f"({raw.target.removeprefix('raw ')} connections): **{ratio:.2f}**")
    if model == "s3":
        line += f" (goal {GOAL})"
        if raw.mb_per_s < RAW_COUNTS_FROM_MB_PER_S:
            line += f"; does not count, as plain libcurl is below {RAW_COUNTS_FROM_MB_PER_S} MB/s: the machine is busy"
    return line


def table(results: list[Result], signed_payload: bool, load_before: float) -> str:
    summaries = summarize(results)
    lines = ["# Mount, plain libcurl and local disk", "",
             f"{os.cpu_count()} cores, kernel {platform.release()}, load average before {load_before:.1f}, after "
             f"{os.getloadavg()[0]:.1f}. The simulated store runs on the same cores. Medians of "
             f"{max((r.repetition for r in results), default=0)} repetitions after one that is not measured. "
             f"Payloads are {'signed' if signed_payload else 'not signed'} on plain HTTP; plain libcurl sends no "
             "checksums, the mount CRC32C. Reads are cold: a fresh mount, or a dropped page cache. CPU is per 10⁹ "
             "bytes; MB is 10⁶ bytes a second, and MiB for memory."]
    for model in dict.fromkeys(result.model for result in results):
        rows = [summary for summary in summaries if summary.model == model]
        lines += ["", f"## {MODELS[model].title}", "", f"| {' | '.join(COLUMNS)} |", "|" + "---|" * len(COLUMNS)]
        lines += [f"| {' | '.join(summary.row())} |" for summary in sorted(rows, key=lambda s: s.workload)]
        verdicts = [verdict(summaries, model, workload) for workload in ("1 MiB write", "1 MiB read")]
        lines += ["", *(line for line in verdicts if line)]
    return "\n".join(lines) + "\n"


def plot(results: list[Result], path: pathlib.Path) -> None:
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    summaries = summarize(results)
    models = list(dict.fromkeys(result.model for result in results))
    figure, axes = plt.subplots(1, len(models), figsize=(6 * len(models), 4.5), squeeze=False, sharey=True)
    for axis, model in zip(axes[0], models):
        of_workload: dict[str, dict[str, Summary]] = defaultdict(dict)
        for summary in summaries:
            if summary.model == model and not summary.target.startswith("raw"):
                of_workload[summary.workload][summary.target] = summary
        for workload, targets in of_workload.items():
            if raw := best_raw(summaries, model, workload):
                targets["plain libcurl"] = raw
        for place, target in enumerate(("plain libcurl", "mount", "disk")):
            bars = [(index + (place - 1) * 0.27, targets[target].mb_per_s)
                    for index, targets in enumerate(of_workload.values()) if target in targets]
            if bars:
                axis.bar(*zip(*bars), width=0.25, label=target)
        axis.set_title(MODELS[model].title)
        axis.set_xticks(range(len(of_workload)), of_workload, rotation=25, ha="right")
        axis.grid(axis="y", alpha=0.3)
    axes[0][0].set_ylabel("MB/s, more is better")
    axes[0][0].legend()
    figure.tight_layout()
    figure.savefig(path, dpi=110)
