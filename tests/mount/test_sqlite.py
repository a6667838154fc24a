# SPDX-License-Identifier: Apache-2.0
"""Python's sqlite3: a database that several processes of one mount change, and that other mounts read."""

import os
import signal
import sqlite3
import subprocess
import sys

import pytest
from harness.programs import wait_until

JOURNALS = ["delete", "truncate", "persist", "memory", "wal"]

# Adds `count` rows, each in a transaction of its own, with text of a page and more.
_ADD = """
import sqlite3, sys
path, journal, who, count = sys.argv[1:]
database = sqlite3.connect(path, timeout=60, isolation_level=None)
database.execute(f"pragma journal_mode={journal}")
for number in range(int(count)):
    database.execute("begin immediate")
    database.execute("insert into rows values (?, ?, ?)", (who, number, f"{who}{number}" * 1000))
    database.execute("commit")
    print(number, flush=True)
database.close()
"""


@pytest.fixture(params=["auto", "none"])
def mounts(request, mount):
    """Two mounts of the same prefix, of which the second looks every name up."""
    return mount("--compress", request.param), mount("--compress", request.param, "--metadata-ttl", "0")


def _make(path, journal: str) -> None:
    with sqlite3.connect(path, timeout=60) as database:
        assert database.execute(f"pragma journal_mode={journal}").fetchone() == (journal,)
        database.execute("create table rows (who text, number integer, text text)")
    database.close()


def _rows(path) -> list[tuple[str, int]]:
    database = sqlite3.connect(path, timeout=60)
    assert database.execute("pragma integrity_check").fetchone() == ("ok",)
    rows = database.execute("select who, number, text from rows order by who, number").fetchall()
    database.close()
    assert all(text == f"{who}{number}" * 1000 for who, number, text in rows)
    return [(who, number) for who, number, _ in rows]


def _adding(path, journal: str, who: str, count: int, **options) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-c", _ADD, path, journal, who, str(count)], stdout=subprocess.PIPE,
                            **options)


@pytest.mark.parametrize("journal", JOURNALS)
def test_two_processes_add_and_another_mount_reads(mounts, journal):
    made, other = mounts
    path = made / "database"
    _make(path, journal)
    adding = [_adding(path, journal, who, 10) for who in ("a", "b")]
    for process in adding:
        process.communicate(timeout=120)
        assert process.returncode == 0
    expected = [(who, number) for who in ("a", "b") for number in range(10)]
    assert _rows(path) == expected
    assert _rows(other / "database") == expected
    left = ["database-journal"] if journal in ("truncate", "persist") else []
    assert sorted(os.listdir(other.path)) == ["database", *left]


@pytest.mark.parametrize("journal", ["delete", "truncate", "persist", "wal"])
def test_a_killed_process_leaves_whole_transactions(mounts, journal):
    made, other = mounts
    path = made / "database"
    _make(path, journal)
    adding = _adding(path, journal, "a", 100_000)
    for _ in range(5):
        assert adding.stdout.readline()
    adding.send_signal(signal.SIGKILL)
    told, _ = adding.communicate(timeout=60)
    rows = _rows(path)
    assert rows == [("a", number) for number in range(len(rows))]
    again = _adding(path, journal, "b", 3)
    again.communicate(timeout=60)
    assert again.returncode == 0
    assert _rows(path) == rows + [("b", number) for number in range(3)]
    wait_until(lambda: _rows(other / "database") == _rows(path), "the other mount to see it", 30)
