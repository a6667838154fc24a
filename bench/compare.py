# SPDX-License-Identifier: Apache-2.0
"""Compares the mount with plain libcurl and with the local disk, in one run. bench/run is how to start it."""

import argparse
import contextlib
import itertools
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

import bench_plan  # noqa: E402
import peers  # noqa: E402
import report  # noqa: E402
import workloads  # noqa: E402

SUFFIXES = {"K": 2**10, "M": 2**20, "G": 2**30}
QUICK_SIZE = 64 * 2**20
# What torch, the kernel and the rest of the machine need besides the data.
MEMORY_FOR_OTHERS = 3 * 2**30


def size(text: str) -> int:
    return int(text[:-1]) * SUFFIXES[text[-1]] if text[-1] in SUFFIXES else int(text)


def plan(text: str) -> bench_plan.Plan:
    try:
        return bench_plan.plan(text.split(","))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench/run", description=__doc__)
    parser.add_argument("--size", type=size, default=size("4G"),
                        help="bytes of the file that is written and read; checkpoints have half of it (default 4G)")
    parser.add_argument("--repeat", type=int, default=3,
                        help="measured repetitions, after one that is not measured (default 3)")
    parser.add_argument("--only", type=plan, default=bench_plan.plan([]), metavar="NAME,...",
                        help=f"some of the models {', '.join(bench_plan.MODELS)}, of the workloads "
                             f"{', '.join(bench_plan.WORKLOADS)}, of the targets {', '.join(bench_plan.TARGETS)}; "
                             "peers are all other mounts and libraries")
    parser.add_argument("--quick", action="store_true",
                        help="64M, once, checkpoints on one mount alone: shows that all of it works, measures little")
    parser.add_argument("--disk", type=pathlib.Path, default=ROOT / "build/bench",
                        help="a directory on the local disk to compare with (default build/bench)")
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "build/bench",
                        help="where report.md, results.csv and rates.png go (default build/bench)")
    parser.add_argument("--signed-payload", action="store_true",
                        help="let the mount sign the data's hash on plain HTTP, which plain libcurl does not")
    parser.add_argument("--before", type=pathlib.Path, metavar="BUILD",
                        help="the build directory of another version, whose mount is measured beside this one's")
    parser.add_argument("--mount-option", action="append", default=[], metavar="OPTION",
                        help="hand this to ckptfs mount, such as --mount-option=--max-memory=128M")
    options = parser.parse_args()
    if options.quick:
        options.size, options.repeat = QUICK_SIZE, 1
    if options.before:
        if not (options.before / "ckptfs").exists():
            parser.error(f"--before: there is no ckptfs in {options.before}")
        options.only = options.only.beside(bench_plan.BEFORE)
    if options.size < 2**20 or options.repeat < 1:
        parser.error("--size is at least 1M, and --repeat at least 1")
    return options


def check_memory(bytes_: int) -> None:
    """The store keeps the file in memory, and a client that loads a checkpoint holds half of it twice."""
    needed = workloads.store_memory(bytes_) + bytes_ + MEMORY_FOR_OTHERS
    with open("/proc/meminfo") as table:
        available = next(int(line.split()[1]) * 1024 for line in table if line.startswith("MemAvailable"))
    if needed > available:
        raise SystemExit(f"bench/run: --size {bytes_} needs {needed >> 20} MiB of memory and {available >> 20} MiB are "
                         "available: take a smaller --size")


def steps_of(workload: str, bytes_: int) -> list[workloads.Step]:
    if workload == "io":
        return workloads.io_steps(bytes_)
    return {"torch": workloads.torch_steps, "dcp": workloads.dcp_steps, "safetensors": workloads.safetensors_steps,
            "files": workloads.files_steps}[workload](bytes_ // 2)


def run_models(models: list[bench_plan.Model], options: argparse.Namespace, disk: pathlib.Path):
    """On one simulated store; yields measured results."""
    # The same bytes on every row.
    mount_options = ["--compress", "none", *options.mount_option]
    mount_options += [] if options.signed_payload else ["--unsigned-payload"]
    with contextlib.closing(workloads.Bench(models[0].tls, disk, mount_options, options.size,
                                            quick=options.quick, before=options.before)) as bench:
        first = 1 if options.quick else 0
        for repetition, model in itertools.product(range(first, options.repeat + 1), models):
            for workload, targets in options.only.rounds(model, options.quick):
                for result in bench.run(model, steps_of(workload, options.size), targets, repetition):
                    print(report.progress_line(result), flush=True)
                    if repetition > 0:
                        yield result


def compare(options: argparse.Namespace) -> None:
    results = []
    load_before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="disk-", dir=options.disk) as disk:
        for _, models in itertools.groupby(options.only.models, lambda model: model.tls):
            for result in run_models(list(models), options, pathlib.Path(disk)):
                results.append(result)
                report.write_csv(results, options.output / "results.csv")
    conditions = report.Conditions(options.size, not options.quick, options.signed_payload, load_before)
    text = report.table(results, conditions)
    (options.output / "report.md").write_text(text)
    report.plot(results, options.output / "rates.png")
    print(f"\n{text}\nwritten: report.md, results.csv and rates.png in {options.output}")


def main() -> None:
    options = parse_options()
    check_memory(options.size)
    if lacking := peers.missing(options.only.targets):
        raise SystemExit(f"bench/run: {', '.join(lacking)}: not installed; it takes {peers.PACKAGES}")
    for directory in (options.output, options.disk):
        directory.mkdir(parents=True, exist_ok=True)
    # So that mounts and the store go away.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        compare(options)
    except (AssertionError, subprocess.SubprocessError, workloads.BenchError) as error:
        raise SystemExit(f"bench/run: {error}") from None


if __name__ == "__main__":
    main()
