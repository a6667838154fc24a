# SPDX-License-Identifier: Apache-2.0
import pytest
from harness.simulator import Simulator


@pytest.fixture(scope="module")
def store():
    simulator = Simulator("--allow-anonymous")
    yield simulator
    simulator.stop()
