# SPDX-License-Identifier: Apache-2.0
"""Plays histories, of seeds or recorded, and judges a find by whether the same steps show it again."""

import gzip
import itertools
import json
import os
import pathlib
import time
from collections.abc import Callable, Iterable, Iterator

import pytest
from harness.programs import ROOT
from histories import Author
from play import Player
from shrink import play, replay, shrink

FINDS = pathlib.Path(os.environ.get("CKPTFS_MODEL_FINDS", ROOT / "build/results/model-finds"))
STEPS = 60
# How often a find is played again, and how many that show again are enough.
TRIES, ENOUGH = 5, 3
_prefixes = itertools.count()


def write_history(simulator, seed: int) -> Player:
    """Writes the history of a seed while it is played."""
    author = Author(seed)
    simulator.clear_faults()
    with Player(simulator, f"model{next(_prefixes)}/", author.history) as player:
        player.play_on(lambda: author.next(player.model) if len(author.history["steps"]) < STEPS else None)
    return player


def keep(name: str, history: dict, told: str) -> pathlib.Path:
    FINDS.mkdir(parents=True, exist_ok=True)
    path = FINDS / f"{name}.json"
    path.write_text(json.dumps(history, indent=1) + "\n")
    path.with_suffix(".txt").write_text(told + "\n")
    return path


def judge(simulator, player: Player, seconds: float) -> tuple[bool, str]:
    """Whether the difference shows again, and what to say of it; `seconds` are for the search of a shorter history."""
    kind, seed = player.kind(), player.history["seed"]
    history = {**player.history, "steps": player.played, "kind": kind}
    path = keep(f"{seed}", history, player.told())
    again = replay(simulator, history, TRIES, kind)
    if again is None:
        return False, f"seed {seed}: {kind} did not show again in {TRIES} runs of the same steps, kept in {path}"
    found = shrink(simulator, history, kind, seconds)
    again = replay(simulator, found, TRIES, kind) or again
    path = keep(f"{seed}-shortened", found, again.told())
    return True, f"seed {seed}: {kind}. For a file of histories/ (kept in {path}):\n{json.dumps(found)}\n\n{again.told()}"


def play_all(simulator, players: Iterable[Player], seconds: float, tell: Callable[[str], None],
             shortening: float = 60) -> None:
    """Fails with the differences that show again. How long calls took, above all, is often the machine's doing."""
    began, shown, count, first = time.monotonic(), [], 0, None
    for player in players:
        first = player.history["seed"] if first is None else first
        count += 1
        if player.model.differences:
            again, what = judge(simulator, player, shortening)
            if again:
                shown.append(what)
            else:
                tell(what)
        simulator.empty()
        if time.monotonic() - began > seconds or len(shown) == ENOUGH:
            break
    tell(f"random histories: {count} from seed {first} on in {time.monotonic() - began:.0f} s")
    if shown:
        pytest.fail("\n\n".join(shown), pytrace=False)


def play_seeds(simulator, seeds: Iterable[int], seconds: float, tell: Callable[[str], None]) -> None:
    """Writes new histories. Those that show no difference, replayed twice, are added to $CKPTFS_MODEL_RECORD."""
    record = os.environ.get("CKPTFS_MODEL_RECORD")

    def played() -> Iterator[Player]:
        for seed in seeds:
            player = write_history(simulator, seed)
            history = {**player.history, "steps": player.played}
            if record and not player.model.differences and replay(simulator, history, 2) is None:
                with gzip.open(record, "at") as file:
                    file.write(json.dumps(history, separators=(",", ":")) + "\n")
            yield player

    play_all(simulator, played(), seconds, tell, shortening=150)


def play_recorded(simulator, path: pathlib.Path, seconds: float, tell: Callable[[str], None]) -> None:
    with gzip.open(path, "rt") as file:
        histories = [json.loads(line) for line in file]
    play_all(simulator, (play(simulator, history) for history in histories), seconds, tell)
