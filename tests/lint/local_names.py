#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which files can be read by a compiler as one: those of which none has a local name that another one knows. A local name
would hide what that one means by it.

local_names.py MOST FILE...: each file and the number of its group, of at most MOST files, a line each.
"""

import functools
import pathlib
import re
import sys
from collections.abc import Callable, Iterable

ROOT = pathlib.Path(__file__).resolve().parents[2]
INCLUDED = re.compile(r'^#include "(.*)"$', re.MULTILINE)
WORD = re.compile(r"\w+")
# What a namespace without a name holds, which ends where the style says.
LOCAL = re.compile(r"^namespace \{$(.*?)^\}  // namespace$", re.MULTILINE | re.DOTALL)
# What begins in the first column and is no comment: a test, a type, or the name before a parenthesis, brace, bracket,
# equals sign or semicolon.
DEFINED = re.compile(r"^(?![/#} ])(?:\w*TEST\w*\((\w+, *\w+)|(?:class|struct|enum class) (\w+)|.*?\b(\w+)(?= ?[({\[=;]))",
                     re.MULTILINE)


def local_names(path: pathlib.Path) -> set[str]:
    return {"".join(found) for block in LOCAL.findall(path.read_text()) for found in DEFINED.findall(block)}


@functools.cache
def headers(path: pathlib.Path) -> frozenset[pathlib.Path]:
    """Of this project that it includes, and that these include."""
    places = [path.parent, *(ROOT / place for place in ("src", "include", "tests", "tests/unit", "tests/s3sim"))]
    named = {(place / name).resolve() for name in INCLUDED.findall(path.read_text()) for place in places
             if (place / name).is_file()}
    return frozenset(named.union(*map(headers, named)))


@functools.cache
def own_words(path: pathlib.Path) -> frozenset[str]:
    return frozenset(WORD.findall(path.read_text()))


def words(path: pathlib.Path) -> set[str]:
    """Of a file and its headers."""
    return set(own_words(path)).union(*map(own_words, headers(path)))


class Group:
    def __init__(self) -> None:
        self.paths: list[pathlib.Path] = []
        self.local: set[str] = set()
        self.known: set[str] = set()

    def takes(self, local: set[str], known: set[str]) -> bool:
        return not self.local & known and not self.known & local

    def add(self, path: pathlib.Path, local: set[str], known: set[str]) -> None:
        self.paths.append(path)
        self.local |= local
        self.known |= known


def groups(files: Iterable[pathlib.Path], most: int,
           known_by: Callable[[pathlib.Path], set[str]] = words) -> list[list[pathlib.Path]]:
    found: list[Group] = []
    for path in files:
        local, known = local_names(path), known_by(path)
        group = next((each for each in found if len(each.paths) < most and each.takes(local, known)), None)
        if group is None:
            group = Group()
            found.append(group)
        group.add(path, local, known)
    return [group.paths for group in found]


if __name__ == "__main__":
    for number, group in enumerate(groups(map(pathlib.Path, sys.argv[2:]), int(sys.argv[1]))):
        for each in group:
            print(f"{each}:{number}")
