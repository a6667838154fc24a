# SPDX-License-Identifier: Apache-2.0
"""Random histories that were recorded (test_random.py), half of them: a worker plays a file, test_recorded_two.py has the rest."""

import pathlib

import pytest
from seeds import play_recorded


@pytest.mark.timeout(900)
def test_recorded_histories(store, tell):
    play_recorded(store, pathlib.Path(__file__).parent / "recorded/one.jsonl.gz", 60, tell)
