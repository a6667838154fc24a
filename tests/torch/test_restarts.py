# SPDX-License-Identifier: Apache-2.0
"""Mount and job of a node with --cache-dir are killed: the next job loads what the last one saved from the disk, but
what another node has saved since from the store."""

import json
import multiprocessing
import os
import pathlib
import signal
import subprocess

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from harness.programs import CKPTFS, wait_until

MIB = 1 << 20
# So much waits for the disk, however slow it is; beyond that it may be left out.
SIZE = 24
LARGE = 512
# Files up to here come with the answer to their open, and are not kept.
SMALL = 256 << 10
# A process of its own for each rank, without the seconds that each takes to import it.
multiprocessing.set_forkserver_preload(["torch.distributed.checkpoint", "pytest", "harness.programs"])


def state_of(seed: int, mebibytes: int) -> dict[str, torch.Tensor]:
    """Files of any two seeds have the same size."""
    generator = torch.Generator().manual_seed(seed)
    return {f"layer{i}": torch.randn(mebibytes * MIB // 4 // 8, generator=generator) for i in range(8)}


def assert_equal(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> None:
    assert left.keys() == right.keys()
    for name in left:
        assert torch.equal(left[name], right[name]), name


def save_file(path: str, seed: int, mebibytes: int) -> None:
    torch.save(state_of(seed, mebibytes), path)


def load_file(path: str, seed: int, mebibytes: int) -> None:
    for mmap in False, True:
        assert_equal(torch.load(path, mmap=mmap), state_of(seed, mebibytes))


def part_of(seed: int, mebibytes: int) -> dict[str, torch.Tensor]:
    """What this rank has."""
    ranks, rank = dist.get_world_size(), dist.get_rank()
    return {f"rank{rank}.{name}": tensor for name, tensor in state_of(seed * ranks + rank, mebibytes // ranks).items()}


def save_parts(path: str, seed: int, mebibytes: int) -> None:
    dcp.save(part_of(seed, mebibytes), storage_writer=dcp.FileSystemWriter(path))


def load_parts(path: str, seed: int, mebibytes: int) -> None:
    wanted = part_of(seed, mebibytes)
    loaded = {name: torch.empty_like(tensor) for name, tensor in wanted.items()}
    dcp.load(loaded, storage_reader=dcp.FileSystemReader(path))
    assert_equal(loaded, wanted)


SAVE = {"torch.save": save_file, "dcp": save_parts}
LOAD = {"torch.save": load_file, "dcp": load_parts}
RANKS = {"torch.save": 1, "dcp": 2}


def run_rank(rank: int, kind: str, place: str, action, arguments: tuple, is_held: bool) -> None:
    """In `place` the ranks of one job meet, and each says there that it is done; one that is held stays then."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{place}/rendezvous", rank=rank, world_size=RANKS[kind])
    action(*arguments)
    pathlib.Path(place, f"done-{rank}").touch()
    if is_held:
        signal.pause()
    dist.destroy_process_group()


class Jobs:
    """Of one kind of checkpoint, of one size."""

    def __init__(self, kind: str, mebibytes: int, base: pathlib.Path) -> None:
        self.kind, self.mebibytes, self.base = kind, mebibytes, base
        self.count = 0
        self.held: list = []

    def start(self, action, made, seed: int, is_held: bool):
        self.count += 1
        place = self.base / f"job-{self.count}"
        place.mkdir()
        arguments = (str(made / "checkpoint"), seed, self.mebibytes)
        return mp.start_processes(run_rank, (self.kind, str(place), action, arguments, is_held), RANKS[self.kind],
                                  join=False, start_method="forkserver"), place

    def run(self, action, made, seed: int) -> None:
        job, _ = self.start(action, made, seed, False)
        self.held += job.processes
        while not job.join(60):
            pass

    def save(self, made, seed: int) -> None:
        self.run(SAVE[self.kind], made, seed)

    def load(self, made, seed: int) -> None:
        self.run(LOAD[self.kind], made, seed)

    def save_and_stay(self, made, seed: int) -> None:
        job, place = self.start(SAVE[self.kind], made, seed, True)
        self.held += job.processes

        def is_done() -> bool:
            # Raises what a rank has raised.
            assert not job.join(0), "the job ended"
            return len(list(place.glob("done-*"))) == RANKS[self.kind]
        wait_until(is_done, "the checkpoint to be saved", seconds=200)

    def kill(self) -> None:
        for process in self.held:
            process.kill()
            process.join()
        self.held.clear()


@pytest.fixture(params=["torch.save", "dcp"])
def kind(request):
    return request.param


# Only what a disk acknowledges is kept whatever its size.
WAYS = [("none", "store", SIZE), ("auto", "disk", SIZE),
        *(pytest.param(way, marks=[pytest.mark.full, pytest.mark.timeout(900)])
          for way in [("auto", "store", SIZE), ("none", "disk", SIZE), ("auto", "disk", LARGE)])]


@pytest.fixture(params=WAYS, ids=lambda way: "-".join(map(str, way)))
def way(request):
    """How it is stored, who acknowledges it, and its MiB."""
    return request.param


@pytest.fixture
def jobs(kind, way, tmp_path):
    made = Jobs(kind, way[2], tmp_path)
    yield made
    made.kill()


@pytest.fixture
def make(mount, tmp_path, way):
    """A mount of the node."""
    compress, ack, _ = way
    return lambda: mount("--cache-dir", str(tmp_path / "cache"), "--compress", compress, "--ack", ack)


def files_of(made) -> list[pathlib.Path]:
    found = made / "checkpoint"
    return [found] if found.is_file() else sorted(path for path in found.iterdir() if path.stat().st_size > SMALL)


def to_keep(made) -> int:
    answer = subprocess.run([CKPTFS, "status", made.path, "--json"], capture_output=True, text=True, check=True)
    return json.loads(answer.stdout)["disk"]["files_to_keep"]


def wait_until_kept(made) -> None:
    subprocess.run([CKPTFS, "wait", made.path], check=True, timeout=200)
    wait_until(lambda: to_keep(made) == 0, "nothing to be left to keep", seconds=60)
    for path in files_of(made):
        size = path.stat().st_size
        wait_until(lambda: int(os.getxattr(path, "user.ckptfs.kept")) == size, f"{path.name} to be kept", seconds=60)


def kill_all(made, jobs: Jobs) -> None:
    made.process.kill()
    made.process.wait()
    jobs.kill()
    made.remove()


def bytes_fetched(simulator) -> int:
    """Without what the answers to opens bring along."""
    return sum(request["bytes_out"] for request in simulator.requests(20_000)
               if request["op"] == "GetObject" and not request["key"].endswith("/.metadata"))


def test_what_a_killed_job_has_saved_is_loaded_from_the_disk(make, simulator, jobs):
    made = make()
    jobs.save_and_stay(made, 1)
    wait_until_kept(made)
    kill_all(made, jobs)
    made = make()
    simulator.reset_counters()
    jobs.load(made, 1)
    assert bytes_fetched(simulator) == 0
    # And so does the job after that one.
    kill_all(made, jobs)
    made = make()
    simulator.reset_counters()
    jobs.load(made, 1)
    assert bytes_fetched(simulator) == 0


def test_what_another_node_has_saved_since_is_loaded(make, mount, simulator, jobs, way):
    made, other = make(), mount("--compress", way[0])
    jobs.save_and_stay(made, 1)
    wait_until_kept(made)
    kill_all(made, jobs)
    jobs.save(other, 2)
    made = make()
    simulator.reset_counters()
    jobs.load(made, 2)
    assert bytes_fetched(simulator) > jobs.mebibytes * MIB // 2
    # It has taken the place of the old one.
    subprocess.run([CKPTFS, "warm", made.path], check=True, capture_output=True, timeout=200)
    kill_all(made, jobs)
    made = make()
    simulator.reset_counters()
    jobs.load(made, 2)
    assert bytes_fetched(simulator) == 0
    # Also where the mount has read the old one.
    jobs.save(other, 3)
    jobs.load(made, 3)
