# SPDX-License-Identifier: Apache-2.0
"""The Debian package: what is in it, and a Debian 12 that has nothing else."""

import contextlib
import os
import pathlib
import shutil
import subprocess

import pytest

from harness.programs import BUILD
from harness.simulator import ACCESS_KEY, BUCKET, SECRET_KEY


def run(*words, seconds: int = 60, **options) -> str:
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=seconds, check=False, **options)
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done.stdout


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
                 "share/doc/ckptfs/copyright"):
        assert f"./usr/{name}" in files, name
    depends = run("dpkg-deb", "--field", package, "Depends")
    for name in ("fuse3", "ca-certificates", "libfuse3-3", "libcurl4", "libc6"):
        assert name in depends, name


class Debian:
    """A tree made by debootstrap(8), with the package sources of this machine."""

    def __init__(self, tree: pathlib.Path) -> None:
        self.tree = tree
        mirror = run("apt-get", "indextargets", "--format", "$(SITE)", "Codename: bookworm").splitlines()[0]
        run("debootstrap", "--variant=minbase", "bookworm", tree, mirror, seconds=900)
        for name in ("apt/sources.list", "apt/sources.list.d", "apt/apt.conf.d", "apt/auth.conf.d"):
            source = pathlib.Path("/etc") / name
            if source.is_dir():
                shutil.copytree(source, tree / "etc" / name, dirs_exist_ok=True)
            elif source.exists():
                shutil.copy(source, tree / "etc" / name)
        for name in ("resolv.conf", "hosts"):
            shutil.copy(f"/etc/{name}", tree / "etc" / name)
        run("chroot", tree, "apt-get", "update", "-qq", seconds=300)

    def run(self, script: str, seconds: int = 60) -> str:
        """As root in there, with its own mounts, which end with the script."""
        setup = ('mount -t proc proc "$0/proc" && mount -t tmpfs tmpfs "$0/run" && mount --rbind /dev "$0/dev" && '
                 'exec chroot "$0" /bin/sh -ec "$1"')
        return run("unshare", "--mount", "--propagation", "private", "sh", "-c", setup, self.tree, script,
                   seconds=seconds, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive", "HOME": "/root"})

    def files_of_ours(self) -> list[str]:
        found = []
        for directory, _, names in os.walk(self.tree):
            with contextlib.suppress(ValueError):
                place = pathlib.Path(directory).relative_to(self.tree)
                if place.parts[:3] != ("var", "cache", "apt"):
                    found += [str(place / name) for name in names if "ckptfs" in name]
        return [name for name in found if not name.startswith(("ckptfs.deb", "var/log"))]


@pytest.mark.full
def test_a_bare_debian_installs_it_mounts_and_removes_it(package, simulator, prefix, tmp_path):
    debian = Debian(tmp_path / "tree")
    shutil.copy(package, debian.tree / "ckptfs.deb")
    before = debian.files_of_ours()
    debian.run("apt-get install -y -qq --no-install-recommends /ckptfs.deb", seconds=600)
    assert "usr/sbin/mount.ckptfs" in debian.files_of_ours()
    assert (debian.tree / "etc/ckptfs").stat().st_mode & 0o777 == 0o700

    (debian.tree / "etc/ckptfs/credentials").write_text(
        f"[default]\naws_access_key_id = {ACCESS_KEY}\naws_secret_access_key = {SECRET_KEY}\n")
    (debian.tree / "etc/fstab").write_text(
        f"s3://{BUCKET}/{prefix} /mnt ckptfs _netdev,nofail,endpoint_url={simulator.url},"
        "credentials_file=/etc/ckptfs/credentials,log_file=/var/log/ckptfs 0 0\n")
    said = debian.run("mount -a; mount -a; echo saved > /mnt/file; cat /mnt/file; findmnt -n -o SOURCE,FSTYPE /mnt; "
                      "umount /mnt; ckptfs --version")
    assert said.split() == ["saved", f"s3://{BUCKET}/{prefix}", "fuse.ckptfs", "ckptfs", "0.1.0"]
    assert simulator.content(f"{prefix}file") == b"saved\n"

    debian.run("apt-get remove -y -qq ckptfs", seconds=300)
    assert [name for name in debian.files_of_ours() if name.startswith("usr/")] == []
    assert (debian.tree / "etc/ckptfs/credentials").exists(), "what an administrator wrote stays"
    (debian.tree / "etc/ckptfs/credentials").unlink()
    debian.run("apt-get purge -y -qq ckptfs", seconds=300)
    assert debian.files_of_ours() == before
    assert not (debian.tree / "etc/ckptfs").exists()
