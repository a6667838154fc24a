# SPDX-License-Identifier: Apache-2.0
"""mount(8), fstab(5), umount(8) and findmnt(8), with ckptfs installed as `cmake --install` does it."""

import json
import os
import pathlib
import pwd
import signal
import subprocess

import pytest

from harness.installed import InstalledMachine
from harness.programs import BUILD, wait_until
from harness.simulator import ACCESS_KEY, BUCKET, SECRET_KEY

NOBODY = pwd.getpwnam("nobody").pw_uid


@pytest.fixture(scope="module")
def installed():
    machine = InstalledMachine()
    yield machine
    machine.remove()


@pytest.fixture
def machine(installed, simulator):
    """With nothing mounted, and keys that a mount at boot finds."""
    (installed.directory / "credentials").write_text(
        f"[default]\naws_access_key_id = {ACCESS_KEY}\naws_secret_access_key = {SECRET_KEY}\n")
    yield installed
    for point, *_ in installed.mounts():
        done = installed.run("umount", "--lazy", point)
        assert done.returncode == 0, done.stderr


@pytest.fixture
def options(machine, simulator):
    """What every line of fstab needs to reach the store."""
    return f"endpoint_url={simulator.url},credentials_file={machine.directory}/credentials,log_file=/dev/null"


@pytest.fixture
def point(machine, request):
    return machine.mount_point(request.node.name)


def assert_done(done) -> None:
    assert (done.returncode, done.stderr) == (0, "")


def test_mount_a_mounts_every_line_once(machine, simulator, prefix, options):
    points = [machine.mount_point("one"), machine.mount_point("two")]
    sources = [f"s3://{BUCKET}/{prefix}a", f"s3://{BUCKET}/{prefix}b/"]
    machine.fstab.write_text(
        f"{sources[0]} {points[0]} ckptfs _netdev,nofail,x-systemd.requires=network-online.target,comment=ours,"
        f"allow_other,{options} 0 0\n"
        f"{sources[1]} {points[1]} fuse.ckptfs _netdev,nofail,noatime,{options} 0 0\n"
        f"s3://{BUCKET}/{prefix}c {machine.directory}/three ckptfs noauto,{options} 0 0\n")
    assert_done(machine.run("mount", "-a"))
    assert [mount[:2] for mount in machine.mounts()] == list(zip(map(str, points), sources))

    again = machine.run("mount", "-a", "-v")
    assert again.returncode == 0
    assert [line.split()[0].rstrip(":") for line in again.stdout.splitlines()
            if "already mounted" in line] == list(map(str, points))
    assert len(machine.mounts()) == 2

    found = json.loads(machine.run("findmnt", "--json", "-t", "fuse.ckptfs", "-o", "SOURCE,TARGET").stdout)
    shown = {entry["target"]: entry["source"] for entry in found["filesystems"]}
    assert [shown[str(point)] for point in points] == sources
    assert_done(machine.run("tee", points[0] / "file", input="saved"))
    assert simulator.content(f"{prefix}a/file") == b"saved"
    for point in points:
        assert_done(machine.run("umount", point))
    assert machine.mounts() == []


def test_a_line_whose_daemon_was_killed_is_mounted_again_by_name(machine, prefix, options, point):
    machine.fstab.write_text(f"s3://{BUCKET}/{prefix} {point} ckptfs _netdev,{options} 0 0\n")
    assert_done(machine.run("mount", point))
    daemon, = machine.daemons()
    os.kill(daemon, signal.SIGKILL)
    wait_until(lambda: not machine.daemons(), "the daemon to be gone")
    # At first, whoever asks is told that the connection was aborted.
    wait_until(lambda: "not connected" in machine.run("ls", point).stderr, "the mount to be dead")
    assert_done(machine.run("mount", point))
    assert_done(machine.run("ls", point))
    assert len(machine.mounts()) == 1


