# SPDX-License-Identifier: Apache-2.0
"""DCP with several threads swallows the failure of a data file; the mounts do not let it publish the checkpoint."""

import pathlib

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp

MIB = 1 << 20
RANKS = 2
# Each of a rank's four files is uploaded in parts.
TENSOR = 16 * MIB


def save_rank(rank: int, rendezvous: str, outcomes: str, paths: list[str]) -> None:
    """Each rank saves through a path of its own, and leaves a file saying how that ended."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=RANKS)
    state = {f"rank{rank}.{i}": torch.rand(TENSOR // 4) for i in range(4)}
    try:
        dcp.save(state, storage_writer=dcp.FileSystemWriter(paths[rank], thread_count=4, sync_files=True))
        outcome = "saved"
    except BaseException as error:  # dcp raises what is no Exception
        outcome = f"raised: {error}"
    pathlib.Path(outcomes, str(rank)).write_text(outcome)
    dist.destroy_process_group()


def save(tmp_path: pathlib.Path, attempt: str, paths: list[pathlib.Path]) -> list[str]:
    outcomes = tmp_path / attempt
    outcomes.mkdir()
    mp.spawn(save_rank, nprocs=RANKS, args=(str(tmp_path / f"rendezvous-{attempt}"), str(outcomes),
                                            [str(path) for path in paths]))
    return [(outcomes / str(rank)).read_text() for rank in range(RANKS)]


@pytest.mark.parametrize("mounts", [pytest.param(1, marks=pytest.mark.full), 2])
def test_dcp_does_not_publish_a_checkpoint_with_a_hole(mount, simulator, prefix, tmp_path, mounts):
    made = [mount() for _ in range(mounts)]
    # Rank 1 is on the last of them.
    paths = [made[0] / "step", made[-1] / "step"]
    simulator.inject({"op": "UploadPart", "key": prefix + "step/__1_2.distcp", "action": "403"})
    outcomes = save(tmp_path, "with-a-fault", paths)
    assert simulator.fault_hits() > 0
    simulator.clear_faults()
    assert outcomes[0].startswith("raised"), outcomes
    assert prefix + "step/.metadata" not in simulator.keys(prefix)
    assert not (paths[0] / ".metadata").exists()
    lines = [line for line in made[0].log().splitlines() if ".metadata is not committed" in line]
    assert len(lines) == 1 and "step/__1_2.distcp" in lines[0], made[0].log()
    # The same again, into the same directory.
    assert save(tmp_path, "again", paths) == ["saved", "saved"]
    assert prefix + "step/.metadata" in simulator.keys(prefix)
    state = {f"rank{rank}.{i}": torch.zeros(TENSOR // 4) for rank in range(RANKS) for i in range(4)}
    dcp.load(state, storage_reader=dcp.FileSystemReader(mount() / "step"), no_dist=True)
    assert all(tensor.any() for tensor in state.values())


@pytest.mark.full
def test_dcp_publishes_it_where_this_is_switched_off(mount, simulator, prefix, tmp_path):
    """So that the test above would notice."""
    made = mount("--commit-marker", "")
    simulator.inject({"op": "UploadPart", "key": prefix + "step/__1_2.distcp", "action": "403"})
    assert save(tmp_path, "with-a-fault", [made / "step"] * RANKS) == ["saved", "saved"]
    simulator.clear_faults()
    assert prefix + "step/.metadata" in simulator.keys(prefix)
    assert prefix + "step/__1_2.distcp" not in simulator.keys(prefix)
