# SPDX-License-Identifier: Apache-2.0
"""OpenStack Swift with its s3api, of one replica on one disk, all servers in one process; a program.

    swift_server.py DIRECTORY ACCESS_KEY SECRET_KEY ENTRIES_OF_A_LIST

Everything lies in DIRECTORY, which must be empty and on a filesystem with extended attributes. Logs the address.
"""

import os
import pathlib
import sys

import eventlet

# Before anything of Swift's opens a socket, or takes the function over.
eventlet.monkey_patch()
os.fsync = os.fdatasync = lambda descriptor: None

from eventlet import wsgi  # noqa: E402
from swift.common import utils  # noqa: E402
from swift.common.http_protocol import SwiftHttpProtocol  # noqa: E402
from swift.common.ring import RingBuilder  # noqa: E402
from swift.common.wsgi import loadapp  # noqa: E402
from swift.obj import server as objects  # noqa: E402
from swift.account import server as accounts  # noqa: E402
from swift.container import server as containers  # noqa: E402

# An access key of tempauth is ACCOUNT:USER.
PROXY = """
[pipeline:main]
pipeline = catch_errors s3api tempauth slo dlo proxy-server
[app:proxy-server]
use = egg:swift#proxy
account_autocreate = true
[filter:catch_errors]
use = egg:swift#catch_errors
[filter:s3api]
use = egg:swift#s3api
max_upload_part_num = 10000
max_bucket_listing = {page}
max_parts_listing = {page}
[filter:tempauth]
use = egg:swift#tempauth
user_{account}_{user} = {secret} .admin
[filter:slo]
use = egg:swift#slo
max_manifest_segments = 10000
max_manifest_size = 16777216
[filter:dlo]
use = egg:swift#dlo
"""


def write_ring(directory: pathlib.Path, kind: str, port: int) -> None:
    builder = RingBuilder(part_power=4, replicas=1, min_part_hours=0)
    builder.add_dev({"id": 0, "region": 1, "zone": 1, "weight": 1, "ip": "127.0.0.1", "port": port, "device": "disk"})
    builder.rebalance(seed="1")
    builder.get_ring().save(str(directory / f"{kind}.ring.gz"))


class EmptyCache:
    """In place of a memcached, which tempauth wants to see: it remembers nothing."""

    def get(self, key, **options):
        pass

    def set(self, key, value, **options):
        pass

    def delete(self, key, **options):
        pass


def with_cache(application):
    cache = EmptyCache()

    def call(environment, start_response):
        return application({**environment, "swift.cache": cache}, start_response)

    return call


def serve(listener, application) -> eventlet.greenthread.GreenThread:
    return eventlet.spawn(wsgi.server, listener, application, log=utils.get_logger({}, name="http"),
                          protocol=SwiftHttpProtocol, log_output=False)


def main() -> None:
    directory = pathlib.Path(sys.argv[1]).resolve()
    account, user = sys.argv[2].split(":")
    (directory / "devices/disk").mkdir(parents=True)
    (directory / "swift.conf").write_text("[swift-hash]\nswift_hash_path_suffix = tests\n")
    utils.set_swift_dir(str(directory))
    # From here on every logger writes to standard error too.
    utils.get_logger({}, log_to_console=True)
    settings = {"swift_dir": str(directory), "devices": str(directory / "devices"), "mount_check": "false",
                "disable_fallocate": "true", "log_level": "WARNING"}
    servers = []
    for kind, make in (("account", accounts.AccountController), ("container", containers.ContainerController),
                       ("object", objects.ObjectController)):
        listener = eventlet.listen(("127.0.0.1", 0))
        write_ring(directory, kind, listener.getsockname()[1])
        servers.append(serve(listener, make(settings)))
    proxy = PROXY.format(page=sys.argv[4], account=account, user=user, secret=sys.argv[3])
    (directory / "proxy.conf").write_text(proxy)
    listener = eventlet.listen(("127.0.0.1", 0))
    servers.append(serve(listener, with_cache(loadapp(str(directory / "proxy.conf"), global_conf=settings))))
    print(f"listening on http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    for server in servers:
        server.wait()


main()
