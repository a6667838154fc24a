# SPDX-License-Identifier: Apache-2.0
"""The DaemonSet and the example Job, played through on a node: their own commands, propagation, probes and hooks."""

import os
import signal
import subprocess
import time

import pytest

from harness.kubernetes import Container, Node, Pod
from harness.manifests import environment, example, overlay, pod_specs
from harness.programs import wait_until
from harness.simulator import ACCESS_KEY, BUCKET, SECRET_KEY

MOUNT_POINT = "/mnt/ckptfs/checkpoints"
SECRETS = {"ckptfs-credentials": {
    "credentials": f"[default]\naws_access_key_id = {ACCESS_KEY}\naws_secret_access_key = {SECRET_KEY}\n"}}


@pytest.fixture(scope="module")
def manifests() -> list[dict]:
    return overlay("static-keys")


@pytest.fixture
def node():
    made = Node()
    yield made
    made.remove()


@pytest.fixture
def other_node():
    made = Node()
    yield made
    made.remove()


@pytest.fixture
def pods(node, other_node):
    """Ended before their nodes."""
    made: list[Pod] = []
    yield made
    for pod in reversed(made):
        pod.remove()


@pytest.fixture
def make_daemon(pods, manifests, simulator, prefix):
    """Not started. `other` is what its pod has not as in the manifest."""
    def settings(container):
        written = environment(container, manifests)
        return {**written, "SOURCE": f"s3://{BUCKET}/{prefix}", "CKPTFS_ENDPOINT_URL": simulator.url,
                # Two nodes have one network here.
                "CKPTFS_MAX_MEMORY": "128M", "CKPTFS_METRICS_ADDRESS": ":0"} if container["name"] == "ckptfs" else {}

    def make(node: Node, **other) -> Pod:
        manifest, = pod_specs(manifests)
        pods.append(Pod(node, {**manifest, **other}, settings, SECRETS))
        return pods[-1]

    return make


@pytest.fixture
def daemon(make_daemon, node) -> Pod:
    return make_daemon(node)


def wait_ready(container: Container) -> None:
    wait_until(lambda: container.passes("startupProbe") or container.process.poll() is not None, "the mount", 30)
    assert container.process.poll() is None, container.log()
    assert container.passes("livenessProbe") and container.passes("readinessProbe"), container.log()


def begin(daemon: Pod) -> Container:
    """As the image does."""
    return daemon.start("ckptfs", "mount", "--foreground", *daemon.manifest["containers"][0]["args"])


def mount_on_node(daemon: Pod) -> Container:
    daemon.prepare()
    container = begin(daemon)
    wait_ready(container)
    return container


@pytest.fixture
def mounted(daemon) -> Container:
    return mount_on_node(daemon)


@pytest.fixture
def make_job(pods):
    def make(node: Node, name: str = "job.yaml") -> Pod:
        node.run("mkdir", "-p", "/mnt/ckptfs")
        manifest, = pod_specs(example(name))
        pods.append(Pod(node, manifest))
        return pods[-1]

    return make


@pytest.fixture
def job(make_job, node) -> Pod:
    """Not started; it can wait for the mount."""
    return make_job(node)


@pytest.fixture
def trainer(job) -> Container:
    """Sleeps; what it does otherwise is done in it."""
    return job.start("sleep", "infinity")


def restart(daemon: Pod, dead: Container) -> Container:
    """What kubelet does with a container that has ended."""
    dead.process.wait(20)
    again = begin(daemon)
    wait_ready(again)
    return again


def write(container: Container, name: str, text: str) -> str:
    """Returns what went wrong."""
    return container.run("sh", "-c", f"printf %s {text} > {MOUNT_POINT}/{name}").stderr


def test_a_job_that_comes_first_waits_for_the_mount(job, daemon, simulator, prefix):
    manifest, = job.manifest["initContainers"]
    waiting = Container(job, manifest, manifest["command"])
    daemon.prepare()
    assert waiting.process.poll() is None
    wait_ready(begin(daemon))
    assert waiting.process.wait(20) == 0, waiting.log()
    trainer = job.start("sleep", "infinity")
    assert write(trainer, "model", "saved") == ""
    assert simulator.content(prefix + "model") == b"saved"
    # Of the user that the job runs as.
    assert trainer.run("stat", "-c", "%u:%g %a", f"{MOUNT_POINT}/model").stdout.split() == ["1000:1000", "640"]


def test_a_killed_daemon_comes_back_under_jobs_that_go_on(trainer, mounted, daemon, job, node, simulator, prefix):
    assert write(trainer, "before", "saved") == ""
    again = mounted
    trainers = [trainer]
    for number in range(2):
        again.process.kill()
        again.process.wait()
        assert "not connected" in write(trainer, "lost", "nowhere")
        # One that comes to a dead mount.
        trainers.append(job.start("sleep", "infinity"))
        again = restart(daemon, again)
        for each in trainers:
            assert each.run("cat", f"{MOUNT_POINT}/before").stdout == "saved"
            assert write(each, f"after{number}", "more") == ""
    assert simulator.keys(prefix) == [prefix + name for name in ("after0", "after1", "before")]
    # One mount, and what guards its place.
    assert [kind for point, kind in node.mounts() if point == MOUNT_POINT] == ["tmpfs", "fuse.ckptfs"]
    assert "took" in again.log()


