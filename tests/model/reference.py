# SPDX-License-Identifier: Apache-2.0
"""The reference model of ckptfs-semantics(7): what the bucket may hold, and what a call may answer.

For each name the model keeps the set of contents that the committed object may have: one, once a commit was
acknowledged; more, while calls overlap or after one that failed. For each version that is open on a mount (a File: an
inode) it keeps the bytes, and which processes have changed them since the last commit. A step is told when it begins
and when it ends; what it did wrong is appended to `differences`.

What two sentences of the manual leave open is allowed both ways ("either"), so a difference is a broken promise.
"""

import collections
import dataclasses
import itertools
import time

from pattern import explain, pattern

ABSENT = None
# Other mounts believe what they have seen for so long (--metadata-ttl), and a little more.
TTL = 1.6
# Removals in a row, from which on they may be acknowledged before they are made: 17, and what counts besides files.
BATCHED = 14
# How late a file may be told to be closed by all.
RELEASED = 2.0
# --retry-for.
RETRY_FOR = 4.0
# Of a call that the store does not hold up, and of any other beyond --retry-for.
QUICK, SLOW = 4.0, 20.0
KEPT = (".log", ".out", ".err", ".jsonl")
GONE = {"ENOENT", "ESTALE"}
SAVES = ("save", "save_again")
WRITABLE = {"r+", "wo", "a", "a+", "w", "w+", "x", "x+", "rt", "c"}
# Numbers of what happens to files, in order.
changes = itertools.count(1)
READABLE = {"r", "r+", "a+", "w+", "x+", "rt", "c"}
TRUNCATES = {"w", "w+", "rt"}
CREATES = {"a", "a+", "w", "w+", "x", "x+", "c"}


class Name:
    """A path of the bucket."""

    def __init__(self) -> None:
        self.may: set = {ABSENT}
        # Calls under way that change it. Once two overlap, all that they may leave is allowed until both have ended.
        self.active = 0
        self.before: set = set()
        self.outcomes: set = set()
        self.acknowledged = False
        self.mixed = False
        # What is there at rest: a log of a killed writer.
        self.at_rest: set | None = None
        self.changed_at = 0.0

    def settled(self) -> bool:
        return len(self.may) == 1 and self.active == 0 and self.at_rest is None

    def begin(self, possible: set) -> None:
        if self.active == 0:
            self.before, self.outcomes, self.acknowledged, self.mixed = set(self.may), set(), False, False
        self.active += 1
        self.mixed = self.mixed or self.active > 1
        self.may = self.may | possible

    def end(self, outcome: "Outcome") -> None:
        self.active -= 1
        self.outcomes |= outcome.contents
        self.acknowledged = self.acknowledged or outcome.certain
        if outcome.certain:
            self.at_rest = None
        elif self.at_rest is not None:
            self.at_rest = self.at_rest | outcome.contents
        if self.active == 0:
            self.may = self.outcomes | (set() if self.acknowledged else self.before)
            self.changed_at = time.monotonic()


@dataclasses.dataclass
class Outcome:
    """What a call left of a name: surely one of these, or perhaps."""
    contents: set
    certain: bool


