# SPDX-License-Identifier: Apache-2.0
"""What each step on a descriptor may leave while it runs, and what its answer promises."""

import time

from calls import Call
from open_rules import OpenRules
from reference import ABSENT, GONE, KEPT, READABLE, TTL, Description, File, Outcome, bytes_of, changes, cut, put


class Rules(OpenRules):
    # --- data

    def idle(self, step):
        description = self.slots[step["agent"], step["slot"]]
        return not description.file.busy and description

    def write_ready(self, step):
        description = self.idle(step)
        if not description or not description.writable or not self.published_whole(step, description):
            return False
        step["at"] = max(map(len, description.file.contents)) if description.appends else description.position
        return True

    def pwrite_ready(self, step):
        description = self.idle(step)
        return (description and description.writable and not description.appends
                and self.published_whole(step, description))

    def published_whole(self, step, description) -> bool:
        """What grows, or is saved by each write, may be published between two requests of one write: through the page
        cache they are of a page.
        """
        file = description.file
        if not (file.kept or file.perhaps_kept or description.syncs):
            return True
        if file.mount not in self.cached:
            return step["size"] <= 1 << 20
        places = {len(content or b"") for content in file.contents} if description.appends else {step["at"]}
        return all(at // 4096 == (at + step["size"] - 1) // 4096 for at in places)

    @staticmethod
    def shows_one_of_several(file) -> bool:
        """Not promised: "fstat(2) and mappings of a file that several truncated while it was empty, and then wrote"."""
        return file.split or file.sibling is not None

    def map_write_ready(self, step):
        description = self.idle(step)
        # Where the version has gone it dies of SIGBUS, and waits for a mount that is stopped to close what it has there.
        if any(agent == step["agent"] and each.file.mount in self.paused for (agent, _), each in self.slots.items()):
            return False
        return (description and description.writable and not description.unwritten
                and not self.shows_one_of_several(description.file)
                and description.flags in READABLE and (not description.appends or self.appends_by_pages(step, description))
                and not description.file.vague() and not description.file.failed
                and all(len(content or b"") >= step["at"] + step["size"] for content in description.file.contents))

    def appends_by_pages(self, step, description) -> bool:
        """A page of a mapping goes where it is mapped, also by a descriptor that appends."""
        file = description.file
        one_page = step["at"] // 4096 == (step["at"] + step["size"] - 1) // 4096
        return one_page and not file.appended_to and not file.ordered and not self.appends_elsewhere(description)

    def write_begins(self, step):
        description = self.slots[step["agent"], step["slot"]]
        call = Call(step, {}, description.file)
        if self.appends_elsewhere(description) and call.file.cut_away is None:
            self.cannot_judge(call.file.path)
        if description.unwritten and call.file.first is not None and call.file.path is not None:
            # It gets a version of its own, and may have been the last to hold this one.
            self.left_by_others(call.file)
        if (call.file.kept or call.file.perhaps_kept) and call.file.path is not None:
            # It may be published before the call returns.
            name, contents = self.names[call.file.path], self.being_written(call)
            name.may |= contents
            name.before |= contents
            self.moved_as_well(call.file.path, contents)
            self.appended_to_as_well(call.file.path, contents)
            self.cut_away_as_well(call.file)
        if description.syncs and step["do"] != "truncate" and call.file.path is not None:
            anew = {put(b"", step["at"], bytes_of(step))} if description.unwritten else set()
            call.touched[call.file.path] = self.being_written(call) | call.file.contents | anew
        return call

    pwrite_begins = truncate_begins = write_begins

    def map_write_begins(self, step):
        # msync(2) is an fsync(2).
        file = self.slots[step["agent"], step["slot"]].file
        contents = {put(content, step["at"], bytes_of(step)) for content in file.contents} | file.contents
        return Call(step, {file.path: contents} if file.path is not None else {}, file)

    def write_ends(self, call, result, found):
        step, file = call.step, call.file
        description = self.slots[step["agent"], step["slot"]]
        data, at = bytes_of(step), step["at"]
        if not result["ok"] and step["do"] == "map_write":
            # What is mapped was changed; saving it by msync(2) failed.
            file.contents |= {put(content, at, data) for content in file.contents}
        follows = self.appends_elsewhere(description)
        if not result["ok"] and result["errno"] == "ESTALE" and (self.may_be_given_up(description) or follows):
            return self.given_up(description)
        if not result["ok"]:
            back = (file.ordered or file.appended_to) and any(at < len(content) for content in file.contents)
            self.refused(call, result, *self.may_conflict(file), *(["EOPNOTSUPP"] if back else []))
            file.doubtful = file.doubtful or (call.excused and not back) or description.unwritten
            self.fail(file)
            return self.perhaps(call)
        self.sticky(call, file)
        file = self.named_version(description) if follows else self.written_version(description)
        if step["do"] == "write" and description.appends:
            file.change(step["agent"], description.opener, lambda content: put(content, len(content), data))
        else:
            file.change(step["agent"], description.opener, lambda content: put(content, at, data))
        if step["do"] == "write" and not description.appends:
            description.position = at + len(data)
        file.written, file.resized = True, False
        file.written_inside = file.written_inside or step["do"] != "write" or not description.appends
        if step["do"] == "map_write" and file.kept and not (file.path or "").endswith(KEPT):
            file.kept, file.perhaps_kept = False, True
        # "What was only appended to" is kept as a log is.
        file.perhaps_kept = file.perhaps_kept or not (file.kept or file.written_inside)
        if self.trouble and (file.kept or file.perhaps_kept or file.is_sent_ahead()):
            # Publishing it while it grows may fail, "as fsync(2) would"; so may sending its parts.
            file.doubtful = True
        self.note_kept(file)
        if file.path is None or not (step["do"] == "map_write" or description.syncs):
            return None
        call.touched[file.path] = set(file.contents)
        if file.vague() or self.may_be_published(file):
            file.perhaps_saved = True
            return self.perhaps(call)
        self.committed(file)
        return self.surely(call)

    pwrite_ends = map_write_ends = write_ends

    def syncs(self, step) -> bool:
        """Whether it is a write that returns when it is in the bucket."""
        description = self.slots.get((step.get("agent"), step.get("slot")))
        return step["do"] in ("write", "pwrite") and description is not None and description.syncs

    def may_be_given_up(self, description) -> bool:
        """"The earlier descriptor takes no more writes": for sure, or where several versions share one inode."""
        return description.perhaps_given_up or self.shows_one_of_several(description.file)

    def given_up(self, description) -> None:
        description.refused = True
        if self.contested(description.file):
            # Or it has failed, as what it began from is gone: that is recorded, and told to who renames its directory.
            description.file.doubtful = True
            self.failures |= {description.file.path} - {None}

    @staticmethod
    def appends_elsewhere(description) -> bool:
        """"Data that an earlier descriptor with O_APPEND adds after that goes behind" what the later version holds."""
        file = description.file
        return description.appends and file.cut_away is not False and file.path is not None and not file.failed

    def named_version(self, description) -> File:
        file = description.file
        named = self.live(file.mount, file.path)
        if named is None or named is file:
            named = self.changed(file.mount, file.path, description.flags)
            named.doubtful = ABSENT in named.contents
            named.contents = named.contents - {ABSENT} or {b""}
        elif named.vague() or named.overtaken:
            named.doubtful = True
        # It may as well go on in its own.
        named.unjudged = named.unjudged or file.unjudged
        self.opened_otherwise(named, description.flags)
        file.descriptions.remove(description)
        named.descriptions.append(description)
        named.openers.add(description.opener)
        description.opened_as = description.inode
        description.file, description.unwritten, description.opened = named, False, next(changes)
        return named

    def truncate_ready(self, step):
        description = self.idle(step)
        return description and description.writable

    def truncate_ends(self, call, result, found):
        file, size = call.file, call.step["size"]
        description = self.slots[call.step["agent"], call.step["slot"]]
        follows = self.appends_elsewhere(description)
        if not result["ok"] and result["errno"] == "ESTALE" and (self.may_be_given_up(description) or follows):
            self.given_up(description)
            return
        if not result["ok"]:
            self.refused(call, result, *self.may_conflict(file), *(["EOPNOTSUPP", "EINVAL"] if file.ordered else []))
            file.doubtful = True
            self.fail(file)
            return
        self.sticky(call, file)
        file = self.named_version(description) if follows else file
        if all(len(content) == size for content in file.contents):
            return
        file = self.written_version(description)
        if file.sibling is not None and file.contents == {cut(b"", size)}:
            # One of its own by now, which is empty as it was made.
            return
        if description.opener != call.step["agent"]:
            # The mount takes it for the opener's: "has set a size by a descriptor that it opened".
            file.doubtful = True
        file.change(call.step["agent"], description.opener, lambda content: cut(content, size))
        file.resized = True
        self.note_kept(file)

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
            joined = any(each.appends and each.writable for each in file.descriptions)
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
        if written and path in self.failures:
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
        if file.cut_away:
            return None
        read = description.file
        unclear = not description.writable and (any(each is not file for each in self.written_under(file))
                                                # What was renamed was the version of another mount, not what it reads.
                                                or (read.overtaken and read.former)
                                                # A size that a killed process had set may be given up, or saved by
                                                # the close of another that has the file.
                                                or (file.resized and file.widowed and not file.writers()))
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
