# SPDX-License-Identifier: Apache-2.0
"""The rules of a commit marker: when it must not get its name, and what else is saved before it does."""

import time

from calls import Call
from mount_rules import MountRules
from reference import ABSENT, GONE, TTL, Outcome, bytes_of

MARKER = ".metadata"
# What concerns all below a directory.
WHOLE = {"remove_files", "remove_tree", "rename_tree", "fill", "mkdir"}


class MarkerRules(MountRules):
    """"It does not get its name while another file below its directory is known to have failed, on any mount"."""

    def ready(self, step: dict) -> bool:
        return super().ready(step) and not self.beside_marker(step)

    def beside_marker(self, step: dict) -> bool:
        """Below the directory of one that is being committed: what is written then may be saved with it, or not."""
        description = self.slots.get((step.get("agent"), step.get("slot")))
        paths = [step.get("path"), step.get("other"), description.file.path if description else None]
        return any(f"{path}/".startswith(call.step["path"].removesuffix(MARKER))
                   for call in self.calls.values() if call.step["do"] == "mark" for path in paths if path)

    def begin(self, step: dict) -> Call:
        call = super().begin(step)
        self.note_made_good(call)
        return call

    def note_made_good(self, call: Call) -> None:
        """Writing, removing or renaming a failed file clears its failure."""
        step = call.step
        looks = self.looked_at(call) is not None or step["do"] in ("mark", "list", "sync_directory")
        if looks or "agent" not in step:
            return
        places = {path for path in (step.get("path"), step.get("other")) if path}
        gone = {path for path in self.held_back | self.fails_soon
                if path in places | set(call.touched)
                or (step["do"] in WHOLE and any(path.startswith(place + "/") for place in places))}
        self.held_back -= gone
        self.fails_soon -= gone

    def rest(self, found: dict[str, bytes]) -> None:
        super().rest(found)
        if not self.trouble and not self.ending:
            # The mount has noticed, and other mounts can see it.
            self.held_back |= self.fails_soon
            self.fails_soon = set()

    def crash_ends(self, call, result, found):
        # What the mount had not told yet, nobody knows any more.
        self.fails_soon = set()
        return super().crash_ends(call, result, found)

    def below_marker(self, step: dict) -> list:
        """Files that are open below its directory, on any mount."""
        directory = step["path"].removesuffix(MARKER)
        return [file for file in self.files() if file.path is not None and file.path.startswith(directory)]

    def mark_ready(self, step):
        directory = step["path"].removesuffix("/" + MARKER)
        return (directory in self.directories and self.quiet_below(directory) and
                not any(path.startswith(directory + "/") for call in self.calls.values()
                        for path in {call.step.get("path", ""), call.step.get("path", "") + "/", *call.touched}))

    def mark_begins(self, step):
        step["at"] = 0
        for file in self.below_marker(step):
            if file.mount == step["mount"] and (file.changed_by or file.fresh):
                # "Before a marker is committed, the mount commits what other programs on it have written".
                self.perhaps_published(file)
                file.perhaps_saved = True
                self.overtake(file.path, file)
                self.cut_away(file.path, file.mount, file, "", file.truncated, False, False)
        temporary = {self.temporary(step): {bytes_of(step), ABSENT}} if step.get("renamed") else {}
        return Call(step, {step["path"]: {bytes_of(step)}, **temporary})

    @staticmethod
    def temporary(step: dict) -> str:
        return f"{step['path']}.tmp"

    def mark_ends(self, call, result, found):
        step = call.step
        directory = step["path"].removesuffix(MARKER)
        below = self.below_marker(step)
        if result["ok"]:
            failed = sorted(path for path in self.held_back if path.startswith(directory))
            if failed:
                self.differ("marker", f"{failed} has failed, and {step} succeeded")
            self.nodes[step["mount"]].pop(step["path"], None)
            gone = {self.temporary(step): Outcome({ABSENT}, True)} if step.get("renamed") else {}
            return {step["path"]: Outcome({bytes_of(step)}, True), **gone}
        # Another mount may be writing below it, or has written, or has failed.
        others = below or self.failures or self.deaths or any(
            each[1].startswith(directory) for each in self.ghosts if self.ghosts_of(each[0], each[1]) is not None)
        self.refused(call, result, *(["EIO"] if others else []), *(GONE if time.monotonic() < self.renamed_at + TTL else ()))
        for file in below:
            file.doubtful = file.doubtful or file.mount == step["mount"]
        self.failures.add(step["path"])
        return self.perhaps(call) if call.excused else {**self.perhaps(call), step["path"]: Outcome(set(), False)}

    def note_failed_writer(self, file) -> None:
        """It was killed while it wrote, and nobody else had the file open for writing."""
        unclear = (file.failed or file.overtaken or file.unjudged or file.doubtful or file.split or file.sibling
                   or file.perhaps_saved or file.cut_away is not False or self.trouble or file.mount in self.ending
                   or self.names[file.path].active)
        if not unclear:
            self.fails_soon.add(file.path)
