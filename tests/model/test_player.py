# SPDX-License-Identifier: Apache-2.0
"""What the player of histories finds out about the machine it runs on."""

import subprocess

from play import Player


def test_a_mount_that_another_process_unmounts_is_named(store):
    saves = [{"do": "save", "agent": "p0", "mount": 0, "path": "a.bin", "flags": "w", "tag": tag, "size": 100}
             for tag in (1, 2)]
    history = {"seed": 0, "mounts": 1, "agents": ["p0"], "options": [[]], "steps": saves}
    with Player(store, "unmounted/", history) as player:
        def following():
            if len(player.played) == 1:
                # The second save goes to the directory below the mount, and succeeds.
                subprocess.run(["umount", "--lazy", player.mounts[0].path], check=True)
            return saves[len(player.played)] if len(player.played) < len(saves) else None

        player.play_on(following)
    assert player.kind() == "unmounted save", player.told()
