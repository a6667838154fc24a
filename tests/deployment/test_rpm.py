# SPDX-License-Identifier: Apache-2.0
"""The RPM package of this machine's build: what is in it, and what it does when it comes and goes."""

import pathlib

import pytest

from harness.debian import run
from harness.programs import BUILD, VERSION

# A copy of this machine that forgets.
_COPY = """
mount -t tmpfs tmpfs "$0" && cd "$0" && mkdir upper work root &&
mount -t overlay overlay -o lowerdir=/,upperdir=upper,workdir=work root && mount -t tmpfs tmpfs root/run &&
cp "$1" root/ckptfs.rpm && exec chroot root /bin/sh -exc "$2"
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory) -> pathlib.Path:
    directory = tmp_path_factory.mktemp("rpm")
    run("cpack", "-G", "RPM", "--config", BUILD / "CPackConfig.cmake", "-B", directory, seconds=200)
    made, = directory.glob("*.rpm")
    return made


def test_it_holds_what_a_node_needs_and_no_directory_of_others(package):
    files = dict(line.split() for line in
                 run("rpm", "-qp", "--queryformat", "[%{FILENAMES} %{FILEMODES:perms}\\n]", package).splitlines())
    assert files["/usr/bin/ckptfs"] == "-rwxr-xr-x"
    assert files["/usr/sbin/mount.ckptfs"].startswith("l")
    for name in ("lib/systemd/system/ckptfs@.service", "share/man/man1/ckptfs.1", "share/man/man8/mount.ckptfs.8",
                 "share/bash-completion/completions/ckptfs", "share/doc/ckptfs/README.md"):
        assert files[f"/usr/{name}"] == "-rw-r--r--", name
    of_ours = "/usr/share/doc/ckptfs"
    assert [name for name, mode in files.items() if mode.startswith("d") and not name.startswith(of_ours)] == []


def test_it_asks_for_the_libraries_that_it_was_linked_with(package):
    requires = run("rpm", "-qp", "--requires", package)
    for name in "fuse3\n", "ca-certificates\n", "libfuse3.so.3(", "libcurl.so.4(", "libcrypto.so.3(", "libzstd.so.1(":
        assert name in requires, name
    assert run("rpm", "-qp", "--queryformat", "%{NAME} %{LICENSE}", package) == "ckptfs Apache-2.0"


def test_it_comes_and_goes(package, tmp_path):
    said = run("unshare", "--mount", "--propagation", "private", "sh", "-c", _COPY, tmp_path, package, """
        rm -rf /etc/ckptfs /var/lib/ckptfs /usr/bin/ckptfs
        rpm --install --nodeps /ckptfs.rpm
        stat -c %a /etc/ckptfs
        ckptfs --version
        test "$(readlink -f /usr/sbin/mount.ckptfs)" = /usr/bin/ckptfs
        touch /etc/ckptfs/credentials
        rpm --erase ckptfs
        test -e /etc/ckptfs/credentials && test ! -e /usr/bin/ckptfs && test ! -e /usr/sbin/mount.ckptfs
        rm /etc/ckptfs/credentials
        rpm --install --nodeps /ckptfs.rpm
        rpm --erase ckptfs
        test ! -e /etc/ckptfs
        """)
    assert said.split() == ["700", "ckptfs", VERSION]
