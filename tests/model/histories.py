# SPDX-License-Identifier: Apache-2.0
"""Random histories: which step comes next, by a seed and what the model knows."""

import os
import random

from marker_rules import MARKER
from reference import READABLE

KIB, MIB = 1 << 10, 1 << 20
NAMES = ["a.bin", "b.bin", "train.log", "latest.txt", "d/x.bin", "d/y.bin", "d/z.log", "e/x.bin"]
DIRECTORIES = ["d", "e", "f"]
SIZES = [1, 100, 4096, 5000, 64 * KIB, 300 * KIB]
LARGE = [2 * MIB, 9 * MIB, 18 * MIB]

WEIGHTS = {
    "open": 24, "save": 12, "write": 16, "pwrite": 6, "map_write": 4, "truncate": 3, "read": 14, "map_read": 4,
    "load": 8,
    "fsync": 8, "close": 20, "rename": 7, "unlink": 5, "dup": 3, "fork": 4, "exec": 2, "kill": 5, "fill": 3,
    "remove_files": 3, "remove_tree": 2, "sync_directory": 2, "rename_tree": 2, "cut": 2, "mkdir": 1, "list": 3,
    "fault": 5, "heal": 5,
    "pause": 1, "resume": 3, "crash": 1, "rest": 2, "unmount": 1, "terminate": 0.5, "ended": 6,
    "damage": 2, "drop": 1,
    "kill_group": 2, "storm": 2, "again": 6, "mark": 3, "strike": 3, "save_again": 3, "inherit": 3,
}
FLAGS = {"r": 8, "w": 8, "r+": 7, "a": 4, "w+": 3, "x": 1, "wo": 1, "c": 2, "a+": 1, "rt": 1, "x+": 1}
# Steps that every history has, or nothing would happen.
ALWAYS = {"open", "save", "write", "close", "heal", "resume", "rest", "ended"}

WRITES = ["PutObject", "CreateMultipartUpload", "UploadPart", "CompleteMultipartUpload"]
OPERATIONS = [*WRITES, "PutObject", "GetObject", "HeadObject", "DeleteObject", "DeleteObjects", "DeleteObjects",
              "CopyObject", "UploadPartCopy", "AbortMultipartUpload", "ListObjectsV2", "ListParts",
              "ListMultipartUploads"]
# Steps that are not made to overlap others.
ALONE = {"fault", "heal", "kill", "rest", "crash", "pause", "resume", "rename_tree", "remove_tree", "mkdir", "kill_group",
         "unmount", "terminate", "ended", "damage", "drop"}
# What a mount has to get over, once or twice.
PASSING = ["500", "503", "slowdown", "reset", "close", "performed-but-500", "performed-but-reply-lost", "truncate",
           "request-timeout", "expired-token"]
# What only some operations answer, or some faults are of.
PARTICULAR = [
    # "What is not promised": that PutObject is not carried out late; nor is that of CopyObject.
    *({"op": op, "action": "performed-late", "ms": 1000}
      for op in ("DeleteObject", "DeleteObjects", "DeleteObjects", "UploadPart", "CompleteMultipartUpload")),
    *({"op": op, "action": action} for op in ("PutObject", "CompleteMultipartUpload", "CopyObject")
      for action in ("conflict", "skew")),
    *({"op": op, "action": "bad-digest"} for op in ("PutObject", "UploadPart")),
    *({"op": op, "action": action} for op in ("CompleteMultipartUpload", "CopyObject", "UploadPartCopy")
      for action in ("200-error", "blanks")),
    {"op": "UploadPart", "action": "no-such-upload"}, {"op": "GetObject", "action": "corrupt"},
]
LASTING = ["access-denied", "access-denied", "500", "400", "503"]