def test_options_mean_what_they_mean_to_mount(machine, prefix, options, point):
    source = f"s3://{BUCKET}/{prefix}"
    assert_done(machine.run("mount", "-t", "ckptfs", source, point, "-o",
                            f"ro,noexec,allow_other,uid=nobody,gid=12,dir_mode=0755,{options}"))
    (_, _, shown), = machine.mounts()
    assert {"ro", "noexec", "nosuid", "nodev"} <= set(shown.split(","))
    assert machine.run("stat", "-c", "%u:%g", point).stdout == f"{NOBODY}:12\n"
    refused = machine.run("touch", point / "file")
    assert "Read-only file system" in refused.stderr
    assert machine.run("ls", point, user=NOBODY).returncode == 0


def test_a_mount_that_runs_is_not_changed(machine, prefix, options, point):
    assert_done(machine.run("mount", "-t", "ckptfs", f"s3://{BUCKET}/{prefix}", point, "-o", options))
    refused = machine.run("mount", "-o", "remount,ro", point)
    assert refused.returncode == 1
    assert "unmount it and mount it again" in refused.stderr
    assert machine.run("touch", point / "file").returncode == 0
    # What the line says to do instead.
    assert_done(machine.run("mount", "-i", "-o", "remount,ro", point))
    assert machine.run("touch", point / "other").returncode == 1
    assert (machine.run("ls", point).stdout) == "file\n"


def test_a_mount_of_fstab_that_fails_is_examined_by_its_directory(machine, options, point):
    machine.fstab.write_text(f"s3://no-such-bucket {point} ckptfs noauto,{options} 0 0\n")
    refused = machine.run("mount", point)
    assert refused.returncode == 32
    assert f"ckptfs doctor {point} says more" in refused.stderr and "with the same options" not in refused.stderr


def test_what_mount_asks_of_its_helpers(machine, prefix, options, point):
    source = f"s3://{BUCKET}/{prefix}"
    assert_done(machine.run("mount", "--fake", "-t", "ckptfs", source, point, "-o", options))
    assert machine.mounts() == []
    wrong = machine.run("mount", "-t", "ckptfs", source, point, "-o", f"{options},nonsense")
    assert wrong.returncode == 1
    assert "-o nonsense: there is no such option" in wrong.stderr
    missing = machine.run("mount", "-t", "ckptfs", "s3://no-such-bucket", point, "-o", options)
    assert missing.returncode == 32
    assert "no-such-bucket" in missing.stderr
    assert_done(machine.run("mount", "-s", "-r", "-n", "-t", "ckptfs", source, point, "-o", f"{options},nonsense"))
    assert machine.mounts()[0][2].startswith("ro,")


def test_mount_enters_another_mount_namespace(machine, prefix, options, point):
    # A helper of this test's own namespace, for a mount in that of the machine.
    script = (f'mount -t overlay overlay -o "lowerdir={machine.directory}/usr:/usr" /usr && '
              f'mount -N {machine.namespace} -t ckptfs s3://{BUCKET}/{prefix} {point} -o {options} && '
              f'exec grep -c {point} /proc/self/mountinfo')
    done = machine.run("unshare", "--mount", "sh", "-c", script)
    assert (done.returncode, done.stdout) == (1, "0\n"), done.stderr
    assert [mount[0] for mount in machine.mounts()] == [str(point)]


def test_a_user_mounts_what_fstab_lets_users_mount(machine, simulator, prefix, options):
    point = machine.mount_point("of-a-user", owner=NOBODY)
    (machine.directory / "credentials").chmod(0o644)
    machine.fstab.write_text(f"s3://{BUCKET}/{prefix} {point} ckptfs noauto,user,{options} 0 0\n")
    assert_done(machine.run("mount", point, user=NOBODY))
    (_, _, shown), = machine.mounts()
    assert "noexec" in shown.split(",")
    assert_done(machine.run("tee", point / "file", user=NOBODY, input="saved"))
    assert simulator.content(f"{prefix}file") == b"saved"
    assert machine.run("ls", point).returncode != 0, "a mount without allow_other is its user's alone"
    assert_done(machine.run("umount", point, user=NOBODY))
    assert machine.mounts() == []


