# SPDX-License-Identifier: Apache-2.0
"""Creates or lists many small files, and prints one line of JSON.

    files_client.py create|list DIRECTORY --bytes N
`create`: of 4 KiB each, in one directory, one after the other. `list`: `ls -lR`.
"""

import argparse
import json
import os
import subprocess

from stopwatch import Stopwatch

FILE = 4096


def create(directory: str, size: int) -> None:
    os.mkdir(directory)
    content = os.urandom(FILE)
    for number in range(size // FILE):
        with open(os.path.join(directory, f"file-{number}"), "wb") as file:
            file.write(content)


def list_all(directory: str, size: int) -> None:
    listed = subprocess.run(["ls", "-lR", directory], stdout=subprocess.PIPE, check=True, text=True).stdout
    assert listed.count("file-") == size // FILE


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("action", choices=["create", "list"])
    parser.add_argument("path")
    parser.add_argument("--bytes", type=int, required=True)
    options, _ = parser.parse_known_args()
    stopwatch = Stopwatch()
    (create if options.action == "create" else list_all)(options.path, options.bytes)
    print(json.dumps({"action": options.action, "bytes": options.bytes, **stopwatch.result()}))


if __name__ == "__main__":
    main()
