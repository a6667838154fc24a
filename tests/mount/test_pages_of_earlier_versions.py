# SPDX-License-Identifier: Apache-2.0
"""Who opens a file that others change and close, on the same mount, finds nothing of the version before in its pages."""

import errno
import threading

import pytest

pytestmark = pytest.mark.sanitized_too

CHANGES = 60
READERS = 4


class Readers:
    """Threads that open a file and read all of it, again and again."""

    def __init__(self, path):
        self.path = path
        self.changes = 0  # begun and ended
        self.reads = 0
        self.found = []
        self.ended = False
        self.read = threading.Condition()
        self.threads = [threading.Thread(target=self.run) for _ in range(READERS)]
        for thread in self.threads:
            thread.start()

    def run(self):
        while not self.ended:
            before = self.changes
            try:
                with open(self.path, "rb", buffering=0) as file:
                    first = file.readall()
                    file.seek(0)
                    again = file.readall()
            except OSError as error:
                first = again = error
            with self.read:
                self.found += [(before, self.changes, content) for content in {first, again}]
                self.reads += 1
                self.read.notify_all()

    def change(self, how):
        self.changes += 1
        how()
        self.changes += 1
        with self.read:
            seen = self.reads + 2 * READERS
            assert self.read.wait_for(lambda: self.reads >= seen, timeout=60)

    def end(self):
        self.ended = True
        for thread in self.threads:
            thread.join()
        return self.found


def pattern(number, size):
    return bytes([number % 255 + 1]) * size


@pytest.mark.parametrize("size", [300_001, 3_000_001])
@pytest.mark.parametrize("direct_io", ["never", "auto"])
@pytest.mark.parametrize("how", ["append", "rewrite"])
def test_who_opens_a_file_finds_no_page_of_the_version_before(mount, how, direct_io, size):
    path = mount("--direct-io", direct_io) / "file"
    versions = [pattern(0, size)]
    path.write_bytes(versions[0])
    readers = Readers(path)
    for number in range(1, CHANGES):
        added = pattern(number, size if how == "rewrite" else 1_001)
        versions.append(added if how == "rewrite" else versions[-1] + added)

        def change(added=added):
            with open(path, "r+b" if how == "rewrite" else "ab", buffering=0) as file:
                assert file.write(added) == len(added)

        readers.change(change)
    wrong = []
    for before, after, content in readers.end():
        at_least = versions[before // 2]
        if isinstance(content, OSError):
            if how == "append" or content.errno != errno.ESTALE:
                wrong.append((before, after, content))
            continue
        if before % 2 == 0 and before == after:
            is_right = content == at_least
        else:
            is_right = how == "rewrite" or (len(content) >= len(at_least) and versions[-1].startswith(content))
        if not is_right:
            wrong.append((before, after, len(content), len(at_least), content[-1]))
    assert not wrong
