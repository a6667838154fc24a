# SPDX-License-Identifier: Apache-2.0
"""Runs one workload on one target and measures it: the client's own clock, and what daemon and store used meanwhile."""

import contextlib
import dataclasses
import functools
import json
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator

import peers
from bench_plan import BEFORE, RAW_CONNECTIONS, Model, Result
from harness.mounts import Mount
from harness.programs import BUILD, CKPTFS
from harness.simulator import BUCKET, Simulator

MIB = 2**20
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
TORCH_CLIENT = pathlib.Path(__file__).with_name("torch_client.py")
FILES_CLIENT = pathlib.Path(__file__).with_name("files_client.py")
SMALL_FILES = 1000 * 4096
# Enough to open all connections and to fill the daemon's buffers once: the first touch of memory is slow on virtual
# machines, and is not what is to be measured.
LARGEST_WARM_UP = 512 * MIB
WARM_UP_KEY = "warm-up"
# Requests in flight, and what the store's memory loses to pieces.
STORE_SLACK = 256 * MIB
# The store touches its memory before it listens, which takes virtual machines seconds a GiB.
STORE_STARTS_WITHIN_S = 300
LONGEST_S = 1800
# One that takes many times as long as all others cannot do it.
LONGEST_OF_A_PEER_S = 300
# Memory that is given back is slow to touch again, so what a loader frees stays with its process.
KEEP_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**40)}


class BenchError(Exception):
    """What was measured did not work."""


def warm_up_bytes(size: int) -> int:
    return min(size, LARGEST_WARM_UP)


def store_memory(size: int) -> int:
    """What the simulated store holds at most: one file of that size, and two of the warm-up."""
    return size + 2 * warm_up_bytes(size) + STORE_SLACK


def cpu_seconds(pid: int) -> float:
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND


def run_client(*command: object, longest_s: float = LONGEST_S, **environment: str) -> dict:
    done = subprocess.run([str(word) for word in command], env={**os.environ, **environment}, stdout=subprocess.PIPE,
                          check=True, text=True, timeout=longest_s)
    return json.loads(done.stdout.splitlines()[-1])


def drop_page_cache() -> None:
    os.sync()
    try:
        pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")
    except OSError as error:
        raise BenchError(f"cannot drop the page cache, so reads of the disk would not be cold: {error}; run it as root "
                         "or leave the disk out: --only raw,mount") from None


def touch_free_memory(size: int) -> None:
    """Before a read through the page cache, whose pages are otherwise memory that the machine has to get first."""
    touch = "import mmap, sys; mmap.mmap(-1, int(sys.argv[1]), flags=mmap.MAP_PRIVATE | mmap.MAP_POPULATE).close()"
    # By another process: a client would be told its parent's peak as its own.
    subprocess.run([sys.executable, "-c", touch, str(size)], check=True, timeout=600)


@dataclasses.dataclass
class Step:
    """A client's command, and what has to be gone or cold before it runs."""

    workload: str
    command: tuple[object, ...]
    path: str  # of the file or directory, below the target
    bytes: int
    writes: bool
    has_raw_twin: bool = False  # plain libcurl moves the same bytes the same way
    keeps_memory: bool = False
    library_action: str = ""  # as library_client.py names it
    libraries: tuple[str, ...] = ()  # that have it


def io_steps(size: int) -> list[Step]:
    program = BUILD / "file_io"
    shared = {"has_raw_twin": True, "libraries": tuple(peers.LIBRARIES)}
    return [Step("1 MiB write", (program, "write"), "io.bin", size, True, library_action="write", **shared),
            Step("1 MiB read", (program, "read"), "io.bin", size, False, library_action="read", **shared)]


def torch_steps(size: int) -> list[Step]:
    client = (sys.executable, TORCH_CLIENT)
    shared = {"libraries": ("connector",)}
    return [Step("torch.save", (*client, "save"), "model.pt", size, True, library_action="save", **shared),
            Step("torch.load", (*client, "load"), "model.pt", size, False, keeps_memory=True, library_action="load",
                 **shared),
            Step("torch.load, mmap", (*client, "load-mmap"), "model.pt", size, False, keeps_memory=True)]