def test_ranks_on_two_nodes_see_what_the_other_has_closed(node, other_node, make_daemon, make_job):
    ranks = []
    for each in node, other_node:
        mount_on_node(make_daemon(each))
        ranks.append(make_job(each, "ranks.yaml").start("sleep", "infinity"))
    for number, rank in enumerate(ranks):
        assert write(rank, f"rank{number}", f"of{number}") == ""
    for rank in ranks:
        assert rank.run("cat", f"{MOUNT_POINT}/rank0", f"{MOUNT_POINT}/rank1").stdout == "of0of1"


def test_the_journal_of_a_killed_daemon_ends_its_uploads(trainer, mounted, daemon, simulator, prefix):
    simulator.inject({"op": "UploadPart", "key": prefix + "large", "action": "hang"})
    writer = trainer.start("dd", "if=/dev/urandom", f"of={MOUNT_POINT}/large", "bs=1M", "count=60")
    wait_until(lambda: simulator.open_uploads(prefix), "an upload to begin")
    mounted.process.kill()
    restart(daemon, mounted)
    wait_until(lambda: not simulator.open_uploads(prefix), "the upload to be ended")
    simulator.clear_faults()
    assert writer.wait(20) != 0


def test_without_a_daemon_nothing_is_written_to_the_node(trainer, mounted, daemon, node):
    assert write(trainer, "file", "saved") == ""
    assert daemon.stop(mounted) == 0 and mounted.process.returncode == 0
    assert "Read-only file system" in write(trainer, "file", "nowhere")
    assert "Read-only file system" in node.run("touch", f"{MOUNT_POINT}/file").stderr
    # As after a reboot, when the job is there first.
    assert node.run("umount", MOUNT_POINT).returncode == 0
    assert "Permission denied" in write(trainer, "file", "nowhere")
    # The pod is made anew.
    daemon.prepare()
    restart(daemon, mounted)
    assert trainer.run("cat", f"{MOUNT_POINT}/file").stdout == "saved"


def test_files_on_the_node_are_not_hidden(daemon, node):
    node.run("mkdir", "-p", f"{MOUNT_POINT}/run6")
    with pytest.raises(AssertionError, match="is not empty on this node"):
        daemon.prepare()


def test_pre_stop_saves_what_is_being_written(trainer, mounted, daemon, simulator, prefix):
    simulator.set_model(total_mbps=8)
    try:
        writer = trainer.start("dd", "if=/dev/urandom", f"of={MOUNT_POINT}/large", "bs=1M", "count=40", "status=none")
        wait_until(lambda: simulator.uploaded_parts(prefix), "the first part")
        assert daemon.stop(mounted) == 0
        assert writer.wait(60) == 0
    finally:
        simulator.set_model(total_mbps=0)
    assert len(simulator.content(f"{prefix}large")) == 40 << 20
    assert mounted.process.returncode == 0


def test_liveness_is_of_the_daemon_and_readiness_of_the_store(mounted, simulator):
    os.kill(mounted.process.pid, signal.SIGSTOP)
    began = time.monotonic()
    assert not mounted.passes("livenessProbe")
    assert time.monotonic() - began < mounted.manifest["livenessProbe"]["timeoutSeconds"]
    os.kill(mounted.process.pid, signal.SIGCONT)
    assert mounted.passes("livenessProbe")
    # Who waits for its store is alive, and must not be killed for it.
    simulator.inject({"op": "ListObjectsV2", "action": "hang"})
    asked = mounted.start(*mounted.manifest["readinessProbe"]["exec"]["command"])
    try:
        wait_until(lambda: simulator.fault_hits() > 0, "the store to be asked")
        assert mounted.passes("livenessProbe")
        assert asked.poll() is None
    finally:
        simulator.clear_faults()
        asked.kill()
        asked.wait()


def test_a_daemon_that_still_saves_is_alive_without_its_mount(trainer, mounted, simulator, prefix):
    simulator.inject({"op": "UploadPart", "action": "slow", "ms": 15_000})
    writer = trainer.start("dd", "if=/dev/urandom", f"of={MOUNT_POINT}/large", "bs=1M", "count=40", "status=none")
    wait_until(lambda: simulator.fault_hits() > 0, "a part to be sent")
    assert mounted.run("umount", "-l", MOUNT_POINT).returncode == 0
    assert mounted.passes("livenessProbe")
    assert writer.wait(120) == 0
    mounted.process.wait(60)
    assert len(simulator.content(f"{prefix}large")) == 40 << 20


def test_a_writer_that_is_killed_in_its_pod_is_noticed(trainer, mounted, simulator, prefix):
    assert write(trainer, "model", "good") == ""
    # Its number in the pod is another than on the node.
    writer = trainer.start("python3", "-c", f"import os; f = open('{MOUNT_POINT}/model', 'wb', buffering=0);"
                           "f.write(b'x' * (1 << 20)); print(os.getpid(), flush=True); input()")
    number = writer.stdout.readline().strip()
    assert trainer.run("kill", "-KILL", number).returncode == 0
    writer.wait(20)
    wait_until(lambda: "its writer was killed" in mounted.log(), "the daemon to notice")
    assert simulator.content(prefix + "model") == b"good"
    for complaint in "cannot be distinguished", "of this user only", "another PID namespace":
        assert complaint not in mounted.log()


def test_a_daemon_that_cannot_see_its_writers_says_so(trainer, make_daemon, node):
    mounted = mount_on_node(make_daemon(node, hostPID=False))
    assert write(trainer, "model", "saved") == ""
    assert write(trainer, "other", "saved") == ""
    assert mounted.log().count("a program of another PID namespace writes") == 1
