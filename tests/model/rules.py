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
        if "agent" in step:
            self.calls[step["agent"]] = call
        return call

    def end(self, call: Call, result: dict, found: dict[str, bytes]) -> None:
        step = call.step
        call.excused = call.excused or self.trouble
        self.calls.pop(step.get("agent"), None)
        for file in {id(each): each for each in (call.file, call.other) if each}.values():
            file.busy -= 1
        if call.dead:
            outcomes = self.perhaps(call)
        elif "died" in result:
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

    def died(self, call: Call) -> None:
        """SIGBUS, unless it was killed: the version that it has mapped is gone."""
        description = self.slots.get((call.step["agent"], call.step.get("slot")))
        file = description.file if description else None
        gone = file is not None and (file.path is None or file.overtaken or file.vague() or file.failed)
        if not call.excused and not (call.step["do"] in ("map_read", "map_write") and gone):
            self.differ("died", f"{call.step['agent']} died in {call.step}")

    def refused(self, call: Call, result: dict, *allowed: str) -> None:
        if not call.excused and result["errno"] not in allowed:
            self.differ("errno", f"{result['errno']} by {call.step}")

    def may_conflict(self, file: File) -> list[str]:
        """What a commit may answer that comes after another one of the name."""
        allowed = []
        if file.overtaken:
            allowed += ["ESTALE", "ENOENT", "EEXIST", "EIO"]
        if file.failed or file.doubtful or file.half:
            allowed += [file_error for file_error in ("EIO", "ESTALE", "ENOENT", "EEXIST", "EOPNOTSUPP", "ENOSPC",
                                                       "EACCES", "EBUSY", "EINVAL")]
        return allowed

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
        if any(path in call.touched and call.step["do"] not in ("save", "fill", "fsync", "close") for call in self.calls.values()):
            # Which of the two comes first decides what becomes of the file.
            return False
        if flags in ("r", "w", "w+"):
            return not self.shares_an_empty_file(step)
        if file is not None and (file.busy or len(file.contents) > 1 or file.failed or file.vague()):
            return False
        return name.settled() and self.ghosts_of(step["mount"], path) is None

    def shares_an_empty_file(self, step):
        """Left out: an empty file keeps its node when it is truncated, so that writers of both opens write to one file."""
        file = self.live(step["mount"], step["path"])
        others = file is not None and b"" in file.contents and any(
            each.writable and each.flags not in TRUNCATES for each in file.descriptions)
        opening = any(call.step["do"] == "open" and call.step["path"] == step["path"] for call in self.calls.values())
        return step["flags"] in TRUNCATES and (others or opening)

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
            allowed = ["EBUSY"] if file is not None or self.ghosts_of(mount, path) is not None else []
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
        if seen == {ABSENT} and flags not in CREATES:
            self.differ("open", f"opened what is not there: {step}")
        if flags in ("x", "x+") and (file is not None or not may_be_missing) and path in found:
            self.differ("open", f"made what was there: {step}")
        description = Description(self.file_to_open(step, file, seen - {ABSENT}), flags, step["agent"], seen - {ABSENT})
        self.attach(step["agent"], step["slot"], description)

    def file_to_open(self, step, file, seen) -> File:
        path, flags, mount = step["path"], step["flags"], step["mount"]
        committed = self.names[path].may - {ABSENT}
        if flags not in WRITABLE:
            if file is not None and (file.changed_by or not file.overtaken):
                return file
            fresh = File(mount, path, set(seen))
        elif file is not None and flags not in TRUNCATES and (file.writers() or not file.overtaken):
            file.fresh = file.fresh and not committed
            return file
        elif flags in TRUNCATES or ABSENT in self.names[path].may:
            fresh = File(mount, path, {b""}, fresh=True)
            if file is not None and flags in TRUNCATES and file.contents & {b""} and file.writers():
                # Both may be one file: a lock is.
                fresh.twins, file.twins = [file], [*file.twins, fresh]
        else:
            fresh = File(mount, path, set(committed))
        fresh.ordered = flags in ("w", "x", "a", "wo") and flags not in READABLE and fresh.fresh
        fresh.kept = path.endswith(KEPT) or flags in ("a", "a+")
        fresh.perhaps_kept = path.endswith(PERHAPS_KEPT)
        fresh.exclusive = flags in ("x", "x+")
        self.nodes[mount][path] = fresh
        return fresh

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

    @staticmethod
    def published_whole(step, description) -> bool:
        """What grows may be published between two requests of one write."""
        return step["size"] <= 1 << 20 or not (description.file.kept or description.file.perhaps_kept)

    def map_write_ready(self, step):
        description = self.idle(step)
        return (description and description.writable and description.flags in READABLE and not description.appends
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
            file.doubtful = file.doubtful or (call.excused and not back)
            self.fail(file)
            return self.perhaps(call)
        self.sticky(call, file)
        if step["do"] == "write" and description.appends:
            file.change(step["agent"], lambda content: put(content, len(content), data))
        else:
            file.change(step["agent"], lambda content: put(content, at, data))
        if step["do"] == "write" and not description.appends:
            description.position = at + len(data)
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
        file.change(call.step["agent"], lambda content: cut(content, size))
        self.note_kept(file)

    def read_ready(self, step):
        return self.slots[step["agent"], step["slot"]].flags in READABLE

    map_read_ready = read_ready

    def read_begins(self, step):
        description = self.slots[step["agent"], step["slot"]]
        # What its file held when this read began, and will hold when it ends.
        return Call(step, {}, seen=description.seen | description.file.contents)

    map_read_begins = read_begins

    def read_ends(self, call, result, found):
        description = self.slots[call.step["agent"], call.step["slot"]]
        file = description.file
        if not result["ok"]:
            writing = {"EBUSY", "EOPNOTSUPP"} if file.ordered or file.twins else set()
            # A version that was replaced or removed is an error, or its bytes.
            gone = {"ESTALE", "ENOENT"} if file.path is None or file.overtaken or file.half else set()
            self.refused(call, result, *writing, *gone, *self.may_conflict(file))
        elif not file.busy and not call.file:
            self.check_read(call, result["data"], call.seen | description.seen | file.contents, file)

    map_read_ends = read_ends

    def check_read(self, call, data, allowed, file):
        if data not in allowed and not (file is not None and file.vague()):
            self.differ("read", f"{call.step} read {self.show([data])}, not {self.show(allowed - {ABSENT})}")

    def load_ready(self, step):
        return self.parent_is_there(step["path"])

    def load_begins(self, step):
        return self.open_begins(step)

    def load_ends(self, call, result, found):
        step, path, mount = call.step, call.step["path"], call.step["mount"]
        file = self.live(mount, path)
        seen = call.seen | self.names[path].may | (file.contents if file else set())
        if result["ok"]:
            if not (file is not None and file.busy):
                self.check_read(call, result["data"], seen, file)
            return
        ghost = self.ghosts_of(mount, path) is not None
        allowed = ["EBUSY", "EOPNOTSUPP"] if ghost or (file is not None and file.writers()) else []
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
        file = self.slots[step["agent"], step["slot"]].file
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
            return self.perhaps(call)
        if not file.changed_by:
            return None
        self.committed(file)
        return self.surely(call)

    @staticmethod
    def may_be_published(file) -> bool:
        """A log of which everything was published before another mount changed the name: there is nothing to commit."""
        return (file.kept or file.perhaps_kept) and file.overtaken

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
        if not result["ok"]:
            self.refused(call, result, *self.may_conflict(file))
            self.fail(file)
            file.doubtful = file.doubtful or call.excused or file.overtaken
            return self.perhaps(call)
        if not call.touched or not last:
            return None
        self.sticky(call, file)
        promise = self.close_promises(agent, file, description)
        if promise == "nothing":
            return None
        if promise == "perhaps":
            return self.perhaps(call)
        self.committed(file)
        return self.surely(call)

    def close_promises(self, agent, file, description) -> str:
        """Of the last writable descriptor of the agent, when close(2) returned 0."""
        others = file.writers()
        if file.failed or file.doubtful or file.twins or self.may_be_published(file):
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
