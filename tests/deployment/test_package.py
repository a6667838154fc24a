# SPDX-License-Identifier: Apache-2.0
"""The Debian package: what is in it, and a Debian 12 that has nothing else."""

import os
import pathlib
import shutil

import pytest

from harness.debian import Booted, Debian, run
from harness.programs import BUILD, VERSION, wait_until
from harness.simulator import ACCESS_KEY, BUCKET, SECRET_KEY


@pytest.fixture(scope="module")
def package(tmp_path_factory) -> pathlib.Path:
    """What `cmake --build BUILD --target package` makes of a build."""
    directory = tmp_path_factory.mktemp("package")
    run("cpack", "--config", BUILD / "CPackConfig.cmake", "-B", directory, seconds=200)
    made, = directory.glob("*.deb")
    return made


def test_the_package_holds_what_a_node_needs(package):
    files = {line.split()[5]: line.split()[0] for line in run("dpkg-deb", "--contents", package).splitlines()}
    assert files["./usr/bin/ckptfs"] == "-rwxr-xr-x"
    for name in ("sbin/mount.ckptfs", "lib/systemd/system/ckptfs@.service", "share/man/man1/ckptfs.1",
                 "share/man/man8/mount.ckptfs.8", "share/bash-completion/completions/ckptfs",
                 "share/doc/ckptfs/changelog", "share/doc/ckptfs/copyright"):
        assert f"./usr/{name}" in files, name
    depends = run("dpkg-deb", "--field", package, "Depends")
    for name in ("fuse3", "ca-certificates", "libfuse3-3", "libcurl4", "libc6"):
        assert name in depends, name


def files_of_ours(tree: pathlib.Path) -> list[str]:
    """What a package has left or brought; not the caches and logs of apt."""
    found = []
    for directory, _, names in os.walk(tree):
        place = pathlib.Path(directory).relative_to(tree)
        if place.parts[:2] not in (("var", "cache"), ("var", "log")):
            found += [str(place / name) for name in names if "ckptfs" in name]
    return [name for name in found if name != "ckptfs.deb"]


def write_credentials(tree: pathlib.Path) -> None:
    (tree / "etc/ckptfs/credentials").write_text(
        f"[default]\naws_access_key_id = {ACCESS_KEY}\naws_secret_access_key = {SECRET_KEY}\n")


@pytest.fixture(scope="module")
def debian(package, tmp_path_factory) -> Debian:
    made = Debian(tmp_path_factory.mktemp("debian") / "tree")
    shutil.copy(package, made.tree / "ckptfs.deb")
    yield made
    shutil.rmtree(made.tree)


@pytest.mark.full
@pytest.mark.timeout(1500)
def test_a_bare_debian_installs_it_mounts_and_removes_it(debian, simulator, prefix):
    before = files_of_ours(debian.tree)
    debian.install("/ckptfs.deb")
    assert "usr/sbin/mount.ckptfs" in files_of_ours(debian.tree)
    assert (debian.tree / "etc/ckptfs").stat().st_mode & 0o777 == 0o700

    write_credentials(debian.tree)
    (debian.tree / "etc/fstab").write_text(
        f"s3://{BUCKET}/{prefix} /mnt ckptfs _netdev,nofail,endpoint_url={simulator.url},"
        "credentials_file=/etc/ckptfs/credentials,log_file=/var/log/ckptfs 0 0\n")
    said = debian.run("mount -a; mount -a; echo saved > /mnt/file; cat /mnt/file; findmnt -n -o SOURCE,FSTYPE /mnt; "
                      "umount /mnt; ckptfs --version")
    assert said.split() == ["saved", f"s3://{BUCKET}/{prefix}", "fuse.ckptfs", "ckptfs", VERSION]
    assert simulator.content(f"{prefix}file") == b"saved\n"

    debian.run("apt-get remove -y -qq ckptfs", seconds=300)
    assert [name for name in files_of_ours(debian.tree) if name.startswith("usr/")] == []
    assert (debian.tree / "etc/ckptfs/credentials").exists(), "what an administrator wrote stays"
    (debian.tree / "etc/ckptfs/credentials").unlink()
    debian.run("apt-get purge -y -qq ckptfs", seconds=300)
    assert files_of_ours(debian.tree) == before
    assert not (debian.tree / "etc/ckptfs").exists()


