#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which files can be read by a compiler as one: those that have no local name in common.

local_names.py MOST FILE...: each file and the number of its group, of at most MOST files, a line each.
"""

import pathlib
import re
import sys
from collections.abc import Iterable

# What a namespace without a name holds, which ends where the style says.
LOCAL = re.compile(r"^namespace \{$(.*?)^\}  // namespace$", re.MULTILINE | re.DOTALL)
# What begins in the first column and is no comment: a test, a type, or the name before a parenthesis, brace, bracket,
# equals sign or semicolon.
DEFINED = re.compile(r"^(?![/#} ])(?:\w*TEST\w*\((\w+, *\w+)|(?:class|struct|enum class) (\w+)|.*?\b(\w+)(?= ?[({\[=;]))",
                     re.MULTILINE)


def local_names(path: pathlib.Path) -> set[str]:
    return {"".join(found) for block in LOCAL.findall(path.read_text()) for found in DEFINED.findall(block)}


def groups(files: Iterable[pathlib.Path], most: int) -> list[list[pathlib.Path]]:
    found: list[tuple[list[pathlib.Path], set[str]]] = []
    for path in files:
        names = local_names(path)
        fitting = (group for group in found if len(group[0]) < most and not group[1] & names)
        paths, taken = next(fitting, ([], set()))
        if not paths:
            found.append((paths, taken))
        paths.append(path)
        taken |= names
    return [paths for paths, _ in found]


if __name__ == "__main__":
    for number, group in enumerate(groups(map(pathlib.Path, sys.argv[2:]), int(sys.argv[1]))):
        for each in group:
            print(f"{each}:{number}")
