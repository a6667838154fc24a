# SPDX-License-Identifier: Apache-2.0
"""What the checks look at, and how they end."""

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = ("include", "src", "tests", "bench")

# The way of the data is the way of the folders. Contracts (ckptfs/) are shared by all.
MODULES = {
    "base": {"base"},
    "codec": {"base", "codec"},
    "http": {"base", "http"},
    "aws": {"base", "aws"},
    "s3": {"base", "aws", "s3"},
    "credentials": {"base", "aws", "s3", "credentials"},
    "journal": {"base", "s3", "journal"},
    "writeback": {"base", "writeback"},
    "disk": {"base", "disk"},
    "read": {"base", "read"},
    "write": {"base", "write"},
    "staged": {"base", "read", "write", "staged"},
    "fs": {"base", "read", "write", "staged", "fs"},
    "fuse": {"base", "fs", "fuse"},
    "config": {"base", "config"},
    "daemon": {"base", "codec", "http", "aws", "s3", "credentials", "journal", "disk", "writeback", "read", "write", "fs",
               "fuse", "config", "daemon"},
    "tools": {"base", "codec", "fs", "daemon", "tools"},
    "doctor": {"base", "aws", "fuse", "config", "daemon", "tools", "doctor"},
    "cli": {"base", "codec", "journal", "fuse", "config", "daemon", "tools", "doctor", "cli"},
}

# The folders of a large module, each with those that it may know besides itself and the headers of the module itself,
# which know none of them.
FOLDERS_OF = {
    "fs": {
        "failures": set(),
        "objects": {"failures"},
        "state": {"failures", "objects"},
        "gate": {"failures", "objects", "state"},
        "moves": {"failures", "objects", "state", "gate"},
        "names": {"failures", "objects", "state", "gate", "moves"},
        "files": {"failures", "objects", "state", "gate", "moves", "names"},
        "renames": {"failures", "objects", "state", "gate", "moves", "names", "files"},
    },
}


def sources(*folders: str, endings: tuple[str, ...] = (".h", ".cc")) -> list[pathlib.Path]:
    return sorted(path for folder in folders or FOLDERS for path in (ROOT / folder).rglob("*")
                  if path.suffix in endings)


def report(problems: list[str]) -> None:
    """Ends the program: with one line for every problem, or well."""
    for problem in problems:
        print(problem)
    sys.exit(1 if problems else 0)
