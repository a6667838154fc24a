#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sources are listed one by one, say their licence, stay short enough to be read, and name who acts."""

import re

from repository import ROOT, report, sources

MAX_LINES = 500
# "The caller", "waiters", "a reader" say more.
UNNAMED = re.compile(r"whoever|nobody|somebody|everybody|who ever", re.IGNORECASE)

problems = []
for file in sources(endings=(".h", ".cc", ".py")):
    name = file.relative_to(ROOT)
    lines = file.read_text().splitlines()
    if not any("SPDX-License-Identifier: Apache-2.0" in line for line in lines[:2]):
        problems.append(f"{name}: no SPDX line at its top")
    if len(lines) > MAX_LINES:
        problems.append(f"{name}: {len(lines)} lines; split it by what it does")
    if name.parts[0] in ("src", "include"):
        problems += [f"{name}:{number}: who is {found[0]}?" for number, line in enumerate(lines, 1)
                     if (found := UNNAMED.search(line)) and "CURLOPT" not in line]
    if file.suffix == ".cc":
        lists = [parent / "CMakeLists.txt" for parent in file.parents if (parent / "CMakeLists.txt").exists()]
        if not any(file.name in path.read_text() for path in lists):
            problems.append(f"{name}: in no CMakeLists.txt")
report(problems)
