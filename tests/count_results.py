# SPDX-License-Identifier: Apache-2.0
"""Adds up JUnit files and prints the closing line of the test command. Fails where nothing ran."""

import sys
import xml.etree.ElementTree as ET


def count(path: str) -> tuple[int, int, int]:
    # A shard counts by the results that it leaves.
    cases = [case for case in ET.parse(path).getroot().iter("testcase") if not case.get("name").startswith("shard.")]
    failed = sum(1 for case in cases if case.find("failure") is not None or case.find("error") is not None)
    skipped = sum(1 for case in cases if case.find("skipped") is not None)
    return len(cases) - failed - skipped, failed, skipped


def main(paths: list[str]) -> int:
    passed, failed, skipped = (sum(column) for column in zip(*map(count, paths))) if paths else (0, 0, 0)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 0 if passed and not failed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
