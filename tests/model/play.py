# SPDX-License-Identifier: Apache-2.0
"""Plays a history: tells the agents what to do, and the model what was told and answered."""

import collections.abc
import functools
import signal
import time

import tree_rules
from harness.simulator import BUCKET
from mount_rules import DRAIN
from mount_steps import MountSteps, Stuck
from reference import QUICK, RETRY_FOR, SLOW
from world import Agents, KeptFiles, LivingMount, SmallDisk, Store

OPTIONS = ("--max-memory", "128M", "--retry-for", f"{RETRY_FOR:.0f}s", "--stall-timeout", "2s",
           "--drain-timeout", f"{DRAIN:.0f}s", "--fuse-threads", "4", "--http-threads", "1", "--log-level", "info")
# What agents are told; the other steps are the driver's.
OF_AGENTS = {"open", "write", "pwrite", "map_write", "dup", "fork", "exec", "truncate", "fsync", "close", "rename",
             "unlink", "read", "map_read", "save", "save_again", "load", "mkdir", "remove_files", "remove_tree",
             "sync_directory", "list", "fill", "rename_tree", "cut", "mark"}
PUT = {"PutObject", "HeadObject", "GetObject", "CreateMultipartUpload", "UploadPart", "UploadPartCopy",
       "AbortMultipartUpload", "CompleteMultipartUpload", "ListObjectsV2", "ListMultipartUploads"}
POINTERS = (".txt", ".metadata")
# Calls that are quick while other operations of the store hang.
NEEDS = {**dict.fromkeys(("write", "pwrite", "dup", "fork", "exec"), set()),
         **dict.fromkeys(("save", "fsync", "close"), PUT)}


def is_large(file) -> bool:
    return file is not None and any(len(content or b"") >= 5 << 20 for content in file.contents)


# Requests of a directory's rename that wait for the one before, there and back.
STEPS_OF_A_RENAME = 24


class InBucket(collections.abc.Mapping):
    """The files there, asked for by who looks."""

    def __init__(self, ask) -> None:
        self.ask = functools.cache(ask)

    def __getitem__(self, path: str) -> bytes:
        return self.ask()[path]

    def __iter__(self):
        return iter(self.ask())

    def __len__(self) -> int:
        return len(self.ask())


