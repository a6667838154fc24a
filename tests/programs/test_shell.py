# SPDX-License-Identifier: Apache-2.0
"""What people type: copies, archives, redirections, an editor, git."""

import os
import subprocess

import pytest

from programs.trees import MIB, make_tree, numbers, tree


def run(*command, **options) -> subprocess.CompletedProcess:
    return subprocess.run([str(part) for part in command], check=True, timeout=120, **options)


@pytest.fixture
def local(tmp_path):
    (tmp_path / "local").mkdir()
    return make_tree(tmp_path / "local")


def test_cp(mount, local):
    made = mount()
    run("cp", "-a", local, made / "copy")
    run("cp", local / "dir/below/large.bin", made / "large.bin")
    run("cp", "-f", local / "dir/medium.bin", made / "large.bin")
    run("cp", "-r", made / "copy", made / "second")
    other = mount()
    assert tree(other / "copy") == tree(other / "second") == tree(local)
    assert (other / "large.bin").read_bytes() == (local / "dir/medium.bin").read_bytes()


def test_mv(mount, local):
    expected = tree(local)
    made = mount()
    run("mv", local, made / "moved")
    assert not local.exists()
    assert tree(mount() / "moved") == expected
    run("mv", made / "moved/dir/medium.bin", made / "moved/renamed.bin")
    run("mv", "--no-clobber", made / "moved/small.json", made / "moved/renamed.bin")
    run("mv", made / "moved", made / "again")
    expected["renamed.bin"] = expected.pop("dir/medium.bin")
    other = mount()
    assert tree(other / "again") == expected
    assert os.listdir(other.path) == ["again"]
    run("mv", made / "again", local)
    assert tree(local) == expected and os.listdir(made.path) == []


@pytest.mark.parametrize("options", [[], ["--inplace"], ["--append"]])
def test_rsync(mount, local, options):
    made = mount()
    command = ("rsync", "-a", "--delete", *options, f"{local}/", made / "copy")
    run(*command)
    assert tree(mount() / "copy") == tree(local)
    with (local / "dir/below/large.bin").open("ab") as file:
        file.write(numbers(MIB))
    (local / "small.json").unlink()
    (local / "new").write_bytes(numbers(100))
    run(*command)
    assert tree(mount() / "copy") == tree(local)
    back = local.parent / "back"
    run("rsync", "-a", f"{mount() / 'copy'}/", back)
    assert tree(back) == tree(local)


def test_tar(mount, local):
    made = mount()
    run("tar", "-cf", made / "archive.tar", "-C", local, ".")
    run("tar", "-cf", local.parent / "archive.tar", "-C", local, ".")
    (made / "out").mkdir()
    run("tar", "-xf", local.parent / "archive.tar", "-C", made / "out")
    run("tar", "--overwrite", "-xpf", made / "archive.tar", "-C", made / "out")
    other = mount()
    assert tree(other / "out") == tree(local)
    run("tar", "--compare", "--file", other / "archive.tar", "-C", local)


@pytest.mark.parametrize("flags", [["conv=fsync"], ["conv=fdatasync"], ["oflag=direct"], ["oflag=direct", "conv=fsync"]],
                         ids=" ".join)
def test_dd(mount, local, flags):
    source = local / "dir/below/large.bin"
    made = mount()
    run("dd", f"if={source}", f"of={made / 'file'}", "bs=1M", *flags, stderr=subprocess.DEVNULL)
    other = mount()
    assert (other / "file").read_bytes() == source.read_bytes()
    run("dd", f"if={source}", f"of={made / 'file'}", "bs=64k", "count=100", *flags, stderr=subprocess.DEVNULL)
    run("dd", f"if={source}", f"of={made / 'file'}", "bs=64k", "skip=100", "conv=notrunc", "oflag=append",
        stderr=subprocess.DEVNULL)
    run("dd", f"if={other / 'file'}", f"of={local / 'read'}", "bs=1M", "iflag=direct", stderr=subprocess.DEVNULL)
    assert (local / "read").read_bytes() == source.read_bytes()


