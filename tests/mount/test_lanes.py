# SPDX-License-Identifier: Apache-2.0
"""Requests that carry next to nothing do not wait for those that carry data."""

import os
import threading

from harness.programs import wait_until

MIB = 1 << 20


def test_what_needs_no_data_goes_on_while_all_parts_hang(mount, simulator, prefix):
    for number in range(4):
        simulator.put(f"{prefix}there/{number}/file", b"x" * 10)
    made = mount("--max-connections", "8", "--stall-timeout", "200s", "--max-memory", "512M")
    simulator.inject({"op": "UploadPart", "key": prefix + "large*", "action": "hang"})
    content = os.urandom(MIB) * 100
    writers = [threading.Thread(target=(made / f"large{number}").write_bytes, args=(content,)) for number in range(3)]

    def small_things() -> None:
        assert (made / "there/0/file").stat().st_size == 10
        assert sorted(os.listdir(made / "there")) == ["0", "1", "2", "3"]
        assert (made / "there/1/file").read_bytes() == b"x" * 10
        (made / "small").write_bytes(b"y" * 100)
        (made / "directory").mkdir()
        assert not (made / "there/2/absent").exists()
        (made / "there/3/file").unlink()

    failures: list[BaseException] = []

    def guarded() -> None:
        try:
            small_things()
        except BaseException as problem:
            failures.append(problem)

    program = threading.Thread(target=guarded)
    try:
        for writer in writers:
            writer.start()
        # 7 of 8 connections.
        wait_until(lambda: simulator.fault_hits() >= 7, "the parts to hang")
        program.start()
        program.join(60)
        assert not program.is_alive()
        assert failures == []
        assert simulator.fault_hits() == 7, "parts hang still"
    finally:
        simulator.clear_faults()
        for thread in [*writers, program]:
            thread.join()
    assert simulator.digest(prefix + "large0")
