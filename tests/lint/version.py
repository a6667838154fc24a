#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whatever names the version of ckptfs names that of CMakeLists.txt: the changelog, and the images."""

import re

from repository import ROOT, report

version = re.search(r"^project\(ckptfs VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text(), re.MULTILINE)[1]
NAMED = {
    # The latest is the first.
    "packaging/debian/changelog": r"\Ackptfs \(([^)]+)\)",
    "README.md": r"REGISTRY/ckptfs:([\d.]+)",
    **{str(path.relative_to(ROOT)): r"newTag: (\S+)"
       for path in sorted((ROOT / "packaging/kubernetes/overlays").glob("*/kustomization.yaml"))},
}

problems = []
for name, pattern in NAMED.items():
    found = set(re.findall(pattern, (ROOT / name).read_text()))
    if found != {version}:
        problems.append(f"{name}: names {', '.join(sorted(found)) or 'no version'}, CMakeLists.txt {version}")
report(problems)
