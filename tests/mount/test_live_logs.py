# SPDX-License-Identifier: Apache-2.0
"""Logs are visible on other mounts while they grow."""

import logging

import pytest
from harness.programs import wait_until

INTERVAL = 0.2


@pytest.fixture
def made(mount):
    return mount("--publish-interval", f"{int(INTERVAL * 1000)}ms")


def test_what_is_appended_appears_while_the_file_is_open(made, mount):
    other = mount()
    with open(made / "notes", "ab", buffering=0) as file:
        content = b""
        for line in range(3):
            content += b"line %d\n" % line
            file.write(b"line %d\n" % line)
            wait_until(lambda: (other / "notes").exists() and (other / "notes").read_bytes() == content, "the line")
    assert (other / "notes").read_bytes() == content


def test_logs_and_events_appear_however_they_were_opened(made, simulator, prefix):
    with open(made / "train.log", "w") as log, open(made / "events.out.tfevents.1.node", "wb") as events:
        print("step 1", file=log, flush=True)
        events.write(b"event")
        events.flush()
        names = {prefix + "train.log", prefix + "events.out.tfevents.1.node"}
        wait_until(lambda: set(simulator.keys(prefix)) == names, "both to appear")
    handler = logging.FileHandler(made / "run.txt")
    handler.emit(logging.makeLogRecord({"msg": "a message"}))
    wait_until(lambda: prefix + "run.txt" in simulator.keys(prefix), "the message to appear")
    handler.close()


def test_a_log_with_nothing_new_costs_no_request(made, mount, simulator, prefix):
    other = mount("--metadata-ttl", "0s")
    with open(made / "quiet.log", "a") as quiet, open(made / "busy.log", "a", buffering=1) as busy:
        print("step 1", file=quiet, flush=True)
        wait_until(lambda: simulator.keys(prefix) != [], "the line to appear")
        simulator.reset_counters()
        for line in range(3):
            print(line, file=busy)
            wait_until(lambda: (other / "busy.log").exists() and (other / "busy.log").stat().st_size == 2 * (line + 1),
                       "the next line to appear")
        assert prefix + "quiet.log" not in {request["key"] for request in simulator.requests()}


def test_other_files_do_not_appear_before_they_are_closed(made, simulator, prefix):
    with open(made / "shard", "wb", buffering=0) as file, open(made / "a.log", "w") as log:
        file.write(b"half")
        print("step 1", file=log, flush=True)
        wait_until(lambda: simulator.keys(prefix) == [prefix + "a.log"], "the log to appear")
    assert simulator.content(prefix + "shard") == b"half"
