# SPDX-License-Identifier: Apache-2.0
"""A store that bears few requests a second answers the others with 503 SlowDown."""

import os

import pytest

MIB = 1 << 20
SIZE = 320 * MIB


@pytest.fixture
def slow_prefix(simulator):
    yield lambda: simulator.set_model(read_rate=10, write_rate=10)
    simulator.set_model(read_rate=0, write_rate=0)


def served(simulator, operation: str) -> int:
    counted = simulator.counters()["operations"][operation]
    return counted["requests"] - counted["errors"]


def test_a_prefix_that_bears_few_requests_is_asked_for_more_at_once(mount, simulator, prefix, slow_prefix):
    made = mount("--compress", "none", "--max-memory", "512M")
    content = os.urandom(MIB)
    slow_prefix()
    simulator.reset_counters()
    with open(made / "file", "wb", buffering=0) as file:
        for _ in range(SIZE // MIB):
            file.write(content)
    # Of 8 MiB it would be forty.
    assert served(simulator, "UploadPart") < 30
    other = mount("--compress", "none", "--max-memory", "512M")
    simulator.reset_counters()
    with open(other / "file", "rb", buffering=0) as file:
        for _ in range(SIZE // MIB):
            assert file.read(MIB) == content
    # Of 4 MiB it would be eighty.
    assert served(simulator, "GetObject") < 50
