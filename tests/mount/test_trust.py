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
NO_METADATA = {"AWS_EC2_METADATA_DISABLED": "true"}
# What each asks about, in a mount.
TOOLS = [("doctor", ""), ("gc", ""), ("verify", ""), ("inspect", "file"), ("cat", "file")]
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


@pytest.mark.parametrize("tool, name", TOOLS)
def test_root_runs_no_program_of_another_user(installed, users_mount, tool, name):
    point, directory, environment = users_mount
    assert set((directory / "users").read_text().split()) == {str(NOBODY)}
    told = installed.run("ckptfs", tool, point / name, environment=environment)
    assert set((directory / "users").read_text().split()) == {str(NOBODY)}
    if tool == "doctor":
        assert f"user {NOBODY}" in told.stdout + told.stderr
    # To its own user it is as before.
    own = installed.run("ckptfs", tool, point / name, environment=environment, user=NOBODY)
    assert own.returncode == 0, own.stdout + own.stderr
    if tool == "cat":
        assert told.returncode != 0 and (told.stdout, own.stdout) == ("", "text")
    # Root still sees how it is, and ends it.
    assert str(point) in installed.run("ckptfs", "status").stdout
    assert installed.run("ckptfs", "unmount", point).returncode == 0


@pytest.fixture
def roots_mount(installed, simulator, prefix, request):
    """Open to all users, as is the file with its keys. Then its line of fstab."""
    point = installed.mount_point(request.node.name)
    directory = installed.mount_point(request.node.name + "-home")
    keys = directory / "credentials"
    keys.write_text(f"[of-the-mount]\naws_access_key_id = {ACCESS_KEY}\naws_secret_access_key = {SECRET_KEY}\n")
    keys.chmod(0o644)
    source, options = f"s3://{BUCKET}/{prefix}", {"endpoint-url": simulator.url, "region": "us-east-1",
                                                  "credentials-file": str(keys), "profile": "of-the-mount"}
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    mounted = installed.run("ckptfs", "mount", source, point, "--allow-other", *words, "--log-file", directory / "log",
                            environment=NO_METADATA)
    assert mounted.returncode == 0, mounted.stderr
    assert installed.run("tee", point / "file", input="text").returncode == 0
    yield point, f"{source} {point} ckptfs {','.join('='.join(each) for each in options.items())} 0 0\n"
    installed.fstab.write_text("")
    installed.run("umount", "--lazy", point)
    wait_until(lambda: not installed.daemons(), "the daemon to end", 60)


@pytest.mark.parametrize("tool, name", TOOLS)
def test_a_user_takes_the_options_of_roots_mount_from_fstab_alone(installed, roots_mount, tool, name):
    """Root's daemon tells them to nobody else, and what is in fstab all may read."""
    point, line = roots_mount

    def ask():
        told = installed.run("ckptfs", tool, point / name, user=NOBODY, environment={**NO_METADATA, "HOME": "/none"})
        return told.returncode, told.stdout + told.stderr

    code, told = ask()
    assert code != 0 and "no credentials in the environment" in told
    installed.fstab.write_text(line)
    code, told = ask()
    if tool == "doctor":
        # It fails for a daemon that does not answer.
        assert "ok    credentials" in told and "ok    put " in told, told
    else:
        assert code == 0, told
    if tool == "cat":
        # Also that others may read the keys.
        assert told.startswith("text")


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