def test_a_mount_without_home_finds_its_users_own_keys(machine, simulator, prefix, point):
    keys = machine.directory / "home" / ".aws"
    keys.mkdir(parents=True)
    (machine.directory / "credentials").rename(keys / "credentials")
    passwd = machine.directory / "passwd"
    passwd.write_text(f"root:x:0:0:root:{keys.parent}:/bin/sh\n")
    script = (f"mount --bind {passwd} /etc/passwd && mount -t ckptfs s3://{BUCKET}/{prefix} {point} "
              f"-o endpoint_url={simulator.url},log_file=/dev/null && echo saved > {point}/file && umount {point}")
    assert_done(machine.run("unshare", "--mount", "sh", "-c", script))
    assert simulator.content(f"{prefix}file") == b"saved\n"


def completed(machine, *words: str) -> list[str]:
    """What bash offers for the last word."""
    script = ("source /usr/share/bash-completion/completions/ckptfs; compopt() { :; }; COMP_WORDS=(\"$@\"); "
              "COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _ckptfs; printf '%s\\n' \"${COMPREPLY[@]}\"")
    done = machine.run("bash", "-c", script, "bash", *words)
    assert_done(done)
    return done.stdout.split()


def test_bash_completes_commands_options_and_mounts(machine, prefix, options, point):
    assert completed(machine, "ckptfs", "unm") == ["unmount"]
    assert completed(machine, "ckptfs", "mount", "--part") == ["--part-size"]
    assert completed(machine, "ckptfs", "mount", "--read") == ["--read-only"]
    assert completed(machine, "ckptfs", "mount", "s3://b", "/mnt", "-o", "_netdev,part") == ["_netdev,part-size="]
    assert "--allow-other" not in completed(machine, "ckptfs", "cat", "--")
    (machine.directory / "model.pt").touch()
    assert completed(machine, "ckptfs", "cat", f"{machine.directory}/mod") == [f"{machine.directory}/model.pt"]
    assert {"--region", "--foreground", "--max-memory"} <= set(completed(machine, "ckptfs", "mount", "--"))
    assert_done(machine.run("mount", "-t", "ckptfs", f"s3://{BUCKET}/{prefix}", point, "-o", options))
    assert completed(machine, "ckptfs", "unmount", f"{point}"[:-1]) == [str(point)]


def test_the_helper_is_a_link_where_mount_looks(machine, tmp_path):
    sbin = machine.directory / "usr/sbin/mount.ckptfs"
    assert os.readlink(sbin) == "../bin/ckptfs"
    assert sbin.resolve() == pathlib.Path(machine.directory / "usr/bin/ckptfs").resolve()
    assert (machine.directory / "usr/share/man/man8/mount.ckptfs.8").exists()


@pytest.mark.parametrize("package_installed", [False, True])
def test_what_was_installed_is_taken_away_again(tmp_path, package_installed):
    def cmake(*words: str) -> None:
        subprocess.run(["cmake", *words], check=True, capture_output=True, timeout=120,
                       env={**os.environ, "DESTDIR": str(tmp_path)})

    cmake("--install", str(BUILD))
    helper = tmp_path / "usr/sbin/mount.ckptfs"
    assert helper.is_symlink() and (tmp_path / "usr/local/bin/ckptfs").exists()
    of_others = tmp_path / "usr/local/bin/other"
    of_others.touch()
    if package_installed:
        helper.unlink()
        helper.symlink_to("../bin/ckptfs")
    cmake("--build", str(BUILD), "--target", "uninstall")
    left = [path for path in tmp_path.rglob("*") if path.is_symlink() or path.is_file()]
    assert sorted(left) == sorted([of_others, helper] if package_installed else [of_others])
