#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""clang-tidy on all of src: tidy.py BUILD_DIRECTORY, which holds a compile_commands.json.

Most of its time goes into the headers, so it reads several files of a room as one; files that cannot be one, because
two of them have a local name in common, it reads alone.
"""

import concurrent.futures
import itertools
import json
import os
import pathlib
import shlex
import subprocess
import sys

from repository import ROOT, report, sources

FILES_AT_ONCE = 8
BUILD = pathlib.Path(sys.argv[1])


def flags_by_file() -> dict[pathlib.Path, list[str]]:
    flags = {}
    for entry in json.loads((BUILD / "compile_commands.json").read_text()):
        words = shlex.split(entry["command"])
        # "-isystem DIRECTORY" as one word.
        pairs = zip(words, [*words[1:], ""])
        flags[pathlib.Path(entry["file"])] = [
            word + following if word == "-isystem" else word for word, following in pairs
            if word.startswith(("-D", "-I", "-isystem", "-std="))]
    return flags


def tidy(path: pathlib.Path, flags: list[str]) -> str:
    done = subprocess.run(["clang-tidy-14", "--quiet", path, "--", *flags], cwd=ROOT, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    # It counts suppressed warnings on its error output; where it found nothing to say, that tells why it failed.
    return (done.stdout or done.stderr or f"{path}: exit status {done.returncode}") if done.returncode else ""


def tidy_together(paths: list[pathlib.Path]) -> str:
    together = BUILD / "tidy" / f"{paths[0].parent.name}_{paths[0].name}"
    together.parent.mkdir(exist_ok=True)
    together.write_text("".join(f'#include "{path}"\n' for path in paths))
    found = tidy(together, list(dict.fromkeys(flag for path in paths for flag in FLAGS[path])))
    if "clang-diagnostic-error" not in found:
        return found
    return "".join(tidy(path, FLAGS[path]) for path in paths)


FLAGS = flags_by_file()
groups = []
for _, room in itertools.groupby(sources("src", endings=(".cc",)), lambda path: path.parent):
    files = list(room)
    groups += [files[first:first + FILES_AT_ONCE] for first in range(0, len(files), FILES_AT_ONCE)]
with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
    report([text for text in pool.map(tidy_together, groups) if text])
