#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every promise of ckptfs-semantics(7) names tests that exist."""

import re

from repository import ROOT, report

manual = (ROOT / "man/ckptfs-semantics.7.scd").read_text()
problems = []
for place in re.findall(r"\[([^\]]+)\]", manual):
    file = ""
    for name in place.replace("\n", " ").split(","):
        # "file: test, test of the same file, other file: test"
        *named, test = (part.strip() for part in name.split(":"))
        file = named[0] if named else file
        path = ROOT / "tests" / f"{file}.py"
        if not path.exists() or f"def {test}(" not in path.read_text():
            problems.append(f"ckptfs-semantics.7.scd: no test {test} in tests/{file}.py")
promised = len(re.findall(r"^\*[^\n]*\*$", manual, re.MULTILINE))
kept = len(re.findall(r"\[[^\]]+\]", manual))
if promised != kept:
    problems.append(f"ckptfs-semantics.7.scd: {promised} promises, {kept} of them with a test")
report(problems)
