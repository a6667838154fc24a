# SPDX-License-Identifier: Apache-2.0
"""A mount at the place of one whose daemon still finishes what it had to do."""

import os
import subprocess
import sys

import pytest
from harness.mounts import Mount
from harness.programs import wait_until
from harness.simulator import BUCKET

pytestmark = pytest.mark.sanitized


def place_of(path) -> str:
    """The mount's id, which the kernel gives again."""
    with open("/proc/self/mountinfo") as table:
        return [line.split()[0] for line in table if line.split()[4] == str(path)][-1]


@pytest.mark.parametrize("next_one", ["ckptfs", "tmpfs"])
def test_a_daemon_that_still_finishes_leaves_the_next_mount_alone(mount, simulator, prefix, request, next_one):
    first = mount()
    (first / "d").mkdir()
    names = [first / f"d/{number}" for number in range(40)]
    for name in names:
        name.write_bytes(b"x")
    os.listdir(first / "d")
    simulator.inject({"op": "DeleteObjects", "action": "hang"})
    for name in names:
        name.unlink()
    wait_until(lambda: simulator.fault_hits() > 0, "removals that hang")
    subprocess.run(["umount", first.path], check=True)
    if next_one == "ckptfs":
        second = Mount(f"s3://{BUCKET}/{prefix}", simulator.environment(), at=first.path)
        request.node.mounts.append(second)
    else:
        subprocess.run(["mount", "-t", "tmpfs", "none", first.path], check=True)
    try:
        # That of the first, unless something else on the machine was mounted at this moment.
        number = place_of(first.path)
        assert first.process.poll() is None
        (first / "saved").write_bytes(b"after the first was unmounted")
        simulator.clear_faults()
        assert first.process.wait(30) == 0
        assert place_of(first.path) == number
        assert (first / "saved").read_bytes() == b"after the first was unmounted"
    finally:
        if next_one == "tmpfs":
            subprocess.run(["umount", first.path], check=True)
    assert not [key for key in simulator.keys(prefix) if key.startswith(prefix + "d/") and not key.endswith("/")]


def test_what_a_daemon_leaves_that_is_killed_while_it_finishes_is_ended(mount, simulator, prefix, request):
    first = mount("--compress", "none")
    (first / "d").mkdir()
    simulator.inject({"op": "UploadPart", "key": prefix + "d/file", "after": 1, "action": "hang"})
    writer = subprocess.Popen([sys.executable, "-c", "import sys; open(sys.argv[1], 'wb').write(bytes(range(256)) * 160_000)",
                               first / "d/file"])
    request.addfinalizer(writer.kill)
    wait_until(lambda: simulator.fault_hits() > 0, "a part that hangs")
    subprocess.run(["umount", "--lazy", first.path], check=True)
    second = Mount(f"s3://{BUCKET}/{prefix}", simulator.environment(), at=first.path)
    request.node.mounts.append(second)
    assert simulator.open_uploads(prefix)
    first.process.kill()
    first.process.wait()
    simulator.clear_faults()
    wait_until(lambda: not simulator.open_uploads(prefix), "the upload to be ended", 60)
    assert simulator.failed_files(prefix) == ["d/file"]
