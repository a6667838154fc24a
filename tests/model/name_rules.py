# SPDX-License-Identifier: Apache-2.0
"""The rules of steps that concern one name: saving at a stretch, unlink and rename."""

import time

from calls import Call
from reference import ABSENT, BATCHED, GONE, KEPT, TTL, Outcome, bytes_of, cut
from rules import Rules


class NameRules(Rules):
    def save_ready(self, step):
        file = self.live(step["mount"], step["path"])
        shared = (file is not None and file.writers()) or self.ghosts_of(step["mount"], step["path"]) is not None
        if step.get("mapped") and (shared or any(
                (step["mount"], step["path"]) in self.places(call) for call in self.calls.values())):
            # Of versions behind one inode any may answer what it asks before it maps.
            return False
        if step.get("mapped") and step["size"] > 4096 and step["path"].endswith(KEPT):
            # What grows is published between two of its pages.
            return False
        if step["flags"] in ("w", "w+"):
            renamed = any(step["path"] in call.touched and call.step["do"] in ("rename", "rename_tree")
                          for call in self.calls.values())
            # What is open as it is renamed is saved under the other name.
            return self.parent_is_there(step["path"]) and not self.is_joined(step) and not renamed
        if file is not None and (file.writers() or file.overtaken):
            return False
        return self.open_ready({**step, "slot": ""})

    def save_begins(self, step):
        step["at"] = 0
        data = bytes_of(step)
        if step.get("mapped"):
            # Published as its descriptor is closed, with its size, and again by msync(2).
            return Call(step, {step["path"]: {data, bytes(step["size"])}})
        if step["flags"] not in ("a", "a+"):
            return Call(step, {step["path"]: {data}})
        found = self.names[step["path"]].may | self.may_have_returned(step["path"], step["mount"])
        return Call(step, {step["path"]: {(content or b"") + data for content in found}})

    def save_ends(self, call, result, found):
        step = call.step
        if step.get("mapped") and result["ok"]:
            call.touched[step["path"]] -= {bytes(step["size"])}
        file = self.live(step["mount"], step["path"])
        if file is not None and step["flags"] in ("w", "w+"):
            promised = self.saved_over(call, file, result["ok"])
        else:
            promised = True
            if file is not None and result["ok"]:
                if step["flags"] in ("a", "a+"):
                    file.contents |= call.touched[step["path"]]
                    clear = not (call.crossed or self.names[step["path"]].mixed or len(call.touched[step["path"]]) > 1)
                    file.grown_to = next(iter(call.touched[step["path"]])) if clear else None
                    file.grown_at = time.monotonic()
                else:
                    # The name has another inode now.
                    self.nodes[step["mount"]].pop(step["path"], None)
        if result["ok"]:
            return self.surely(call) if promised else self.perhaps(call)
        allowed = []
        if step["flags"] in ("x", "x+") and (not self.names[step["path"]].before == {ABSENT}
                                            or self.names[step["path"]].mixed or self.live(step["mount"], step["path"])
                                            or step["path"] in self.failures
                                            or time.monotonic() < self.names[step["path"]].changed_at + TTL):
            allowed += ["EEXIST"]
        if step["flags"] in ("a", "a+"):
            replaced = self.names[step["path"]].mixed or self.logs_beside(step["path"], step["mount"])
            allowed += ["ESTALE"] if replaced else []
        elif call.removed_beside:
            # What it truncated was empty and lost its name, and another file may have it by now.
            allowed += ["ESTALE"]
        elif file is not None and self.contested(file) and b"" in file.contents:
            # It has joined an empty log, which may be published between two of its writes, and replaced by another mount.
            allowed += self.may_conflict(file)
        if not self.parent_is_there(step["path"]) or time.monotonic() < self.renamed_at + TTL:
            allowed += GONE
        self.refused(call, result, *allowed)
        self.failures.add(step["path"])
        self.saved_in_part(call)
        return self.perhaps(call) if call.excused or self.names[step["path"]].mixed else None

    def save_again_ready(self, step):
        path, mount = step["path"], step["mount"]
        return (self.parent_is_there(path) and self.live(mount, path) is None and self.ghosts_of(mount, path) is None
                and not any((mount, path) in self.places(call) for call in self.calls.values()))

    def save_again_begins(self, step):
        step["at"] = 0
        saved, early = bytes_of(step), bytes_of({**step, "tag": step["early"]})
        if step["way"] == "renamed":
            return Call(step, {step["path"]: {early, saved}, step["path"] + ".tmp": {saved, ABSENT}})
        return Call(step, {step["path"]: {early, saved, *([ABSENT] if step["way"] == "removed" else [])}})

    def save_again_ends(self, call, result, found):
        step, path = call.step, call.step["path"]
        self.late(call, step["way"] == "removed")
        if not result["ok"]:
            gone = self.names[path].mixed or time.monotonic() < self.renamed_at + TTL
            # Another may be writing it by the time that it reads it back.
            written = ("EBUSY", "EOPNOTSUPP") if call.crossed or self.names[path].mixed else ()
            self.refused(call, result, *(GONE if gone else ()), *written, *self.told_late(call))
            self.failures |= set(call.touched)
            self.saved_in_part(call)
            return self.perhaps(call)
        if not (self.names[path].mixed or call.crossed):
            self.check_read(call, result["data"], {bytes_of(step)}, None)
        self.nodes[step["mount"]].pop(path, None)
        if step["way"] != "as it is":
            self.lose_earlier(step["mount"], path)
        gone = {path + ".tmp": Outcome({ABSENT}, True)} if step["way"] == "renamed" else {}
        return {path: Outcome({bytes_of(step)}, True), **gone}

    def saved_in_part(self, call) -> None:
        """What grows is published meanwhile, also by a save that fails in the end."""
        if self.grows(call.step):
            self.cut_short[call.step["path"]] |= call.touched[call.step["path"]]

    def saved_over(self, call, file, ok) -> bool:
        """What it truncated was open: where that was empty, it is written now.

        True where its close was the last of the agent.
        """
        agent, saved = call.step["agent"], call.touched[call.step["path"]]
        inherited = self.held_otherwise(agent, None, file)
        # "If another mount has removed a name, O_CREAT creates it again": then it has joined nothing.
        # Nor where who did not truncate it has written to it before.
        clear = not (call.crossed or file.vague() or file.failed or file.overtaken or file.joined is not None)
        if ok and clear and file.contents == {b""} and file.first is None:
            file.contents, file.first, call.joined = set(saved), call, file
            file.states |= saved
            file.truncated = max(file.truncated, call.number)
            file.openers.add(agent)
            if inherited:
                file.changed_by.add(agent)
                file.answering.add(agent)
            else:
                self.committed(file)
            return not inherited
        if b"" in file.contents or call.crossed:
            file.contents |= saved
            if file.writers():
                # It may have joined it, or have had a version of its own, after which that one has the name again.
                file.doubtful = True
                self.cannot_judge(call.step["path"])
                return not inherited
        self.nodes[file.mount].pop(call.step["path"], None)
        return not inherited

    def cut_ready(self, step):
        path, file = step["path"], self.live(step["mount"], step["path"])
        name = self.names[path]
        return (self.parent_is_there(path) and name.settled() and self.ghosts_of(step["mount"], path) is None
                and (file is None or not (file.busy or file.writers() or file.vague() or file.failed))
                and not any((step["mount"], path) in self.places(call) for call in self.calls.values()))

    def cut_begins(self, step):
        found = self.names[step["path"]].may | self.of_logs(step["path"])
        contents = {cut(content, step["size"]) for content in found - {ABSENT}}
        if self.changed_elsewhere(step["path"]):
            # "truncate(2) acts on what stat(2) shows", and of nothing nothing is needed.
            contents.add(cut(b"", step["size"]))
        return Call(step, {step["path"]: contents}, self.live(step["mount"], step["path"]))

    def changed_elsewhere(self, path: str) -> bool:
        return self.mounts > 1 and time.monotonic() < max(self.names[path].changed_at, self.renamed_at) + TTL

    def cut_ends(self, call, result, found):
        name, file = self.names[call.step["path"]], call.file
        if file is not None:
            # "It also holds for a process that has the file open already and has read nothing of it yet."
            file.contents |= call.touched[call.step["path"]]
            file.overtaken = True
        recent = self.changed_elsewhere(call.step["path"])
        if result["ok"] and not recent:
            return self.surely(call) if call.touched[call.step["path"]] else None
        if result["ok"]:
            # "truncate(2) acts on what stat(2) shows."
            return self.perhaps(call)
        self.refused(call, result, *(GONE if ABSENT in name.before or recent or name.mixed else ()),
                     *(["ESTALE"] if file is not None else ()))
        self.failures.add(call.step["path"])
        return self.perhaps(call)

    def unlink_ready(self, step):
        file = self.live(step["mount"], step["path"])
        return (self.parent_is_there(step["path"]) and not (file is not None and file.busy)
                and not any(call.step.get("path") == step["path"] for call in self.calls.values()))

    def unlink_begins(self, step):
        return Call(step, {step["path"]: {ABSENT}}, self.live(step["mount"], step["path"]))

    def unlink_ends(self, call, result, found):
        path, mount = call.step["path"], call.step["mount"]
        name = self.names[path]
        if not result["ok"]:
            missing = (ABSENT in name.before or name.mixed or time.monotonic() < self.renamed_at + TTL
                       or self.ghosts_of(mount, path) is not None)
            self.refused(call, result, *(GONE if missing else ()), *self.told_late(call))
            return self.perhaps(call)
        self.lose_name(call.file)
        self.lose_earlier(mount, path)
        if self.late(call, True):
            name.at_rest = None if call.excused or self.unseen(path) else {ABSENT}
            return self.perhaps(call)
        was_lost = call.excused or "DeleteObject" in {rule["op"] for rule in self.faults} | call.slowed
        if was_lost and self.mounts > 1 and call.began < name.changed_at + TTL:
            # The store's answer was lost, and what it refuses then may have come after the removal.
            return self.perhaps(call)
        return self.surely(call)

    def lose_name(self, file) -> None:
        if file is not None and (file.overtaken or file.vague()):
            # Another version may have had it by now.
            file.doubtful = True
        else:
            self.unbind(file)

    def wander(self, file, path: str) -> None:
        """Its rename failed, or its caller was killed: it may have been made, or be made yet."""
        file.perhaps_at.add(path)
        self.wandering.append(file)

    def lose_earlier(self, mount: int, path: str, renamed=None) -> None:
        """"A name that is removed, or replaced by a rename, takes earlier versions along"."""
        for file in self.files():
            if file.path == path and file.mount == mount and file is not renamed:
                if file.vague():
                    file.doubtful = True
                else:
                    if self.live(mount, path) is file:
                        self.nodes[mount].pop(path)
                    file.path, file.lost = None, path

    def lose_renamed(self, mount: int, path: str, renamed) -> None:
        """"Where a name ... is renamed while an earlier version of it is being written, that version fails"."""
        for file in self.files():
            if file.path == path and file.mount == mount and file is not renamed:
                file.failed = file.doubtful = True
                if not file.half:
                    file.path = None

    def unseen(self, path: str) -> bool:
        """"A version that another mount has committed within --metadata-ttl before may stay"."""
        name = self.names[path]
        # Saved while the removal was under way: before the removal of this name, or after it.
        saved_beside = name.active > 0 and bool(name.outcomes - {ABSENT})
        return self.mounts > 1 and (saved_beside or time.monotonic() < name.changed_at + TTL)

    def late(self, call, count: bool) -> bool:
        """Whether a removal may be acknowledged before it is made."""
        mount = call.step["mount"]
        removed = self.row(mount, call.began) + 1
        if count:
            self.removals[mount] = (removed, time.monotonic())
        return removed > BATCHED

    def told_late(self, call) -> tuple:
        """Of a removal that was acknowledged before, which may be long ago: what the store said."""
        return ("EIO", "EACCES", "EINVAL") if self.late(call, False) or self.removals_refused else ()

    def row(self, mount: int, begun: float) -> int:
        """Removals that one follows, which began then: how long the store takes does not count."""
        removed, last = self.removals.get(mount, (0, 0.0))
        return removed if begun < last + 1.2 else 0

    def rename_ready(self, step):
        path, other = step["path"], step["other"]
        files = [self.live(step["mount"], each) for each in (path, other)]
        return (path != other and self.parent_is_there(path) and self.parent_is_there(other)
                and not any(file is not None and file.busy for file in files)
                and not self.names[path].active and not self.names[other].active
                and not any(call.step.get("path") in (path, other) for call in self.calls.values())
                and self.ghosts_of(step["mount"], path) is None)

    def rename_begins(self, step):
        path, other = step["path"], step["other"]
        file, target = (self.live(step["mount"], each) for each in (path, other))
        if file is not None and (file.changed_by or file.fresh):
            # Saved by another process's close, and replaced by another mount since: that moves.
            other_moves = (file.vague() or not file.changed_by or file.gave_way
                           or (file.perhaps_saved and file.overtaken))
            contents = file.contents | (self.names[path].may if other_moves else set())
        else:
            # A log that grows on another mount may have been published again.
            contents = (set(self.names[path].may) | self.of_logs(path)) - {ABSENT} or {ABSENT}
        if file is not None and (file.changed_by or file.fresh) and (step.get("keeps") or not file.fresh):
            # It may be saved first: its copy is what replaces nothing, or what goes on where it was published before.
            self.names[path].may |= contents
        return Call(step, {path: {ABSENT}, other: contents}, file, other=target)

    def kept_by_rename(self, call):
        """RENAME_NOREPLACE of what is there, for which the source may have been saved."""
        step, file, name = call.step, call.file, self.names[call.step["other"]]
        seen = (name.before != {ABSENT} or call.other is not None or self.changed_elsewhere(step["other"])
                or self.ghosts_of(step["mount"], step["other"]) is not None)
        if not seen and not call.excused:
            self.differ("errno", f"EEXIST by {step}")
        if file is not None and (file.changed_by or file.fresh):
            file.perhaps_saved = True
            self.names[step["path"]].may |= file.contents
            self.names[step["path"]].before |= file.contents

    def rename_ends(self, call, result, found):
        step, file, target = call.step, call.file, call.other
        path, other = step["path"], step["other"]
        if not result["ok"] and result["errno"] == "EEXIST" and step.get("keeps"):
            return self.kept_by_rename(call)
        if result["ok"] and step.get("keeps") and ABSENT not in self.names[other].before \
                and not self.names[other].mixed:
            self.differ("replaced", f"replaced by {step}")
        if not result["ok"]:
            missing = ABSENT in self.names[path].before and (file is None or not file.changed_by)
            recent = time.monotonic() < self.renamed_at + TTL
            # "A rename that has begun to publish the file under its new name is not interrupted", but before.
            killed = file is not None and ((file.widowed and not file.writers()) or self.is_left_by_all(file))
            self.refused(call, result, *(GONE if missing or recent else ()), *(["EIO"] if killed else ()),
                         *(self.may_conflict(file) if file else ()))
            if file is not None:
                file.doubtful = True
                self.wander(file, other)
            if target is not None and found.get(other) in call.touched[other] - self.names[other].before:
                target.doubtful = True
            if file is not None and file.writers():
                self.failures |= {path, other}
            return self.perhaps(call) if call.excused or (file and (file.overtaken or file.failed)) else None
        self.lose_name(target)
        unsure = file is not None and (file.vague() or file.gave_way or (file.fresh and not file.changed_by))
        if file is not None:
            file.doubtful = file.doubtful or file.gave_way
            # A version of its own, begun meanwhile, may have had the name instead.
            self.nodes[step["mount"]].pop(path, None)
            file.former.add(file.path)
            file.path = other
            # Of a log that has lost its name it depends on how it was opened.
            file.perhaps_kept = file.perhaps_kept or file.kept
            file.kept = other.endswith(KEPT)
            self.nodes[step["mount"]][other] = file
            if file.changed_by and not unsure:
                self.committed(file)
        self.lose_renamed(step["mount"], path, file)
        self.lose_earlier(step["mount"], other, file)
        outcomes = self.perhaps(call) if unsure else self.surely(call)
        if unsure:
            outcomes[other].contents.add(ABSENT)
        if file is not None and (file.overtaken or self.unseen(path)):
            # What another mount has made under the name stays; it is removed as this mount knows it.
            outcomes[path] = Outcome(call.touched[path], False)
        return outcomes
