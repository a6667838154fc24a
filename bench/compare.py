# SPDX-License-Identifier: Apache-2.0
"""Compares the mount with plain libcurl and with the local disk, in one run. bench/run is how to start it."""

import argparse
import os
import pathlib
import shutil
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

import bench_plan  # noqa: E402
import report  # noqa: E402
import workloads  # noqa: E402

SUFFIXES = {"K": 2**10, "M": 2**20, "G": 2**30}


def size(text: str) -> int:
    return int(text[:-1]) * SUFFIXES[text[-1]] if text[-1] in SUFFIXES else int(text)


def names(known: tuple[str, ...]):
    def parse(text: str) -> list[str]:
        chosen = text.split(",")
        if unknown := set(chosen) - set(known):
            raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: not one of {', '.join(known)}")
        return chosen
    return parse


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench/run", description=__doc__)
    parser.add_argument("--size", type=size, default=size("4G"),
                        help="bytes of the file that is written and read; checkpoints have half of it (default 4G)")
    parser.add_argument("--repeat", type=int, default=3,
                        help="measured repetitions, after one that is not measured (default 3)")
    parser.add_argument("--models", type=names(tuple(bench_plan.MODELS)), default=list(bench_plan.MODELS),
                        help=f"some of {','.join(bench_plan.MODELS)}")
    parser.add_argument("--only", type=names(bench_plan.WORKLOADS), help=f"some of {','.join(bench_plan.WORKLOADS)}")
    parser.add_argument("--targets", type=names(bench_plan.TARGETS), default=list(bench_plan.TARGETS),
                        help=f"some of {','.join(bench_plan.TARGETS)}")
    parser.add_argument("--disk", type=pathlib.Path, default=ROOT / "build/bench/disk",
                        help="a directory of the local disk; it is emptied")
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "build/bench", help="where the results go")
    parser.add_argument("--signed-payload", action="store_true",
                        help="let the mount sign the payload's SHA-256 on plain HTTP, which plain libcurl does not")
    parser.add_argument("--mount-option", action="append", default=[], metavar="OPTION",
                        help="hand this to ckptfs mount, such as --mount-option=--max-memory=128M")
    return parser.parse_args()


def steps_of(workload: str, bytes_: int) -> list[workloads.Step]:
    if workload == "io":
        return workloads.io_steps(bytes_)
    return (workloads.torch_steps if workload == "torch" else workloads.dcp_steps)(bytes_ // 2)


def run_model(model: bench_plan.Model, options: argparse.Namespace) -> list[bench_plan.Result]:
    mount_options = list(options.mount_option) + ([] if options.signed_payload else ["--unsigned-payload"])
    bench = workloads.Bench(model, options.targets, options.disk, mount_options, options.size * 3 // 2)
    results = []
    try:
        for repetition in range(options.repeat + 1):
            for workload in options.only or model.workloads:
                for result in bench.run(steps_of(workload, options.size), repetition):
                    print(report.progress_line(result), flush=True)
                    if repetition > 0:
                        results.append(result)
    finally:
        bench.close()
        shutil.rmtree(options.disk, ignore_errors=True)
    return results


def main() -> None:
    options = parse_options()
    options.output.mkdir(parents=True, exist_ok=True)
    results = []
    load_before = os.getloadavg()[0]
    for name in options.models:
        results += run_model(bench_plan.MODELS[name], options)
        report.write_csv(results, options.output / "results.csv")
    text = report.table(results, options.signed_payload, load_before)
    (options.output / "report.md").write_text(text)
    report.plot(results, options.output / "rates.png")
    print(text)
    print(f"written: report.md, results.csv and rates.png in {options.output}")


if __name__ == "__main__":
    main()
