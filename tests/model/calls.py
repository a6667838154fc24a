# SPDX-License-Identifier: Apache-2.0
"""Steps under way: when they make sense, which cross one another, and how they end."""

import dataclasses
import time

from reference import ABSENT, BATCHED, KEPT, SAVES, File, Outcome, State, bytes_of, changes, cut, put


@dataclasses.dataclass
class Call:
    """A step under way."""
    step: dict
    touched: dict[str, set]
    file: File | None = None
    # Began or ran while faults struck that it need not survive.
    excused: bool = False
    seen: set = dataclasses.field(default_factory=set)
    other: File | None = None
    # A save: the empty file that was open, and that it has written.
    joined: File | None = None
    # Its mount was killed meanwhile: what it answers means nothing.
    dead: bool = False
    # Another call concerned the same name on the same mount meanwhile: which was first is not known.
    crossed: bool = False
    # The name was removed meanwhile.
    removed_beside: bool = False
    # A read: saves of what it reads, on any mount.
    saves: list = dataclasses.field(default_factory=list)
    # Operations of the store that were slow or hung meanwhile.
    slowed: set = dataclasses.field(default_factory=set)
    # Removals: how many came before in a row.
    row: int = 0
    number: int = dataclasses.field(default_factory=changes.__next__)
    began: float = dataclasses.field(default_factory=time.monotonic)


def is_filled_in(whole: bytes, data: bytes) -> bool:
    """Some of it is still zeros."""
    pieces = ((data[at:at + 4096], whole[at:at + 4096]) for at in range(0, len(whole), 4096))
    return len(data) == len(whole) and all(
        piece == filled or all(byte in (0, new) for byte, new in zip(piece, filled)) for piece, filled in pieces)