def test_redirections(mount, local):
    made = mount()
    run("bash", "-c", """
        set -e
        large=$1/dir/below/large.bin
        cd "$2"
        cat "$large" > whole
        head -c 1000 "$large" > pieces
        tail -c +1001 "$large" >> pieces
        for line in 1 2 3; do echo "line $line" >> lines; done
        exec 3> descriptor; echo one >&3; (echo two >&3); sh -c 'echo three >&3'; exec 3>&-
        { echo out; echo err >&2; } > both 2>&1
        echo long before > shorter; echo now > shorter
        : > empty
        set -o noclobber; ! echo no > lines
        cat <<< here > document
        echo teed | tee first second > third
        sort -o lines -r lines
    """, "bash", local, made.path, stderr=subprocess.DEVNULL)
    other = mount()
    large = (local / "dir/below/large.bin").read_bytes()
    assert {file.name: file.read_bytes() for file in other.path.iterdir()} == {
        "whole": large, "pieces": large, "lines": b"line 3\nline 2\nline 1\n", "descriptor": b"one\ntwo\nthree\n",
        "both": b"out\nerr\n", "shorter": b"now\n", "empty": b"", "document": b"here\n", "first": b"teed\n",
        "second": b"teed\n", "third": b"teed\n"}


@pytest.mark.parametrize("settings", ["set backup backupcopy=no", "set backup backupcopy=yes",
                                      "set nobackup nowritebackup"])
def test_vim(mount, settings):
    """By another name and rename, by a copy and in place, and in place."""
    made = mount()
    lines = [f"line {number} of a configuration" for number in range(100_000)]
    (made / "file.yaml").write_text("\n".join(lines) + "\n")
    # With its swap file in the mount, too.
    run("vim.tiny", "-N", "-u", "NONE", "-i", "NONE", "-es", made / "file.yaml", "-c", settings, "-c", "set fsync",
        "-c", "set directory=. backupskip=",
        "-c", "%s/configuration/checkpoint/", "-c", "write", "-c", "1delete", "-c", "wq", stdin=subprocess.DEVNULL)
    other = mount()
    expected = "\n".join(lines[1:]).replace("configuration", "checkpoint") + "\n"
    assert (other / "file.yaml").read_text() == expected
    assert set(os.listdir(other.path)) == {"file.yaml"} | ({"file.yaml~"} if "nobackup" not in settings else set())


def test_an_editor_that_saves_by_rename(mount):
    made = mount()
    for version in range(3):
        with open(made / "file.tmp", "w") as file:
            file.write(f"version {version}\n" * 100_000)
            file.flush()
            os.fsync(file.fileno())
        os.replace(made / "file.tmp", made / "file")
        directory = os.open(made.path, os.O_RDONLY | os.O_DIRECTORY)
        os.fsync(directory)
        os.close(directory)
        other = mount()
        assert (other / "file").read_text() == f"version {version}\n" * 100_000
        assert os.listdir(other.path) == ["file"]


GIT = {"GIT_AUTHOR_NAME": "Author", "GIT_AUTHOR_EMAIL": "author@example.com", "GIT_COMMITTER_NAME": "Author",
       "GIT_COMMITTER_EMAIL": "author@example.com", "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}


def git(directory, *command):
    return run("git", "-C", directory, "-c", "gc.autoDetach=false", *command, env={**os.environ, **GIT},
               capture_output=True, text=True).stdout


def test_git(mount, local):
    (local / "dir/below/large.bin").unlink()
    git(local, "init", "--initial-branch", "main")
    git(local, "add", "--all")
    git(local, "commit", "--message", "First")
    made = mount()
    git(made.path, "clone", local, "copied")
    git(made.path, "clone", "--no-local", local, "sent")
    (made / "sent/small.json").write_text("{}")
    (made / "sent/added").write_text("added")
    git(made / "sent", "add", "--all")
    git(made / "sent", "commit", "--message", "Second")
    git(made / "sent", "push", "origin", "HEAD:pushed")
    git(made / "sent", "gc")
    git(made / "copied", "pull", made / "sent", "main")
    other = mount()
    for clone in ("copied", "sent"):
        assert git(other / clone, "status", "--porcelain") == ""
        git(other / clone, "fsck", "--strict")
        assert git(other / clone, "log", "--format=%s") == "Second\nFirst\n"
        assert (other / clone / "added").read_text() == "added"
    assert git(local, "rev-parse", "pushed") == git(other / "sent", "rev-parse", "main")
