# SPDX-License-Identifier: Apache-2.0
"""The real side: a store, mounts of one prefix, and processes that act on them."""

import contextlib
import http.client
import json
import os
import pathlib
import random
import select
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import xml.etree.ElementTree as xml

from format.container import decode_object
from harness.mounts import Mount
from harness.programs import CKPTFS, wait_until
from harness.simulator import BUCKET, Simulator

HERE = pathlib.Path(__file__).parent
AGENT = HERE / "agent.py"


class Store:
    """The bucket past ckptfs and past the faults."""

    def __init__(self, simulator: Simulator) -> None:
        self.simulator = simulator
        self.connection = http.client.HTTPConnection("127.0.0.1", simulator.port, timeout=30)
        self.decoded: dict[tuple[str, str], bytes] = {}

    def ask(self, path: str):
        for attempt in (0, 1):
            try:
                self.connection.request("GET", path, headers={"x-s3sim-spare": "1"})
                answer = self.connection.getresponse()
                return answer, answer.read()
            except (http.client.HTTPException, ConnectionError):
                self.connection.close()
                if attempt:
                    raise
        raise AssertionError

    def etags(self, prefix: str) -> dict[str, str]:
        found: dict[str, str] = {}
        token = ""
        while True:
            answer, body = self.ask(f"/{BUCKET}?list-type=2&prefix={urllib.parse.quote(prefix)}{token}")
            assert answer.status == 200, body
            tree = xml.fromstring(body)
            space = tree.tag[:tree.tag.index("}") + 1] if "}" in tree.tag else ""
            for item in tree.iter(space + "Contents"):
                found[item.findtext(space + "Key")] = item.findtext(space + "ETag")
            if not (following := tree.findtext(space + "NextContinuationToken")):
                return found
            token = "&continuation-token=" + urllib.parse.quote(following)

    def content(self, key: str, etag: str) -> bytes | None:
        if (key, etag) not in self.decoded:
            answer, body = self.ask(f"/{BUCKET}/{urllib.parse.quote(key)}")
            if answer.status == 404:
                return None
            described = {name.lower().removeprefix("x-amz-meta-"): value for name, value in answer.getheaders()
                         if name.lower().startswith("x-amz-meta-")}
            self.decoded[key, answer.getheader("etag")] = content = decode_object(body, described)
            return content
        return self.decoded[key, etag]

    def files(self, prefix: str) -> dict[str, bytes]:
        found = {}
        for key, etag in self.etags(prefix).items():
            path = key.removeprefix(prefix)
            if not path.startswith(".ckptfs/") and not path.endswith("/") and path:
                if (content := self.content(key, etag)) is not None:
                    found[path] = content
        return found

    def uploads(self, prefix: str) -> list[str]:
        _, body = self.ask(f"/{BUCKET}?uploads&prefix={urllib.parse.quote(prefix)}")
        tree = xml.fromstring(body)
        space = tree.tag[:tree.tag.index("}") + 1] if "}" in tree.tag else ""
        return [item.findtext(space + "Key") for item in tree.iter(space + "Upload")]

    def wait_until_quiet(self, seconds: float = 30) -> bool:
        """No request for a while."""
        deadline = time.monotonic() + seconds
        last, since = None, time.monotonic()
        while time.monotonic() < deadline:
            counters = self.simulator.counters()
            total = sum(each["requests"] for each in counters["operations"].values())
            if total != last or counters["requests"]["now"] > 1:
                last, since = total, time.monotonic()
            elif time.monotonic() > since + 0.25:
                return True
            time.sleep(0.03)
        return False


class SmallDisk:
    """A --staging-dir with room for so much."""

    def __init__(self, kib: int) -> None:
        self.path = pathlib.Path(tempfile.mkdtemp(prefix="ckptfs-test-"))
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kib}k", "tmpfs", self.path], check=True)

    def remove(self) -> None:
        # A mount that was unmounted may still have files in it.
        subprocess.run(["umount", "-l", self.path], check=True)
        self.path.rmdir()


class KeptFiles:
    """The --cache-dir of all mounts of a history: they are on one node."""

    def __init__(self, passthrough: str, size: str) -> None:
        self.path = pathlib.Path(tempfile.mkdtemp(prefix="ckptfs-test-"))
        self.options = ["--cache-dir", str(self.path), "--cache-size", size, "--passthrough", passthrough]

    def damage(self, number: int) -> int:
        """Flips a bit in about half of them, as a bad disk does. Not in what is not in the bucket yet."""
        count, dice = 0, random.Random(number)
        for path in self.path.glob("*"):
            # Some go meanwhile.
            with contextlib.suppress(FileNotFoundError):
                if dice.random() < 0.5 and path.is_file() and (size := path.stat().st_size) > 0:
                    with path.open("r+b", buffering=0) as file:
                        at = dice.randrange(size)
                        was = os.pread(file.fileno(), 1, at)
                        count += os.pwrite(file.fileno(), bytes([was[0] ^ 1]), at) if was else 0
        return count

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)


