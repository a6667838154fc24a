#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What compression saves and costs, file by file, beside what others use for checkpoints.

    codec_peers.py [--mib N] [--threads N,N] [--output FOLDER] FILE...

Runs bench_codec (ckptfs, zstd, shuffle + zstd) and, on the same bytes, ZipNN, which is told the type of the elements,
as it has to be, and tried with both, and the ZStandard extension of torch's distributed checkpoint. Prints a table for
every number of threads (1 and 2), and leaves it with a plot of what is saved against the speed in FOLDER. Needs torch,
zstandard and matplotlib, and zipnn 0.5.4, without which its rows are left out and the table says so.

bench_codec's rates are by CPU time, the others' by the clock: on a machine that does something else they look worse than
they are. DCP's extension knows no threads.
"""

import argparse
import collections
import io
import os
import pathlib
import re
import subprocess
import time

import matplotlib
import torch  # noqa: F401  its extension module needs the package
from torch.distributed.checkpoint._extension import ZStandard

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402

try:
    import zipnn
except ImportError:
    zipnn = None

MIB = 1 << 20
BUILD = pathlib.Path(os.environ.get("CKPTFS_BUILD", pathlib.Path(__file__).parent.parent / "build/release"))
ROW = re.compile(r"  (?P<name>.+?) +(?P<saved>-?[\d.]+) % saved  compress +(?P<compress>[\d.]+) GB/s"
                 r"  decompress +(?P<decompress>[\d.]+) GB/s")

Figures = collections.namedtuple("Figures", "saved compress decompress")


def of_bench_codec(path: pathlib.Path, mib: int, threads: int, passes: int) -> dict[str, Figures]:
    ran = subprocess.run([BUILD / "bench_codec", "--mib", str(mib), "--threads", str(threads), "--passes", str(passes), path],
                         capture_output=True, text=True, check=True)
    return {row["name"]: Figures(float(row["saved"]), float(row["compress"]), float(row["decompress"]))
            for row in ROW.finditer(ran.stdout)}


def best_of(passes: int, data: bytes, compress, decompress) -> Figures:
    fastest = [float("inf"), float("inf")]
    for _ in range(passes):
        raw = bytes(bytearray(data))  # ZipNN changes what it is given
        begin = time.perf_counter()
        stored = compress(raw)
        middle = time.perf_counter()
        back = decompress(stored)
        end = time.perf_counter()
        assert bytes(back) == data, "something else came back"
        fastest = [min(fastest[0], middle - begin), min(fastest[1], end - middle)]
    return Figures(100 * (1 - len(stored) / len(data)), len(data) / fastest[0] / 1e9, len(data) / fastest[1] / 1e9)


def of_zipnn(data: bytes, threads: int, passes: int) -> Figures:
    figures = []
    for dtype in ("bfloat16", "float32"):
        coder = zipnn.ZipNN(bytearray_dtype=dtype, threads=threads)
        figures.append(best_of(passes, data, coder.compress, coder.decompress))
    return max(figures, key=lambda each: each.saved)


def of_extension(data: bytes, passes: int) -> Figures:
    def compress(raw: bytes) -> bytes:
        stored = io.BytesIO()
        stored.close = lambda: None
        with ZStandard().transform_to(stored) as stream:
            for begin in range(0, len(raw), MIB):
                stream.write(raw[begin:begin + MIB])
        return stored.getvalue()

    return best_of(passes, data, compress, lambda stored: ZStandard().transform_from(io.BytesIO(stored)).read())


def plot(path: pathlib.Path, results: dict[str, dict[str, Figures]]) -> None:
    figure, axes = pyplot.subplots(figsize=(9, 6))
    for name in next(iter(results.values())):
        points = [methods[name] for methods in results.values()]
        axes.scatter([point.compress for point in points], [point.saved for point in points], label=name)
    axes.set_xscale("log")
    axes.set_xlabel("compressed on one core, GB/s")
    axes.set_ylabel("saved, %")
    axes.legend()
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=120, bbox_inches="tight")


def table(results: dict[str, dict[str, Figures]], threads: int) -> str:
    lines = [f"### {threads} thread{'s' if threads > 1 else ''}", "",
             "| file | method | saved % | compress GB/s | decompress GB/s | x zstd 1 |", "|---|---|---|---|---|---|"]
    for file, methods in results.items():
        for name, each in methods.items():
            lines.append(f"| {file} | {name} | {each.saved:.2f} | {each.compress:.2f} | {each.decompress:.2f} "
                         f"| {each.compress / methods['zstd 1'].compress:.2f} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=pathlib.Path, nargs="+")
    parser.add_argument("--mib", type=int, default=64)
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--output", type=pathlib.Path, default=BUILD.parent / "bench")
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    report = []

    def say(text: str) -> None:
        report.append(text)
        print(text, flush=True)

    if not zipnn:
        say("zipnn is not installed: it is left out.\n")
    for threads in map(int, arguments.threads.split(",")):
        results = {}
        for path in arguments.file:
            with open(path, "rb") as file:
                data = file.read(arguments.mib * MIB)
            methods = of_bench_codec(path, arguments.mib, threads, arguments.passes)
            if zipnn:
                methods["ZipNN"] = of_zipnn(data, threads, arguments.passes)
            if threads == 1:
                methods["DCP ZStandard"] = of_extension(data, arguments.passes)
            results[path.name] = methods
        say(table(results, threads))
        if threads == 1:
            plot(arguments.output / "codec.png", results)
    (arguments.output / "codec.md").write_text("\n".join(report))


if __name__ == "__main__":
    main()
