# SPDX-License-Identifier: Apache-2.0
"""Names, errors, link counts and times as POSIX has them, where ckptfs-semantics(7) says nothing else."""

import errno
import os
import stat
import subprocess
import time

import pytest

# One name may have 255 bytes, and a path 4,095.
LONGEST = "n" * 255


def _error(call, *arguments) -> str:
    try:
        call(*arguments)
    except OSError as error:
        return errno.errorcode[error.errno]
    return "0"


@pytest.fixture
def made(mount):
    """A directory with one of everything, on a mount that looks every name up."""
    made = mount("--metadata-ttl", "0")
    for directory in ("empty", "full", "full/below"):
        (made / directory).mkdir()
    for file in ("file", "full/file"):
        (made / file).write_bytes(b"x")
    os.mkfifo(made / "fifo")
    os.symlink("empty", made / "to-directory")
    os.symlink("file", made / "to-file")
    os.symlink("nowhere", made / "dangling")
    os.symlink("loop-2", made / "loop-1")
    os.symlink("loop-1", made / "loop-2")
    return made


def _open(flags: int):
    return lambda path: os.close(os.open(path, flags, 0o600))


CREATE = os.O_CREAT | os.O_WRONLY
OF_A_PATH = {
    "unlink": os.unlink, "rmdir": os.rmdir, "mkdir": os.mkdir, "mkfifo": os.mkfifo, "stat": os.stat,
    "readlink": os.readlink, "truncate": lambda path: os.truncate(path, 0), "create": _open(CREATE),
    "read": _open(os.O_RDONLY), "write": _open(os.O_WRONLY), "exclusive": _open(CREATE | os.O_EXCL),
    "directory": _open(os.O_RDONLY | os.O_DIRECTORY), "no follow": _open(os.O_RDONLY | os.O_NOFOLLOW),
    "symlink": lambda path: os.symlink("target", path),
}
ERRORS = [
    # A component that is not there, is no directory, is too long, or is found in a circle.
    *[(call, "nowhere/name", "ENOENT") for call in OF_A_PATH],
    *[(call, "file/name", "ENOTDIR") for call in OF_A_PATH],
    *[(call, "fifo/name", "ENOTDIR") for call in OF_A_PATH],
    *[(call, LONGEST + "n", "ENAMETOOLONG") for call in OF_A_PATH],
    *[(call, "loop-1/name", "ELOOP") for call in OF_A_PATH],
    *[(call, "", "ENOENT") for call in OF_A_PATH],
    *[(call, name, "EEXIST") for call in ("mkdir", "mkfifo", "symlink", "exclusive")
      for name in ("file", "full", "fifo", "to-file", "dangling", "loop-1")],
    *[(call, "file/", "ENOTDIR") for call in ("read", "stat", "unlink", "rmdir", "truncate")],
    ("create", "new/", "EISDIR"), ("create", "full", "EISDIR"), ("write", "full", "EISDIR"),
    ("truncate", "full", "EISDIR"), ("truncate", "fifo", "EINVAL"), ("unlink", "full", "EISDIR"),
    ("unlink", "empty", "EISDIR"), ("rmdir", "file", "ENOTDIR"), ("rmdir", "fifo", "ENOTDIR"),
    ("rmdir", "to-directory", "ENOTDIR"), ("rmdir", "full", "ENOTEMPTY"), ("rmdir", "empty/.", "EINVAL"),
    ("rmdir", "full/below/..", "ENOTEMPTY"), ("directory", "file", "ENOTDIR"), ("no follow", "to-file", "ELOOP"),
    ("read", "loop-1", "ELOOP"), ("readlink", "file", "EINVAL"), ("readlink", "full", "EINVAL"),
    ("readlink", "fifo", "EINVAL"),
]
RENAMES = [
    ("nowhere", "new", "ENOENT"), ("file", "nowhere/new", "ENOENT"), ("file", "file/new", "ENOTDIR"),
    ("file/name", "new", "ENOTDIR"), ("file", LONGEST + "n", "ENAMETOOLONG"), (LONGEST + "n", "new", "ENAMETOOLONG"),
    ("loop-1/name", "new", "ELOOP"), ("file", "loop-1/name", "ELOOP"), ("file", "empty", "EISDIR"),
    ("fifo", "empty", "EISDIR"), ("to-file", "empty", "EISDIR"), ("empty", "file", "ENOTDIR"),
    ("empty", "fifo", "ENOTDIR"), ("empty", "to-file", "ENOTDIR"), ("empty", "full", "ENOTEMPTY"),
    ("full", "full/below/new", "EINVAL"), ("full", "full/below", "EINVAL"), ("full/below", "full", "ENOTEMPTY"),
    ("empty/.", "new", "EBUSY"), ("file", "new/", "ENOTDIR"), ("file", "file", "0"), ("full", "full", "0"),
]


def test_refusals_are_those_of_a_local_disk(made):
    before = sorted(os.listdir(made.path))
    for call, name, expected in ERRORS:
        error = _error(OF_A_PATH[call], f"{made.path}/{name}" if name else "")
        assert (call, name, error) == (call, name, expected)
    for old, new, expected in RENAMES:
        # Not pathlib, which takes the dots out.
        error = _error(os.rename, f"{made.path}/{old}", f"{made.path}/{new}")
        assert (old, new, error) == (old, new, expected)
    assert sorted(os.listdir(made.path)) == before
    assert sorted(os.listdir(made / "full")) == ["below", "file"]
    assert (made / "file").read_bytes() == b"x"


