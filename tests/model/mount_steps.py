# SPDX-License-Identifier: Apache-2.0
"""The driver's steps that concern mounts as wholes."""

import os
import signal
import subprocess
import time

from harness.programs import CKPTFS
from mount_rules import DRAIN
from reference import RETRY_FOR, SLOW


class Stuck(Exception):
    """A call did not return at all."""


class MountSteps:
    """Of a Player."""

    def has_differed(self) -> bool:
        """Looks for mounts that are gone first: without them, calls go to the bare directory, and succeed."""
        for index in range(self.model.points):
            if index not in self.model.ending and not self.mounts[index].is_mounted():
                # Ahead of what it led to. It is the tool's or the machine's doing unless the daemon ended by itself.
                self.model.differences.insert(0, ("unmounted", f"mount {index} is gone, and no step has ended it"))
                break
        return bool(self.model.differences)

    def wait_until_sent(self) -> None:
        """By all mounts. One that ends sends first."""
        for mount in self.mounts[:self.model.points]:
            if not mount.is_mounted():
                continue
            done = subprocess.run([CKPTFS, "wait", mount.path, "--timeout", "60s"], capture_output=True, text=True)
            if done.returncode != 0 and mount.is_mounted():
                self.model.differ("unsent", f"{mount.path}: {done.stderr.strip()}")

    def pause(self, step: dict) -> None:
        for call in self.calls.values():
            call.slowed = {"*"}
        self.mounts[step["mount"]].process.send_signal(signal.SIGSTOP)
        self.simple(step)

    def resume(self, step: dict) -> None:
        self.mounts[step["mount"]].process.send_signal(signal.SIGCONT)
        self.simple(step)

    def crash(self, step: dict) -> None:
        mount = self.mounts[step["mount"]]
        for call in self.calls.values():
            call.excused = True
        if step.get("way") == "group":
            os.killpg(mount.process.pid, signal.SIGKILL)
            mount.process.wait()
        else:
            mount.crash()
        self.made_again(step)

    def made_again(self, step: dict) -> None:
        """The step has ended one."""
        self.simple(step)
        self.end_faults()
        self.mounts[step["mount"]].start_again()
        for paused in list(self.model.paused):
            self.resume({"do": "resume", "mount": paused})
        self.settle_calls()
        self.check_bucket()

    def end_faults(self) -> None:
        """A mount is not made while the store refuses."""
        if self.model.faults:
            self.heal({"do": "heal"})

    def terminate(self, step: dict) -> None:
        self.mounts[step["mount"]].process.send_signal(signal.SIGTERM)
        self.simple(step)

    def ended(self, step: dict) -> None:
        index = step["mount"]
        mount, unsaved = self.mounts[index], self.model.unsaved_on(index, True)
        code = self.end_of(index)
        given_up = "not saved within the drain timeout: "
        named = [line.split(given_up)[1].removeprefix(self.prefix) for line in mount.log().splitlines()
                 if given_up in line]
        for file in unsaved:
            # What was saved and lost its name meanwhile is not named.
            if file.path not in named or code == 0:
                self.model.differ("exit", f"mount {index} ended with {code} and named {named}, not {file.path}")
        # "Until removals are made, acknowledged ones": one that the store has refused since is told by the exit code.
        # What the disk keeps for the next mount is.
        excused = self.model.failures or self.model.removals_refused or self.behind
        if code != 0 and not self.model.unsaved_on(index, False) and not excused:
            self.model.differ("exit", f"mount {index} ended with {code}")
        self.made_again(step)

    def end_of(self, index: int) -> int:
        """Of one that was told to end or was unmounted."""
        process = self.mounts[index].process
        deadline = time.monotonic() + DRAIN + SLOW + 2 * RETRY_FOR
        while process.poll() is None:
            if time.monotonic() > deadline:
                self.model.differ("stuck", f"mount {index} has not ended")
                raise Stuck
            self.agents.poll(0.05)
            self.take_answers()
        return process.returncode

    def damage(self, step: dict) -> None:
        """Of what is kept on the node's disk."""
        if self.kept is not None:
            self.note(f"<- damaged {self.kept.damage(step['number'])}")
        self.simple(step)

    def drop(self, step: dict) -> None:
        """What is in use stays, and a name that is not there is an error."""
        path = self.mounts[step["mount"]].path / step["path"]
        if self.kept is not None and not self.model.faults and not self.model.paused and not self.model.ending:
            try:
                done = subprocess.run([CKPTFS, "drop", path], capture_output=True, text=True, timeout=SLOW + RETRY_FOR)
                self.note(f"<- drop {done.returncode} {done.stderr.strip()}")
            except subprocess.TimeoutExpired:
                self.model.differ("stuck", f"{step} has not returned")
        self.simple(step)

    def unmount(self, step: dict) -> None:
        """By umount(8); then another is made at the same place."""
        index = step["mount"]
        mount = self.mounts[index]
        option = {"plain": [], "lazy": ["-l"], "force": ["-f"]}[step["way"]]
        done = subprocess.run(["umount", *option, mount.path], capture_output=True, text=True)
        ok = done.returncode == 0
        self.note(f"<- umount {done.returncode} {done.stderr.strip()}")
        if not ok and step["way"] == "lazy":
            self.model.differ("unmount", f"{step}: {done.stderr}")
        self.model.end(self.model.begin(step), {"ok": ok}, {})
        if ok or step["way"] == "force":
            # It may still have something to finish.
            self.mounts.append(mount)
            self.end_faults()
            self.mounts[index] = mount.next_one()
            self.check_bucket()
