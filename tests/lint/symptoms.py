#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What ckptfs-troubleshooting(7) quotes from the log is what the sources say."""

import re

from repository import ROOT, report, sources

manual = (ROOT / "man/ckptfs-troubleshooting.7.scd").read_text()
# Adjacent literals are one text; what stands for a name or number ends a piece.
text = "".join(path.read_text() for path in sources("src", "include", endings=(".cc", ".h")))
text = re.sub(r'"\s*\n\s*"', "", text).replace("\\n", " ")

# Said by the kernel, and by what starts containers.
OF_OTHERS = {"Transport endpoint is not connected", "is not a shared mount"}
problems = []
for heading in re.findall(r"^\*(.*)\*$", manual, re.MULTILINE):
    for quoted in re.findall(r'"([^"]+)"', heading):
        for piece in quoted.split("…"):
            piece = piece.strip(" ;:,.")
            if len(piece) > 3 and piece not in text and piece not in OF_OTHERS:
                problems.append(f'ckptfs-troubleshooting.7.scd quotes "{piece}", which no source says')
report(problems)
