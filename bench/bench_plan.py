# SPDX-License-Identifier: Apache-2.0
"""What is compared: the models of the store, the workloads, the targets, and one measured result."""

import dataclasses

import peers

RAW_CONNECTIONS = (16, 32, 64)
# Plain libcurl reaches this on two cores shared with the store; below it, it is no measure of anything.
RAW_COUNTS_FROM_MB_PER_S = 1700
GOAL = 0.85


@dataclasses.dataclass(frozen=True)
class Model:
    name: str
    title: str
    speed: dict[str, float]  # as s3sim's admin interface takes it; 0 is no limit
    workloads: tuple[str, ...]  # those that are run where the command line names none
    tls: bool = False


UNLIMITED = {"latency_ms": 0, "conn_mbps": 0}
S3_LIKE = {"latency_ms": 30, "conn_mbps": 90}
WORKLOADS = ("io", "torch", "dcp", "safetensors", "files")
PEERS = peers.NAMES
TARGETS = ("raw", "mount", *PEERS, "disk")
# The mount of another version, where the command line names its build.
BEFORE = "before"
# Those that are run where the command line names none.
USUAL_TARGETS = ("raw", "mount", "disk")
MODELS = {model.name: model for model in (
    Model("loopback", "raw loopback", UNLIMITED, ("io", "torch", "dcp")),
    Model("s3", "S3-like: 30 ms, 90 MB/s a connection", S3_LIKE, WORKLOADS),
    Model("tls", "S3-like, with TLS", S3_LIKE, ("io",), tls=True),
)}


@dataclasses.dataclass(frozen=True)
class Plan:
    models: tuple[Model, ...]
    workloads: tuple[str, ...] | None  # None: those of each model
    targets: tuple[str, ...]

    def beside(self, target: str) -> "Plan":
        return dataclasses.replace(self, targets=(*self.targets, target))

    def rounds(self, model: Model, quick: bool) -> list[tuple[str, tuple[str, ...]]]:
        """Workloads, each with its targets. Importing torch takes most of a quick run, so that does it little."""
        chosen = self.workloads or model.workloads
        if not quick:
            return [(workload, self.targets) for workload in chosen]
        return ([("io", self.targets)] if "io" in chosen else []) + [
            (workload, ("mount",)) for workload in chosen
            if workload != "io" and model.name == "loopback" and "mount" in self.targets]


def plan(only: list[str]) -> Plan:
    """Names of models, workloads and targets, or "peers" for all of these; where none of a kind is named, the usual ones
    of that kind are meant."""
    if "peers" in only:
        only = [*(name for name in only if name != "peers"), *PEERS]
    if unknown := set(only) - {*MODELS, *WORKLOADS, *TARGETS}:
        raise ValueError(f"{', '.join(sorted(unknown))}: not one of {', '.join((*MODELS, *WORKLOADS, *TARGETS))}")

    def named(known: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name for name in known if name in only)

    models = named(tuple(MODELS)) or tuple(MODELS)
    return Plan(tuple(MODELS[name] for name in models), named(WORKLOADS) or None, named(TARGETS) or USUAL_TARGETS)


@dataclasses.dataclass
class Result:
    """One workload on one target, once."""

    model: str
    workload: str  # "1 MiB write", "torch.save", …
    target: str  # "raw 32", "mount", "rclone", "disk"
    repetition: int  # 0 is not measured
    bytes: int
    wall_s: float
    client_cpu_s: float
    client_peak_mb: float
    daemon_cpu_s: float = 0.0
    daemon_peak_mb: float = 0.0
    store_cpu_s: float = 0.0
    requests: int = 0
    fetched_bytes: int = 0
    connections: int = 0

    @property
    def mb_per_s(self) -> float:
        return self.bytes / self.wall_s / 1e6
