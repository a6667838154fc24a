# SPDX-License-Identifier: Apache-2.0
"""The rules of steps that concern directories, processes and mounts as wholes."""

import time

from calls import Call
from marker_rules import MARKER, MarkerRules
from pattern import pattern
from reference import ABSENT, BATCHED, CREATES, TRUNCATES, TTL, Outcome


class Model(MarkerRules):
    """All rules."""

    def quiet_below(self, directory: str) -> bool:
        return (not any(self.names[path].active for path in self.below(directory))
                and not any(file.busy and file.path and file.path.startswith(directory + "/") for file in self.files()))

    def is_made_below(self, directory: str) -> bool:
        """By an open under way: whether it finds the directory before or after a rename decides what its name will be."""
        return any(call.step["do"] == "open" and call.step["flags"] in CREATES
                   and call.step["path"].startswith(directory + "/") for call in self.calls.values())

    def mkdir_ready(self, step):
        return step["path"] not in self.lost_directories

    def mkdir_ends(self, call, result, found):
        path = call.step["path"]
        if result["ok"] or path in self.directories:
            self.directories.add(path)
            return
        # "stat(2) of a name that was seen before" shows a removal by another mount "within --metadata-ttl".
        seen = (self.below(path) or time.monotonic() < self.renamed_at + TTL
                # Or within a minute, where name after name is removed.
                or self.row(call.step["mount"], call.began) > BATCHED)
        # What a rename could not remove has the name until it is.
        self.refused(call, result, *(["EEXIST"] if seen else []), *(["EBUSY"] if self.unfinished_renames else []))

    def fill_ready(self, step):
        removing = [call for call in self.calls.values() if call.step["do"] in ("remove_files", "remove_tree")
                    and call.step["path"] == step["path"]]
        # What is listed while it is made may be removed.
        return step["path"] in self.directories and all(
            path in call.touched for call in removing for path in self.filled(step))

    def filled(self, step):
        return [f"{step['path']}/n{number:02}{step.get('ending', '')}" for number in range(step["count"])]

    def fill_begins(self, step):
        return Call(step, {path: {pattern(step["tag"] + number, 0, step["size"])}
                           for number, path in enumerate(self.filled(step))})

    def fill_ends(self, call, result, found):
        if result["ok"]:
            for path in call.touched:
                self.nodes[call.step["mount"]].pop(path, None)
            return self.surely(call)
        # What is removed while it is written may fail with ENOENT.
        gone = time.monotonic() < self.renamed_at + TTL or any(self.names[path].mixed for path in call.touched)
        self.refused(call, result, *(["ENOENT", "ESTALE"] if gone else []))
        self.failures |= set(call.touched)
        return self.perhaps(call)

    # --- removal of many

    def remove_files_ready(self, step):
        return step["path"] in self.directories and self.quiet_below(step["path"])

    remove_tree_ready = remove_files_ready

    def remove_files_begins(self, step):
        # Its first follows those before at once, however long all take.
        return Call(step, {path: {ABSENT} for path in self.below(step["path"])}, row=self.row(step["mount"], time.monotonic()))

    remove_tree_begins = remove_files_begins

    def remove_files_ends(self, call, result, found):
        step, mount = call.step, call.step["mount"]
        removed = {f"{step['path']}/{name}" for name in result.get("removed", [])}
        if not result["ok"]:
            unclear = (time.monotonic() < self.renamed_at + TTL or any(
                file.path in call.touched and (file.mount != mount or file.vague() or file.failed)
                for file in self.files()) or any(self.names[path].mixed for path in call.touched)
                or any(self.names[path].at_rest or ABSENT in self.names[path].before for path in call.touched))
            self.refused(call, result, *(("ENOENT", "ESTALE", "ENOTEMPTY", "EBUSY") if unclear else ()),
                         *self.told_late(call))
            # How many it has removed is not told.
            self.removals[mount] = (self.row(mount, call.began) + len(call.touched), time.monotonic())
            if call.excused:
                self.trouble_in_batch(call.touched)
                return self.perhaps(call)
        outcomes = {}
        # Those of others are in the same row.
        beside = any(other.step["do"] in ("remove_files", "remove_tree") and other.step["mount"] == mount
                     for other in self.calls.values())
        for number, path in enumerate(sorted(removed)):
            batched = self.late(call, True) or call.row + number >= BATCHED or beside
            outcomes[path] = Outcome({ABSENT}, not batched)
            if batched:
                self.names[path].at_rest = None if call.excused or self.unseen(path) else {ABSENT}
                self.last_remover[path] = mount
            file = self.live(mount, path)
            self.lose_name(file)
            self.lose_earlier(mount, path)
        if result["ok"] and step["do"] == "remove_tree":
            # rmdir(2) waits for what was removed before.
            self.directories.discard(step["path"])
            self.renamed_at = time.monotonic()
            for path, outcome in outcomes.items():
                outcome.certain = True
            for file in self.files():
                if file.mount == mount and file.path in call.touched and file.path not in removed:
                    # Another mount has removed what was saved under its name, which goes with the directory: this file
                    # is that, or an earlier version.
                    file.doubtful = True
        for path in call.touched:
            if path not in removed and ABSENT not in self.names[path].before and result["ok"] and \
                    not self.names[path].mixed and found.get(path) is not ABSENT:
                self.differ("list", f"{path} was not listed by {step}")
        return outcomes

    remove_tree_ends = remove_files_ends

    def trouble_in_batch(self, paths) -> None:
        for path in paths:
            self.names[path].at_rest = None

    def sync_directory_ready(self, step):
        return step["path"] in self.directories

    def sync_directory_ends(self, call, result, found):
        if not result["ok"]:
            self.refused(call, result, *(["ENOENT", "ESTALE"] if time.monotonic() < self.renamed_at + TTL else []),
                         *self.told_late(call))
            return
        mount = call.step["mount"]
        for path in self.below(call.step["path"]):
            name = self.names[path]
            if name.at_rest == {ABSENT} and self.last_remover.get(path) == mount and not name.active:
                name.may, name.before = {ABSENT}, {ABSENT}

    def list_ready(self, step):
        return step["path"] in self.directories

    def list_begins(self, step):
        return Call(step, {}, seen={path for path in self.below(step["path"])
                                    if self.exists(step["mount"], path) and self.names[path].at_rest is None})

    def list_ends(self, call, result, found):
        step = call.step
        if not result["ok"]:
            self.refused(call, result, *(["ENOENT", "ESTALE"] if time.monotonic() < self.renamed_at + TTL else []),
                         *self.told_late(call))
            return
        if time.monotonic() < self.renamed_at + TTL:
            return
        listed = {f"{step['path']}/{name}" for name in result["names"]}
        now = {path for path in self.below(step["path"]) if self.exists(step["mount"], path)}
        if missing := (call.seen & now) - listed:
            self.differ("list", f"{sorted(missing)} not listed by {step}")
        for path in listed:
            name = self.names[path]
            known = ((name.may | name.before) - {ABSENT} or name.active
                     or any(file.path == path for file in self.files())
                     or any(under_way.step.get("path") == path for under_way in self.calls.values()))
            if not known and self.ghosts_of(step["mount"], path) is None and name.changed_at < call.began - TTL:
                self.differ("list", f"{path} listed by {step}")

    def rename_tree_ready(self, step):
        path, other = step["path"], step["other"]
        return (path in self.directories and other not in self.directories | self.lost_directories and path != other
                and self.quiet_below(path) and self.quiet_below(other) and not self.is_made_below(path)
                and all(self.names[each].may == {ABSENT} for each in self.below(other))
                and not any(file.path and file.path.startswith(other + "/") for file in self.files())
                and not any(self.names[each].at_rest for each in self.below(path)))

    def rename_tree_begins(self, step):
        touched = {}
        for path in self.below(step["path"]):
            file = self.live(step["mount"], path)
            if file is not None and (file.changed_by or file.fresh):
                # It is saved before it moves.
                self.names[path].may |= file.contents
            contents = self.names[path].may | (file.contents if file else set()) | self.of_logs(path)
            touched[path] = {ABSENT}
            touched[step["other"] + path.removeprefix(step["path"])] = contents
        return Call(step, touched)

    def rename_tree_ends(self, call, result, found):
        self.unfinished_renames = self.unfinished_renames or call.excused
        step, mount = call.step, call.step["mount"]
        moved = {path: step["other"] + path.removeprefix(step["path"]) for path in call.touched
                 if path.startswith(step["path"] + "/")}
        below = [file for file in self.files() if file.path in moved]
        if not result["ok"]:
            unclear = any(file.changed_by or file.vague() or file.failed or file.mount != mount for file in below)
            # A marker in it is held back.
            marked = f"{step['path']}/{MARKER}" in moved and (self.failures or self.deaths or below)
            # "The one that commits first has created it": of what is open with O_EXCL.
            beside = self.mounts > 1 and any(file.changed_by or file.fresh for file in below)
            self.refused(call, result, *(("EIO", "EBUSY", "ENOENT", "ESTALE") if unclear else ()),
                         *(["EEXIST"] if beside else ()), *(["EIO"] if marked else ()), *(["EBUSY"] if self.unfinished_renames else ()))
            for file in below:
                file.doubtful = True
            return self.perhaps(call)
        self.renamed_at = time.monotonic()
        self.directories.discard(step["path"])
        self.directories.add(step["other"])
        outcomes = {}
        for path, other in moved.items():
            # What cannot be deleted is hidden, and deleted later.
            outcomes[path] = Outcome({ABSENT}, not call.excused)
            file = self.live(mount, path)
            outcomes[other] = Outcome(call.touched[other], True)
            if file is not None:
                del self.nodes[mount][path]
                file.path = other
                self.nodes[mount][other] = file
        for path in moved:
            self.lose_renamed(mount, path, None)
        for file in below:
            # One of another mount has no place any more.
            if file.path in moved:
                file.doubtful = True
        return outcomes

    # --- processes

    def dup_ready(self, step):
        return (step["agent"], step["other"]) not in self.slots

    def dup_ends(self, call, result, found):
        if result["ok"]:
            step = call.step
            self.attach(step["agent"], step["other"], self.slots[step["agent"], step["slot"]])
        else:
            self.refused(call, result)

    def fork_ready(self, step):
        return step["name"] not in self.agents

    def fork_ends(self, call, result, found):
        agent, child = call.step["agent"], call.step["name"]
        for slot in self.slots_of(agent):
            self.attach(child, slot, self.slots[agent, slot])
        self.agents.add(child)

    def kill_ready(self, step):
        who = step["who"]
        held = {self.slots[who, slot].file.mount for slot in self.slots_of(who)} if who in self.agents else set()
        if who in self.calls:
            held.add(self.mount_of(self.calls[who].step))
        return who in self.agents and not held & self.paused

    def kill_ends(self, call, result, found):
        """After the step that it was in, if any, has ended with "died"."""
        self.deaths = True
        agent = call.step["who"]
        for slot in self.slots_of(agent):
            if self.slots[agent, slot].writable:
                self.left_by_killed.setdefault(self.slots[agent, slot].file, set()).add(agent)
            self.detach(agent, slot)
        self.agents.discard(agent)
        self.dying.discard(agent)
        if self.dying:
            # Of those who are killed at once none is left to the others.
            return
        left, self.left_by_killed = self.left_by_killed, {}
        # Of versions of one name the last is the one that has cut away the others.
        for file, killed in sorted(left.items(), key=lambda each: each[0].truncated):
            self.writer_killed(min(killed, key=lambda who: (who not in file.answering, who != file.maker, who)), file,
                               [each for each in left if self.may_replace(each, file)])

    @staticmethod
    def may_replace(one, other) -> bool:
        """As a log, where the writers of both are killed at once: what another has discarded is not published."""
        return bool(one is not other and one.path == other.path and (one.kept or one.perhaps_kept) and one.changed_by
                    and (one.mount != other.mount or one.changed > other.truncated))

    def kill_group_ready(self, step):
        return all(self.kill_ready({"who": who}) for who in step["who"])

    def kill_group_ends(self, call, result, found):
        self.dying = set(call.step["who"])

    def writer_killed(self, agent, file, beside) -> None:
        file.widowed = True
        if file.path is None:
            return
        others = file.writers()
        name = self.names[file.path]
        self.failures.add(file.path)
        if not others:
            self.ghost(file)
            self.released(file)
            # What a rename under way moves then is the version before.
            self.moved_as_well(file.path, name.before)
            if file.kept or file.perhaps_kept:
                # It is published now, over what others read.
                self.overtake(file.path, file)
        if file.failed:
            return
        if file.vague():
            file.half = file.half or bool(others)
            self.perhaps_published(file)
        elif file.fresh and not file.changed_by:
            # It has made what others have open: "a sync, a rename and a commit marker fail too". Not where one of them
            # has truncated it, too, and so answers for it.
            makers = {each.opener for each in file.descriptions if each.flags in TRUNCATES} & self.agents - {agent}
            file.half = bool(others) and agent == file.maker and not makers
            file.maker = min(makers) if makers and agent == file.maker else file.maker
            file.abandoned = not others
            # Truncated and not written: the earlier version stays. Where there is none, an empty log harms nobody.
            if (file.kept or file.perhaps_kept) and not others and name.may == {ABSENT}:
                self.perhaps_published(file)
        elif agent in file.answering and file.perhaps_kept and not others:
            self.perhaps_published(file)
            # Who still reads it may find it lost.
            file.doubtful = True
        elif agent in file.answering and file.kept:
            if others:
                # Cut or stretched only, it keeps its version.
                file.half = not file.written
            else:
                self.perhaps_published(file)
                # "A file of these that was truncated and not written keeps its version."
                if file.written and not file.overtaken and not self.trouble and not name.active:
                    # What was written may have been published before it was cut or stretched.
                    name.at_rest = set().union(*(each.contents | (each.states if each.resized else set())
                                                 for each in (file, *beside)))
        elif agent in file.answering:
            # Without writers it ends: readers of it hold nothing that could be saved.
            file.half = bool(others)
            if not others:
                self.note_failed_writer(file)
                file.doubtful = True
                if self.live(file.mount, file.path) is file:
                    del self.nodes[file.mount][file.path]
        elif file.changed_by and not others:
            # Those who changed it have closed it.
            self.perhaps_published(file)

    def fault_ends(self, call, result, found):
        self.faults += call.step["rules"]
        self.flipped = self.flipped or any(rule["action"] == "corrupt" for rule in self.faults)
        self.uploads_denied = self.uploads_denied or any(
            rule["action"] == "no-such-upload" or (call.step["hard"] and rule["op"] in ("AbortMultipartUpload", "*"))
            for rule in self.faults)
        for each in self.calls.values():
            self.note_late_removals(each)
        if call.step["hard"]:
            self.trouble = True
            self.removals_refused = self.removals_refused or any(
                rule["op"] in ("DeleteObject", "DeleteObjects", "*") for rule in self.faults)
            for file in self.files():
                # Its publishing in the background fails, and that is the writer's error.
                file.doubtful = file.doubtful or file.kept or file.is_sent_ahead()
            for name in self.names.values():
                name.at_rest = None

    def heal_ends(self, call, result, found):
        self.faults = []
        self.trouble = False
