# SPDX-License-Identifier: Apache-2.0
"""What is compared: the models of the store, the workloads, and one measured result."""

import dataclasses

RAW_CONNECTIONS = (16, 32, 64)
# Plain libcurl reaches this on two cores shared with the store; below it, it is no measure of anything.
RAW_COUNTS_FROM_MB_PER_S = 1700
GOAL = 0.85


@dataclasses.dataclass(frozen=True)
class Model:
    name: str
    title: str
    options: tuple[str, ...]
    workloads: tuple[str, ...]  # those that are run where the command line names none


S3_LIKE = ("--latency-ms", "30", "--conn-mbps", "90")
MODELS = {model.name: model for model in (
    Model("loopback", "raw loopback", (), ("io", "torch", "dcp")),
    Model("s3", "S3-like: 30 ms, 90 MB/s a connection", S3_LIKE, ("io", "torch", "dcp")),
    Model("tls", "S3-like, with TLS", (*S3_LIKE, "--tls"), ("io",)),
)}
WORKLOADS = ("io", "torch", "dcp")
TARGETS = ("raw", "mount", "disk")


@dataclasses.dataclass
class Result:
    """One workload on one target, once."""

    model: str
    workload: str  # "1 MiB write", "torch.save", …
    target: str  # "raw 32", "mount", "disk"
    repetition: int
    bytes: int
    wall_s: float
    client_cpu_s: float
    daemon_cpu_s: float = 0.0
    store_cpu_s: float = 0.0
    daemon_peak_mb: float = 0.0
    requests: int = 0
    connections: int = 0

    @property
    def mb_per_s(self) -> float:
        return self.bytes / self.wall_s / 1e6
