# SPDX-License-Identifier: Apache-2.0
"""Histories that once showed a difference (test_random.py says what they are)."""

import json
import pathlib

import pytest
from shrink import replay

pytestmark = pytest.mark.timeout(420)

HISTORIES = sorted((pathlib.Path(__file__).parent / "histories").glob("*.json"))


@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: path.stem)
def test_history(store, path):
    player = replay(store, json.loads(path.read_text()), 2)
    assert player is None, player.told()
