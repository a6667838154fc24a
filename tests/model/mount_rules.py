# SPDX-License-Identifier: Apache-2.0
"""The rules of steps that concern mounts as wholes: they are stopped, killed, told to end and unmounted."""

import time

from name_rules import NameRules

# --drain-timeout of the mounts of the histories, and when a daemon that was told to end is too near to it to judge.
DRAIN = 8.0
NEAR = DRAIN - 3


class MountRules(NameRules):
    def pause_ready(self, step):
        return step["mount"] not in self.paused and step["mount"] not in self.ending

    def resume_ready(self, step):
        return step["mount"] in self.paused

    def pause_ends(self, call, result, found):
        self.paused.add(call.step["mount"])

    def resume_ends(self, call, result, found):
        self.paused.discard(call.step["mount"])

    def slots_on(self, mount: int) -> list[tuple[str, str]]:
        return [key for key, each in self.slots.items() if each.file.mount == mount]

    # --- a mount that ends, and one that is made in its place

    def crash_ready(self, step):
        return step["mount"] not in self.paused and step["mount"] not in self.ending

    def crash_ends(self, call, result, found):
        self.deaths = True
        mount = call.step["mount"]
        for each in self.calls.values():
            each.dead = each.dead or self.mount_of(each.step) == mount
        for owner, slot in self.slots_on(mount):
            file = self.slots[owner, slot].file
            if file.path is not None and (file.kept or file.vague()):
                self.names[file.path].may |= file.contents
                self.names[file.path].before |= file.contents
            if file.path is not None and (file.kept or file.perhaps_kept):
                # A publish that was on its way may still arrive.
                states = file.contents | file.states
                self.names[file.path].may |= states
                self.names[file.path].before |= states
                self.goes_on(file.path, states, self.retry_for + 1, None)
                self.overtake(file.path, file)
            if file.path is not None:
                self.failures.add(file.path)
            self.detach(owner, slot)
        self.nodes[mount] = {}
        self.ending.pop(mount, None)
        for path, name in self.names.items():
            if name.at_rest is not None:
                # Removals that were acknowledged and not made.
                name.at_rest = None

    def terminate_ready(self, step):
        return self.crash_ready(step) and not any(self.mount_of(each.step) == step["mount"]
                                                  for each in self.calls.values())

    def terminate_ends(self, call, result, found):
        self.ending[call.step["mount"]] = time.monotonic()

    def ended_ready(self, step):
        return step["mount"] in self.ending and not any(self.mount_of(each.step) == step["mount"]
                                                        for each in self.calls.values())

    ended_ends = crash_ends

    def is_unsaved(self, file, surely: bool) -> bool:
        """Whether a mount that was told to end has to wait for it."""
        unclear = (file.vague() or file.failed or file.unjudged or file.overtaken or file.kept or file.perhaps_kept
                   or file.perhaps_saved or file.split or file.sibling or file.cut_away is not False)
        writers = file.path is not None and bool(file.writers())
        return writers and bool(file.changed_by and not unclear) if surely else writers

    def unsaved_on(self, mount: int, surely: bool) -> list:
        return [file for file in self.files() if file.mount == mount and self.is_unsaved(file, surely)]

    def may_have_ended(self, step) -> bool:
        """Of one that was told to: it waits for what is unsaved, for so long."""
        mount = self.mount_of(step) if "agent" in step else None
        return mount in self.ending and (not self.unsaved_on(mount, True)
                                         or time.monotonic() > self.ending[mount] + NEAR)

    # --- unmounted by the side: what is open stays with the old one

    def unmount_ready(self, step):
        mount = step["mount"]
        return self.crash_ready(step) and not any(
            each.step.get("mount") == mount for each in self.calls.values()) and (
            step["way"] != "force" or not any(self.mount_of(each.step) == mount for each in self.calls.values()))

    def unmount_ends(self, call, result, found):
        mount, old = call.step["mount"], self.mounts
        if not result["ok"]:
            if call.step["way"] != "force":
                return
            # Busy, it is still there, and the kernel asks its daemon for nothing more. Of logs that may go on.
            for file in self.files():
                if file.mount == mount and file.path is not None and (file.kept or file.perhaps_kept):
                    self.goes_on(file.path, set(file.contents), DRAIN, old)
            self.crash_ends(call, result, found)
        self.mounts += 1
        self.nodes.append(self.nodes[mount])
        self.nodes[mount] = {}
        for file in [*self.files(), *self.nodes[old].values()]:
            if file.mount == mount:
                file.mount = old
        self.ghosts = [(old if where == mount else where, *rest) for where, *rest in self.ghosts]
        if mount in self.removals:
            self.removals[old] = self.removals.pop(mount)
        for path, remover in self.last_remover.items():
            self.last_remover[path] = old if remover == mount else remover
        for kind in (self.cached, self.tight):
            if mount in kind:
                kind.add(old)
