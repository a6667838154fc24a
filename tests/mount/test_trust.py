# SPDX-License-Identifier: Apache-2.0
"""Whose words are believed: options name programs, so that only those of one's own mounts and of root's are taken."""

import json
import os
import pathlib
import pwd
import tempfile

import pytest

from harness.installed import InstalledMachine
from harness.programs import wait_until
from harness.simulator import ACCESS_KEY, BUCKET, SECRET_KEY

NOBODY = pwd.getpwnam("nobody").pw_uid
PROGRAM = """#!/bin/sh
id -u >> {directory}/users
echo '{credentials}'
"""


@pytest.fixture(scope="module")
def installed():
    machine = InstalledMachine()
    yield machine
    machine.remove()


@pytest.fixture
def users_mount(installed, simulator, prefix, request):
    """Of a user whose credentials come from a program of his."""
    directory = installed.mount_point(request.node.name + "-home", owner=NOBODY)
    credentials = {"Version": 1, "AccessKeyId": ACCESS_KEY, "SecretAccessKey": SECRET_KEY}
    program = directory / "program"
    program.write_text(PROGRAM.format(directory=directory, credentials=json.dumps(credentials)))
    program.chmod(0o755)
    (directory / "users").touch()
    (directory / "users").chmod(0o666)
    (directory / "credentials").write_text(f"[default]\ncredential_process = {program}\n")
    point = installed.mount_point(request.node.name, owner=NOBODY)
    environment = {"AWS_ENDPOINT_URL": simulator.url, "AWS_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true",
                   "HOME": str(directory), "CKPTFS_STATE_DIR": str(directory / "state")}
    mounted = installed.run("ckptfs", "mount", f"s3://{BUCKET}/{prefix}", point, "--credentials-file",
                            directory / "credentials", "--log-file", directory / "log", environment=environment,
                            user=NOBODY)
    assert mounted.returncode == 0, mounted.stderr
    assert installed.run("tee", point / "file", input="text", user=NOBODY).returncode == 0
    yield point, directory, environment
    installed.run("umount", "--lazy", point)
    wait_until(lambda: not installed.daemons(), "the daemon to end", 60)


@pytest.mark.parametrize("tool", ["doctor", "gc", "verify"])
def test_root_runs_no_program_of_another_user(installed, users_mount, tool):
    point, directory, environment = users_mount
    assert set((directory / "users").read_text().split()) == {str(NOBODY)}
    told = installed.run("ckptfs", tool, point, environment=environment)
    assert set((directory / "users").read_text().split()) == {str(NOBODY)}
    if tool == "doctor":
        assert f"user {NOBODY}" in told.stdout + told.stderr
    # To its own user it is as before.
    own = installed.run("ckptfs", tool, point, environment=environment, user=NOBODY)
    assert own.returncode == 0, own.stdout + own.stderr
    # Root still sees how it is, and ends it.
    assert str(point) in installed.run("ckptfs", "status").stdout
    assert installed.run("ckptfs", "unmount", point).returncode == 0


def test_a_directory_that_another_user_made_first_is_passed_over(installed, simulator, prefix, request):
    user = pwd.getpwnam("games").pw_uid
    point = installed.mount_point("passed-over", owner=user)
    log = installed.mount_point("passed-over-logs", owner=user) / "log"
    with tempfile.TemporaryDirectory(prefix=f"ckptfs-{user}-") as others, \
            tempfile.TemporaryDirectory(prefix=f"ckptfs-{user}-") as open_to_all:
        os.chown(others, NOBODY, NOBODY)
        os.chown(open_to_all, user, user)
        os.chmod(open_to_all, 0o777)
        # Its name was known beforehand.
        known = pathlib.Path(f"/tmp/ckptfs-{user}")
        known.mkdir(mode=0o700)
        os.chown(known, NOBODY, NOBODY)
        request.addfinalizer(known.rmdir)
        environment = {**simulator.environment(), "CKPTFS_STATE_DIR": str(log.parent / "state")}
        mounted = installed.run("ckptfs", "mount", f"s3://{BUCKET}/{prefix}", point, "--log-file", log,
                                environment=environment, user=user)
        assert mounted.returncode == 0, mounted.stderr
        assert "unmount will not reach" not in log.read_text()
        assert os.listdir(others) == os.listdir(open_to_all) == os.listdir(known) == []
        for asking in user, 0:
            assert str(point) in installed.run("ckptfs", "status", point, user=asking).stdout
        assert installed.run("ckptfs", "unmount", point, user=user).returncode == 0
    wait_until(lambda: not installed.daemons(), "the daemon to end", 60)