class Player(MountSteps):
    """One run of one history on mounts of their own."""

    def __init__(self, simulator, prefix: str, history: dict) -> None:
        self.simulator = simulator
        self.store = Store(simulator)
        self.prefix = prefix
        self.history = history
        self.mounts: list[LivingMount] = []
        self.disks: list[SmallDisk] = []
        self.kept = KeptFiles(**history["kept"]) if "kept" in history else None
        # Changes go to the bucket behind the calls.
        self.by_disk = history.get("ack") == "disk"
        # By so many steps: only then the bucket is looked at.
        self.behind = history.get("behind", 0)
        self.agents = Agents()
        self.model = tree_rules.Model(history["mounts"], RETRY_FOR)
        self.model.cached = {index for index, options in enumerate(history["options"]) if "never" in options}
        self.calls = self.model.calls
        self.log: list[str] = []
        self.played: list[dict] = []
        self.begun = time.monotonic()
        # Seconds that the store has taken to answer.
        self.slowest = 0.0
        # Whether it has held lookups until they were given up.
        self.lookups_hung = False

    def __enter__(self):
        for index in range(self.history["mounts"]):
            self.mounts.append(LivingMount(f"s3://{BUCKET}/{self.prefix}", self.simulator.environment(), *OPTIONS,
                                           *self.options(index)))
        for name in self.history["agents"]:
            self.agents.start(name)
        self.agents.connected(*self.history["agents"])
        self.agents.taken()
        self.model.agents = set(self.history["agents"])
        return self

    def options(self, index: int) -> list[str]:
        """Of this mount, with its disk."""
        given = self.history.get("options", [])
        options = list(given[index]) if index < len(given) else []
        if kib := dict(enumerate(self.history.get("rooms", []))).get(index):
            self.disks.append(SmallDisk(kib))
            options += ["--staging-dir", str(self.disks[-1].path)]
            self.model.tight.add(index)
        return options + (self.kept.options if self.kept else []) + (["--ack", "disk"] if self.by_disk else [])

    def __exit__(self, *_) -> None:
        self.simulator.clear_faults()
        for mount in self.model.paused:
            self.mounts[mount].process.send_signal(signal.SIGCONT)
        for process in self.agents.processes.values():
            if process.pid and not process.ended():
                self.agents.signal(process.name, signal.SIGKILL)
        self.agents.end()
        for each in [*self.mounts, *self.disks, *([self.kept] if self.kept else [])]:
            each.remove()

    # --- one step

    def note(self, text: str) -> None:
        self.log.append(f"{time.monotonic() - self.begun:7.2f} {text}")

    def step(self, step: dict) -> bool:
        """False where it means nothing now."""
        step = dict(step)
        if not self.model.ready(step):
            return False
        self.played.append(dict(step))
        self.note(f"-> {step}")
        self.model.tags = max(self.model.tags, step.get("tag", 0) + step.get("count", 0))
        if step["do"] not in OF_AGENTS:
            getattr(self, step["do"])(step)
            return True
        call = self.model.begin(step)
        if step["do"] == "fork":
            self.agents.expect(step["name"])
        self.agents.tell(step["agent"], self.request(step))
        wait = step.get("wait")
        self.wait_for(step["agent"], self.longest(step) if wait is None else wait, wait is None)
        return True

    def longest(self, step: dict) -> float:
        """How long any call may take. Some make or remove names one after another, with three requests each."""
        if step["do"] in ("remove_tree", "remove_files"):
            in_a_row = 3 * len(self.model.below(step["path"]))
        elif step["do"] == "rename_tree":
            in_a_row = STEPS_OF_A_RENAME
        else:
            in_a_row = 3 * step.get("count", 0)
        # The kernel looks the names of a directory up one at a time, and what hangs holds each for as long as it is asked.
        behind_others = 2 * RETRY_FOR * len(self.model.agents) if self.lookups_hung else 0
        return SLOW + 3 * RETRY_FOR + in_a_row * self.slowest + behind_others

    def request(self, step: dict) -> dict:
        keep = {"open": ("flags", "slot", "syncs"), "save": ("flags", "tag", "size", "mapped"), "write": ("slot", "tag", "at", "size"),
                "fill": ("count", "tag", "size", "ending"), "cut": ("size",), "mark": ("tag", "size", "renamed"),
                "save_again": ("way", "early", "tag", "size"),
                "dup": ("slot", "other"), "fork": ("name",), "truncate": ("slot", "size")}
        keep["pwrite"] = keep["map_write"] = keep["write"]
        words = keep.get(step["do"], ("slot",))
        request = {"do": step["do"], **{word: step[word] for word in words if word in step}}
        if step["do"] == "rename_tree":
            request["do"] = "rename"
        if "path" in step:
            request["path"] = str(self.mounts[step["mount"]].path / step["path"])
        if step["do"] in ("rename", "rename_tree"):
            request["other"] = str(self.mounts[step["mount"]].path / step["other"])
            request["keeps"] = step.get("keeps", False)
        return request

    def wait_for(self, agent: str, seconds: float, must: bool) -> None:
        deadline = time.monotonic() + seconds
        while agent in self.calls:
            left = deadline - time.monotonic()
            if left <= 0:
                if must:
                    self.model.differ("stuck", f"{self.calls[agent].step} has not returned after {seconds:.0f} s")
                    raise Stuck
                break
            self.agents.poll(min(left, 0.5))
            self.take_answers()
        self.check_step()

    def take_answers(self) -> None:
        for name, answer in self.agents.taken():
            call = self.calls.get(name)
            if call is None:
                continue
            if call.step["do"] == "fork" and answer.get("ok"):
                self.agents.connected(call.step["name"])
            self.answered(name, call, answer)

    def answered(self, name: str, call, answer: dict) -> None:
        self.calls.pop(name, None)
        took = time.monotonic() - call.began
        told = "died" if "died" in answer else answer.get("errno", "ok")
        data = f" {len(answer['data'])} bytes" if answer.get("data") else ""
        self.note(f"<- {name} {call.step['do']} {told}{data} after {took:.2f} s")
        self.model.end(call, answer, InBucket(self.found))
        if "died" in answer:
            self.simple({"do": "kill", "who": name})
        self.check_time(call, took)

    def check_time(self, call, took: float) -> None:
        step = call.step
        bound = self.longest(step) - RETRY_FOR
        needs = NEEDS.get(step["do"])
        if needs is not None and call.file is not None:
            # What is changed is read first, also of a file that was created and may have been saved since.
            needs = needs | {"GetObject", "HeadObject"}
            if call.file.kept or call.file.perhaps_kept or call.crossed:
                # "A log that is opened for reading and writing waits for its publishes". And the kernel lets no write pass
                # an fsync(2) of the inode.
                needs = needs | PUT
        if needs is not None and self.model.syncs(step):
            needs = needs | PUT
        if needs is not None and (step.get("mapped") or is_large(call.file)):
            # A large one is published under a hidden key first, which is removed.
            needs = needs | {"DeleteObject"}
        if needs is not None and self.model.mount_of(step) in self.model.removals:
            # A name is written again once its removal has been made, or has failed.
            needs = needs | {"DeleteObject", "DeleteObjects"}
        if step.get("path", "").endswith(POINTERS) and self.calls:
            # A commit marker waits for what is being saved beside it.
            needs = None
        if needs is not None and not self.memory_is_short():
            slowed = {rule["op"] for rule in self.model.faults} | call.slowed
            # Waits for the same name are in order.
            touched = call.touched and any(self.model.names[path].mixed for path in call.touched)
            if not any(matches(op, need) for op in slowed for need in needs) and not touched:
                bound = QUICK
        if took > bound:
            self.model.differ("slow", f"{step} took {took:.1f} s")

    def memory_is_short(self) -> bool:
        return sum(len(content or b"") for file in self.model.files() for content in file.contents) > 16 << 20

    def found(self) -> dict[str, bytes]:
        """In the bucket, once all that was acknowledged is there."""
        if self.by_disk:
            self.wait_until_sent()
        return self.store.files(self.prefix)

    def check_bucket(self) -> None:
        self.model.check_bucket(self.found())

    def check_step(self) -> None:
        if not self.behind or len(self.played) % self.behind == 0:
            self.check_bucket()

    # --- the driver's own steps

    def simple(self, step: dict) -> None:
        self.model.end(self.model.begin(step), {"ok": True}, {})

    def fault(self, step: dict) -> None:
        rules = [{**rule, "key": self.prefix + rule.get("key", "*")} for rule in step["rules"]]
        for rule in rules:
            # Lists and DeleteObjects have no key.
            if rule["op"] in ("ListObjectsV2", "DeleteObjects", "ListMultipartUploads", "*"):
                rule.pop("key")
        self.simulator.inject(*rules)
        self.lookups_hung = self.lookups_hung or any(rule["action"] == "hang" and matches(rule["op"], lookup)
                                                     for rule in rules for lookup in ("HeadObject", "ListObjectsV2"))
        self.slowest = max(self.slowest, *(rule.get("ms", 0) / 1000 for rule in rules if rule["action"] == "slow"), 0)
        for call in self.calls.values():
            call.excused = call.excused or step["hard"]
            call.slowed |= {rule["op"] for rule in rules}
        self.simple(step)

    def heal(self, step: dict) -> None:
        for call in self.calls.values():
            call.slowed = call.slowed | {rule["op"] for rule in self.model.faults}
        self.simulator.clear_faults()
        self.simple(step)

    def kill_group(self, step: dict) -> None:
        """All at once."""
        self.simple(step)
        for who in step["who"]:
            if who in self.calls:
                self.calls[who].excused = True
            self.agents.signal(who, signal.SIGKILL)
        for who in step["who"]:
            self.kill({"do": "kill", "who": who})

    def kill(self, step: dict) -> None:
        who = step["who"]
        call = self.calls.get(who)
        if call is not None:
            call.excused = True
        if who in self.model.agents:
            # Until it is told that it has ended, others may be answered as its death demands.
            self.model.dying.add(who)
        self.agents.signal(who, signal.SIGKILL)
        deadline = time.monotonic() + SLOW + 2 * RETRY_FOR
        while not self.agents.processes[who].ended():
            if time.monotonic() > deadline:
                self.model.differ("stuck", f"{who} does not die")
                raise Stuck
            self.agents.poll(0.5)
            self.take_answers()
        if who in self.calls:
            self.model.end(call, {"died": True}, InBucket(self.found))
        if who in self.model.agents:
            self.simple(step)
        if not self.model.dying:
            # What those leave who are killed at once is known once the last of them is gone.
            self.check_step()

    def rest(self, step: dict) -> None:
        """Everything ends, the store is healthy, and what comes by itself has come."""
        self.heal({"do": "heal"})
        for mount in list(self.model.paused):
            self.resume({"do": "resume", "mount": mount})
        self.settle_calls()
        for mount in list(self.model.ending):
            self.ended({"do": "ended", "mount": mount})
        deadline = time.monotonic() + SLOW
        while not (self.store.wait_until_quiet() and self.model.at_rest(self.found())):
            if time.monotonic() > deadline:
                break
        found = self.found()
        self.model.check_bucket(found)
        self.model.rest(found)

    def settle_calls(self) -> None:
        for agent, call in list(self.calls.items()):
            self.wait_for(agent, self.longest(call.step), True)

    # --- all of them

    def play(self) -> None:
        steps = iter(self.history["steps"])
        self.play_on(lambda: next(steps, None))

    def play_on(self, following) -> None:
        """Until the first difference."""
        try:
            while (step := following()) is not None:
                self.step(step)
                if self.has_differed():
                    return
            self.finish()
        except Stuck:
            pass

    def kind(self) -> str:
        """What went wrong in which step, without the details."""
        return f"{self.model.differences[0][0]} {self.played[-1]['do'] if self.played else ''}"

    def told(self) -> str:
        """What it was, the last steps, and the logs of the mounts, with how those ended that have."""
        logs = "\n".join(f"{mount.log()}\nexit status: {mount.process.poll()}" for mount in self.mounts)
        return "\n".join([*map(str, self.model.differences), *self.log[-60:], logs])

    def finish(self) -> None:
        """Closes everything, unmounts, and looks at what is left."""
        self.rest({"do": "rest"})
        while slots := list(self.model.slots):
            if not self.step({"do": "close", "agent": slots[0][0], "slot": slots[0][1]}):
                raise AssertionError(f"the model cannot close {slots[0]}")
            if self.has_differed():
                return
        self.rest({"do": "rest"})
        if self.has_differed():
            return
        for process in self.agents.processes.values():
            if not process.ended():
                self.agents.signal(process.name, signal.SIGKILL)
        for index, mount in enumerate(self.mounts):
            if index < self.model.points:
                mount.process.send_signal(signal.SIGTERM)
            # The others were unmounted, and nobody has a file of theirs open.
            code = self.end_of(index)
            if code != 0 and not self.model.failures and not self.model.removals_refused:
                self.model.differ("exit", f"mount {index} ended with {code}")
        self.check_bucket()
        self.check_leftovers()

    def check_leftovers(self) -> None:
        if (left := self.store.uploads(self.prefix)) and not self.model.uploads_denied:
            self.model.differ("left", f"uploads of {left}")
        for key in self.store.etags(self.prefix + ".ckptfs/"):
            place = key.removeprefix(self.prefix + ".ckptfs/")
            if place.startswith("failed/") and self.may_have_failed(place.removeprefix("failed/")):
                continue
            if place.startswith("tmp/") and self.model.removals_refused:
                continue
            if place.startswith("rename") and self.model.unfinished_renames:
                # "Whichever mount meets them --rename-repair-after later ... finishes it".
                continue
            if not key.endswith("/"):
                self.model.differ("left", f"the object .ckptfs/{place}")

    def may_have_failed(self, path: str) -> bool:
        return path in self.model.failures or any("/" in each for each in self.model.failures)


def matches(glob: str, operation: str) -> bool:
    return glob == "*" or glob == operation or (glob.endswith("*") and operation.startswith(glob[:-1]))
