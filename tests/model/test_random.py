# SPDX-License-Identifier: Apache-2.0
"""Random histories on real mounts, and a model that says what each call may answer and what the bucket may hold.

A history is a list of steps: processes (agent.py) open files in every mode, write, map, truncate, duplicate, fork,
exec, sync, close, rename, unlink, save commit markers, and are killed; mounts are killed and made again, or stopped for
a while; the store is slow, hangs, loses answers, damages bytes, delivers late or refuses. Steps of different processes
may overlap. After each step the bucket is read past ckptfs and compared with the model (reference.py; the files of
rules say what a step promises). Bytes name the write they come from (pattern.py). histories.py makes histories from
seeds, seeds.py plays them (play.py a single one), world.py has the processes and mounts, shrink.py makes a failing
one short.

As steps follow from answers and their time, a seed is not the same history each time. So each run of the tests plays
histories that were recorded, step by step, for a minute in each of two files, which run side by side
(test_recorded_one.py, test_recorded_two.py): what one run finds the next one finds, too. --full writes new ones, here, of
seeds that it tells. A difference fails the test only if the steps as they were played show it again; what does not is
told at the end of the run. Both are kept in $CKPTFS_MODEL_FINDS (build/results/model-finds), with the logs.
CKPTFS_MODEL_SECONDS and CKPTFS_MODEL_SEED choose another run, and CKPTFS_MODEL_RECORD a file that takes what it played
without a difference. CKPTFS_MODEL_KEPT and CKPTFS_MODEL_BY_DISK are the shares of histories with --cache-dir and with
--ack disk. Hours of it:

    CKPTFS_MODEL_SECONDS=14400 tests/run --full
    CKPTFS_MODEL_SECONDS=14400 pytest -c tests/pytest.ini --rootdir tests -m full tests/model/test_random.py

A find, made short, becomes a file of histories/, which test_histories.py plays.
"""

import itertools
import os
import random

import pytest
from seeds import play_seeds


@pytest.mark.full
@pytest.mark.timeout(0)
def test_random_histories(store, tell):
    first = int(os.environ.get("CKPTFS_MODEL_SEED", random.randrange(1 << 32)))
    play_seeds(store, itertools.count(first), float(os.environ.get("CKPTFS_MODEL_SECONDS", 600)), tell)
