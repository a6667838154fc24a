# SPDX-License-Identifier: Apache-2.0
"""What open(2) may do, and of which version the descriptor is."""

import time

from calls import Call, Calls
from reference import (ABSENT, CREATES, GONE, KEPT, READABLE, TRUNCATES, TTL, WRITABLE, Description, File,
                       changes)


class OpenRules(Calls):
    def open_ready(self, step):
        path, flags = step["path"], step["flags"]
        name, file = self.names[path], self.live(step["mount"], path)
        if not self.parent_is_there(path) or (step["agent"], step["slot"]) in self.slots:
            return False
        if any(path in call.touched and call.step["do"] not in ("save", "fill", "fsync", "close")
               for call in self.calls.values()):
            # Which of the two comes first decides what becomes of the file.
            return False
        if flags in ("r", "w", "w+"):
            return flags == "r" or not self.is_joined(step)
        if any(call.step["do"] in ("open", "save") and (step["mount"], path) in self.places(call)
               for call in self.calls.values()):
            # Which of the two comes first decides whether they have one file.
            return False
        if file is not None and (file.busy or len(file.contents) > 1 or file.failed or file.vague()):
            return False
        return name.settled() and self.ghosts_of(step["mount"], path) is None

    def is_joined(self, step) -> bool:
        """By a save under way: whether that goes on in the file, or behind what is written anew, follows from its order.

        One that maps it sees the size of any version behind its inode.
        """
        return any(call.step["do"] == "save" and (call.step["flags"] in ("a", "a+") or call.step.get("mapped"))
                   and (step["mount"], step["path"]) in self.places(call) for call in self.calls.values())

    def open_begins(self, step):
        path = step["path"]
        file = self.live(step["mount"], path)
        seen = set(self.names[path].may) | (self.ghosts_of(step["mount"], path) or set())
        return Call(step, {}, seen=seen | self.shown_by(file) | self.of_logs(path))

    def shown_by(self, file: File | None) -> set:
        """By what its mount has open under a name, to those who open that."""
        return set() if file is None or self.has_given_way(file) else file.contents

    def has_given_way(self, file: File) -> bool:
        """What another mount did to the name is seen also "while a process has the file open for writing and all that was
        written to it is saved".
        """
        # What it has saved since then has the name again.
        came_last = file.contents != {b""} and self.names[file.path].may == file.contents
        return (file.overtaken and not came_last and self.names[file.path].settled() and self.is_saved_for_sure(file)
                and file.path not in self.unjudged)

    @staticmethod
    def is_saved_for_sure(file: File) -> bool:
        return not (file.changed_by or file.fresh or file.busy or file.resized or file.perhaps_saved or file.kept
                    or file.perhaps_kept or file.failed or file.vague() or file.unjudged or file.split or file.sibling
                    or file.cut_away is not False)

    def of_logs(self, path: str) -> set:
        """A log that grows is published again, also over what others have saved or removed meanwhile."""
        return set().union(*(file.contents | file.states for file in self.files()
                             if file.path == path and (file.kept or file.perhaps_kept)))

    def logs_beside(self, path: str, mount: int) -> list[File]:
        """Of other mounts, not saved: they are published by themselves, also over what was saved meanwhile."""
        return [file for file in self.files() if file.path == path and file.mount != mount and file.changed_by
                and (file.kept or file.perhaps_kept) and file.writers()]

    def may_have_returned(self, path: str, mount: int) -> set:
        """What those may have put in the place of what had overtaken them."""
        return set().union(*(file.contents | file.states for file in self.logs_beside(path, mount) if file.overtaken))

    def open_ends(self, call, result, found):
        step, path, flags, mount = call.step, call.step["path"], call.step["flags"], call.step["mount"]
        file = self.live(mount, path)
        seen = call.seen | self.names[path].may | self.shown_by(file)
        may_be_missing = ABSENT in seen
        if not result["ok"]:
            busy = file is not None or call.crossed or self.ghosts_of(mount, path) is not None
            allowed = ["EBUSY"] if busy else []
            if may_be_missing and flags not in CREATES:
                allowed += GONE
            known = seen != {ABSENT} or time.monotonic() < self.names[path].changed_at + TTL
            if flags in ("x", "x+") and (known or path in self.failures):
                allowed += ["EEXIST"]
            if time.monotonic() < self.renamed_at + TTL or not self.parent_is_there(path):
                allowed += GONE
            # Who opens what is being written, and does not truncate it, shares its fate.
            if file is not None and (file.failed or file.vague() or (file.overtaken and flags not in TRUNCATES)):
                allowed += self.may_conflict(file)
            self.refused(call, result, *allowed)
            return
        # "A name that another mount has removed is made anew by O_CREAT, also while stat(2) still shows it; until then
        # O_TRUNC makes it anew without O_CREAT as well".
        believed = (flags in TRUNCATES and self.mounts > 1
                    and time.monotonic() < max(self.names[path].changed_at, self.renamed_at) + TTL)
        if seen == {ABSENT} and flags not in CREATES and not believed and not call.crossed:
            self.differ("open", f"opened what is not there: {step}")
        if flags in ("x", "x+") and (file is not None or not may_be_missing) and path in found:
            self.differ("open", f"made what was there: {step}")
        if flags in TRUNCATES:
            description = self.truncated(call, file)
        else:
            opened = self.file_to_open(call, file, seen - {ABSENT})
            description = Description(opened, flags, step["agent"], seen - {ABSENT})
        description.syncs = step.get("syncs", False)
        self.attach(step["agent"], step["slot"], description)

    def truncated(self, call, file) -> Description:
        """"O_TRUNC of a file that others have open gives it another version; but not where it is empty"."""
        step = call.step
        path, flags, mount = step["path"], step["flags"], step["mount"]
        if file is None or file.contents != {b""} or file.vague() or file.failed:
            if file is not None and (call.crossed or (b"" in file.contents and not file.failed)):
                # Whether what it truncates is empty is not known.
                self.cannot_judge(path)
            return Description(self.version(mount, path, flags, step["agent"]), flags, step["agent"], set(), unwritten=True)
        if call.crossed or file.overtaken:
            # "If another mount has removed a name, O_CREAT creates it again": another file, once that is noticed.
            self.cannot_judge(path)
        file.truncated = next(changes)
        # Once it is saved, by the close of whichever descriptor, it replaces what another mount has saved meanwhile.
        file.fresh = True
        if not file.writers():
            file.maker = step["agent"]
            file.ordered = file.write_only = flags not in READABLE
            self.note_kind(file, path, flags)
        self.opened_otherwise(file, flags)
        return Description(file, flags, step["agent"], set(), unwritten=True)

    def version(self, mount: int, path: str, flags: str, maker: str) -> File:
        """A new one, which has the name."""
        fresh = File(mount, path, {b""}, fresh=True, maker=maker, ordered=flags not in READABLE,
                     write_only=flags not in READABLE)
        fresh.truncated = fresh.born if flags in TRUNCATES else 0
        self.note_kind(fresh, path, flags)
        fresh.exclusive = flags in ("x", "x+")
        self.nodes[mount][path] = fresh
        return fresh

    @staticmethod
    def note_kind(file: File, path: str, flags: str) -> None:
        file.kept = path.endswith(KEPT) or flags in ("a", "a+")
        file.appended_to = flags == "a"

    @staticmethod
    def opened_otherwise(file: File, flags: str) -> None:
        """What is not only appended to is no log any more, unless it has the name of one."""
        if file.kept and flags not in ("a", "a+") and not (file.path or "").endswith(KEPT):
            file.kept, file.perhaps_kept = False, True

    def written_version(self, description: Description) -> File:
        """Of those who truncated one empty file, who writes first has its version, with those who opened it after that
        without truncating it; others get their own. What was only made longer is nothing that would be written over.
        """
        file = description.file
        unwritten, description.unwritten = description.unwritten, False
        if file.joined is None and description.flags not in TRUNCATES and not description.appends:
            file.joined = description.opened
        is_first = (unwritten and file.first is None and (file.joined is None or file.joined > description.opened)
                    and all(min(len(content or b""), file.acknowledged) <= 1 << 20 for content in file.contents))
        file.first = description if is_first else file.first
        can_read = description.flags not in READABLE or not file.ordered
        if not unwritten or file.path is None or (is_first and can_read):
            if unwritten and file.vague() and file.path is not None:
                # Another may have been first.
                self.left_by_others(file)
            return file
        own = self.version(file.mount, file.path, description.flags, description.opener)
        # By its open, which may be long ago.
        own.truncated, own.first = description.opened, description
        own.doubtful, own.sibling = file.doubtful or (is_first and file.half), file.inode
        file.split = True
        file.descriptions.remove(description)
        own.descriptions.append(description)
        description.file = own
        if not file.writers():
            self.left_by_others(file)
        return own

    def left_by_others(self, file: File) -> None:
        """What they wrote and did not save, or left, is saved now if at all."""
        self.names[file.path].may |= file.contents
        self.names[file.path].before |= file.contents

    def file_to_open(self, call, file, seen) -> File:
        path, flags, mount = call.step["path"], call.step["flags"], call.step["mount"]
        if file is not None and self.has_given_way(file):
            file = None
        elif (file is not None and file.overtaken and file.writers()
              and (not file.changed_by or file.perhaps_saved or file.kept or file.perhaps_kept)):
            # Whether all of it is saved is not known: a log may have been published.
            self.cannot_judge(path)
        if flags in WRITABLE:
            if file is not None and (file.writers() or not file.overtaken):
                if not file.writers():
                    self.note_kind(file, path, flags)
                self.opened_otherwise(file, flags)
                return file
            if ABSENT in self.names[path].may:
                made = self.version(mount, path, flags, call.step["agent"])
                if others := (seen | self.names[path].may) - {ABSENT}:
                    # Or another mount has made it meanwhile.
                    made.contents, made.doubtful = made.contents | others, True
                return made
            opened = self.changed(mount, path, flags)
            if ABSENT in call.seen and flags in CREATES:
                # Another mount has saved the name meanwhile: it may have made the file before that.
                opened.contents.add(b"")
                opened.fresh = opened.doubtful = True
            return opened
        if call.crossed:
            # The file that it has opened may be another one, and grow if it is empty.
            return File(mount, path, set(seen), doubtful=True)
        if file is not None and (file.changed_by or not file.overtaken):
            return file
        if file is not None and file.writers():
            # The name stays with it; what another mount has put there may be what is read.
            return File(mount, path, seen | file.contents, doubtful=True)
        fresh = self.nodes[mount][path] = File(mount, path, set(seen))
        # It may have been opened before that.
        fresh.overtaken = self.names[path].changed_at > call.began
        return fresh

    def changed(self, mount: int, path: str, flags: str) -> File:
        """Of what is in the bucket."""
        file = self.version(mount, path, flags, "")
        file.contents = self.names[path].may | self.may_have_returned(path, mount)
        file.fresh = file.ordered = False
        return file