class Calls(State):
    """What begins and ends, by methods named after the steps: *_ready, *_begins and *_ends."""

    def ready(self, step: dict) -> bool:
        """Whether the step means anything now; in a shortened history many do not."""
        agent = step.get("agent")
        if agent is not None and (agent not in self.agents or agent in self.calls):
            return False
        if "slot" in step and step["do"] != "open" and (agent, step["slot"]) not in self.slots:
            return False
        mount = self.mount_of(step)
        if agent is not None and (mount in self.paused or ("mount" in step and mount in self.ending)):
            # What is not there any more would be the bare directory.
            return False
        check = getattr(self, step["do"] + "_ready", None)
        return check is None or bool(check(step))

    def mount_of(self, step: dict) -> int | None:
        description = self.slots.get((step.get("agent"), step.get("slot")))
        return step.get("mount") if description is None else description.file.mount

    def begin(self, step: dict) -> Call:
        call = getattr(self, step["do"] + "_begins", lambda each: Call(each, {}))(step)
        call.excused = self.trouble or self.may_have_ended(step)
        for path, possible in call.touched.items():
            self.removed_as_well(path)
            self.names[path].begin(possible)
            self.moved_as_well(path, possible)
            self.appended_to_as_well(path, possible)
            self.cut_as_well(path, possible)
        for file in {id(each): each for each in (call.file, call.other) if each}.values():
            file.busy += 1
        self.note_late_removals(call)
        if "agent" in step:
            for each in self.calls.values():
                self.meet(each, call)
            self.calls[step["agent"]] = call
        if step["do"] in ("rename", "rename_tree") and self.is_unjudged(call):
            for path in call.touched:
                self.cannot_judge(path)
        return call

    def moved_as_well(self, path: str, contents: set) -> None:
        """By a rename under way, as by that of a directory: "Changes that other mounts make in the source meanwhile move"."""
        for each in self.calls.values():
            if each.step["do"] == "rename" and each.step["path"] == path:
                self.may_become(each, each.step["other"], contents - {ABSENT})

    def appended_to_as_well(self, path: str, contents: set) -> None:
        """By a save under way: "appending starts from the committed object", of when the save opens the file."""
        for each in self.calls.values():
            if each.step["do"] == "save" and each.step["flags"] in ("a", "a+") and each.step["path"] == path:
                self.may_become(each, path, {(content or b"") + bytes_of(each.step) for content in contents})

    def cut_away_as_well(self, log: File) -> None:
        """By a log, once it is published by itself: versions that it has truncated, and that were not changed since."""
        for file in self.files():
            if (file.mount, file.path) == (log.mount, log.path) and file is not log and file.changed < log.truncated:
                file.cut_away = file.cut_away or None
                if file.busy and any(each.appends for each in file.descriptions):
                    # What is being added to it may go behind the log, too.
                    self.cannot_judge(log.path)

    def cut_as_well(self, path: str, contents: set) -> None:
        """By a truncate(2) under way, which may find the name only now."""
        for each in self.calls.values():
            if each.step["do"] == "cut" and each.step["path"] == path:
                self.may_become(each, path, {cut(content, each.step["size"]) for content in contents - {ABSENT}})

    def removed_as_well(self, path: str) -> None:
        """By the removal of all in its directory that is under way, and lists it only now."""
        for each in self.calls.values():
            if (each.step["do"] in ("remove_files", "remove_tree") and path.rsplit("/", 1)[0] == each.step["path"]
                    and path not in each.touched):
                each.touched[path] = {ABSENT}
                self.names[path].begin({ABSENT})

    def may_become(self, call: Call, path: str, contents: set) -> None:
        call.touched[path] |= contents
        self.names[path].may |= contents

    def meet(self, one: Call, other: Call) -> None:
        both = self.places(one) & self.places(other)
        if both:
            one.crossed = other.crossed = True
        if {"open"} <= {one.step["do"], other.step["do"]} <= {"open", *SAVES}:
            for _, path in both:
                self.cannot_judge(path)
        for saving, removing in ((one, other), (other, one)):
            saving.removed_beside = saving.removed_beside or bool(both and removing.step["do"] == "unlink")
        for saving, changing in ((one, other), (other, one)):
            # "An empty file is one file to all": the change, or the sync, may fall between two writes of the save. And who
            # appends goes on in what the save has truncated, and not written yet.
            if (saving.step["do"] in SAVES and changing.step["do"] in ("write", "pwrite", "map_write", "truncate", "fsync")
                    and (b"" in changing.file.contents or self.appends(changing))):
                for _, path in both:
                    self.cannot_judge(path)
        for syncing, changing in ((one, other), (other, one)):
            # The sync may come after the change.
            if (syncing.step["do"] == "fsync" and changing.step["do"] in ("write", "pwrite", "truncate")
                    and changing.file.path in syncing.touched):
                self.may_become(syncing, changing.file.path, self.being_written(changing))
        for reading, saving in ((one, other), (other, one)):
            if saving.step["do"] in SAVES and self.read_by(reading)[1] == saving.step["path"]:
                reading.saves.append(saving)
        for reading, changing in ((one, other), (other, one)):
            # As on a local disk, a read beside a write of the same file may find a part of it.
            if (reading.step["do"] in ("read", "map_read")
                    and changing.step["do"] in ("write", "pwrite", "map_write", "truncate")
                    and self.slots[reading.step["agent"], reading.step["slot"]].file is changing.file):
                reading.crossed = True
        for tree, opening in ((one, other), (other, one)):
            path = opening.step.get("path", "")
            if (tree.step["do"] == "rename_tree" and opening.step["do"] == "open"
                    and path.startswith(tree.step["path"] + "/")):
                # What is open is saved before it moves, and it is not known whether this one was.
                self.cannot_judge(path)
                self.cannot_judge(tree.step["other"] + path.removeprefix(tree.step["path"]))
        one.crossed = one.crossed or self.may_have_seen(one, other)
        other.crossed = other.crossed or self.may_have_seen(other, one)

    def appends(self, call: Call) -> bool:
        description = self.slots.get((call.step["agent"], call.step.get("slot")))
        return description is not None and description.appends

    def may_have_seen(self, one: Call, other: Call) -> bool:
        """Whether what the one looks at may be of before the other, or of after it."""
        same_file = one.step["do"] == "open" and other.step["do"] in ("write", "pwrite", "map_write", "truncate", "fsync")
        return not same_file and self.looked_at(one) in self.places(other)

    @staticmethod
    def looked_at(call: Call) -> tuple | None:
        step = call.step
        looks = step["do"] == "load" or (step["do"] == "open" and step["flags"] == "r")
        return (step["mount"], step["path"]) if looks else None

    def read_by(self, call: Call) -> tuple:
        """The mount and the name."""
        description = self.slots.get((call.step["agent"], call.step.get("slot")))
        reads = call.step["do"] in ("read", "map_read") and description is not None
        return (description.file.mount, description.file.path) if reads else self.looked_at(call) or (None, None)

    def is_part(self, call: Call, data: bytes) -> bool:
        """Of a save beside which it was read: of one that grows, or as on a local disk, where a mapping comes by pages."""
        mount, _ = self.read_by(call)
        return any(self.is_grown_part(saving, data)
                   or (saving.step.get("mapped") and saving.step["mount"] == mount and is_filled_in(bytes_of(saving.step), data))
                   for saving in call.saves)

    def is_unjudged(self, call: Call) -> bool:
        description = self.slots.get((call.step.get("agent"), call.step.get("slot")))
        files = [call.file, call.other, description.file if description else None]
        paths = {call.step.get("path"), call.step.get("other"), *call.touched, *(each.path for each in files if each)}
        return bool(paths & self.unjudged) or any(each is not None and each.unjudged for each in files)

    def note_late_removals(self, call: Call) -> None:
        if any(rule.get("action") == "performed-late" for rule in self.faults):
            for path, possible in call.touched.items():
                if ABSENT in possible:
                    self.removed_late[path] |= self.names[path].before - {ABSENT}

    def places(self, call: Call) -> set:
        """The names that it may change, with their mount."""
        if call.step["do"] == "list" or self.looked_at(call) is not None:
            return set()
        paths = {call.step.get("path"), call.step.get("other"), *call.touched,
                 *(each.path for each in (call.file, call.other) if each)}
        return {(self.mount_of(call.step), path) for path in paths if path}

    def end(self, call: Call, result: dict, found: dict[str, bytes]) -> None:
        step = call.step
        call.excused = (call.excused or self.trouble or self.may_have_ended(step)
                        or (self.mount_of(step) in self.tight and (result.get("errno") == "ENOSPC" or "died" in result)))
        self.judging = call
        self.calls.pop(step.get("agent"), None)
        for file in {id(each): each for each in (call.file, call.other) if each}.values():
            file.busy -= 1
        if call.dead or "died" in result:
            self.tree_lost(call)
        if call.dead:
            outcomes = self.perhaps(call)
        elif "died" in result:
            self.failures |= {step["path"]} | set(call.touched) if "path" in step else set()
            opened = self.live(step["mount"], step["path"]) if step["do"] in ("open", *SAVES) else None
            if opened is not None:
                # It may have had it open.
                opened.doubtful = True
            if step["do"] == "open" and self.looked_at(call) is None:
                self.cannot_judge(step["path"])
            self.half_written(call)
            if self.grows(step):
                self.cut_short[step["path"]] |= call.touched[step["path"]]
            if step["do"] in SAVES and self.names[step["path"]].before == {ABSENT}:
                # An empty log harms nobody.
                call.touched[step["path"]].add(b"")
            outcomes = self.perhaps(call)
            for path, contents in call.touched.items():
                self.goes_on(path, contents, self.retry_for + 1, self.mount_of(step))
                # Until then it is being written.
                self.ghosts.append((self.mount_of(step), path, set(contents), time.monotonic() + self.retry_for + 1))
            for file in filter(None, (call.file, call.other)):
                file.doubtful = True
            if step["do"] == "rename" and call.file is not None:
                self.wander(call.file, step["other"])
            self.died(call)
        else:
            ending = getattr(self, step["do"] + "_ends", None)
            outcomes = (ending(call, result, found) if ending else None) or {}
        for path in call.touched:
            outcome = outcomes.get(path, Outcome(set(), False))
            self.names[path].end(outcome)
            mount = call.file.mount if call.file is not None else step.get("mount")
            if outcome.certain:
                self.comes_after(path, mount)
            if outcome.contents:
                self.overtake(path, call.file or call.joined)
                goes_on = step["do"] == "cut" or (step["do"] == "save" and step["flags"] in ("a", "a+"))
                truncated = 0 if goes_on else call.number
                self.cut_away(path, mount, call.joined or (call.file if step["do"] != "cut" else None),
                              step.get("agent", ""), truncated, outcome.certain, call.crossed)
        self.judging = None

    def tree_lost(self, call: Call) -> None:
        """Whether a directory was renamed or removed, and which files of it, is not known."""
        if call.step["do"] in ("rename_tree", "remove_tree"):
            self.unfinished_renames = True
            for path in filter(None, (call.step["path"], call.step.get("other"))):
                self.directories.discard(path)
                self.lost_directories.add(path)
            for path in call.touched:
                self.cannot_judge(path)

    @staticmethod
    def grows(step: dict) -> bool:
        """A save of what is published while it grows: "that all its writers have opened for appending", or of a log."""
        return step["do"] in SAVES and (step.get("flags") in ("a", "a+") or step["path"].endswith(KEPT))

    def grows_to(self, path: str, content: bytes) -> bool:
        """By a save under way, which takes nothing from what was there."""
        return any(call.step.get("path") == path and self.is_grown_part(call, content) for call in self.calls.values())

    def is_grown_part(self, saving: Call, content: bytes) -> bool:
        return self.grows(saving.step) and any(
            whole.startswith(content) and len(content) >= len(whole) - saving.step["size"]
            for whole in saving.touched[saving.step["path"]] - {ABSENT})

    def half_written(self, call: Call) -> None:
        """What grows may be published with what was being written, and others may save it."""
        if call.step["do"] in ("write", "pwrite", "truncate"):
            call.file.contents |= self.being_written(call)
            if call.file.path is not None and (call.file.kept or call.file.perhaps_kept):
                self.cut_short[call.file.path] |= self.being_written(call)

    def being_written(self, call: Call) -> set:
        step, contents = call.step, call.file.contents
        if step["do"] == "truncate":
            return {cut(content, step["size"]) for content in contents}
        appends = self.slots[step["agent"], step["slot"]].appends
        return {put(content, len(content) if appends else step["at"], bytes_of(step)) for content in contents}

    def died(self, call: Call) -> None:
        """SIGBUS, unless it was killed: the version that it has mapped is gone."""
        if call.step["do"] in ("remove_files", "remove_tree"):
            # How many it has removed is not known.
            self.removals[call.step["mount"]] = (BATCHED + 1, time.monotonic())
        description = self.slots.get((call.step["agent"], call.step.get("slot")))
        file = description.file if description else None
        # "Reading back what has been written to a new file that is open for writing only" is not promised.
        # And fstat(2), by which it is mapped, asks for no descriptor's size: of versions behind one inode any may answer.
        gone = file is not None and (file.path is None or self.contested(file) or file.vague() or file.failed or file.ordered
                                     or file.write_only or file.split or file.sibling
                                     # By one that was killed, and is not given up yet: that cannot be read back.
                                     or self.may_still_come(file.path)
                                     or (file.abandoned and description.read_changes))
        if not call.excused and not (call.step["do"] in ("map_read", "map_write") and gone):
            self.differ("died", f"{call.step['agent']} died in {call.step}")

    def refused(self, call: Call, result: dict, *allowed: str) -> None:
        if not call.excused and result["errno"] not in allowed:
            self.differ("errno", f"{result['errno']} by {call.step}")

    def may_conflict(self, file: File) -> list[str]:
        """What a commit may answer that comes after another one of the name."""
        allowed = []
        if self.contested(file):
            allowed += ["ESTALE", "ENOENT", "EEXIST", "EIO"]
        if file.failed or file.doubtful or file.half:
            allowed += [file_error for file_error in ("EIO", "ESTALE", "ENOENT", "EEXIST", "EOPNOTSUPP", "ENOSPC",
                                                       "EACCES", "EBUSY", "EINVAL")]
        return allowed

    def contested(self, file: File) -> bool:
        """Something else has got its name, or may have: logs are published while they grow."""
        changing = any(call is not self.judging and file.path in call.touched for call in self.calls.values())
        return file.overtaken or changing or bool(self.may_still_come(file.path) - file.contents) or any(
            each is not file and each.path == file.path and (each.kept or each.perhaps_kept) and each.writers()
            for each in self.files())

    def fail(self, file: File) -> None:
        file.failed = True
        if file.path is not None:
            self.failures |= {file.path} | file.former

    def sticky(self, call: Call, file: File) -> None:
        if file.failed and not file.doubtful and not file.half and file.path is not None:
            self.differ("sticky", f"success after a failure by {call.step}")
