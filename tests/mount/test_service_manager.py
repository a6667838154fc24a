# SPDX-License-Identifier: Apache-2.0
"""The mount as a service: systemd's side of the protocol, and the unit that is installed."""

import signal
import socket
import subprocess

import pytest

from harness.installed import InstalledMachine
from harness.mounts import Mount
from harness.programs import ROOT, wait_until
from harness.simulator import BUCKET

UNIT = ROOT / "packaging/systemd/ckptfs@.service"


class Manager:
    """Listens as systemd does; messages in the order in which they came."""

    def __init__(self, path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        self._socket.settimeout(30)
        self.address = str(path)

    def next(self) -> list[str]:
        return self._socket.recv(4096).decode().split("\n")

    def wait_for(self, line: str) -> list[str]:
        while line not in (message := self.next()):
            pass
        return message

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def manager(tmp_path):
    made = Manager(tmp_path / "notify")
    yield made
    made.close()


@pytest.fixture
def service(manager, simulator, prefix, request):
    """A mount that a manager has started, and pings every 100 ms."""
    environment = {**simulator.environment(), "NOTIFY_SOCKET": manager.address, "WATCHDOG_USEC": "200000"}
    made = Mount(f"s3://{BUCKET}/{prefix}", environment)
    request.node.mounts = [made]
    yield made
    made.remove()


def test_it_says_when_it_is_ready_alive_and_stopping(service, manager, simulator, prefix):
    ready = manager.wait_for("READY=1")
    assert ready[1] == f"STATUS=s3://{BUCKET}/{prefix} is mounted at {service.path}"
    for _ in range(3):
        manager.wait_for("WATCHDOG=1")
    simulator.set_model(total_mbps=4)
    try:
        writer = subprocess.Popen(["dd", "if=/dev/urandom", f"of={service / 'file'}", "bs=1M", "count=40",
                                   "status=none"])
        wait_until(lambda: simulator.uploaded_parts(prefix), "the first part")
        service.process.send_signal(signal.SIGTERM)
        stopping = manager.wait_for("STOPPING=1")
        assert stopping[1].startswith("STATUS=saving 1 file: ")
        assert stopping[2] == "EXTEND_TIMEOUT_USEC=60000000"
        # A drain that goes on is no hang.
        manager.wait_for("WATCHDOG=1")
    finally:
        simulator.set_model(total_mbps=0)
    assert writer.wait(60) == 0
    assert service.process.wait(60) == 0
    assert len(simulator.content(prefix + "file")) == 40 << 20


def test_a_mount_that_waits_for_its_store_is_alive(service, manager, simulator, prefix):
    manager.wait_for("READY=1")
    simulator.inject({"op": "*", "key": prefix + "*", "action": "hang"})
    reader = subprocess.Popen(["stat", service / "file"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_until(lambda: simulator.counters()["hung"] > 0, "a request to hang")
    for _ in range(5):
        manager.wait_for("WATCHDOG=1")
    simulator.clear_faults()
    reader.kill()
    reader.wait()


def test_the_unit_is_one_that_systemd_takes():
    machine = InstalledMachine()
    try:
        unit = "/usr/lib/systemd/system/ckptfs@.service"
        done = machine.run("systemd-analyze", "verify", "--man=no", unit.replace("@", "@run7"))
        assert (done.returncode, done.stderr) == (0, "")
        assert (machine.directory / "usr/lib/systemd/system" / UNIT.name).read_text() == UNIT.read_text()
    finally:
        machine.remove()


def test_the_unit_shares_the_mount_namespace_of_everybody():
    """systemd.exec(5): each of these gives a service a mount namespace, in which its mounts would stay."""
    settings = dict(line.split("=", 1) for line in UNIT.read_text().splitlines() if "=" in line and line[0] != "#")
    assert not [name for name in settings if name.startswith(
        ("Protect", "Private", "ReadWritePaths", "ReadOnlyPaths", "InaccessiblePaths", "BindPaths", "Root",
         "TemporaryFileSystem", "MountFlags", "DynamicUser", "ExtensionImages"))]
    assert settings["Type"] == "notify"
