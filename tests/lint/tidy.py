#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""clang-tidy on all of src: tidy.py BUILD_DIRECTORY, which holds a compile_commands.json."""

import concurrent.futures
import os
import pathlib
import subprocess
import sys

from repository import ROOT, report, sources


def tidy(path: pathlib.Path) -> str:
    done = subprocess.run(["clang-tidy-14", "--quiet", "-p", sys.argv[1], path], cwd=ROOT, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    # It counts suppressed warnings on its error output; where it found nothing to say, that tells why it failed.
    return (done.stdout or done.stderr or f"{path}: exit status {done.returncode}") if done.returncode else ""


with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
    report([text for text in pool.map(tidy, sources("src", endings=(".cc",))) if text])
