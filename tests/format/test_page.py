# SPDX-License-Identifier: Apache-2.0
"""ckptfs-format(5) has what the readers here were written from."""

import re

import pytest
from harness.programs import ROOT

PAGE = (ROOT / "man" / "ckptfs-format.5.scd").read_text(encoding="utf-8")
READER = (ROOT / "tests" / "format" / "container.py").read_text(encoding="utf-8")
SECTIONS = {
    "# TELLING THEM APART": ["ckptfs-format", "ckptfs-size", "zstd-1", "planes-1", "3223", "4096"],
    "# CONTAINER": sorted(set(re.findall(r"0x[0-9A-F]{8}", READER)) - {"0xFFFFFFFF", "0x184D2A50"}),
    "# PLANE FRAMES": ["43 4B 50 46", "## Sub-blocks", "## Reference sub-blocks", "exceptions", "centred", "## Limits"],
    "# READING ONE PIECE": ["checksum"],
    "# RENAMES OF DIRECTORIES": ["CKPTREN1", "CKPTNAM2", "3211"],
    "# SYMBOLIC LINKS": ["ckptfs-symlink"],
    "# RECORDS": [".ckptfs/failed/", ".ckptfs/mounts/"],
}


@pytest.mark.parametrize("section", SECTIONS)
def test_the_page_has_each_section_with_its_numbers(section: str) -> None:
    assert PAGE.count(f"\n{section}\n") == 1
    body = PAGE.split(f"\n{section}\n")[1]
    body = re.split(r"^# ", body, flags=re.MULTILINE)[0]
    assert [number for number in SECTIONS[section] if number.lower() not in body.lower()] == []
