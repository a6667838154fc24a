# SPDX-License-Identifier: Apache-2.0
"""Several nodes, each with a mount of its own, one network and one job."""

import os
import pathlib
import subprocess
import sys

import pytest
from harness.mounts import Mount
from harness.nodes import STORE_ADDRESS, Cluster
from harness.simulator import BUCKET, Simulator

RANKS_A_NODE = 4
PORT = 29500


@pytest.fixture
def cluster():
    made = Cluster(2)
    yield made
    made.remove()


@pytest.fixture
def store():
    made = Simulator("--listen", "0.0.0.0")
    yield made
    made.stop()


@pytest.fixture
def mounts(request, cluster, store):
    """One on each node."""
    environment = {**store.environment(), "AWS_ENDPOINT_URL": f"http://{STORE_ADDRESS}:{store.port}"}
    made = []
    request.node.mounts = made
    try:
        for node in cluster.nodes:
            made.append(Mount(f"s3://{BUCKET}/job/", environment, "--metadata-ttl", "1", within=node.prefix))
        yield made
    finally:
        for mount in made:
            mount.remove()


def run_job(cluster: Cluster, mounts: list[Mount], mebibytes: int, actions: list[tuple[str, int, str, int]]) -> None:
    """Each action: what, from which node on (0: the rank's own), in which directory, and what."""
    ranks = []
    for number in range(RANKS_A_NODE * len(cluster.nodes)):
        at = number // RANKS_A_NODE
        node = cluster.nodes[at]
        environment = {**os.environ, "RANK": str(number), "WORLD_SIZE": str(RANKS_A_NODE * len(cluster.nodes)),
                       "MASTER_ADDR": cluster.nodes[0].address, "MASTER_PORT": str(PORT),
                       "GLOO_SOCKET_IFNAME": node.interface, "OMP_NUM_THREADS": "1"}
        words = [str(word) for action, shift, directory, seed in actions
                 for word in (action, mounts[(at + shift) % len(mounts)] / directory, seed)]
        ranks.append(subprocess.Popen([*node.prefix, sys.executable, pathlib.Path(__file__).with_name("rank.py"),
                                       str(mebibytes), *words],
                                      env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    try:
        said = [rank.communicate(timeout=800)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    for rank, text in zip(ranks, said):
        assert rank.returncode == 0, text


@pytest.mark.full
@pytest.mark.timeout(900)
def test_eight_ranks_on_two_mounts_save_and_load(cluster, store, mounts):
    run_job(cluster, mounts, 128,
            [("save", 0, "step-1", 1), ("save", 0, "step-2", 2), ("save", 0, "step-2", 3),
             ("load", 0, "step-1", 1), ("load", 0, "step-2", 3), ("load", 1, "step-1", 1), ("load", 1, "step-2", 3)])
    for made in mounts:
        for directory in ("step-1", "step-2"):
            assert sorted(os.listdir(made / directory)) == [".metadata", *(f"__{rank}_0.distcp" for rank in range(8))]
    assert store.open_uploads() == []
