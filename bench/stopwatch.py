# SPDX-License-Identifier: Apache-2.0
"""What a client says of itself: its clock, its processor time, and its memory at most."""

import resource
import time


class Stopwatch:
    def __init__(self) -> None:
        self._wall = time.monotonic()
        self._cpu = self._cpu_now()

    @staticmethod
    def _cpu_now() -> float:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return usage.ru_utime + usage.ru_stime

    def result(self) -> dict[str, float]:
        wall_s, cpu_s = time.monotonic() - self._wall, self._cpu_now() - self._cpu
        return {"wall_s": wall_s, "cpu_s": cpu_s, "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}
