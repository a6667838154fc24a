# SPDX-License-Identifier: Apache-2.0
import itertools
import os
import pathlib
import random
import sys
import tempfile

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from harness.mounts import Mount  # noqa: E402
from harness.simulator import BUCKET, Simulator  # noqa: E402

_prefixes = itertools.count()


def pytest_addoption(parser):
    parser.addoption("--compress", help="how mounts of the tests store files, where a test does not say it itself")


def pytest_configure(config):
    # A test without credentials shall not find those of the machine it runs on.
    os.environ["AWS_EC2_METADATA_DISABLED"] = "true"
    if compress := config.getoption("--compress"):
        os.environ["CKPTFS_COMPRESS"] = compress
    # What mounts of the tests remember of their uploads is not for those of this machine.
    config.state = tempfile.TemporaryDirectory(prefix="ckptfs-state-")
    os.environ["CKPTFS_STATE_DIR"] = config.state.name


def pytest_unconfigure(config):
    config.state.cleanup()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    if report.failed:
        for mount in getattr(item, "mounts", []):
            report.sections.append((f"log of {mount.source}", mount.log()))


def pytest_terminal_summary(terminalreporter):
    for report in terminalreporter.getreports("passed") + terminalreporter.getreports("failed"):
        for name, text in getattr(report, "user_properties", []) if report.when == "call" else []:
            if name == "told":
                terminalreporter.write_line(f"{report.nodeid}: {text}")


@pytest.fixture
def tell(record_property):
    """Says something at the end of the run, also of a test that passes, on whatever worker."""
    return lambda text: record_property("told", text)


@pytest.fixture(scope="session")
def shared_simulator():
    """One simulator for all tests that leave its model and faults alone."""
    simulator = Simulator()
    yield simulator
    simulator.stop()


@pytest.fixture
def simulator(shared_simulator):
    """The shared simulator with no faults, no model and fresh counters; empty again afterwards."""
    shared_simulator.clear_faults()
    shared_simulator.reset_counters()
    yield shared_simulator
    shared_simulator.clear_faults()
    shared_simulator.empty()


@pytest.fixture
def prefix():
    """A part of the bucket that no other test uses; ends in '/'."""
    return f"test{next(_prefixes)}/"


@pytest.fixture
def mount(request, simulator, prefix):
    """Makes mounts of the test's prefix: mount(), mount("--max-memory", "128M"). All see the same files."""
    request.node.mounts = []

    def make(*options: str, environment: dict[str, str] = {}, **how) -> Mount:
        made = Mount(f"s3://{BUCKET}/{prefix}", {**simulator.environment(), **environment}, *options, **how)
        request.node.mounts.append(made)
        return made

    yield make
    for made in reversed(request.node.mounts):
        made.remove()


@pytest.fixture
def dice():
    """CKPTFS_RANDOM_SEED chooses another run."""
    seed = int(os.environ.get("CKPTFS_RANDOM_SEED", "7"))
    print("seed", seed)
    return random.Random(seed)
