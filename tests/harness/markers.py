# SPDX-License-Identifier: Apache-2.0
"""Commit markers, as DCP writes them."""

import errno
import os
import pathlib

import pytest


def commit(directory: pathlib.Path, marker: str = ".metadata") -> None:
    with open(directory / (marker + ".tmp"), "wb") as file:
        file.write(b"what makes it a checkpoint")
        file.flush()
        os.fsync(file.fileno())
    os.rename(directory / (marker + ".tmp"), directory / marker)


def refuse_to_commit(directory: pathlib.Path, marker: str = ".metadata") -> None:
    with pytest.raises(OSError) as refused:
        commit(directory, marker)
    assert refused.value.errno == errno.EIO
    assert not (directory / marker).exists()
