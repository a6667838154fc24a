# SPDX-License-Identifier: Apache-2.0
"""The image that packaging/container/Containerfile makes, on a debootstrap'd Debian: no registry, and no engine."""

import json
import os
import pathlib
import shlex
import shutil

import pytest

from harness.debian import Debian, run, run_in
from harness.manifests import environment, overlay, pod_specs
from harness.programs import ROOT
from harness.simulator import ACCESS_KEY, BUCKET, SECRET_KEY

pytestmark = [pytest.mark.full, pytest.mark.timeout(3600)]

MIB = 1 << 20
MOUNT_POINT = "/mnt/ckptfs/checkpoints"


class Builder:
    """buildah, with a store of its own."""

    def __init__(self, directory: pathlib.Path) -> None:
        self._store = ["--root", directory / "store", "--runroot", directory / "run", "--storage-driver", "overlay"]
        self._policy = directory / "policy.json"
        self._policy.write_text('{"default": [{"type": "insecureAcceptAnything"}]}')

    def __call__(self, command: str, *words, seconds: float = 300) -> str:
        return run("buildah", *self._store, command, *words, seconds=seconds)

    def make_base(self, tree: pathlib.Path) -> None:
        container = self("from", "scratch").strip()
        self("add", "--quiet", container, tree, "/")
        self("commit", "--quiet", "--signature-policy", self._policy, "--rm", container, "docker.io/library/debian:12")
        self("tag", "docker.io/library/debian:12", "docker.io/library/debian:12-slim")

    def build(self) -> None:
        self("bud", "--isolation", "chroot", "--pull-never", "--signature-policy", self._policy, "--tag", "ckptfs",
             "--file", ROOT / "packaging/container/Containerfile", ROOT, seconds=3000)

    def size(self, image: str) -> int:
        """Of all its layers."""
        return sum(each["size"] for each in json.loads(self.inspect(image)["Manifest"])["layers"])

    def inspect(self, image: str) -> dict:
        return json.loads(self("inspect", "--type", "image", image))


@pytest.fixture(scope="module")
def builder(tmp_path_factory) -> Builder:
    directory = tmp_path_factory.mktemp("image")
    debian = Debian(directory / "tree")
    made = Builder(directory)
    made.make_base(debian.tree)
    made.build()
    yield made
    made("rm", "--all")
    made("rmi", "--all", "--force")
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="module")
def tree(builder) -> pathlib.Path:
    """A container of the image."""
    container = builder("from", "--pull-never", "ckptfs").strip()
    return pathlib.Path(builder("mount", container).strip())


def test_it_is_small_and_mounts_when_it_is_run(builder, tree):
    assert builder.inspect("ckptfs")["OCIv1"]["config"]["Entrypoint"] == ["ckptfs", "mount", "--foreground"]
    assert builder.size("ckptfs") - builder.size("docker.io/library/debian:12-slim") < 50 * MIB
    # What it was built with stays behind.
    for name in "usr/bin/g++", "usr/bin/cmake", "ckptfs", "build", "package":
        assert not (tree / name).exists(), name


def test_the_daemon_set_finds_in_it_what_it_calls(tree, simulator, prefix):
    documents = overlay("static-keys")
    pod, = pod_specs(documents)
    container, = pod["containers"]
    prepare, = pod["initContainers"]
    values = {**environment(container, documents), "CKPTFS_ENDPOINT_URL": simulator.url, "CKPTFS_MAX_MEMORY": "128M",
              "CKPTFS_METRICS_ADDRESS": ":0", "CKPTFS_CREDENTIALS_FILE": "", "AWS_ACCESS_KEY_ID": ACCESS_KEY,
              "AWS_SECRET_ACCESS_KEY": SECRET_KEY}
    script = "\n".join([
        "mkdir -p /mnt/ckptfs /staging /var/lib/ckptfs",
        shlex.join(prepare["command"]),
        *(f"export {name}={shlex.quote(value)}" for name, value in values.items() if name != "SOURCE"),
        f"ckptfs mount --foreground s3://{BUCKET}/{prefix} {shlex.join(container['args'][1:])} &",
        f"until {shlex.join(container['startupProbe']['exec']['command'])}; do kill -0 $! && sleep 0.1; done",
        *(shlex.join(container[probe]["exec"]["command"]) for probe in ("livenessProbe", "readinessProbe")),
        f"echo saved > {MOUNT_POINT}/file",
        shlex.join(container["lifecycle"]["preStop"]["exec"]["command"]),
        "wait $!"])
    run_in(tree, script, seconds=120)
    assert simulator.content(f"{prefix}file") == b"saved\n"
    assert os.listdir(tree / "mnt/ckptfs/checkpoints") == []