@pytest.fixture(scope="module")
def machine(debian) -> Booted:
    """With one instance of the service that is watched closely, and a line in its fstab."""
    debian.install("systemd", "systemd-sysv", "dbus", "/ckptfs.deb")
    (debian.tree / "etc/fstab").write_text("")
    drop_in = debian.tree / "etc/systemd/system/ckptfs@.service.d/test.conf"
    drop_in.parent.mkdir(parents=True)
    drop_in.write_text("[Service]\nWatchdogSec=3\n")
    write_credentials(debian.tree)
    booted = Booted(debian)
    yield booted
    booted.shut_down()


@pytest.fixture
def service(machine, debian, simulator, prefix) -> str:
    """Started; mounted at /mnt/service."""
    (debian.tree / "etc/ckptfs/run7.conf").write_text(
        f"SOURCE=s3://{BUCKET}/{prefix}\nDIRECTORY=/mnt/service\nOPTIONS=endpoint_url={simulator.url}\n"
        f"AWS_ACCESS_KEY_ID={ACCESS_KEY}\nAWS_SECRET_ACCESS_KEY={SECRET_KEY}\n")
    name = "ckptfs@run7"
    machine.run("systemctl", "start", name)
    yield name
    machine.run("systemctl", "stop", name)


@pytest.mark.full
@pytest.mark.timeout(1500)
def test_systemd_starts_it_watches_it_and_stops_it(machine, service, simulator, prefix):
    assert machine.show(service, "StatusText") == f"s3://{BUCKET}/{prefix} is mounted at /mnt/service"
    machine.run("tee", "/mnt/service/file", input="saved")
    for end in "KILL", "STOP":
        # One that is stopped answers no watchdog.
        before = machine.show(service, "MainPID")
        machine.run("systemctl", "kill", "--signal", end, "--kill-who", "main", service)
        wait_until(lambda: (machine.show(service, "MainPID") not in ("0", before)
                            and machine.show(service, "SubState") == "running"), f"another daemon after SIG{end}", 30)
        assert machine.run("cat", "/mnt/service/file") == "saved"
    simulator.set_model(total_mbps=8)
    try:
        writer = machine.start("dd", "if=/dev/urandom", "of=/mnt/service/large", "bs=1M", "count=40", "status=none")
        wait_until(lambda: simulator.uploaded_parts(prefix), "the first part")
        machine.run("systemctl", "stop", service, seconds=120)
        assert writer.wait(60) == 0
    finally:
        simulator.set_model(total_mbps=0)
    assert len(simulator.content(f"{prefix}large")) == 40 << 20
    assert (machine.show(service, "Result"), machine.show(service, "SubState")) == ("success", "dead")
    assert "ckptfs" not in machine.run("cat", "/proc/self/mountinfo")
    told = machine.run("journalctl", "-u", service, "--no-pager", "-o", "cat").splitlines()
    assert f"info: s3://{BUCKET}/{prefix} is mounted at /mnt/service" in told


@pytest.mark.full
@pytest.mark.timeout(1500)
def test_a_service_without_its_file_does_not_start(machine):
    with pytest.raises(AssertionError):
        machine.run("systemctl", "start", "ckptfs@nothing")
    assert machine.show("ckptfs@nothing", "SubState") == "dead"


@pytest.mark.full
@pytest.mark.timeout(1500)
def test_systemd_mounts_what_fstab_says(machine, debian, simulator, prefix):
    (debian.tree / "mnt/line").mkdir()
    (debian.tree / "etc/fstab").write_text(
        f"s3://{BUCKET}/{prefix} /mnt/line ckptfs _netdev,nofail,endpoint_url={simulator.url},"
        "credentials_file=/etc/ckptfs/credentials 0 0\n")
    machine.run("systemctl", "daemon-reload")
    machine.run("systemctl", "start", "remote-fs.target", "mnt-line.mount")
    assert "network-online.target" in machine.show("mnt-line.mount", "After")
    machine.run("tee", "/mnt/line/file", input="saved")
    machine.run("systemctl", "restart", "mnt-line.mount")
    assert machine.run("cat", "/mnt/line/file") == "saved"
    told = f"info: s3://{BUCKET}/{prefix} is mounted at /mnt/line"
    assert told in machine.run("journalctl", "-t", "ckptfs", "--no-pager", "-o", "cat").splitlines()
    assert told not in machine.run("journalctl", "-t", "ckptfs", "--no-pager", "-p", "warning")
    machine.run("systemctl", "stop", "mnt-line.mount")
    assert simulator.content(f"{prefix}file") == b"saved"