@dataclasses.dataclass(eq=False)
class File:
    """A version that is open on a mount; `path` is None once it was removed or renamed over."""
    mount: int
    path: str | None
    contents: set
    ordered: bool = False
    # It grows, and is published while it does and when its writer is killed.
    kept: bool = False
    # The manual does not say whether it is one of those.
    perhaps_kept: bool = False
    exclusive: bool = False
    # Made or truncated by its open, and nothing of it published yet; by this process.
    fresh: bool = False
    maker: str = ""
    changed_by: set = dataclasses.field(default_factory=set)
    # Those, and those who opened the descriptors by which they did.
    answering: set = dataclasses.field(default_factory=set)
    # Not only cut or stretched.
    written: bool = False
    acknowledged: int = 0  # Bytes, ever, without what it was stretched by.
    # Since it was last written.
    resized: bool = False
    # Not only at its end.
    written_inside: bool = False
    # A killed process has changed it; nothing else may publish that.
    half: bool = False
    failed: bool = False
    # Its last writer was killed before it wrote: who reads it reads what was there before, while that has the name.
    abandoned: bool = False
    # Something went wrong of which the outcome is not known: nothing is expected any more but a bound.
    doubtful: bool = False
    # The name has changed below it, by another mount or version.
    overtaken: bool = False
    # By another version of its mount, while nothing of it was unsaved: who looks the name up finds that one.
    gave_way: bool = False
    # What it has held since all of it was last known to be in the bucket: a log is published from time to time.
    states: set = dataclasses.field(default_factory=set)
    # What it had become by the last save that appended to it, and when that ended; None once anything else has been done.
    grown_to: bytes | None = None
    grown_at: float = 0.0
    # Who wrote to it first, of those that truncated it while it was empty.
    first: object = None
    # When the descriptor was opened that wrote to it first, of those that did not truncate it.
    joined: int | None = None
    # It began as a version of its own, of those who shared this one while it was empty.
    sibling: "File | None" = None
    # When it last cut away what was there, counted in changes; 0 where it began with that.
    truncated: int = 0
    # The name that another version took before that was renamed over or removed: a reader's fsync may still be for it.
    lost: str | None = None
    # Names that it had: what failed may be recorded under the one for which it was on its way.
    former: set = dataclasses.field(default_factory=set)
    # Where a rename that failed may have left it.
    perhaps_at: set = dataclasses.field(default_factory=set)
    # Opened for writing only, first.
    write_only: bool = False
    # Opened to be appended to only, first: "writing out of order" is not promised, nor reading back what was written.
    appended_to: bool = False
    # A process that could write it was killed.
    widowed: bool = False
    # Others that truncated it have versions of their own by now, behind one inode.
    split: bool = False
    # Its name could not be judged while it had it.
    unjudged: bool = False
    # A later version of the name on its mount was committed, and cut away what this one held: None where that is not
    # known.
    cut_away: bool | None = False
    # All of it may have been saved by a close that need not have.
    perhaps_saved: bool = False
    busy: int = 0
    descriptions: list = dataclasses.field(default_factory=list)
    # Processes that opened it for writing.
    openers: set = dataclasses.field(default_factory=set)
    # Counted in changes of files.
    born: int = dataclasses.field(default_factory=changes.__next__)
    changed: int = 0

    def is_sent_ahead(self) -> bool:
        """What fills a part leaves before the commit."""
        return bool(self.changed_by) and any(len(content or b"") >= 5 << 20 for content in self.contents)

    def vague(self) -> bool:
        return self.half or self.doubtful

    @property
    def inode(self) -> "File":
        return self.sibling or self

    def writers(self) -> set:
        return {agent for each in self.descriptions if each.writable for agent in each.holders}

    def change(self, agent: str, opener: str, apply) -> None:
        self.contents = {apply(content) for content in self.contents}
        self.grown_to = None
        self.states |= self.contents
        self.changed_by.add(agent)
        self.answering |= {agent, opener}
        self.perhaps_saved = False
        self.cut_away, self.changed = False, next(changes)


@dataclasses.dataclass(eq=False)
class Description:
    """An open file description: shared by dup and fork."""
    file: File
    flags: str
    opener: str
    # What reads of it may answer, beside what its file holds by now.
    seen: set
    position: int = 0
    syncs: bool = False  # By O_DSYNC: each write is followed by an fsync(2).
    read_changes: bool = False  # It has read of what was not saved then.
    # It has only truncated what is empty: its first write may begin a version of its own.
    unwritten: bool = False
    # Its opener has saved the name since: "takes no more writes".
    perhaps_given_up: bool = False
    # "And the close of one that tried reports it, too."
    refused: bool = False
    # What it was opened as, where it goes on in another version: the mount knows it by that inode.
    opened_as: "File | None" = None
    opened: int = dataclasses.field(default_factory=changes.__next__)
    # How many descriptors each agent has.
    holders: collections.Counter = dataclasses.field(default_factory=collections.Counter)

    @property
    def inode(self) -> File:
        return (self.opened_as or self.file).inode

    @property
    def writable(self) -> bool:
        return self.flags in WRITABLE

    @property
    def appends(self) -> bool:
        return self.flags in ("a", "a+")


