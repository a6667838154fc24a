# SPDX-License-Identifier: Apache-2.0
"""Ceph's RADOS Gateway before a cluster of one monitor and one OSD that keeps everything in memory; a program.

    rados_server.py DIRECTORY ACCESS_KEY SECRET_KEY

Everything else lies in DIRECTORY, which must be empty. Logs the address. The daemons end with this process, however it
ends.
"""

import pathlib
import socket
import subprocess
import sys
import uuid

from programs import wait_until

# Debian's packages leave these to systemd and to the manager, which nothing here needs. The intervals are those that a
# start waits for: a second for each pool, and five until a client asks again whether the OSD is up.
SETTINGS = """
[global]
fsid = {fsid}
mon_host = [v2:127.0.0.1:{monitor}]
public_addr = 127.0.0.1
ms_bind_msgr1 = false
auth_cluster_required = none
auth_service_required = none
auth_client_required = none
# radosgw insists on secrecy else, which goes with authentication alone.
ms_mon_client_mode = crc
keyring = {directory}/keyring
run_dir = {directory}
crash_dir = {directory}
admin_socket =
pid_file =
log_file = {directory}/$name.log
log_to_stderr = false
mon_data = {directory}/monitor
osd_data = {directory}/osd
rgw_data = {directory}/gateway
mon_allow_pool_size_one = true
mon_max_pg_per_osd = 1000
mon_data_avail_crit = 0
osd_objectstore = memstore
memstore_device_bytes = 4294967296
osd_crush_initial_weight = 1
osd_crush_chooseleaf_type = 0
osd_pool_default_size = 1
osd_pool_default_min_size = 1
osd_pool_default_pg_num = 1
osd_pool_default_pgp_num = 1
osd_pool_default_pg_autoscale_mode = off
rgw_rados_pool_pg_num_min = 1
paxos_propose_interval = 0.05
paxos_min_wait = 0.01
objecter_tick_interval = 0.2
# What was replaced is kept for those who still read it, but not for two hours, or it fills the memory.
rgw_gc_obj_min_wait = 20
rgw_gc_processor_period = 1
[client.rgw.a]
rgw_frontends = beast endpoint=127.0.0.1:{gateway} tcp_nodelay=1
"""
# Any; the programs want to see one.
KEYRING = """
[mon.]
key = AQDP0nFnAAAAABAAa1hL2QmDqSjVt6BLuQZ2Hg==
caps mon = "allow *"
"""


def free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return bound.getsockname()[1]


def start(*command: str) -> subprocess.Popen:
    return subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *command])


def answers(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def main() -> None:
    directory = pathlib.Path(sys.argv[1]).resolve()
    monitor, gateway = free_port(), free_port()
    fsid, disk = str(uuid.uuid4()), str(uuid.uuid4())
    for name in ("monitor", "osd", "gateway"):
        (directory / name).mkdir()
    (directory / "keyring").write_text(KEYRING)
    settings = directory / "ceph.conf"
    settings.write_text(SETTINGS.format(directory=directory, fsid=fsid, monitor=monitor, gateway=gateway))
    map_of_monitors = str(directory / "monmap")

    def run(program: str, *words: str) -> None:
        subprocess.run([program, "-c", str(settings), *words], check=True, timeout=50, stdout=subprocess.DEVNULL)

    subprocess.run(["monmaptool", "--create", "--fsid", fsid, "--addv", "a", f"[v2:127.0.0.1:{monitor}]",
                    "--set-min-mon-release", "pacific", map_of_monitors], check=True, stdout=subprocess.DEVNULL)
    run("ceph-mon", "-i", "a", "--mkfs", "--monmap", map_of_monitors)
    daemons = [start("ceph-mon", "-c", str(settings), "-i", "a", "-f")]
    run("ceph", "osd", "new", disk)
    run("ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", disk)
    daemons.append(start("ceph-osd", "-c", str(settings), "-i", "0", "-f"))
    run("radosgw-admin", "user", "create", "--uid", "test", "--display-name", "test", "--access-key", sys.argv[2],
        "--secret-key", sys.argv[3])
    daemons.append(start("radosgw", "-c", str(settings), "-n", "client.rgw.a", "-f"))
    wait_until(lambda: answers(gateway) or any(daemon.poll() is not None for daemon in daemons),
               "the gateway to answer", 60)
    if any(daemon.poll() is not None for daemon in daemons):
        raise SystemExit("a daemon ended")
    print(f"listening on http://127.0.0.1:{gateway}", flush=True)
    daemons[-1].wait()


main()
