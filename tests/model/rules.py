# SPDX-License-Identifier: Apache-2.0
"""What each step may do: when it makes sense, what it may leave while it runs, and what its answer promises."""

import dataclasses
import time

from reference import (ABSENT, CREATES, GONE, KEPT, PERHAPS_KEPT, READABLE, TRUNCATES, TTL, WRITABLE, Description, File,
                       Outcome, State, bytes_of, cut, put)


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
    # Its mount was killed meanwhile: what it answers means nothing.
    dead: bool = False
    # Another call concerned the same name on the same mount meanwhile: which was first is not known.
    crossed: bool = False
    # The process of one of those was killed in it.
    haunted: bool = False
    # Operations of the store that were slow or hung meanwhile.
    slowed: set = dataclasses.field(default_factory=set)
    began: float = dataclasses.field(default_factory=time.monotonic)


class Rules(State):
    """Methods named after the steps: *_ready, *_begins and *_ends."""

    def ready(self, step: dict) -> bool:
        """Whether the step means anything now; in a shortened history many do not."""
        agent = step.get("agent")
        if agent is not None and (agent not in self.agents or agent in self.calls):
            return False
        if "slot" in step and step["do"] != "open" and (agent, step["slot"]) not in self.slots:
            return False
        if agent is not None and self.mount_of(step) in self.paused:
            return False
        check = getattr(self, step["do"] + "_ready", None)
        return check is None or bool(check(step))

    def mount_of(self, step: dict) -> int | None:
        description = self.slots.get((step.get("agent"), step.get("slot")))
        return step.get("mount") if description is None else description.file.mount

    def begin(self, step: dict) -> Call:
        call = getattr(self, step["do"] + "_begins", lambda each: Call(each, {}))(step)
        call.excused = self.trouble
        for path, possible in call.touched.items():
            self.names[path].begin(possible)
        for file in {id(each): each for each in (call.file, call.other) if each}.values():
            file.busy += 1
        self.note_late_removals(call)
        if "agent" in step:
            for each in self.calls.values():
                if self.places(each) & self.places(call):
                    each.crossed = call.crossed = True
                each.crossed = each.crossed or self.looked_at(each) in self.places(call)
                call.crossed = call.crossed or self.looked_at(call) in self.places(each)
            self.calls[step["agent"]] = call
        return call

    @staticmethod
    def looked_at(call: Call) -> tuple | None:
        return (call.step["mount"], call.step["path"]) if call.step["do"] == "load" else None

    def note_late_removals(self, call: Call) -> None:
        if any(rule.get("action") == "performed-late" for rule in self.faults):
            for path, possible in call.touched.items():
                if ABSENT in possible:
                    self.removed_late[path] |= self.names[path].before - {ABSENT}

    def places(self, call: Call) -> set:
        """The names that it may change, with their mount."""
        if call.step["do"] in ("load", "list"):
            return set()
        paths = {call.step.get("path"), call.step.get("other"), *call.touched,
                 *(each.path for each in (call.file, call.other) if each)}
        return {(self.mount_of(call.step), path) for path in paths if path}

    def end(self, call: Call, result: dict, found: dict[str, bytes]) -> None:
        step = call.step
        call.excused = call.excused or self.trouble
        self.calls.pop(step.get("agent"), None)
        for file in {id(each): each for each in (call.file, call.other) if each}.values():
            file.busy -= 1
        if call.dead:
            outcomes = self.perhaps(call)
        elif "died" in result:
            if "path" in step:
                self.failures.add(step["path"])
            opened = self.live(step["mount"], step["path"]) if step["do"] in ("open", "save") else None
            if opened is not None:
                # It may have had it open.
                opened.doubtful = True
            for each in self.calls.values():
                each.haunted = each.haunted or bool(self.places(each) & self.places(call))
            self.half_written(call)
            if step["do"] == "save" and self.names[step["path"]].before == {ABSENT}:
                # An empty log harms nobody.
                call.touched[step["path"]].add(b"")
            outcomes = self.perhaps(call)
            for file in filter(None, (call.file, call.other)):
                file.doubtful = True
            self.died(call)
        else:
            ending = getattr(self, step["do"] + "_ends", None)
            outcomes = (ending(call, result, found) if ending else None) or {}
        for path in call.touched:
            outcome = outcomes.get(path, Outcome(set(), False))
            self.names[path].end(outcome)
            if outcome.contents:
                self.overtake(path, call.file)

    def half_written(self, call: Call) -> None:
        """What grows may be published with what was being written."""
        step, file = call.step, call.file
        if step["do"] in ("write", "pwrite") and (file.kept or file.perhaps_kept):
            appends = self.slots[step["agent"], step["slot"]].appends
            file.contents |= {put(content, len(content) if appends else step["at"], bytes_of(step))
                              for content in file.contents}
        elif step["do"] == "truncate" and (file.kept or file.perhaps_kept):
            file.contents |= {cut(content, step["size"]) for content in file.contents}

    def died(self, call: Call) -> None:
        """SIGBUS, unless it was killed: the version that it has mapped is gone."""
        description = self.slots.get((call.step["agent"], call.step.get("slot")))
        file = description.file if description else None
        # "Reading back what has been written to a new file that is open for writing only" is not promised.
        gone = file is not None and (file.path is None or file.overtaken or file.vague() or file.failed or file.ordered)
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
        return file.overtaken or any(each is not file and each.path == file.path and (each.kept or each.perhaps_kept)
                                     and each.writers() for each in self.files())

    def fail(self, file: File) -> None:
        file.failed = True
        if file.path is not None:
            self.failures.add(file.path)

    def sticky(self, call: Call, file: File) -> None:
        if file.failed and not file.doubtful and not file.half and file.path is not None:
            self.differ("sticky", f"success after a failure by {call.step}")

    # --- open

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
            return True
        if any(call.step["do"] in ("open", "save") and (step["mount"], path) in self.places(call)
               for call in self.calls.values()):
            # Which of the two comes first decides whether they have one file.
            return False
        if file is not None and (file.busy or len(file.contents) > 1 or file.failed or file.vague()):
            return False
        return name.settled() and self.ghosts_of(step["mount"], path) is None

    def open_begins(self, step):
        path = step["path"]
        file = self.live(step["mount"], path)
        seen = set(self.names[path].may) | (self.ghosts_of(step["mount"], path) or set())
        if file is not None:
            seen |= file.contents
        return Call(step, {}, seen=seen)

    def open_ends(self, call, result, found):
        step, path, flags, mount = call.step, call.step["path"], call.step["flags"], call.step["mount"]
        file = self.live(mount, path)
        seen = call.seen | self.names[path].may | (file.contents if file else set())
        may_be_missing = ABSENT in seen
        if not result["ok"]:
            busy = file is not None or call.crossed or self.ghosts_of(mount, path) is not None
            allowed = ["EBUSY"] if busy else []
            if may_be_missing and flags not in CREATES:
                allowed += GONE
            known = seen != {ABSENT} or time.monotonic() < self.names[path].changed_at + TTL
            if known and flags in ("x", "x+"):
                allowed += ["EEXIST"]
            if time.monotonic() < self.renamed_at + TTL or not self.parent_is_there(path):
                allowed += GONE
            if file is not None and (file.failed or file.vague()):
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
        self.attach(step["agent"], step["slot"], description)

    def truncated(self, call, file) -> Description:
        """"O_TRUNC of a file that others have open gives it another version; but not where it is empty"."""
        step = call.step
        path, flags, mount = step["path"], step["flags"], step["mount"]
        certain = file is not None and not call.crossed and not file.may_be_two() and file.contents == {b""}
        joins = certain or (file is not None and not file.failed and (call.crossed or b"" in file.contents))
        if file is None or not joins or file.half or file.doubtful:
            fresh = self.version(mount, path, flags, step["agent"])
            fresh.doubtful = (file is not None and joins) or call.haunted
            return Description(fresh, flags, step["agent"], set(file.contents) if file is not None and joins else set(),
                               unwritten=True, perhaps_own=call.crossed)
        file.doubtful = call.haunted
        if not file.writers():
            file.fresh, file.maker = True, step["agent"]
            file.ordered = flags not in READABLE
        self.opened_otherwise(file, flags)
        return Description(file, flags, step["agent"], set() if certain else {b""}, unwritten=True,
                           perhaps_own=not certain)

    def version(self, mount: int, path: str, flags: str, maker: str) -> File:
        """A new one, which has the name."""
        fresh = File(mount, path, {b""}, fresh=True, maker=maker, ordered=flags not in READABLE)
        fresh.kept = path.endswith(KEPT) or flags in ("a", "a+")
        fresh.perhaps_kept = path.endswith(PERHAPS_KEPT)
        fresh.exclusive = flags in ("x", "x+")
        self.nodes[mount][path] = fresh
        return fresh

    @staticmethod
    def opened_otherwise(file: File, flags: str) -> None:
        """What is not only appended to is no log any more, unless it has the name of one."""
        if file.kept and flags not in ("a", "a+") and not (file.path or "").endswith(KEPT):
            file.kept, file.perhaps_kept = False, True

    def written_version(self, description: Description) -> File:
        """Of those who truncated one empty file, who writes first has its version; others get their own."""
        file = description.file
        unwritten, crossed = description.unwritten, description.perhaps_own
        description.unwritten = description.perhaps_own = False
        is_first, file.first = file.first is None, file.first or description
        can_read = description.flags not in READABLE or not file.ordered
        if not unwritten or file.path is None or (is_first and can_read and not crossed):
            return file
        own = self.version(file.mount, file.path, description.flags, description.opener)
        own.doubtful, own.sibling = file.doubtful or (is_first and file.half), file.inode
        own.crossed, file.split = crossed, True
        own.watchers = [file] if crossed and is_first else []
        file.descriptions.remove(description)
        own.descriptions.append(description)
        description.file = own
        if not file.writers():
            # What others wrote and did not save, or left, is saved now if at all.
            self.names[file.path].may |= file.contents
            self.names[file.path].before |= file.contents
        return own

    def file_to_open(self, call, file, seen) -> File:
        path, flags, mount = call.step["path"], call.step["flags"], call.step["mount"]
        if flags in WRITABLE:
            if file is not None and (file.writers() or not file.overtaken):
                self.opened_otherwise(file, flags)
                return file
            if ABSENT in self.names[path].may:
                return self.version(mount, path, flags, call.step["agent"])
            return self.changed(mount, path, flags)
        if call.crossed:
            # The file that it has opened may be another one, and grow if it is empty.
            return File(mount, path, set(seen), doubtful=True)
        if file is not None and (file.changed_by or not file.overtaken):
            return file
        fresh = self.nodes[mount][path] = File(mount, path, set(seen))
        return fresh

    def changed(self, mount: int, path: str, flags: str) -> File:
        """Of what is in the bucket."""
        file = self.version(mount, path, flags, "")
        file.contents, file.fresh, file.ordered = set(self.names[path].may), False, False
        return file

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
        """What grows may be published between two requests of one write: through the page cache they are of a page."""
        most = 1 if description.file.mount in self.cached else 1 << 20
        return step["size"] <= most or not (description.file.kept or description.file.perhaps_kept)

    @staticmethod
    def shows_one_of_several(file) -> bool:
        """Not promised: "fstat(2) and mappings of a file that several truncated while it was empty, and then wrote"."""
        return file.split or file.sibling is not None

    def map_write_ready(self, step):
        description = self.idle(step)
        return (description and description.writable and not description.unwritten
                and not self.shows_one_of_several(description.file)
                and description.flags in READABLE and not description.appends
                and not description.file.vague() and not description.file.failed
                and all(len(content or b"") >= step["at"] + step["size"] for content in description.file.contents))

    def write_begins(self, step):
        return Call(step, {}, self.slots[step["agent"], step["slot"]].file)

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
        if not result["ok"]:
            back = file.ordered and any(at < len(content) for content in file.contents)
            self.refused(call, result, *self.may_conflict(file), *(["EOPNOTSUPP"] if back else []))
            file.doubtful = file.doubtful or (call.excused and not back) or description.unwritten
            self.fail(file)
            return self.perhaps(call)
        self.sticky(call, file)
        file = self.written_version(description)
        if step["do"] == "write" and description.appends:
            file.change(step["agent"], description.opener, lambda content: put(content, len(content), data))
        else:
            file.change(step["agent"], description.opener, lambda content: put(content, at, data))
        if step["do"] == "write" and not description.appends:
            description.position = at + len(data)
        if self.trouble and (file.kept or file.perhaps_kept):
            # Publishing it while it grows may fail, "as fsync(2) would".
            file.doubtful = True
        self.note_kept(file)
        if step["do"] != "map_write" or file.path is None:
            return None
        call.touched[file.path] = set(file.contents)
        self.committed(file)
        return self.surely(call)

    pwrite_ends = map_write_ends = write_ends

    def truncate_ready(self, step):
        description = self.idle(step)
        return description and description.writable

    def truncate_ends(self, call, result, found):
        file, size = call.file, call.step["size"]
        if not result["ok"]:
            self.refused(call, result, *self.may_conflict(file), *(["EOPNOTSUPP", "EINVAL"] if file.ordered else []))
            file.doubtful = True
            self.fail(file)
            return
        self.sticky(call, file)
        if all(len(content) == size for content in file.contents):
            return
        description = self.slots[call.step["agent"], call.step["slot"]]
        file = self.written_version(description)
        file.change(call.step["agent"], description.opener, lambda content: cut(content, size))
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
            writing = {"EBUSY", "EOPNOTSUPP"} if file.ordered else set()
            # A version that was replaced or removed is an error, or its bytes.
            gone = {"ESTALE", "ENOENT"} if file.path is None or file.overtaken or file.half else set()
            self.refused(call, result, *writing, *gone, *self.may_conflict(file))
        elif file.path is None and file.ordered:
            pass  # "What is written to it leads nowhere."
        elif call.step["do"] == "map_read" and self.shows_one_of_several(file):
            pass
        elif not file.busy and not call.file:
            self.check_read(call, result["data"], call.seen | description.seen | file.contents, file)

    map_read_ends = read_ends

    def check_read(self, call, data, allowed, file):
        if data not in allowed and not self.flipped and not (file is not None and file.vague()):
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
        seen = call.seen | self.names[path].may | (file.contents if file else set()) | empty
        if result["ok"]:
            if not (file is not None and file.busy):
                self.check_read(call, result["data"], seen, file)
            return
        ghost = self.ghosts_of(mount, path) is not None
        written = ghost or call.crossed or (file is not None and file.writers())
        allowed = ["EBUSY", "EOPNOTSUPP"] if written else []
        if ABSENT in seen or ghost or time.monotonic() < self.renamed_at + TTL:
            allowed += GONE
        if file is not None:
            allowed += self.may_conflict(file)
        elif self.names[path].active or self.names[path].changed_at > call.began:
            # Replaced between its open and its read.
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
        return Call(step, {file.path: set(file.contents)} if file.path is not None else {}, file)

    def fsync_ends(self, call, result, found):
        file = call.file
        if not result["ok"]:
            self.refused(call, result, *self.may_conflict(file))
            self.fail(file)
            file.doubtful = file.doubtful or call.excused or file.overtaken
            return self.perhaps(call)
        self.sticky(call, file)
        if file.path is None:
            return None
        if file.vague() or (file.fresh and not file.changed_by) or self.may_be_published(file):
            file.perhaps_saved = True
            return self.perhaps(call)
        if not file.changed_by:
            return None
        self.committed(file)
        return self.surely(call)

    def may_be_published(self, file) -> bool:
        """All was published before another mount changed the name: there is nothing to commit."""
        return bool(file.kept or file.perhaps_kept or file.perhaps_saved or file.watchers) and self.contested(file)

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
        own = {b""} if description.perhaps_own else set()
        publishes = file.path is not None and description.writable and (file.changed_by or file.fresh or own)
        return Call(step, {file.path: set(file.contents) | own} if publishes else {}, file)

    def close_ends(self, call, result, found):
        agent, file = call.step["agent"], call.file
        path = file.path
        description = self.detach(agent, call.step["slot"])
        last = description.writable and agent not in file.writers()
        if not file.writers() and path is not None:
            self.ghost(file)
        if not result["ok"]:
            self.refused(call, result, *self.may_conflict(file))
            self.fail(file)
            file.doubtful = file.doubtful or call.excused or file.overtaken
            return self.perhaps(call)
        if not call.touched or description.holders[agent]:
            # "A duplicate of the descriptor that is closed before or between writes publishes nothing".
            return None
        if not last or self.held_otherwise(agent, description, file):
            # A close is durable "when the closing process has no other writable descriptor of the file".
            file.perhaps_saved = True
            return self.perhaps(call)
        self.sticky(call, file)
        promise = self.close_promises(agent, file, description)
        if promise == "nothing":
            return None
        if promise == "perhaps":
            file.perhaps_saved = True
            return self.perhaps(call)
        self.committed(file)
        return self.surely(call)

    def held_otherwise(self, agent: str, description: Description | None, file: File) -> bool:
        """By descriptors of the same inode, of which the mount cannot tell whether they are duplicates of this one."""
        return any(each is not description and owner == agent and each.writable
                   and each.file.inode is file.inode and (each.opener != agent or each.holders[agent] > 1)
                   for (owner, _), each in self.slots.items())

    def close_promises(self, agent, file, description) -> str:
        """Of the last writable descriptor of the agent, when close(2) returned 0."""
        others = file.writers()
        if file.failed or file.doubtful or description.perhaps_own or self.may_be_published(file):
            return "perhaps"
        if file.half:
            return "perhaps" if agent in file.changed_by else "nothing"
        if others & file.changed_by:
            # Another process is still writing: it is not this one's to publish.
            return "perhaps" if agent in file.changed_by else "nothing"
        if not file.changed_by:
            return "perhaps" if others or file.overtaken else "surely"
        inherited = bool(description.holders) and agent != description.opener
        return "perhaps" if inherited or (others and agent not in file.changed_by) else "surely"
