#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""All C++ is formatted as .clang-format says; --fix does it."""

import subprocess
import sys

from repository import ROOT, sources

mode = ["-i"] if "--fix" in sys.argv else ["--dry-run", "--Werror"]
sys.exit(subprocess.run(["clang-format-14", *mode, *sources()], cwd=ROOT, check=False).returncode)
