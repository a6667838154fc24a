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

from repository import ROOT, report, sources

FILES_AT_ONCE = 24
# Of a namespace without a name, which ends where the style says.
LOCAL = re.compile(r"^namespace \{$(.*?)^\}  // namespace$", re.MULTILINE | re.DOTALL)
# What begins in the first column and is no comment: the name before a parenthesis, brace, bracket or equals sign.
DEFINED = re.compile(r"^(?![/#} ]).*?\b(\w+)(?= ?[({\[=;])", re.MULTILINE)
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
    if "clang-diagnostic-error" not in found or len(paths) == 1:
        return found
    half = len(paths) // 2
    return tidy_together(paths[:half]) + tidy_together(paths[half:])


def local_names(path: pathlib.Path) -> set[str]:
    return {name for block in LOCAL.findall(path.read_text()) for name in DEFINED.findall(block)}


def groups(module: list[pathlib.Path]) -> list[list[pathlib.Path]]:
    found: list[tuple[list[pathlib.Path], set[str]]] = []
    for path in module:
        names = local_names(path)
        fitting = (group for group in found if len(group[0]) < FILES_AT_ONCE and not group[1] & names)
        paths, taken = next(fitting, ([], set()))
        if not paths:
            found.append((paths, taken))
        paths.append(path)
        taken |= names
    return [paths for paths, _ in found]


FLAGS = flags_by_file()
modules = itertools.groupby(sources("src", endings=(".cc",)), lambda path: path.parent)
# The largest first, so that no processor is idle at the end.
all_groups = sorted((group for _, module in modules for group in groups(list(module))), key=len, reverse=True)
with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
    report([text for text in pool.map(tidy_together, all_groups) if text])
