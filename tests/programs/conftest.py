# SPDX-License-Identifier: Apache-2.0
import pytest
from harness.programs import wait_until


@pytest.fixture(autouse=True)
def nothing_left(request, mount, simulator, prefix):
    """Neither uploads nor temporary objects nor complaints, while the mounts of the test still run."""
    yield
    complaints = [line for made in request.node.mounts for line in made.log().splitlines()
                  if " error: " in line or " warning: " in line]
    assert complaints == [] or simulator.fault_hits() > 0
    wait_until(lambda: simulator.open_uploads(prefix) == [], "uploads to be ended")
    assert [key for key in simulator.keys(prefix) if ".ckptfs/" in key] == []
