# SPDX-License-Identifier: Apache-2.0
"""Options that say how the store is asked, and answers that need a person."""

import http.client
import http.server
import os
import subprocess

import pytest

from harness.local_server import LocalServer
from harness.mounts import Mount
from harness.programs import CKPTFS
from harness.simulator import BUCKET

MIB = 1 << 20


class Proxy(LocalServer):
    """Passes on what it is asked for any host to one server."""

    def __init__(self, port: int) -> None:
        self.hosts: set[str] = set()
        proxy = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, *_) -> None:
                pass

            def serve(self) -> None:
                proxy.hosts.add(self.headers["host"])
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
                connection.putrequest(self.command, "/" + self.path.split("/", 3)[3], skip_host=True,
                                      skip_accept_encoding=True)
                for name, value in self.headers.items():
                    if not name.lower().startswith("proxy-"):
                        connection.putheader(name, value)
                connection.endheaders(body)
                answer = connection.getresponse()
                content = answer.read()
                self.send_response(answer.status)
                for name, value in answer.getheaders():
                    if name.lower() not in ("connection", "date", "server"):
                        self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = serve

        super().__init__(Handler)


@pytest.fixture
def proxy(simulator):
    made = Proxy(simulator.port)
    yield made
    made.stop()


def test_the_store_is_asked_through_the_proxy_of_the_environment(request, simulator, prefix, proxy, tmp_path):
    environment = {**simulator.environment(), "AWS_ENDPOINT_URL": "http://store.invalid", "http_proxy": proxy.url}
    mount = Mount(f"s3://{BUCKET}/{prefix}", environment)
    request.node.mounts = [mount]
    try:
        (mount / "file").write_bytes(b"through the proxy")
        assert (mount / "file").read_bytes() == b"through the proxy"
        assert proxy.hosts == {"store.invalid"}
        assert simulator.stored(prefix + "file") == b"through the proxy"
    finally:
        mount.remove()
    # Nobody else knows that host.
    (tmp_path / "mnt").mkdir()
    direct = subprocess.run([CKPTFS, "mount", f"s3://{BUCKET}/{prefix}", tmp_path / "mnt", "-f", "--retry-for", "1s"],
                            env={**os.environ, **environment, "NO_PROXY": "store.invalid"}, capture_output=True,
                            text=True, timeout=60)
    assert direct.returncode != 0
    assert "store.invalid" in direct.stderr


def test_new_objects_are_encrypted_as_asked(mount, simulator, prefix):
    mounted = mount("--sse", "aws:kms", "--sse-kms-key-id", "alias/mine", "--compress", "none")
    (mounted / "small").write_bytes(b"1")
    (mounted / "large").write_bytes(bytes(12 * MIB))
    (mounted / "small").rename(mounted / "renamed")
    for name in ("renamed", "large"):
        head = simulator.client().head_object(Bucket=BUCKET, Key=prefix + name)
        assert (head["ServerSideEncryption"], head["SSEKMSKeyId"]) == ("aws:kms", "alias/mine"), name


def test_an_archived_object_says_what_to_do(mount, simulator, prefix):
    simulator.put(prefix + "file", b"1" * 100)
    simulator.inject({"op": "GetObject", "key": prefix + "file", "action": "403", "code": "InvalidObjectState"})
    mounted = mount()
    with pytest.raises(OSError):
        (mounted / "file").read_bytes()
    assert "restore it first" in mounted.log()
