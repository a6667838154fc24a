#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every promise of ckptfs-semantics(7) has tests in tests/promises.md, and they exist."""

import re

from repository import ROOT, report


def exists(place: str, test: str) -> bool:
    """test_name in tests/FILE.py, or Suite.Name in a file of the folder tests/unit/ROOM."""
    if place.startswith("unit/"):
        definition = re.compile(r"\(" + r",\s*".join(map(re.escape, test.split("."))) + r"[,)]")
        return any(definition.search(path.read_text()) for path in (ROOT / "tests" / place).glob("*.cc"))
    path = ROOT / "tests" / f"{place}.py"
    return path.exists() and f"def {test}(" in path.read_text()


promised = re.findall(r"^\*([^\n]*)\*$", (ROOT / "man/ckptfs-semantics.7.scd").read_text(), re.MULTILINE)
kept = {}
for promise in re.split(r"^### ", (ROOT / "tests/promises.md").read_text(), flags=re.MULTILINE)[1:]:
    title, _, rest = promise.partition("\n")
    kept[title] = re.findall(r"^- (\S+): ((?:.|\n  )*)$", rest, re.MULTILINE)
problems = [f"promises.md: no tests of the promise \"{each}\"" for each in promised if not kept.get(each)]
problems += [f"promises.md: ckptfs-semantics.7.scd has no promise \"{each}\"" for each in kept if each not in promised]
if list(kept) != promised and not problems:
    problems.append("promises.md: not in the order of ckptfs-semantics.7.scd")
for title, tests in kept.items():
    for place, names in tests:
        for test in re.split(r",\s*", names):
            if not exists(place, test):
                problems.append(f"promises.md: {title} no test {test} in tests/{place}")
report(problems)
