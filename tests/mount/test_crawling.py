# SPDX-License-Identifier: Apache-2.0
"""Connections that move next to nothing while others are fast."""

import hashlib
import os
import threading

import pytest

MIB = 1 << 20


# Some KB a second: a byte within --stall-timeout, always. s3sim sends them in lumps of 16 KiB.
CRAWL = {"action": "slow", "mbps": 0.016}
GIVEN_UP = "error=ECONNABORTED"


def test_a_download_that_crawls_goes_on_over_another_connection(mount, simulator, prefix, tmp_path):
    content = os.urandom(MIB) * 256
    simulator.put(prefix + "file", content)
    made = mount("--max-memory", "128M", "--access-log", str(tmp_path / "requests"))
    simulator.inject({"op": "GetObject", "key": prefix + "file", "nth": 8, **CRAWL})
    assert hashlib.md5((made / "file").read_bytes()).digest() == hashlib.md5(content).digest()
    made.unmount()
    assert simulator.fault_hits() == 1
    lines = (tmp_path / "requests").read_text().splitlines()
    # By its rate, or sooner by its time (test_late_reads): on a busy machine some are late by themselves.
    assert [line for line in lines if line.endswith((GIVEN_UP, "error=ECANCELED"))]
    again = [line for line in lines if "GetObject" in line and "attempt=2" in line]
    assert any("status=206" in line for line in again)


def test_an_upload_that_crawls_is_sent_again(mount, simulator, prefix, tmp_path):
    made = mount("--access-log", str(tmp_path / "requests"))
    simulator.inject({"op": "UploadPart", "key": prefix + "file", "nth": 3, **CRAWL})
    content = os.urandom(MIB) * 128
    others_go_on = True

    def write_others() -> None:
        while others_go_on:
            (made / "other").write_bytes(content[:32 * MIB])

    others = threading.Thread(target=write_others)
    others.start()
    try:
        (made / "file").write_bytes(content)
    finally:
        others_go_on = False
        others.join()
    assert simulator.fault_hits() == 1
    assert hashlib.md5(simulator.content(prefix + "file")).digest() == hashlib.md5(content).digest()
    assert simulator.open_uploads(prefix) == []
    made.unmount()
    lines = (tmp_path / "requests").read_text().splitlines()
    assert [line for line in lines if line.endswith(GIVEN_UP) and f'"{prefix}file"' in line]


@pytest.mark.parametrize("reads", [True, False], ids=["read", "write"])
def test_a_link_that_is_slow_for_all_is_left_alone(mount, simulator, prefix, tmp_path, reads):
    content = os.urandom(3 * MIB)
    for number in range(4):
        simulator.put(f"{prefix}fast{number}", os.urandom(8 * MIB))
        simulator.put(f"{prefix}slow{number}", content)
    made = mount("--compress", "none", "--access-log", str(tmp_path / "requests"))
    # It was fast before.
    for number in range(4):
        assert len((made / f"fast{number}").read_bytes()) == 8 * MIB
        (made / f"written{number}").write_bytes(content)
    simulator.reset_counters()
    operation = "GetObject" if reads else "PutObject"
    simulator.inject({"op": operation, "key": prefix + "slow*", "action": "slow", "mbps": 0.2})
    threads = [threading.Thread(target=(made / f"slow{number}").read_bytes if reads else
                                (lambda n=number: (made / f"slow{n}").write_bytes(content))) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert simulator.fault_hits() >= 4
    made.unmount()
    assert GIVEN_UP not in (tmp_path / "requests").read_text()
