# SPDX-License-Identifier: Apache-2.0
"""What each step on a descriptor may leave while it runs, and what its answer promises."""

import time

from calls import Call
from reference import ABSENT, GONE, READABLE, TTL, Description, File, Outcome
from write_rules import WriteRules


class Rules(WriteRules):
    # --- data

    def read_ready(self, step):
        return self.slots[step["agent"], step["slot"]].flags in READABLE

    def map_read_ready(self, step):
        # Its end, by SIGBUS, would wait for a mount that is stopped.
        held = {self.slots[step["agent"], slot].file.mount for slot in self.slots_of(step["agent"])}
        return self.read_ready(step) and not held & self.paused

    def read_begins(self, step):
        description = self.slots[step["agent"], step["slot"]]
        # What its file held when this read began, and will hold when it ends.
        return Call(step, {}, seen=description.seen | description.file.contents)

    map_read_begins = read_begins

    def read_ends(self, call, result, found):
        description = self.slots[call.step["agent"], call.step["slot"]]
        file = description.file
        if not result["ok"]:
            changed = file.write_only and (file.changed_by or file.written)
            # Who joins a writer that only appends cannot read back either.
            joined = file.appended_to or any(each.appends and each.writable for each in file.descriptions)
            writing = {"EBUSY", "EOPNOTSUPP"} if file.ordered or changed or joined else set()
            # A version that was replaced or removed is an error, or its bytes.
            gone = {"ESTALE", "ENOENT"} if file.path is None or file.overtaken or file.half else set()
            if file.path is not None and self.live(file.mount, file.path) is not file and file.changed > description.opened:
                # What it opened was replaced, and the name has another inode now.
                gone |= {"ESTALE"}
            if not description.writable and file.written_inside and file.changed > description.opened and any(
                    len(content) > len(seen) for content in file.contents for seen in description.seen):
                # It "has grown since it was opened, and was replaced": what it grew by is gone with that version.
                gone |= {"ESTALE"}
            # "The content that the file began from goes with its name", and of what replaced it nothing was written.
            nothing_before = file.path is None or ABSENT in self.names[file.path].may
            # "If the changes are abandoned, a process that has read some of them gets EIO when it reads on".
            gone |= {"EIO", "ESTALE"} if file.abandoned and (nothing_before or description.read_changes) else set()
            self.refused(call, result, *writing, *gone, *self.may_conflict(file))
        elif file.path is None and (file.ordered or file.appended_to):
            pass  # "Writes and ftruncate(2) succeed but are never published."
        elif call.step["do"] == "map_read" and (self.shows_one_of_several(file) or file.write_only):
            if not description.writable:
                # "A reader keeps the version" that it was shown.
                description.seen.add(result["data"])
        elif call.step["do"] == "map_read" and file.path is not None and self.ghosts_of(file.mount, file.path) is not None:
            pass  # What a killed process appended: "A mapping shows zeros there" until it is committed.
        elif call.step["do"] == "map_read" and file.path is None and not file.writers():
            pass  # "A process that opened it for reading and writing reads back what was written"; others may see nothing.
        elif not file.busy and not call.file and not call.crossed:
            # "An empty one may grow."
            grown = self.names[file.path].may if file.path is not None and b"" in description.seen else set()
            grown = grown | self.shown_beside(file) | self.saved_into(file)
            if file.appended_to or (description.appends and file.ordered):
                # "Nor reading back what was written": what was published of it is shown.
                grown = grown | file.states
            self.check_read(call, result["data"], call.seen | description.seen | file.contents | grown, file)
            self.check_growth(call, description, result["data"])
            description.read_changes = description.read_changes or bool(file.changed_by or file.fresh)
            if not description.writable:
                # "A reader keeps the version": of a file that is changed, from its first read on.
                description.seen.add(result["data"])

    map_read_ends = read_ends

    def check_growth(self, call, description, data) -> None:
        """"An open file grows by what is appended to it", once the kernel has been told."""
        file = description.file
        unclear = (file.path is None or file.failed or file.vague() or file.unjudged or file.split or self.faults
                   or file.path in self.unjudged or self.names[file.path].active
                   or self.names[file.path].may != {file.grown_to})
        if (file.grown_to is not None and not unclear and call.began > file.grown_at + 0.25
                and len(data) < len(file.grown_to) and file.grown_to.startswith(data)):
            self.differ("read", f"{call.step} ended at {len(data)} of {len(file.grown_to)} bytes that were appended")

    def shown_beside(self, file) -> set:
        """By versions of the name on its mount of which it is not known which of them was opened."""
        beside = [each.contents for each in self.files()
                  if each.path == file.path and each.mount == file.mount and each is not file and each.vague()]
        return set().union(*beside) if file.path is not None else set()

    def saved_into(self, file) -> set:
        """By saves under way that truncated it: "an empty file is an exception: it is one file to all"."""
        saving = [call.touched[file.path] for call in self.calls.values()
                  if call.step["do"] == "save" and (file.mount, file.path) in self.places(call)]
        return set().union(*saving) if file.path is not None and file.contents == {b""} else set()

    def check_read(self, call, data, allowed, file):
        if not (data in allowed or self.flipped or (file is not None and file.vague()) or self.is_part(call, data)):
            self.differ("read", f"{call.step} read {self.show([data])}, not {self.show(allowed - {ABSENT})}")

    def load_ready(self, step):
        return self.parent_is_there(step["path"])

    def load_begins(self, step):
        return self.open_begins(step)

    def load_ends(self, call, result, found):
        step, path, mount = call.step, call.step["path"], call.step["mount"]
        file = self.live(mount, path)
        # What is being written shows itself as empty on its own mount.
        empty = {b""} if call.crossed else set()
        seen = call.seen | self.names[path].may | self.shown_by(file) | empty | self.of_logs(path)
        if result["ok"]:
            if not (file is not None and file.busy):
                self.check_read(call, result["data"], seen, file)
            if file is not None and file.writers() and self.has_given_way(file):
                # It has no name from now on; what is written to it may take that again.
                self.cannot_judge(path)
            return
        ghost = self.ghosts_of(mount, path) is not None
        written = ghost or call.crossed or (file is not None and file.writers())
        allowed = ["EBUSY", "EOPNOTSUPP"] if written else []
        if ABSENT in seen or ghost or time.monotonic() < self.renamed_at + TTL:
            allowed += GONE
        dies = any(saving.step["agent"] in self.dying for saving in call.saves)
        if written and (dies or path in self.failures):
            # "If the changes are given up, a process that has read some of them gets EIO where it reads on".
            allowed += ["EIO"]
        if file is not None:
            allowed += self.may_conflict(file)
        if (self.names[path].active or self.names[path].changed_at > call.began
                or any(each.path == path and (each.kept or each.perhaps_kept) for each in self.files())):
            # Replaced between its open and its read; a log is published from time to time.
            allowed += ["ESTALE"]
        self.refused(call, result, *allowed)

    # --- commits by descriptor

    def fsync_ready(self, step):
        return self.idle(step)

    def fsync_begins(self, step):
        description = self.slots[step["agent"], step["slot"]]
        file = description.file
        if not description.writable and file.path is not None and not file.writers():
            # "What was written is in the bucket under its name on return, by any process and descriptor".
            file = self.live(file.mount, file.path) or file
        if file.path is None:
            others = [] if description.writable or file.lost is None else self.written_under(file)
            return Call(step, {file.lost: set().union(*(each.contents for each in others))} if others else {}, file)
        versions = [file, *(self.written_under(file) if not description.writable else [])]
        return Call(step, {file.path: set().union(*(each.contents for each in versions))}, file)

    def written_under(self, file) -> list:
        """Versions of its name that are open for writing on its mount. A reader's fsync is for the one that has it."""
        path = file.path or file.lost
        return [each for each in self.files() if (each.mount, each.path) == (file.mount, path) and each.writers()]

    def is_left_by_all(self, file) -> bool:
        """The last who could save it are being killed. Others may be told of it before the model is."""
        return bool(file.writers()) and not file.writers() - self.dying

    def was_left_by_all(self, file) -> bool:
        """They were killed, or it failed, and no call has saved the name since: the mount may not have given it up yet."""
        _, until, mount = self.going_on.get(file.path, (set(), 0.0, None))
        return file.path in self.failures and mount in (file.mount, None) and time.monotonic() < until

    def fsync_ends(self, call, result, found):
        file = call.file
        description = self.slots[call.step["agent"], call.step["slot"]]
        if not result["ok"]:
            # Of a reader: the failure is that of the version that has the name.
            beside = [each for each in self.files()
                      if not description.writable and each.path == file.path and each.mount == file.mount]
            # Made, and its maker was killed before it wrote: it has failed.
            made = ["EIO"] if file.abandoned else []
            # Who opens it after that, and before the mount has given it up, cannot have it saved either.
            left = not description.writable and self.was_left_by_all(file)
            dying = ["EIO"] if left or any(self.is_left_by_all(each) for each in [file, *beside]) else []
            self.refused(call, result, *made, *dying, *(error for each in [file, *beside] for error in self.may_conflict(each)))
            self.fail(file)
            file.doubtful = file.doubtful or call.excused or file.overtaken or left
            return self.perhaps(call)
        self.sticky(call, file)
        if file.path is None:
            return self.perhaps(call)
        read = description.file
        # It reads what was cut away, and flushes what the name holds by now.
        beside = not description.writable and any(each is not file for each in self.written_under(file))
        if file.cut_away and not beside:
            return None
        unclear = beside or (not description.writable and (
            # What was renamed was the version of another mount, not what it reads.
            (read.overtaken and read.former)
            # A size that a killed process had set may be given up, or saved by the close of another that has the file.
            or (file.resized and file.widowed and not file.writers())))
        if (file.vague() or (file.fresh and not file.changed_by) or self.may_be_published(file)
                or file.cut_away is None or description.file.vague() or unclear):
            file.perhaps_saved = True
            return self.perhaps(call)
        if not file.changed_by:
            return None
        self.committed(file)
        return self.surely(call)

    def may_be_published(self, file) -> bool:
        """All was published before another mount changed the name: there is nothing to commit."""
        return bool(file.kept or file.perhaps_kept or file.perhaps_saved) and self.contested(file)

    @staticmethod
    def perhaps(call):
        return {path: Outcome(contents, False) for path, contents in call.touched.items()}

    @staticmethod
    def surely(call):
        return {path: Outcome(contents, True) for path, contents in call.touched.items()}

    def close_ready(self, step):
        return self.idle(step)

    def close_begins(self, step):
        description = self.slots[step["agent"], step["slot"]]
        file = description.file
        publishes = file.path is not None and description.writable and (file.changed_by or file.fresh)
        return Call(step, {file.path: set(file.contents)} if publishes else {}, file)

    def close_ends(self, call, result, found):
        agent, file = call.step["agent"], call.file
        path = file.path
        description = self.detach(agent, call.step["slot"])
        last = description.writable and agent not in file.writers()
        if not file.writers() and path is not None:
            self.ghost(file)
            if file.changed_by or file.fresh:
                self.released(file)
        if not result["ok"] and result["errno"] == "ESTALE" and description.refused:
            return self.perhaps(call)
        if not result["ok"]:
            self.refused(call, result, *self.may_conflict(file))
            self.fail(file)
            file.doubtful = file.doubtful or call.excused or file.overtaken
            return self.perhaps(call)
        if call.touched and description.holders[agent] and self.may_look_closed(agent, description, file):
            file.perhaps_saved = True
            return self.perhaps(call)
        if not call.touched or description.holders[agent]:
            # "A duplicate of the descriptor that is closed before or between writes publishes nothing".
            return None
        if path is None or not last or self.held_otherwise(agent, description, file):
            # A close is durable "when the closing process has no other writable descriptor of the file".
            file.perhaps_saved = True
            return self.perhaps(call)
        self.sticky(call, file)
        promise = self.close_promises(agent, file, description)
        if promise == "nothing":
            return None
        if promise == "perhaps":
            file.perhaps_saved = True
            unclear = file.vague() or file.failed or file.overtaken or self.trouble or self.names[path].active > 1
            if file.kept and file.written and not file.writers() and not unclear and file.cut_away is False:
                # What its writer left is published once nobody has it open.
                self.names[path].at_rest = set(file.contents)
            return self.perhaps(call)
        self.committed(file)
        return self.surely(call)

    def held_otherwise(self, agent: str, description: Description | None, file: File) -> bool:
        """By descriptors of the same inode, of which the mount cannot tell whether they are duplicates of this one."""
        inode = description.inode if description is not None else file.inode
        return any(each is not description and owner == agent and each.writable and each.inode is inode
                   and (each.opener != agent or each.holders[agent] > 1)
                   for (owner, _), each in self.slots.items())

    @staticmethod
    def may_look_closed(agent: str, description: Description, file: File) -> bool:
        """Not promised: "that closing a duplicate publishes nothing" where the process had the file open once more."""
        return any(each is not description and each.writable and each.opener == agent and not each.holders[agent]
                   for each in file.descriptions)

    def close_promises(self, agent, file, description) -> str:
        """Of the last writable descriptor of the agent, when close(2) returned 0."""
        others = file.writers()
        if file.cut_away:
            return "nothing"
        if file.cut_away is None:
            return "perhaps"
        if file.failed or file.doubtful or self.may_be_published(file):
            return "perhaps"
        if file.half:
            return "perhaps" if agent in file.changed_by else "nothing"
        if others & file.changed_by:
            # Another process is still writing: it is not this one's to publish.
            return "perhaps" if agent in file.changed_by else "nothing"
        if not file.changed_by:
            return "perhaps" if others or file.overtaken else "surely"
        inherited = agent != description.opener and (bool(description.holders) or agent not in file.changed_by)
        # What was only cut or stretched may have been for others to fill.
        handed_on = others and not (agent in file.changed_by and file.written)
        return "perhaps" if inherited or handed_on else "surely"
