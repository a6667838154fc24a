# SPDX-License-Identifier: Apache-2.0
"""The shortest form of a history that still shows its difference."""

import itertools
import time

from play import Player

_runs = itertools.count()


def play(simulator, history: dict) -> Player:
    simulator.clear_faults()
    with Player(simulator, f"replay{next(_runs)}/", history) as player:
        player.play()
    return player


def replay(simulator, history: dict, tries: int = 1, kind: str | None = None) -> Player | None:
    """The first run that shows a difference (of this kind)."""
    for _ in range(tries):
        player = play(simulator, history)
        if player.model.differences and (kind is None or player.kind() == kind):
            return player
    return None


def shrink(simulator, history: dict, kind: str, seconds: float = 300, tries: int = 2) -> dict:
    """Delta debugging: drops runs of steps, then mounts and agents, while a difference of this kind stays."""
    end = time.monotonic() + seconds

    def shorter(candidate: dict) -> dict | None:
        player = replay(simulator, candidate, tries, kind) if time.monotonic() < end else None
        # What meant nothing any more is left out, too.
        return player and {**candidate, "steps": player.played}

    history = shorter(history) or history
    size = max(len(history["steps"]) // 2, 1)
    while time.monotonic() < end:
        at, cut = 0, False
        while at < len(history["steps"]):
            candidate = {**history, "steps": history["steps"][:at] + history["steps"][at + size:]}
            if found := shorter(candidate):
                history, cut = found, True
            else:
                at += size
        if size == 1 and not cut:
            break
        size = max(size // 2, 1)
    for change in simpler(history):
        history = shorter(change(history)) or history
    return history


def simpler(history: dict):
    used = {step.get("mount", 0) for step in history["steps"]}
    if len(used) < history["mounts"]:
        yield lambda h: {**h, "mounts": max(used, default=0) + 1, "options": h["options"][:max(used, default=0) + 1]}
    acting = {step.get("agent") for step in history["steps"]}
    for step in history["steps"]:
        acting |= set(step["who"]) if step["do"] == "kill_group" else {step.get("who")}
    yield lambda h: {**h, "agents": [name for name in h["agents"] if name in acting] or h["agents"][:1]}
    yield lambda h: {**h, "options": [[] for _ in h["options"]]}
    yield lambda h: {key: value for key, value in h.items() if key != "behind"}
    yield lambda h: {key: value for key, value in h.items() if key not in ("ack", "behind")}
    # What the disk acknowledges is on the disk.
    yield lambda h: {key: value for key, value in h.items() if key != "kept" or "ack" in h}
    yield lambda h: {**h, "steps": [{word: value for word, value in step.items() if word != "wait"}
                                    for step in h["steps"]]}
