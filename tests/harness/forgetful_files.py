# SPDX-License-Identifier: Apache-2.0
"""Files and directories in memory that know what of them is flushed, and what a power cut leaves of the rest: any of
the sectors that were written, any of the sizes between, and any of the names."""

import errno
import os
import random
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass, field

SECTOR = 512
ROOT = 1


def sectors(size: int) -> int:
    return -(-size // SECTOR)


class File:
    def __init__(self, number: int, mode: int) -> None:
        self.number = number
        self.mode = mode
        self.links = 0
        self.modified = time.time_ns()
        self.attributes: dict[str, bytes] = {}
        # Of a directory.
        self.entries: dict[str, int] = {}
        # Of a file; and what its sectors held at the last flush, where they have been changed since.
        self.data = bytearray()
        self.flushed_size = 0
        self.before: dict[int, bytes] = {}

    def is_directory(self) -> bool:
        return stat.S_ISDIR(self.mode)

    def _remember(self, offset: int, end: int) -> None:
        for sector in range(offset // SECTOR, sectors(min(end, self.flushed_size))):
            if sector not in self.before:
                # What was cut off and written again since is no more what was flushed, and was remembered then.
                flushed = self.data[sector * SECTOR:(sector + 1) * SECTOR]
                self.before[sector] = bytes(flushed[:self.flushed_size - sector * SECTOR])

    def write(self, offset: int, data: memoryview) -> None:
        end = offset + len(data)
        self._remember(offset, end)
        if offset > len(self.data):
            self.data.extend(bytes(offset - len(self.data)))
        self.data[offset:end] = data
        self.modified = time.time_ns()

    def resize(self, size: int) -> None:
        if size < len(self.data):
            self._remember(size, len(self.data))
            del self.data[size:]
        else:
            self.data.extend(bytes(size - len(self.data)))
        self.modified = time.time_ns()

    def flush(self) -> None:
        self.before.clear()
        self.flushed_size = len(self.data)

    def lose(self, stays: Callable[[], bool], dice: random.Random) -> bool:
        """Returns whether it is another one than before."""
        if not self.before and self.flushed_size == len(self.data):
            return False
        now = bytes(self.data)
        between = dice.randint(*sorted([self.flushed_size, len(now)]))
        size = len(now) if stays() else dice.choice([self.flushed_size, between])
        left = bytearray(now[:size].ljust(size, b"\0"))
        # Of what was cut off and is there again, nothing was ever written over.
        for sector, flushed in self.before.items():
            if sector * SECTOR >= len(now) or not stays():
                left[sector * SECTOR:(sector + 1) * SECTOR] = flushed.ljust(SECTOR, b"\0")
        for sector in range(sectors(self.flushed_size), sectors(size)):
            if not stays():
                left[sector * SECTOR:(sector + 1) * SECTOR] = bytes(SECTOR)
        self.data = left[:size]
        self.flush()
        return self.data != now


@dataclass
class NameChange:
    """What one call did to names: after the cut all of it is there, or none."""

    # Directory, name, and the number of what it names; None: nothing.
    effects: list[tuple[int, str, int | None]]
    # By an fsync of a directory that it is in.
    is_flushed: bool = False


@dataclass
class Loss:
    """What stays of what was not flushed."""

    # Whether names are flushed in their order, and by any fsync, as those of a file system with a journal are; else
    # by that of their directory alone, as POSIX has it.
    has_journal: bool
    # Shares.
    names: float
    data: float


@dataclass
class Files:
    """A disk's. Its calls raise OSError, as those of the system do."""

    files: dict[int, File] = field(default_factory=lambda: {ROOT: File(ROOT, stat.S_IFDIR | 0o755)})
    last_number: int = ROOT
    # Since the last cut, in order; and how many of them a journal has flushed.
    changes: list[NameChange] = field(default_factory=list)
    journaled: int = 0
    # Names at the last cut.
    names_before: dict[int, dict[str, int]] = field(default_factory=dict)

    def make(self, mode: int) -> File:
        self.last_number += 1
        file = self.files[self.last_number] = File(self.last_number, mode)
        return file

    def find(self, directory: int, name: str) -> File:
        if name not in self.files[directory].entries:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))
        return self.files[self.files[directory].entries[name]]

    def _change(self, *effects: tuple[int, str, int | None]) -> None:
        self.changes.append(NameChange(list(effects)))
        for directory, name, number in effects:
            entries = self.files[directory].entries
            for old, links in (entries.pop(name, None), -1), (number, 1):
                if old is not None:
                    self.files[old].links += links
            if number is not None:
                entries[name] = number

    def add(self, directory: int, name: str, file: File) -> None:
        if name in self.files[directory].entries:
            raise OSError(errno.EEXIST, os.strerror(errno.EEXIST))
        self._change((directory, name, file.number))

    def remove(self, directory: int, name: str) -> None:
        if self.find(directory, name).entries:
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY))
        self._change((directory, name, None))

    def rename(self, directory: int, name: str, new_directory: int, new_name: str, left: File | None = None) -> None:
        renamed = self.find(directory, name).number
        self._change((directory, name, left and left.number), (new_directory, new_name, renamed))

    def flush(self, file: File) -> None:
        self.journaled = len(self.changes)
        if not file.is_directory():
            file.flush()
            return
        for change in self.changes:
            change.is_flushed = change.is_flushed or any(effect[0] == file.number for effect in change.effects)

    def bytes_taken(self) -> int:
        return sum(len(file.data) for file in self.files.values())

    def lose(self, loss: Loss, dice: random.Random) -> str:
        """The power was cut. Returns what became of all that was not flushed, for people."""
        lost_names = self._lose_names(loss, dice)
        changed = sum(file.lose(lambda: dice.random() < loss.data, dice) for file in self.files.values())
        told = f"{loss}: {lost_names} of {len(self.changes)} changes of names lost, {changed} files are others"
        self.note_names()
        return told

    def note_names(self) -> None:
        """As those that are flushed, whatever was before."""
        self.changes, self.journaled = [], 0
        self.names_before = {file.number: dict(file.entries) for file in self.files.values()}

    def _lose_names(self, loss: Loss, dice: random.Random) -> int:
        stays_up_to = self.journaled
        while stays_up_to < len(self.changes) and dice.random() < loss.names:
            stays_up_to += 1
        lost = 0
        for file in self.files.values():
            file.entries = dict(self.names_before.get(file.number, {}))
        for number, change in enumerate(self.changes):
            if number < stays_up_to if loss.has_journal else change.is_flushed or dice.random() < loss.names:
                for directory, name, child in change.effects:
                    self.files[directory].entries.pop(name, None)
                    if child is not None:
                        self.files[directory].entries[name] = child
            else:
                lost += 1
        self._forget_all_without_names()
        return lost

    def _forget_all_without_names(self) -> None:
        reached, left = {ROOT: self.files[ROOT]}, [ROOT]
        for file in self.files.values():
            file.links = 0
        while left:
            for number in self.files[left.pop()].entries.values():
                self.files[number].links += 1
                if number not in reached:
                    reached[number] = self.files[number]
                    left.append(number)
        self.files = reached
