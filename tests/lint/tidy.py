#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""clang-tidy on all of src: tidy.py BUILD_DIRECTORY, which holds a compile_commands.json.

Most of its time goes into the headers, so it reads the files of a module as one, or as few, because files that have a
local name in common cannot be one. Where that was not seen beforehand, it halves them.
"""

import concurrent.futures
import itertools
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

from local_names import groups, local_names
from repository import ROOT, report, sources

FILES_AT_ONCE = 24
INCLUDED = re.compile(r'^#include "(.*)"$', re.MULTILINE)
BUILD = pathlib.Path(sys.argv[1])


def flags_by_file() -> dict[pathlib.Path, list[str]]:
    flags = {}
    for entry in json.loads((BUILD / "compile_commands.json").read_text()):
        words = shlex.split(entry["command"])
        # "-isystem DIRECTORY" as one word.
        pairs = zip(words, [*words[1:], ""])
        of_all = [word + following if word == "-isystem" else word for word, following in pairs
                  if word.startswith(("-D", "-I", "-isystem", "-std="))]
        flags |= dict.fromkeys(compiled(pathlib.Path(entry["file"])), of_all)
    return flags


def compiled(path: pathlib.Path) -> list[pathlib.Path]:
    """The sources that are compiled by it: the build may read several as one, too."""
    return [pathlib.Path(each) for each in INCLUDED.findall(path.read_text())] if path.parent.name == "Unity" else [path]


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
    if "clang-diagnostic-error" not in found or len(paths) == 1:
        return found
    half = len(paths) // 2
    return tidy_together(paths[:half]) + tidy_together(paths[half:])


FLAGS = flags_by_file()
modules = itertools.groupby(sources("src", endings=(".cc",)), lambda path: path.relative_to(ROOT / "src").parts[0])
# The largest first, so that no processor is idle at the end.
all_groups = sorted((group for _, module in modules for group in groups(module, FILES_AT_ONCE, local_names)), key=len, reverse=True)
with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
    report([text for text in pool.map(tidy_together, all_groups) if text])
