#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every promise of ckptfs-semantics(7) names tests that exist."""

import re

from repository import ROOT, report


def exists(place: str, test: str) -> bool:
    """test_name in tests/FILE.py, or Suite.Name in a file of the folder tests/unit/ROOM."""
    if place.startswith("unit/"):
        definition = re.compile(r"\(" + r",\s*".join(map(re.escape, test.split("."))) + r"[,)]")
        return any(definition.search(path.read_text()) for path in (ROOT / "tests" / place).glob("*.cc"))
    path = ROOT / "tests" / f"{place}.py"
    return path.exists() and f"def {test}(" in path.read_text()


manual = (ROOT / "man/ckptfs-semantics.7.scd").read_text()
problems = []
for place in re.findall(r"\[([^\]]+)\]", manual):
    file = ""
    for name in place.replace("\n", " ").split(","):
        # "file: test, test of the same file, other file: test"
        *named, test = (part.strip() for part in name.split(":"))
        file = named[0] if named else file
        if not exists(file, test):
            problems.append(f"ckptfs-semantics.7.scd: no test {test} in tests/{file}")
promised = len(re.findall(r"^\*[^\n]*\*$", manual, re.MULTILINE))
kept = len(re.findall(r"\[[^\]]+\]", manual))
if promised != kept:
    problems.append(f"ckptfs-semantics.7.scd: {promised} promises, {kept} of them with a test")
report(problems)
