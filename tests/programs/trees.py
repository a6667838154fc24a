# SPDX-License-Identifier: Apache-2.0
"""Directories with files of all sizes, and what is in them."""

import hashlib
import os
import pathlib

import numpy

MIB = 1 << 20
# Empty, one request, more than a compressed file's least size, more than a part.
SIZES = {"empty": 0, "small.json": 1000, "dir/medium.bin": 3 * MIB + 5, "dir/below/large.bin": 10 * MIB + 17}


def numbers(size: int, seed: int = 0) -> bytes:
    """Floats, which the default compression stores in its own format."""
    return numpy.random.default_rng(seed).standard_normal(size // 4 + 1, numpy.float32).tobytes()[:size]


def make_tree(directory: pathlib.Path, seed: int = 0) -> pathlib.Path:
    for number, (name, size) in enumerate(SIZES.items()):
        file = directory / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(numbers(size, seed + number))
    (directory / "nothing inside").mkdir()
    (directory / "latest").symlink_to("dir/medium.bin")
    (directory / "dir/up").symlink_to("../dir")
    (directory / "dangling").symlink_to("nowhere")
    return directory


def tree(directory: pathlib.Path) -> dict[str, str]:
    """The digest of every file by its name, the target of every link, "" of every directory."""
    found = {}
    for root, directories, names in os.walk(directory):
        for name in directories + names:
            path = pathlib.Path(root) / name
            found[str(path.relative_to(directory))] = content_of(path)
    return found


def content_of(path: pathlib.Path) -> str:
    if path.is_symlink():
        return f"link to {os.readlink(path)}"
    if path.is_dir():
        return ""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