class LivingMount(Mount):
    """A mount that can be killed, and made again in its place."""

    own_group = True

    def __init__(self, source, environment, *options, at=None) -> None:
        self.arguments = (environment, options)
        super().__init__(source, environment, *options, at=at)

    def next_one(self) -> "LivingMount":
        """At the place of this one, which was unmounted and may still serve."""
        environment, options = self.arguments
        return LivingMount(self.source, environment, *options, at=self.path)

    def crash(self) -> None:
        self.process.kill()
        self.process.wait()

    def start_again(self) -> None:
        environment, options = self.arguments
        # A dead mount still answers what the kernel remembers.
        mounted = self.log().count(" is mounted at ")
        self.process = subprocess.Popen([CKPTFS, "mount", self.source, self.path, "-f", *options],
                                        env={**os.environ, **environment}, stdout=self._log.open("a"),
                                        stderr=subprocess.STDOUT, start_new_session=True)
        wait_until(lambda: self.log().count(" is mounted at ") > mounted or self.process.poll() is not None,
                   "the mount to answer again", 30)
        if self.process.poll() is not None:
            raise AssertionError(f"ckptfs mount failed: {self.log()}")


class Process:
    """An agent as the driver sees it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.pid = 0
        # Readable once it has ended.
        self.end: int | None = None
        self.socket: socket.socket | None = None
        self.started: subprocess.Popen | None = None
        self.received = b""
        self.head: dict | None = None

    def take(self) -> dict | None:
        """An answer, when it is whole."""
        if self.head is None and b"\n" in self.received:
            line, self.received = self.received.split(b"\n", 1)
            self.head = json.loads(line)
        if self.head is None or len(self.received) < self.head["bytes"]:
            return None
        answer, self.head = self.head, None
        answer["data"], self.received = self.received[:answer["bytes"]], self.received[answer["bytes"]:]
        return answer

    def ended(self) -> bool:
        # By descriptor, as another process may have got its number.
        return self.end is None or bool(select.select([self.end], [], [], 0)[0])


class Agents:
    def __init__(self) -> None:
        self.directory = tempfile.mkdtemp(prefix="ckptfs-model-")
        self.address = os.path.join(self.directory, "agents")
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.address)
        self.listener.listen(64)
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.listener, selectors.EVENT_READ, None)
        self.processes: dict[str, Process] = {}
        self.answers: list[tuple[str, dict]] = []

    def start(self, name: str) -> None:
        self.expect(name).started = subprocess.Popen([sys.executable, "-S", "-E", AGENT, self.address, name])

    def expect(self, name: str) -> Process:
        self.processes[name] = Process(name)
        return self.processes[name]

    def connected(self, *names: str, seconds: float = 20) -> None:
        deadline = time.monotonic() + seconds
        while any(self.processes[name].socket is None for name in names):
            if time.monotonic() > deadline:
                raise AssertionError(f"agents did not start: {names}")
            self.poll(0.05)

    def tell(self, name: str, request: dict) -> None:
        connection = self.processes[name].socket
        try:
            if connection is not None:
                connection.sendall(json.dumps(request).encode() + b"\n")
        except OSError:
            pass  # its end comes by poll()

    def poll(self, seconds: float) -> None:
        """Collects answers, and {"died": True} of those who are gone."""
        for key, _ in self.selector.select(max(seconds, 0)):
            if key.data is None:
                self.accept()
            elif key.fd == key.data.end:
                self.ended(key.data)
            elif key.fileobj is key.data.socket:
                self.receive(key.data)

    def accept(self) -> None:
        connection, _ = self.listener.accept()
        received = b""
        while b"\n" not in received:
            received += connection.recv(1)
        said = json.loads(received)
        process = self.processes[said["name"]]
        self.disconnect(process)
        if process.end is None:
            process.end = os.pidfd_open(said["pid"])
            self.selector.register(process.end, selectors.EVENT_READ, process)
        process.pid, process.socket, process.received, process.head = said["pid"], connection, b"", None
        self.selector.register(connection, selectors.EVENT_READ, process)
        if said["after"] == "exec":
            self.answers.append((process.name, {"ok": True}))

    def receive(self, process: Process) -> None:
        try:
            data = process.socket.recv(1 << 20)
        except ConnectionError:
            data = b""
        if not data:
            # It ends, or its new program will say hello.
            self.disconnect(process)
            return
        process.received += data
        while (answer := process.take()) is not None:
            self.answers.append((process.name, answer))

    def ended(self, process: Process) -> None:
        # What it answered before.
        while process.socket is not None:
            self.receive(process)
        self.selector.unregister(process.end)
        os.close(process.end)
        process.end = None
        self.answers.append((process.name, {"died": True}))

    def disconnect(self, process: Process) -> None:
        if process.socket is not None:
            self.selector.unregister(process.socket)
            process.socket.close()
            process.socket = None

    def taken(self) -> list[tuple[str, dict]]:
        answers, self.answers = self.answers, []
        return answers

    def signal(self, name: str, number: int) -> None:
        # By descriptor: another process may have got its number.
        if self.processes[name].end is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.processes[name].end, number)

    def end(self) -> None:
        for process in self.processes.values():
            self.signal(process.name, signal.SIGKILL)
            if process.started is not None:
                process.started.kill()
                process.started.wait()
        for process in self.processes.values():
            if process.socket is not None:
                process.socket.close()
            if process.end is not None:
                os.close(process.end)
        self.selector.close()
        self.listener.close()
        shutil.rmtree(self.directory, ignore_errors=True)
