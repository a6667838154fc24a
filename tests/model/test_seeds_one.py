# SPDX-License-Identifier: Apache-2.0
"""Random histories of fixed seeds (test_random.py), half of them: a worker plays a file, test_seeds_two.py has the rest."""

import pytest
from seeds import play_seeds


@pytest.mark.timeout(900)
def test_histories_of_fixed_seeds(store, tell):
    play_seeds(store, range(1, 101), 300, tell)
