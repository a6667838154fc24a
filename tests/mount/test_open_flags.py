# SPDX-License-Identifier: Apache-2.0
"""What the flags of open(2) ask for beside reading and writing."""

import fcntl
import mmap
import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.sanitized


@pytest.mark.parametrize("flag", [os.O_DSYNC, os.O_SYNC])
@pytest.mark.parametrize("direct_io", ["auto", "never"])
def test_what_is_written_by_a_synchronous_descriptor_is_in_the_bucket(mount, simulator, prefix, flag, direct_io):
    made = mount("--direct-io", direct_io, "--compress", "none")
    file = os.open(made / "file", os.O_WRONLY | os.O_CREAT | flag)
    os.write(file, b"one ")
    assert simulator.content(prefix + "file") == b"one "
    os.write(file, b"two")
    assert simulator.content(prefix + "file") == b"one two"
    os.close(file)


@pytest.mark.parametrize("direct_io", ["auto", "never"])
def test_a_mapping_of_a_file_that_is_open_to_append_changes_it_in_place(mount, simulator, prefix, direct_io):
    """As prometheus_client keeps its counters."""
    made = mount("--direct-io", direct_io)
    with open(made / "file", "a+b") as file:
        file.truncate(1 << 20)
        with mmap.mmap(file.fileno(), 1 << 20) as mapped:
            mapped[:6] = b"mapped"
            mapped.flush()
            mapped[1 << 19:(1 << 19) + 4] = b"more"
        file.write(b"behind")
    content = simulator.content(prefix + "file")
    assert content[:6] + content[1 << 19:(1 << 19) + 4] + content[1 << 20:] == b"mappedmorebehind"
    assert len(content) == (1 << 20) + 6
    assert (mount() / "file").read_bytes() == content


def test_a_descriptor_that_no_longer_appends_writes_where_it_is_told(mount, simulator, prefix):
    made = mount()
    (made / "file").write_bytes(b"0123456789")
    file = os.open(made / "file", os.O_RDWR | os.O_APPEND)
    os.write(file, b"+")
    fcntl.fcntl(file, fcntl.F_SETFL, 0)
    os.pwrite(file, b"header", 0)
    os.close(file)
    assert simulator.content(prefix + "file") == b"header6789+"


def test_who_truncates_by_a_descriptor_that_only_reads_truncates(mount, simulator, prefix):
    made = mount()
    (made / "file").write_bytes(b"earlier")
    os.close(os.open(made / "file", os.O_RDONLY | os.O_TRUNC))
    assert simulator.content(prefix + "file") == b""
    with open(made / "read", "wb") as file:
        file.write(b"earlier")
    with open(made / "read", "rb") as reader:
        assert reader.read(1) == b"e"
        os.close(os.open(made / "read", os.O_RDONLY | os.O_TRUNC))
        assert os.fstat(reader.fileno()).st_size == 7
        assert reader.read() == b"arlier"


def test_o_trunc_makes_anew_what_another_mount_has_removed_beside_a_writer(mount):
    """A killed process has left the name of a file that failed, and the kernel looks twice only."""
    here, there = mount("--metadata-ttl", "0s"), mount()
    (there / "file").write_bytes(b"there")
    killed = "import os, sys; os.open(sys.argv[1], os.O_WRONLY | os.O_TRUNC); os.kill(os.getpid(), 9)"
    saves = "import sys; open(sys.argv[1], 'w').write('anew')"
    subprocess.run([sys.executable, "-c", killed, here / "file"], check=False)
    with open(here / "file", "wb", buffering=0) as writer:
        (there / "file").unlink()
        writer.write(b"open")
        subprocess.run([sys.executable, "-c", saves, here / "file"], check=True)
        assert (there / "file").read_bytes() == b"anew"