class Author:
    """Writes the history of one seed, step by step, while it is played."""

    def __init__(self, seed: int) -> None:
        self.dice = dice = random.Random(seed)
        self.weights = dict(WEIGHTS)
        # Each history does some things often and others not at all: so what belongs together comes together.
        for step in self.weights:
            if step not in ALWAYS:
                self.weights[step] *= dice.choice([0, 0.5, 1, 1, 3])
        self.flags = {flags: weight * dice.choice([0.2, 1, 1, 3]) for flags, weight in FLAGS.items()}
        # Little of what follows one can be judged.
        self.weights["storm"] *= dice.choice([0, 0, 1])
        self.names = dice.sample(NAMES, dice.choice([1, 2, 3, 5]))
        self.sizes = SIZES + (LARGE if dice.random() < 0.25 else [])
        self.large = len(self.sizes) > len(SIZES)
        # How many saves are made through a mapping.
        self.maps = dice.choice([0, 0, 0.2, 0.5])
        # How many descriptors are opened with O_DSYNC.
        self.syncs = dice.choice([0, 0, 0.2, 0.6])
        self.overlap = dice.choice([0, 0, 0.1, 0.4])
        self.faults = dice.choice(["none", "passing", "slow", "lasting"])
        mounts = dice.choice([1, 1, 2, 2, 3])
        agents = dice.choice([2, 3, 4, 6])
        self.unmounts = ["plain", "plain", "lazy", "lazy", "force"]
        self.history = {"seed": seed, "mounts": mounts, "agents": [f"p{index}" for index in range(agents)],
                        "options": [self.options() for _ in range(mounts)], "steps": []}
        if dice.random() < 0.2:
            self.history["rooms"] = [dice.choice([0, 64, 400]) for _ in range(mounts)]
        if dice.random() < float(os.environ.get("CKPTFS_MODEL_KEPT", "0.2")):
            self.history["kept"] = {"passthrough": dice.choice(["auto", "never"]), "size": dice.choice(["64M", "1G"])}
            # Smaller ones are not kept.
            self.sizes = [100, 300 * KIB, 300 * KIB, *LARGE[:2]]
        # Mounts with names of their own.
        self.apart = 0
        if dice.random() < float(os.environ.get("CKPTFS_MODEL_BY_DISK", "0.1")):
            self.acknowledge_by_disk(mounts)
        self.slots = self.tags = self.children = 0
        self.queue: list[dict] = []
        self.last: dict | None = None

    def acknowledge_by_disk(self, mounts: int) -> None:
        """What is acknowledged is waited for before each look at the bucket: after each step, or after some."""
        self.history["ack"] = "disk"
        self.history.setdefault("kept", {"passthrough": "never", "size": "64M"})
        # The store takes it in the end; a mount that is stopped, or serves what was left open, cannot be asked.
        self.faults = {"lasting": "passing", "slow": "delays"}.get(self.faults, self.faults)
        self.unmounts = ["plain"]
        self.weights.update(pause=0)
        if mounts == 1 and self.dice.random() < 0.7:
            # Others would not see what is not sent yet.
            self.history["behind"] = self.dice.choice([4, 12, 60])
            self.faults = self.dice.choice(["none", "delays", "delays", "passing"])
            self.weights["fault"] *= 2
        elif mounts > 1 and self.dice.random() < 0.6:
            # Nor do they where each has names of its own; the disk is the same one.
            self.apart = mounts
            self.history["behind"] = self.dice.choice([4, 12, 60])
            self.names = NAMES
            self.weights.update(inherit=0)
        if mounts > 1:
            # Where another mount is faster with a name, a change of it waits for ever.
            self.overlap = 0
            self.weights.update(strike=0, storm=0)

    def options(self) -> list[str]:
        dice = self.dice
        options = ["--compress", dice.choice(["auto", "none"]),
                   "--direct-io", dice.choice(["auto", "auto", "always", "never"])]
        if dice.random() < 0.4:
            options += ["--publish-interval", "100ms"]
        if dice.random() < 0.3:
            options += ["--metadata-ttl", dice.choice(["0s", "100ms"])]
        return options

    def next(self, model) -> dict:
        """A step that is ready; the list of steps grows by it."""
        if not self.history["steps"]:
            self.queue = [{"do": "mkdir", "agent": "p0", "mount": 0, "path": path} for path in ("d", "e")]
        for _ in range(1000):
            step = self.queue.pop(0) if self.queue else self.any_step(model)
            step = self.on_its_mount(step) if self.apart else step
            if step is not None and model.ready(step):
                if step["do"] not in ALONE and "wait" not in step and self.dice.random() < self.overlap:
                    step["wait"] = self.dice.choice([0, 0, 0.02, 0.3])
                elif model.faults and any(rule.get("ms", 0) > 1000 for rule in model.faults) and "wait" not in step \
                        and "agent" in step and step["do"] not in ("rename_tree", "remove_tree", "mkdir"):
                    step["wait"] = 0.2
                if "agent" in step and not step["do"].startswith("fork"):
                    self.last = step
                self.history["steps"].append(step)
                return step
        step = {"do": "rest"}
        self.history["steps"].append(step)
        return step

    def on_its_mount(self, step: dict | None) -> dict | None:
        if step is None or "path" not in step or "mount" not in step:
            return step
        owners = {self.owner(step[word]) for word in ("path", "other") if word in step}
        return {**step, "mount": owners.pop()} if len(owners) == 1 else None

    def owner(self, path: str) -> int:
        names = [*DIRECTORIES, *NAMES]
        return names.index(path.split("/")[0]) % self.apart

    def tag(self, count: int = 1) -> int:
        self.tags += count
        return self.tags - count + 1

    def any_step(self, model) -> dict | None:
        kinds = list(self.weights)
        kind = self.dice.choices(kinds, [self.weights[each] for each in kinds])[0]
        return getattr(self, kind, self.by_slot)(model) if kind not in SLOT_STEPS else self.by_slot(model, kind)

    # --- by name

    def named(self, model, kind: str, **more) -> dict | None:
        free = sorted(model.agents - set(model.calls))
        if not free:
            return None
        return {"do": kind, "agent": self.dice.choice(free), "mount": self.dice.randrange(model.points),
                "path": self.dice.choice(self.names), **more}

    def open(self, model):
        self.slots += 1
        flags = self.dice.choices(list(self.flags), list(self.flags.values()))[0]
        syncs = {"syncs": True} if flags not in ("r", "rt") and self.dice.random() < self.syncs else {}
        return self.named(model, "open", flags=flags, slot=str(self.slots), **syncs)

    def save(self, model):
        flags = self.dice.choice(["w", "w", "w", "a", "x"])
        mapped = {"flags": "w+", "mapped": True} if self.dice.random() < self.maps else {}
        return self.named(model, "save", **{"flags": flags, **mapped}, tag=self.tag(), size=self.dice.choice(self.sizes))

    def save_again(self, model):
        way = self.dice.choice(["as it is", "removed", "renamed"])
        return self.named(model, "save_again", way=way, early=self.tag(), tag=self.tag(), size=self.dice.choice(self.sizes))

    def load(self, model):
        return self.named(model, "load")

    def unlink(self, model):
        return self.named(model, "unlink")

    def rename(self, model):
        keeps = {"keeps": True} if self.dice.random() < 0.25 else {}
        return self.named(model, "rename", other=self.dice.choice(self.names), **keeps)

    def cut(self, model):
        return self.named(model, "cut", size=self.dice.choice([0, 100, *self.sizes]))

    def storm(self, model):
        """Everybody opens one name at once."""
        path, mount = self.dice.choice(self.names), self.dice.randrange(model.points)
        flags = self.dice.choice(["w", "w", "r"])
        for agent in sorted(model.agents - set(model.calls)):
            self.slots += 1
            self.queue.append({"do": "open", "agent": agent, "mount": mount, "path": path, "flags": flags,
                               "slot": str(self.slots), "wait": 0})
        return self.queue.pop(0) if self.queue else None

    def again(self, model):
        """The name of the step before, elsewhere or otherwise: what meets is what breaks."""
        if self.last is None or "path" not in self.last or self.last["path"] not in NAMES:
            return None
        step = self.any_step(model) if self.dice.random() < 0.9 else None
        if step is not None and "path" in step and step["path"] in NAMES and not self.queue:
            step["path"] = self.last["path"]
        return step

    # --- by directory

    def directory(self, model, kind: str, **more):
        step = self.named(model, kind, **more)
        if step is not None:
            step["path"] = self.dice.choice(DIRECTORIES)
        return step

    def fill(self, model):
        count = self.dice.choice([3, 20, 24])
        step = self.directory(model, "fill", count=count, tag=self.tag(count), size=self.dice.choice([1, 100, 3000]))
        if step is not None and self.dice.random() < 0.15:
            # Names that XML does not keep.
            step["ending"] = "\r"
        return step

    def remove_files(self, model):
        step = self.directory(model, "remove_files")
        if step is not None and self.dice.random() < 0.5:
            count = self.dice.choice([20, 24])
            follow = self.directory(model, "fill", count=count, tag=self.tag(count), size=50)
            self.queue.append({**follow, "path": step["path"]})
        return step

    def remove_tree(self, model):
        return self.directory(model, "remove_tree")

    def sync_directory(self, model):
        return self.directory(model, "sync_directory")

    def mkdir(self, model):
        return self.directory(model, "mkdir")

    def list(self, model):
        return self.directory(model, "list")

    def mark(self, model):
        step = self.directory(model, "mark", tag=self.tag(), size=100)
        renamed = {"renamed": True} if self.dice.random() < 0.5 else {}
        return step and {**step, "path": f"{step['path']}/{MARKER}", **renamed}

    def rename_tree(self, model):
        return self.directory(model, "rename_tree", other=self.dice.choice(DIRECTORIES))

    # --- by descriptor

    def by_slot(self, model, kind):
        slots = sorted((key for key in model.slots if key[0] not in model.calls), key=str)
        if not slots:
            return None
        agent, slot = self.dice.choice(slots)
        step = {"do": kind, "agent": agent, "slot": slot}
        description = model.slots[agent, slot]
        if kind in ("write", "pwrite", "map_write"):
            step.update(tag=self.tag(), size=self.dice.choice(self.sizes), at=0)
        if kind == "write":
            step["at"] = description.position
        elif kind in ("pwrite", "map_write"):
            known = max((len(content or b"") for content in description.file.contents), default=0)
            step["at"] = self.dice.choice([0, 1, 4096, known, self.dice.randrange(known + 1)])
            if kind == "map_write":
                step["size"] = min(step["size"], known - step["at"])
                if step["size"] <= 0:
                    return None
            if description.file.ordered and self.dice.random() < 0.8:
                step["at"] = known
        if kind == "truncate":
            step["size"] = self.dice.choice([0, 100, *self.sizes])
        if kind == "map_read" and description.flags not in READABLE:
            return None
        if kind == "dup":
            self.slots += 1
            step["other"] = str(self.slots)
        return step

    # --- processes, mounts and the store

    def fork(self, model):
        step = self.named(model, "fork")
        if step is None or len(model.agents) > 8:
            return None
        self.children += 1
        return {"do": "fork", "agent": step["agent"], "name": f"c{self.children}"}

    def exec(self, model):
        step = self.named(model, "exec")
        return step and {"do": "exec", "agent": step["agent"]}

    def kill(self, model):
        if len(model.agents) < 2:
            return None
        holders = sorted({agent for agent, _ in model.slots}) or sorted(model.agents)
        return {"do": "kill", "who": self.dice.choice(holders)}

    def kill_group(self, model):
        """A process with the children that it forked, and theirs; or any two."""
        holders = sorted({agent for agent, _ in model.slots})
        if len(holders) < 2 or len(model.agents) < 3:
            return None
        return {"do": "kill_group", "who": sorted(self.dice.sample(holders, self.dice.choice([2, len(holders)])))}

    def strike(self, model):
        """A death in the middle of what takes long: of a process that waits for it, of another, or of the mount."""
        if model.faults or self.queue or len(model.agents) < 2:
            return None
        dice = self.dice
        steps = [self.struck(model, STRUCK) for _ in range(dice.choice([1, 1, 2]))]
        after = [{"do": "heal"}]
        if dice.random() < 0.2:
            # What meets a directory that is renamed or removed is judged when that has ended.
            steps, after = [self.struck(model, STRUCK_TREES)], [*after, {"do": "rest"}]
        blow = getattr(self, dice.choices(["kill", "kill_group", "crash", "unmount"], [6, 1, 1, 1])[0])(model)
        if blow is None or None in steps:
            return None
        if len(steps) > 1 and all(step.get("path") in NAMES for step in steps) and dice.random() < 0.7:
            steps[1]["path"] = steps[0]["path"]
        self.queue += [*({**step, "wait": dice.choice([0, 0.02, 0.1])} for step in steps), blow, *after]
        rules = [{"op": "*", "action": "slow", "ms": dice.choice([50, 300])}]
        if dice.random() < 0.2:
            rules.insert(0, {"op": dice.choice(WRITES), "action": dice.choice(PASSING), "times": 1})
        return {"do": "fault", "rules": rules, "hard": False}

    def inherit(self, model):
        """A child keeps what its parent has saved, while the name is changed, by another mount if there is one."""
        free = sorted(key for key, each in model.slots.items() if each.writable and each.flags != "rt"
                      and key[0] not in model.calls and len(each.holders) == 1)
        if self.queue or not free or len(model.agents) > 8:
            return None
        agent, slot = self.dice.choice(free)
        description = model.slots[agent, slot]
        path, here = description.file.path, description.file.mount
        if path not in NAMES or here >= model.points:
            return None
        self.children += 1
        others = [mount for mount in range(model.points) if mount != here] or [here]
        change = getattr(self, self.dice.choice(["save", "save", "unlink", "rename", "open"]))(model)
        meet = getattr(self, self.dice.choice(["open", "load", "open", "unlink", "cut", "rename"]))(model)
        if change is None or meet is None:
            return None
        change.update(path=path, mount=self.dice.choice(others))
        meet.update(path=path, mount=here)
        written = {"do": "write", "agent": agent, "slot": slot, "tag": self.tag(), "size": self.dice.choice(self.sizes),
                   "at": description.position}
        self.queue += [{"do": "fork", "agent": agent, "name": f"c{self.children}"},
                       {"do": "close", "agent": agent, "slot": slot}, change, meet]
        return written

    def struck(self, model, kinds):
        kind = self.dice.choices(list(kinds), list(kinds.values()))[0]
        return self.by_slot(model, kind) if kind in SLOT_STEPS else getattr(self, kind)(model)

    def pause(self, model):
        return {"do": "pause", "mount": self.dice.randrange(model.points)} if model.points > 1 else None

    def resume(self, model):
        return {"do": "resume", "mount": self.dice.randrange(model.points)}

    def crash(self, model):
        way = {"way": "group"} if self.dice.random() < 0.3 else {}
        return {"do": "crash", "mount": self.dice.randrange(model.points), **way} if self.dice.random() < 0.6 else None

    def terminate(self, model):
        return {"do": "terminate", "mount": self.dice.randrange(model.points)}

    def ended(self, model):
        return {"do": "ended", "mount": self.dice.choice(sorted(model.ending))} if model.ending else None

    def unmount(self, model):
        return {"do": "unmount", "mount": self.dice.randrange(model.points), "way": self.dice.choice(self.unmounts)}

    def damage(self, model):
        # What the kernel reads by itself was checked before, and is trusted then.
        if self.history.get("kept", {}).get("passthrough") != "never" or self.queue:
            return None
        # By a mount that has nothing in memory.
        crash = self.crash(model)
        loads = [{**step, "path": path} for path in self.names if (step := self.named(model, "load"))]
        self.queue += [crash, *loads] if crash else loads
        return {"do": "damage", "number": self.dice.randrange(1 << 30)}

    def drop(self, model):
        step = self.named(model, "drop") if "kept" in self.history else None
        return step and {"do": "drop", "mount": step["mount"], "path": step["path"]}

    def rest(self, model):
        return {"do": "rest"}

    def heal(self, model):
        return {"do": "heal"} if model.faults else None

    def fault(self, model):
        dice = self.dice
        if model.faults or self.faults == "none":
            return None
        operation = dice.choice([*OPERATIONS, dice.choice(OPERATIONS), "*"])
        rule = {"op": operation}
        if self.faults == "passing" and dice.random() < 0.25:
            rule.update(dice.choice(PARTICULAR), times=1, after=dice.choice([0, 0, 1]))
            operation = rule["op"]
        elif self.faults == "passing":
            rule.update(action=dice.choice(PASSING), times=dice.choice([1, 1, 2]), after=dice.choice([0, 0, 1, 2]))
        elif self.faults in ("slow", "delays"):
            action = dice.choice(["slow", "slow", "hang"]) if self.faults == "slow" else "slow"
            rule.update(action=action, ms=dice.choice([50, 300, 1500] if action == "slow" else [1500, 6000]))
            if action == "slow" and self.faults == "slow" and dice.random() < 0.3:
                rule["mbps"] = 5
        else:
            rule.update(action=dice.choice(LASTING))
        if dice.random() < 0.3 and operation not in ("ListObjectsV2", "DeleteObjects", "*"):
            rule["key"] = dice.choice(self.names)
        # A hang longer than --stall-timeout on every attempt is an outage. What the parts of an upload that is gone held
        # is not kept.
        hard = self.faults == "lasting" or rule["action"] in ("hang", "corrupt", "no-such-upload")
        return {"do": "fault", "rules": [rule], "hard": hard}


STRUCK = {"close": 6, "fsync": 3, "rename": 4, "save": 4, "save_again": 2, "truncate": 1, "open": 2, "write": 1, "cut": 1,
          "unlink": 1}
STRUCK_TREES = {"rename_tree": 3, "remove_tree": 1, "remove_files": 1, "fill": 1, "mark": 1}
SLOT_STEPS = {"write", "pwrite", "map_write", "truncate", "read", "map_read", "fsync", "close", "dup"}