def put(content: bytes | None, offset: int, data: bytes) -> bytes:
    content = content or b""
    return content[:offset].ljust(offset, b"\0") + data + content[offset + len(data):]


def cut(content: bytes | None, size: int) -> bytes:
    return (content or b"")[:size].ljust(size, b"\0")


class State:
    """Names, open files and descriptors, without the rules."""

    def __init__(self, mounts: int, retry_for: float) -> None:
        # Those that were made at the start or in their places; and those that still serve open files, too.
        self.points = self.mounts = mounts
        self.retry_for = retry_for
        # Mounts that write through the page cache.
        self.cached: set[int] = set()
        # Those whose --staging-dir has little room.
        self.tight: set[int] = set()
        self.names: dict[str, Name] = collections.defaultdict(Name)
        self.directories: set[str] = set()
        # Of those whose rename or removal was cut short it is not known what is there: nothing is done in them any more.
        self.lost_directories: set[str] = set()
        # What a mount has open under a name now. Older versions that are open still are only found by descriptors.
        self.nodes: list[dict[str, File]] = [{} for _ in range(mounts)]
        self.slots: dict[tuple[str, str], Description] = {}
        self.agents: set[str] = set()
        # Mounts whose daemon is stopped.
        self.paused: set[int] = set()
        # Those whose daemon was told to end, and when.
        self.ending: dict[int, float] = {}
        # Agents that are killed at once, and which of them had files open for writing.
        self.dying: set[str] = set()
        self.left_by_killed: dict[File, set] = {}
        # By agent.
        self.calls: dict = {}
        # Fault rules that calls need not survive, and all that are active.
        self.trouble = False
        self.faults: list[dict] = []
        # Names whose end on a mount is not told: (mount, path, contents, until).
        self.ghosts: list[tuple[int, str, set, float]] = []
        self.removals: dict[int, tuple[int, float]] = {}
        self.last_remover: dict[str, int] = {}
        self.renamed_at = 0.0
        # Names that may have left a record of their failure, and whether something may be lost at the end.
        self.failures: set[str] = set()
        # Whether a process or a daemon was killed. Files of killed writers that hold a commit marker back: for sure,
        # and once the mount has noticed.
        self.deaths = False
        self.held_back: set[str] = set()
        self.fails_soon: set[str] = set()
        # What removals that the network delivers late may have named.
        self.removed_late: dict[str, set] = collections.defaultdict(set)
        # What was being written to logs when the writer was killed: they are kept as far as they were written.
        self.cut_short: dict[str, set] = collections.defaultdict(set)
        # Commits of calls that were killed go on for as long as the store is asked again: what they may leave, until,
        # on which mount.
        self.going_on: dict[str, tuple[set, float, int | None]] = {}
        # Names that were truncated by several calls at once: what becomes of them follows from the order, of which nothing
        # is known. Nothing is expected of them until all who had them open have closed them, but that calls return.
        self.unjudged: set[str] = set()
        self.judging: object = None
        # The store has sent damaged bytes: "finding bits that flip on the way ... of a plain object" is not promised.
        self.flipped = False
        # The store has refused to remove an object, which may be a temporary one: the log names it.
        self.removals_refused = False
        # The store has said of an upload that it is gone, and still has it; or has refused to end any for --retry-for,
        # which leaves them to the next mount.
        self.uploads_denied = False
        # A directory was renamed while the store refused. Files whose rename may have been made though it failed.
        self.unfinished_renames, self.wandering = False, []
        self.tags = 0
        self.differences: list[tuple[str, str]] = []

    def differ(self, kind: str, text: str) -> None:
        if kind in ("slow", "stuck") or self.judging is None or not self.is_unjudged(self.judging):
            self.differences.append((kind, text))

    def cannot_judge(self, path: str) -> None:
        self.unjudged.add(path)
        self.failures.add(path)
        for file in self.files():
            file.unjudged = file.unjudged or file.path == path

    def judge_again(self) -> None:
        """At rest."""
        held = {file.path for file in self.files() if file.unjudged}
        if ABSENT not in held:
            # It may lie in another directory by now, which was renamed while it was opened.
            names = {path.rsplit("/", 1)[-1] for path in held}
            self.unjudged = {path for path in self.unjudged if path.rsplit("/", 1)[-1] in names}

    def show(self, contents) -> str:
        return " or ".join(sorted(explain(content, self.tags) for content in contents)[:4])

    def live(self, mount: int, path: str) -> File | None:
        return self.nodes[mount].get(path)

    def files(self) -> list[File]:
        return list({id(each.file): each.file for each in self.slots.values()}.values())

    def exists(self, mount: int, path: str) -> bool:
        """For sure."""
        name = self.names[path]
        return ABSENT not in name.may and name.active == 0 and path not in self.unjudged

    def parent_is_there(self, path: str) -> bool:
        return "/" not in path or path.rsplit("/", 1)[0] in self.directories

    def below(self, directory: str) -> list[str]:
        return [path for path in self.names if path.startswith(directory + "/")]

    def ghost(self, file: File) -> None:
        if file.path is not None:
            self.ghosts.append((file.mount, file.path, set(file.contents), time.monotonic() + 5))

    def ghosts_of(self, mount: int, path: str) -> set | None:
        now = time.monotonic()
        self.ghosts = [each for each in self.ghosts if each[3] > now]
        found = [contents for where, name, contents, _ in self.ghosts if (where, name) == (mount, path)]
        return set().union(*found) if found else None

    def overtake(self, path: str, by: File | None) -> None:
        for file in self.files():
            if file is not by and file.path == path:
                file.overtaken = True
                is_here = by is not None and by.mount == file.mount
                file.gave_way = file.gave_way or (is_here and not (file.changed_by or file.fresh))

    def cut_away(self, path: str, mount: int, by: File | None, saver: str, truncated: int,
                 certain: bool, crossed: bool) -> None:
        """What a commit under the name does to other versions of its mount: `by`, or one saved at a stretch."""
        openers = by.openers if by is not None else {saver}
        truncated = by.truncated if by is not None else truncated
        for file in self.files():
            if file.mount != mount or file.path != path:
                continue
            for each in file.descriptions:
                each.perhaps_given_up = each.perhaps_given_up or each.opener in openers
            if file is by:
                continue
            if file.changed > truncated:
                if crossed and file.cut_away is False:
                    # Whether the change came before the truncation is not known.
                    file.cut_away = None
                continue
            known = certain and not (file.vague() or file.failed or file.busy or file.kept or file.perhaps_kept or file.split
                         or file.sibling or b"" in file.contents or (by is not None and (by.vague() or by.split)))
            file.cut_away = True if known else None

    # --- descriptors

    def attach(self, agent: str, slot: str, description: Description) -> None:
        description.holders[agent] += 1
        if description.writable:
            description.file.openers.add(description.opener)
        description.file.unjudged = description.file.unjudged or description.file.path in self.unjudged
        self.slots[agent, slot] = description
        if description not in description.file.descriptions:
            description.file.descriptions.append(description)

    def detach(self, agent: str, slot: str) -> Description:
        description = self.slots.pop((agent, slot))
        description.holders[agent] -= 1
        description.holders += collections.Counter()
        file = description.file
        if not description.holders:
            file.descriptions.remove(description)
        if not file.descriptions and file.path is not None and self.live(file.mount, file.path) is file:
            del self.nodes[file.mount][file.path]
        return description

    def slots_of(self, agent: str) -> list[str]:
        return [slot for owner, slot in self.slots if owner == agent]

    def unbind(self, file: File | None) -> None:
        """Its name is gone: what is written to it leads nowhere."""
        if file is not None and file.path is not None:
            self.nodes[file.mount].pop(file.path, None)
            file.path = None

    # --- publishing

    def released(self, file: File) -> None:
        """Nobody can write to it any more: what is published of it then comes after the call, or after the death."""
        if file.path is not None and not file.writers():
            self.goes_on(file.path, file.contents, RELEASED, file.mount)

    def goes_on(self, path: str, contents: set, seconds: float, mount: int) -> None:
        known, until, where = self.going_on.get(path, (set(), 0.0, mount))
        now = time.monotonic()
        if until < now:
            known, where = set(), mount
        self.going_on[path] = (contents | known, max(until, now + seconds), mount if where == mount else None)

    def may_still_come(self, path: str) -> set:
        contents, until, _ = self.going_on.get(path, (set(), 0.0, None))
        return contents if time.monotonic() < until else set()

    def comes_after(self, path: str, mount: int | None) -> None:
        """"What changes a name on one mount takes effect in the order in which it was asked for"."""
        if mount is not None and self.going_on.get(path, (set(), 0.0, None))[2] == mount:
            self.going_on.pop(path, None)

    def perhaps_published(self, file: File) -> None:
        """By a death or a marker: what its writers left of it may be there, or what was there before."""
        name = self.names[file.path]
        name.may |= file.contents
        name.before |= file.contents
        if name.at_rest is not None:
            name.at_rest = name.at_rest | file.contents

    def committed(self, file: File) -> None:
        file.changed_by.clear()
        file.written = False
        file.answering.clear()
        file.fresh = False
        file.states = set(file.contents)
        file.perhaps_saved = False

    def note_kept(self, file: File) -> None:
        """A log is published while it grows: each of its states may be there."""
        if (file.kept or file.perhaps_kept) and file.path is not None:
            self.names[file.path].may |= file.contents
            self.names[file.path].before |= file.contents

    def grown(self, path: str, content: bytes | None) -> bool:
        """A log that grows is published again, also over what others have saved meanwhile."""
        return any(file.path == path and content in file.contents | file.states for file in self.files()
                   if file.kept or file.perhaps_kept)

    def check_bucket(self, found: dict[str, bytes]) -> None:
        for path in {*found, *self.names} - self.unjudged:
            name = self.names[path]
            content = found.get(path)
            if content is ABSENT and name.may & self.removed_late[path]:
                # Not promised: "that a file stays that another mount writes again with the same bytes".
                name.may.add(ABSENT)
            if content in self.may_still_come(path) or any(
                    path in file.perhaps_at and content in file.contents for file in self.wandering):
                name.may.add(content)
                name.before.add(content)
            if content and (any(whole and whole.startswith(content) for whole in self.cut_short[path])
                            or self.grows_to(path, content)):
                name.may.add(content)
                name.before.add(content)
            if content not in name.may and not self.grown(path, content):
                kind = "lost" if content is ABSENT else "bytes"
                self.differ(kind, f"{path} in the bucket is {explain(content, self.tags)}, not {self.show(name.may)}")

    def comes_late(self, path: str, found: dict[str, bytes]) -> bool:
        name = self.names[path]
        content = found.get(path)
        return (name.at_rest is not None and content not in name.at_rest and not self.grown(path, content)
                and path not in self.unjudged)

    def at_rest(self, found: dict[str, bytes]) -> bool:
        """Whether what comes by itself has come."""
        return not any(self.comes_late(path, found) for path in self.names)

    def rest(self, found: dict[str, bytes]) -> None:
        for path, name in self.names.items():
            if self.comes_late(path, found):
                self.differ("lost", f"{path} in the bucket is {explain(found.get(path), self.tags)} at rest, not "
                            f"{self.show(name.at_rest)}")
            name.at_rest = None
            name.may = {found.get(path)} | self.may_still_come(path)
            if not self.parent_is_there(path):
                # What a rename of its directory could not remove is removed by the next mount that finds it.
                name.may.add(ABSENT)
            name.before = set(name.may)
        self.judge_again()


def bytes_of(step: dict) -> bytes:
    return pattern(step["tag"], step["at"], step["size"])
