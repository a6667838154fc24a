# SPDX-License-Identifier: Apache-2.0
"""What is written by a descriptor: to which version it goes, and what may be left of it."""

from calls import Call
from open_rules import OpenRules
from reference import ABSENT, KEPT, READABLE, RELEASED, File, bytes_of, changes, cut, put


class WriteRules(OpenRules):
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
        if self.appends_elsewhere(description):
            self.note_later(call, description)
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

    def note_later(self, call: Call, description) -> None:
        file = call.file
        later = self.later_to_append_to(description)
        if file.cut_away is None or (later is not None and later.busy):
            self.cannot_judge(file.path)
        elif later is not None:
            # Also what it leaves is saved, if nobody else is at work on it, and that before the later one is.
            name = self.names[file.path]
            cut_or_added = self.being_written(Call(call.step, {}, later))
            name.may |= later.contents | cut_or_added
            name.before |= name.may
            self.left_by_others(file)
            self.goes_on(file.path, file.contents, RELEASED, file.mount)

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
        # The others of the name are cut away by this one, where the write saves it.
        file = call.file = self.named_version(description) if follows else self.written_version(description)
        if step["do"] == "write" and description.appends:
            file.change(step["agent"], description.opener, lambda content: put(content, len(content), data))
        else:
            file.change(step["agent"], description.opener, lambda content: put(content, at, data))
        if step["do"] == "write" and not description.appends:
            description.position = at + len(data)
        file.written, file.resized = True, False
        file.acknowledged += len(data)
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

    def appends_elsewhere(self, description) -> bool:
        """"Data that an earlier descriptor with O_APPEND adds after that goes behind" what the later version holds."""
        file = description.file
        return (description.appends and file.path is not None and not file.failed
                and (file.cut_away is not False or self.later_to_append_to(description) is not None))

    def later_to_append_to(self, description) -> File | None:
        """What has the name, and was truncated since and is being written: "if it is a log, or was only truncated and
        appended to".
        """
        file = description.file
        later = self.live(file.mount, file.path)
        if (later in (None, file) or not later.writers() or later.failed or later.truncated <= file.changed
                or description.unwritten):
            return None
        return later if file.path.endswith(KEPT) or not later.written_inside else None

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