def test_the_longest_name(made):
    for make in (lambda path: path.write_bytes(b"x"), os.mkdir, os.mkfifo, lambda path: os.symlink("file", path)):
        make(made / LONGEST)
        os.rename(made / LONGEST, made / "short")
        os.rename(made / "short", made / LONGEST)
        assert LONGEST in os.listdir(made.path)
        (os.rmdir if stat.S_ISDIR(os.lstat(made / LONGEST).st_mode) else os.unlink)(made / LONGEST)


def test_a_program_that_runs_cannot_be_written(mount):
    made = mount("--file-mode", "0755")
    (made / "sleep").write_bytes(open("/bin/sleep", "rb").read())
    running = subprocess.Popen([made / "sleep", "60"])
    try:
        assert _error(_open(os.O_WRONLY), made / "sleep") == "ETXTBSY"
        assert _error(os.truncate, made / "sleep", 0) == "ETXTBSY"
    finally:
        running.kill()
        running.wait(30)


@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_RDWR], ids=["read only", "read and write"])
@pytest.mark.parametrize("remove", ["unlink", "replace"])
def test_an_open_file_without_a_name_has_no_link(made, flags, remove):
    assert os.stat(made / "file").st_nlink == 1
    file = os.open(made / "file", flags)
    try:
        assert os.fstat(file).st_nlink == 1
        if remove == "unlink":
            os.unlink(made / "file")
        else:
            (made / "new").write_bytes(b"new")
            os.replace(made / "new", made / "file")
            assert os.stat(made / "file").st_nlink == 1
        assert os.fstat(file).st_nlink == 0
    finally:
        os.close(file)


def test_a_change_of_a_name_is_seen_by_its_directorys_times(made):
    """As those who keep a listing go by it: Python's import, among others."""
    changes = [
        lambda d: (d / "file").write_bytes(b"x"), lambda d: os.rename(d / "file", d / "renamed"),
        lambda d: os.unlink(d / "renamed"), lambda d: os.mkdir(d / "directory"),
        lambda d: os.rename(d / "directory", d / "moved"), lambda d: os.rmdir(d / "moved"),
        lambda d: os.symlink("x", d / "link"), lambda d: os.unlink(d / "link"), lambda d: os.mkfifo(d / "fifo"),
        lambda d: os.rename(d / "fifo", d / "second"), lambda d: os.unlink(d / "second"),
        lambda d: os.rename(made / "full/file", d / "from-elsewhere"),
        lambda d: os.rename(d / "from-elsewhere", made / "full/file"),
    ]
    directory = made / "empty"
    for change in changes:
        before = os.stat(directory)
        elsewhere = os.stat(made / "full/below")
        change(directory)
        after = os.stat(directory)
        assert after.st_mtime_ns > before.st_mtime_ns and after.st_ctime_ns > before.st_ctime_ns
        assert os.stat(made / "full/below").st_mtime_ns == elsewhere.st_mtime_ns
        # What fails, and what only looks, changes nothing.
        os.listdir(directory)
        _error(os.unlink, directory / "nowhere")
        _error(os.rmdir, made / "full")
        assert os.stat(directory).st_mtime_ns == after.st_mtime_ns


def test_a_new_directory_has_the_time_at_which_it_was_made(made):
    before = time.time()
    os.mkdir(made / "new")
    assert before - 1 <= os.stat(made / "new").st_mtime <= time.time() + 1
    assert os.stat(made / "new").st_mtime_ns > os.stat(made / "full").st_mtime_ns


def test_an_import_finds_a_module_that_was_written_since_the_last(made, tmp_path):
    (tmp_path / "program.py").write_text(
        "import sys, pathlib\n"
        "sys.path.insert(0, sys.argv[1])\n"
        "try:\n    import absent\nexcept ImportError:\n    pass\n"
        "pathlib.Path(sys.argv[1], 'written.py').write_text('VALUE = 7')\n"
        "import written\n"
        "assert written.VALUE == 7\n")
    subprocess.run(["python3", "-B", tmp_path / "program.py", made.path], check=True, timeout=60)


def test_what_is_not_kept(mount):
    made = mount("--allow-other", "--dir-mode", "0777", "--file-mode", "0644")
    (made / "directory" / "below").mkdir(parents=True)
    file = os.open(made / "file", os.O_CREAT | os.O_WRONLY, 0o400)
    os.close(file)
    os.chmod(made / "file", 0o4711)
    os.chmod(made / "directory", 0o1700)
    assert stat.S_IMODE(os.stat(made / "file").st_mode) == 0o644
    assert stat.S_IMODE(os.stat(made / "directory").st_mode) == 0o777
    assert os.stat(made / "directory").st_nlink == 2
    os.utime(made / "file", (5, 7))
    status = os.stat(made / "file")
    assert 7 < status.st_mtime == status.st_atime == status.st_ctime
    # Another user may make and remove what the modes allow, and is not its owner.
    script = """set -e
        echo x > by-another; ! chmod 600 by-another 2>/dev/null
        ! sh -c 'echo x > file' 2>/dev/null; rm by-another"""
    subprocess.run(["sh", "-c", script], cwd=made.path, user=65534, group=65534, check=True, timeout=60)
