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

from bench_plan import RAW_CONNECTIONS, Model, Result
from harness.mounts import Mount
from harness.programs import BUILD
from harness.simulator import BUCKET, Simulator

MIB = 2**20
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
TORCH_CLIENT = pathlib.Path(__file__).with_name("torch_client.py")
# Enough to open all connections and to fill the daemon's buffers once: the first touch of memory is slow on virtual
# machines, and is not what is to be measured.
LARGEST_WARM_UP = 512 * MIB
WARM_UP_KEY = "warm-up"
# Requests in flight, and what the store's memory loses to pieces.
STORE_SLACK = 256 * MIB
# The store touches its memory before it listens, which takes virtual machines seconds a GiB.
STORE_STARTS_WITHIN_S = 300
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


def run_client(*command: object, **environment: str) -> dict:
    done = subprocess.run([str(word) for word in command], env={**os.environ, **environment}, stdout=subprocess.PIPE,
                          check=True, text=True, timeout=1800)
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


def io_steps(size: int) -> list[Step]:
    program = BUILD / "file_io"
    return [Step("1 MiB write", (program, "write"), "io.bin", size, True, has_raw_twin=True),
            Step("1 MiB read", (program, "read"), "io.bin", size, False, has_raw_twin=True)]


def torch_steps(size: int) -> list[Step]:
    client = (sys.executable, TORCH_CLIENT)
    return [Step("torch.save", (*client, "save"), "model.pt", size, True),
            Step("torch.load", (*client, "load"), "model.pt", size, False, keeps_memory=True)]


def dcp_steps(size: int) -> list[Step]:
    client = (sys.executable, TORCH_CLIENT)
    return [Step("DCP save, 2 ranks", (*client, "dcp-save"), "dcp", size, True),
            Step("DCP load, 2 ranks", (*client, "dcp-load"), "dcp", size, False, keeps_memory=True)]


class Bench:
    """One simulated store, and the targets that are compared on it."""

    def __init__(self, tls: bool, disk: pathlib.Path, mount_options: list[str], size: int,
                 quick: bool) -> None:
        self.disk = disk
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
        if "mount" in targets:
            yield from (self._on_mount(step) for step in steps)
            self._empty_bucket()
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
    def _fresh_mount(self) -> Iterator[Mount]:
        """A new daemon that has cached nothing of what is measured, and whose buffers have been touched."""
        mount = Mount(f"s3://{BUCKET}/", self.simulator.environment(), *self.mount_options)
        try:
            self._warm_up(mount)
            yield mount
            if mount.unmount() != 0:
                raise BenchError("the mount ended badly")
        except (BenchError, subprocess.SubprocessError) as error:
            raise BenchError(f"{error}\nlog of the mount:\n{mount.log()}") from error
        finally:
            mount.remove()

    def _warm_up(self, mount: Mount) -> None:
        file_io = BUILD / "file_io"
        run_client(file_io, "read", mount / WARM_UP_KEY, "--bytes", self._warm_up_bytes)
        run_client(file_io, "write", mount / "warm-up.tmp", "--bytes", self._warm_up_bytes)
        (mount / "warm-up.tmp").unlink()

    def _on_mount(self, step: Step) -> Result:
        with self._fresh_mount() as mount:
            self._make_room(step)
            return self._measure(step.workload, "mount", step.bytes, lambda: self._client(step, mount.path), mount)

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

    def _client(self, step: Step, directory: pathlib.Path, *for_writers: str) -> dict:
        command = [*step.command, directory / step.path, "--bytes", step.bytes]
        if step.writes:
            # DCP syncs its files by itself.
            command += for_writers if step.path != "dcp" else ()
        elif self._repetition == 0 or self.quick:
            command.append("--verify")
        return run_client(*command, **(KEEP_MEMORY if step.keeps_memory else {}))

    # --- measuring

    def _measure(self, workload: str, target: str, size: int, client: Callable[[], dict],
                 mount: Mount | None = None) -> Result:
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
        result.connections = counters["connections"]["peak"]
        return result

    def _delete(self, key: str) -> None:
        self.simulator.client().delete_object(Bucket=BUCKET, Key=key)

    def _empty_bucket(self) -> None:
        for key in self.simulator.keys():
            if key != WARM_UP_KEY:
                self._delete(key)
