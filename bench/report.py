# SPDX-License-Identifier: Apache-2.0
"""Results as a table, a CSV and a plot. Medians over the repetitions; rates compare only within one run."""

import csv
import dataclasses
import os
import pathlib
import platform
import statistics
from collections import defaultdict

from bench_plan import BEFORE, GOAL, MODELS, PEERS, RAW_COUNTS_FROM_MB_PER_S, Result


@dataclasses.dataclass(frozen=True)
class Conditions:
    """What a reader has to know of a run to believe its figures."""

    size: int
    warmed_up: bool
    signed_payload: bool
    load_before: float


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

    def largest(self, name: str) -> float:
        return max(getattr(result, name) for result in self.results)

    def row(self) -> list[str]:
        walls = [result.wall_s for result in self.results]
        row = [self.workload, self.target, f"{self.wall_s:.2f}", f"{min(walls):.2f}–{max(walls):.2f}",
               f"{self.mb_per_s:.0f}", f"{self.per_gb('client_cpu_s'):.2f}", f"{self.largest('client_peak_mb'):.0f}"]
        on_mount = [f"{self.per_gb('daemon_cpu_s'):.2f}", f"{self.largest('daemon_peak_mb'):.0f}"]
        on_store = [f"{self.per_gb('store_cpu_s'):.2f}", f"{self.median('requests'):.0f}",
                    f"{self.median('connections'):.0f}", f"{self.median('fetched_bytes') / self.results[0].bytes:.2f}"]
        row += on_mount if self.largest("daemon_peak_mb") > 0 else [""] * len(on_mount)
        return row + (on_store if self.target != "disk" else [""] * len(on_store))


COLUMNS = ["workload", "on", "median s", "range s", "MB/s", "client CPU s/GB", "client peak MiB", "daemon CPU s/GB",
           "daemon peak MiB", "store CPU s/GB", "requests", "connections", "fetched / wanted"]


def summarize(results: list[Result]) -> list[Summary]:
    groups: dict[tuple[str, str, str], list[Result]] = defaultdict(list)
    for result in results:
        groups[result.model, result.workload, result.target].append(result)
    return [Summary(group) for group in groups.values()]


def compared(summaries: list[Summary]) -> dict[str, Summary]:
    """Of one model and one workload: the mount, that of another version, the disk, plain libcurl at its best, and the
    best of the others."""
    found = {summary.target: summary for summary in summaries if summary.target in ("mount", BEFORE, "disk")}
    others = [summary for summary in summaries if summary.target in PEERS]
    if others:
        found["best peer"] = min(others, key=lambda summary: summary.wall_s)
    raw = [summary for summary in summaries if summary.target.startswith("raw")]
    if raw:
        found["plain libcurl"] = min(raw, key=lambda summary: summary.wall_s)
    return found


def verdict(summaries: list[Summary]) -> str | None:
    """The mount's part of plain libcurl's rate, or where that has no such workload, how it does beside the disk."""
    found = compared(summaries)
    mount, before, raw, disk, peer = (found.get(name)
                                      for name in ("mount", BEFORE, "plain libcurl", "disk", "best peer"))
    if mount is None or len(found) == 1:
        return None
    line = f"- {mount.workload}: {mount.wall_s:.2f} s on the mount"
    if raw:
        line += (f"; **{raw.wall_s / mount.wall_s:.2f}** of the rate of plain libcurl with "
                 f"{raw.target.removeprefix('raw ')} connections, {raw.mb_per_s:.0f} MB/s")
        if mount.model == "s3":
            line += f" (goal {GOAL})"
            if raw.mb_per_s < RAW_COUNTS_FROM_MB_PER_S:
                line += f"; does not count, since that is below {RAW_COUNTS_FROM_MB_PER_S} MB/s"
    if before:
        line += f"; {before.wall_s:.2f} s before, now **{mount.wall_s / before.wall_s:.2f}** times as long"
    if peer:
        line += f"; {peer.wall_s:.2f} s by {peer.target}, {peer.wall_s / mount.wall_s:.2f} times as long"
    if disk:
        line += f"; {disk.wall_s:.2f} s on the local disk, {disk.wall_s / mount.wall_s:.2f} times as long"
    return line


def conditions_text(results: list[Result], conditions: Conditions) -> str:
    warm_up = ("after one that is not measured" if conditions.warmed_up
               else "and nothing was run before: these figures show that it works and no more")
    return (f"{os.cpu_count()} cores, kernel {platform.release()}, load average before {conditions.load_before:.1f}, "
            f"after {os.getloadavg()[0]:.1f}. The simulated store runs on the same cores. Files of "
            f"{conditions.size >> 20} MiB, checkpoints of half of that. Medians of "
            f"{max((result.repetition for result in results), default=0)} repetitions {warm_up}. On plain HTTP the "
            f"mount's data is {'' if conditions.signed_payload else 'not '}signed; plain libcurl sends no checksums, "
            "the mount CRC32C. Reads are cold: a fresh mount, a dropped page cache. CPU is for 10⁹ bytes, a rate is in "
            "10⁶ bytes a second.")


def table(results: list[Result], conditions: Conditions) -> str:
    lines = ["# Mount, plain libcurl and local disk", "", conditions_text(results, conditions)]
    summaries = summarize(results)
    for model in dict.fromkeys(summary.model for summary in summaries):
        of_model = [summary for summary in summaries if summary.model == model]
        verdicts = []
        lines += ["", f"## {MODELS[model].title}", "", f"| {' | '.join(COLUMNS)} |", "|" + "---|" * len(COLUMNS)]
        for workload in dict.fromkeys(summary.workload for summary in of_model):
            of_workload = [summary for summary in of_model if summary.workload == workload]
            lines += [f"| {' | '.join(summary.row())} |" for summary in of_workload]
            verdicts.append(verdict(of_workload))
        lines += ["", *filter(None, verdicts)]
    return "\n".join(lines).rstrip() + "\n"


def plot(results: list[Result], path: pathlib.Path) -> None:
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    summaries = summarize(results)
    models = list(dict.fromkeys(summary.model for summary in summaries))
    figure, axes = plt.subplots(1, len(models), figsize=(6 * len(models), 4.5), squeeze=False, sharey=True)
    for axis, model in zip(axes[0], models):
        of_model = [summary for summary in summaries if summary.model == model]
        workloads = list(dict.fromkeys(summary.workload for summary in of_model))
        found = [compared([summary for summary in of_model if summary.workload == workload]) for workload in workloads]
        for place, target in enumerate(("plain libcurl", "mount", "best peer", "disk")):
            bars = [(index + (place - 1.5) * 0.2, targets[target].mb_per_s)
                    for index, targets in enumerate(found) if target in targets]
            axis.bar([at for at, _ in bars], [height for _, height in bars], width=0.18, label=target)
        axis.set_title(MODELS[model].title)
        axis.set_xticks(range(len(workloads)), workloads, rotation=25, ha="right")
        axis.grid(axis="y", alpha=0.3)
    axes[0][0].set_ylabel("10⁶ bytes a second, more is better")
    axes[0][0].legend()
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)