def dcp_steps(size: int) -> list[Step]:
    client = (sys.executable, TORCH_CLIENT)
    shared = {"libraries": ("connector",)}
    return [Step("DCP save, 2 ranks", (*client, "dcp-save"), "dcp", size, True, library_action="dcp-save", **shared),
            Step("DCP load, 2 ranks", (*client, "dcp-load"), "dcp", size, False, keeps_memory=True,
                 library_action="dcp-load", **shared)]


def safetensors_steps(size: int) -> list[Step]:
    client = (sys.executable, TORCH_CLIENT)
    return [Step("safetensors save", (*client, "safetensors-save"), "model.safetensors", size, True),
            Step("safetensors load", (*client, "safetensors-load"), "model.safetensors", size, False,
                 keeps_memory=True)]


def files_steps(_: int) -> list[Step]:
    client = (sys.executable, FILES_CLIENT)
    return [Step("1,000 small files", (*client, "create"), "files", SMALL_FILES, True),
            Step("ls -lR of 1,000", (*client, "list"), "files", SMALL_FILES, False)]


class Bench:
    """One simulated store, and the targets that are compared on it."""

    def __init__(self, tls: bool, disk: pathlib.Path, mount_options: list[str], size: int,
                 quick: bool, before: pathlib.Path | None = None) -> None:
        self.disk = disk
        self.programs = {"mount": CKPTFS} | ({BEFORE: before / "ckptfs"} if before else {})
        self.mount_options = mount_options
        self.quick = quick
        self.simulator = Simulator("--allow-anonymous", "--preallocate", str(store_memory(size)),
                                   *(("--tls",) if tls else ()), start_seconds=STORE_STARTS_WITHIN_S)
        self._warm_up_bytes = warm_up_bytes(size)
        self._repetition = 0
        self._model = ""
        self._raw_client("put", WARM_UP_KEY, self._warm_up_bytes, RAW_CONNECTIONS[0])

    def close(self) -> None:
        self.simulator.stop()

    def run(self, model: Model, steps: list[Step], targets: tuple[str, ...], repetition: int) -> Iterator[Result]:
        """One round: every target after the other, so that whatever else the machine does meets all of them."""
        self._repetition = repetition
        self._model = model.name
        self.simulator.set_model(**model.speed)
        self._empty_bucket()
        if "raw" in targets and steps[0].has_raw_twin:
            yield from self._raw(steps)
        for name in self.programs:
            if name in targets:
                yield from (self._on_mount(name, step) for step in steps)
                self._empty_bucket()
        for name in peers.MOUNTS:
            if name in targets:
                yield from self._until_one_fails(name, steps, self._on_peer)
        for name in peers.LIBRARIES:
            if name in targets:
                yield from self._until_one_fails(name, [step for step in steps if name in step.libraries],
                                                 self._by_library)
        if "disk" in targets:
            yield from (self._on_disk(step) for step in steps)
            shutil.rmtree(self.disk)

    # --- plain libcurl

    def _raw(self, steps: list[Step]) -> Iterator[Result]:
        for connections in RAW_CONNECTIONS:
            for step in steps:
                action = "put" if step.writes else "get"
                yield self._measure(step.workload, f"raw {connections}", step.bytes,
                                    functools.partial(self._raw_client, action, "raw", step.bytes, connections))
            self._delete("raw")

    def _raw_client(self, action: str, key: str, size: int, connections: int) -> dict:
        trust = ["--ca-bundle", self.simulator.certificate] if self.simulator.certificate.exists() else []
        return run_client(BUILD / "raw_client", action, f"{self.simulator.url}/{BUCKET}/{key}", "--bytes", size,
                          "--connections", connections, *trust)

    # --- the mount

    @contextlib.contextmanager
    def _fresh_mount(self, name: str) -> Iterator[Mount]:
        """A new daemon that has cached nothing of what is measured, and whose buffers have been touched."""
        mount = Mount(f"s3://{BUCKET}/", self.simulator.environment(), *self.mount_options,
                      program=self.programs[name])
        try:
            self._warm_up(mount)
            yield mount
            if mount.unmount() != 0:
                raise BenchError("the mount ended badly")
        except (BenchError, subprocess.SubprocessError) as error:
            raise BenchError(f"{error}\nlog of the mount:\n{mount.log()}") from error
        finally:
            mount.remove()

    def _warm_up(self, mount: Mount | peers.PeerMount) -> None:
        file_io = BUILD / "file_io"
        run_client(file_io, "read", mount / WARM_UP_KEY, "--bytes", self._warm_up_bytes)
        run_client(file_io, "write", mount / "warm-up.tmp", "--bytes", self._warm_up_bytes)
        (mount / "warm-up.tmp").unlink()

    def _on_mount(self, name: str, step: Step) -> Result:
        with self._fresh_mount(name) as mount:
            self._make_room(step)
            return self._measure(step.workload, name, step.bytes, lambda: self._client(step, mount.path), mount)

    # --- what others offer

    def _until_one_fails(self, name: str, steps: list[Step], run: Callable[[str, Step], Result]) -> Iterator[Result]:
        """Not all of them can do what programs do to a filesystem: the rest of the table is wanted all the same."""
        try:
            yield from (run(name, step) for step in steps)
        except BenchError as error:
            print(f"{name} cannot do this: {error}", flush=True)
        self._empty_bucket()

    def _on_peer(self, name: str, step: Step) -> Result:
        mount = peers.PeerMount(name, self.simulator.url, self.simulator.environment())
        try:
            self._warm_up(mount)
            self._make_room(step)
            result = self._measure(step.workload, name, step.bytes,
                                   lambda: self._client(step, mount.path, longest_s=LONGEST_OF_A_PEER_S), mount)
            mount.unmount()
            return result
        except subprocess.SubprocessError as error:
            raise BenchError(f"{error}\nlog of {name}:\n{mount.log()}") from error
        finally:
            mount.remove()

    def _by_library(self, name: str, step: Step) -> Result:
        command = [*peers.library_command(name, step.library_action), step.path, "--bytes", step.bytes]
        self._make_room(step)
        environment = {**self.simulator.environment(), **(KEEP_MEMORY if step.keeps_memory else {})}
        try:
            return self._measure(step.workload, name, step.bytes, lambda: run_client(*command, **environment))
        except subprocess.SubprocessError as error:
            raise BenchError(str(error)) from error

    # --- the local disk

    def _on_disk(self, step: Step) -> Result:
        self.disk.mkdir(parents=True, exist_ok=True)
        if not step.writes:
            drop_page_cache()
        self._make_room(step)
        return self._measure(step.workload, "disk", step.bytes, lambda: self._client(step, self.disk, "--fsync"))

    def _make_room(self, step: Step) -> None:
        if not step.writes and not self.quick:
            touch_free_memory(step.bytes)

    def _client(self, step: Step, directory: pathlib.Path, *for_writers: str, longest_s: float = LONGEST_S) -> dict:
        command = [*step.command, directory / step.path, "--bytes", step.bytes]
        if step.writes:
            # DCP syncs its files by itself.
            command += for_writers if step.path not in ("dcp", "files") else ()
        elif (self._repetition == 0 or self.quick) and step.path != "files":
            command.append("--verify")
        return run_client(*command, longest_s=longest_s, **(KEEP_MEMORY if step.keeps_memory else {}))

    # --- measuring

    def _measure(self, workload: str, target: str, size: int, client: Callable[[], dict],
                 mount: Mount | peers.PeerMount | None = None) -> Result:
        self.simulator.reset_counters()
        store = self.simulator.process.pid
        store_before = cpu_seconds(store)
        daemon_before = cpu_seconds(mount.process.pid) if mount else 0.0
        told = client()
        result = Result(self._model, workload, target, self._repetition, size, told["wall_s"], told["cpu_s"],
                        told["peak_mb"], store_cpu_s=cpu_seconds(store) - store_before)
        if mount:
            result.daemon_cpu_s = cpu_seconds(mount.process.pid) - daemon_before
            result.daemon_peak_mb = mount.peak_memory() / MIB
        if target == "disk":
            return result
        counters = self.simulator.counters()
        result.requests = sum(operation["requests"] for operation in counters["operations"].values())
        result.fetched_bytes = counters["operations"].get("GetObject", {}).get("bytes_out", 0)
        result.connections = counters["connections"]["peak"]
        return result

    def _delete(self, key: str) -> None:
        self.simulator.client().delete_object(Bucket=BUCKET, Key=key)

    def _empty_bucket(self) -> None:
        for key in self.simulator.keys():
            if key != WARM_UP_KEY:
                self._delete(key)
