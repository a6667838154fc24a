# SPDX-License-Identifier: Apache-2.0
"""A node of a cluster, in mount namespaces: pods run on it as their manifests say, as kubelet and runc do it.

A container has a root and namespaces of its own; its volumes are bound into it with the propagation that is asked for,
its hooks and probes run in it. Images are this machine's /usr with ckptfs installed in it. There is no network of pods.
"""

import os
import pathlib
import shutil
import signal
import subprocess
import tempfile

from .manifests import expanded
from .programs import BUILD, wait_until

# What systemd makes of a machine: everything is shared. Directories that pods get from the node are tmpfs.
_NODE = """
set -e
mount -t tmpfs -o mode=0755 node-mnt /mnt
mount -t tmpfs -o mode=0755 node-lib /var/lib
mount --make-rshared /
echo ready
exec cat
"""

# As runc: the mount that holds the new root is private, volumes are bound with their propagation, the old root goes,
# which no other test is to notice.
_CONTAINER = """
set -e
root=$1 image=$2 writable=$3
shift 3
mount --make-private "$(findmnt -n -o TARGET --target "$root")"
mount -t tmpfs -o mode=0755 root "$root"
cd "$root"
mkdir usr etc dev proc sys run tmp var old
mount -t overlay overlay -o "lowerdir=$image:/usr" usr
for directory in bin sbin lib lib64; do ln -s "usr/$directory" "$directory"; done
for directory in etc dev sys; do mount --rbind "/$directory" "$directory"; mount --make-rslave "$directory"; done
mount -t proc proc proc
while [ "$1" != -- ]; do
    mkdir -p ".$2"
    mount --rbind "$1" ".$2"
    mount "--make-$3" ".$2"
    shift 3
done
shift
mount -t tmpfs -o mode=1777 tmp tmp
pivot_root . old
mount --make-rslave old
umount -l old
: >started
[ "$writable" = yes ] || mount -o remount,ro,bind /
exec "$@"
"""
_PROPAGATION = {"Bidirectional": "rshared", "HostToContainer": "rslave", "None": "rprivate"}


class Node:
    def __init__(self) -> None:
        self._kept = tempfile.TemporaryDirectory(prefix="ckptfs-node-")
        self.directory = pathlib.Path(self._kept.name)
        self.directory.chmod(0o755)
        self.image = self.directory / "usr"
        subprocess.run(["cmake", "--install", BUILD, "--strip", "--prefix", self.image], check=True,
                       stdout=subprocess.DEVNULL, timeout=60)
        self._holder = subprocess.Popen(["unshare", "--mount", "--propagation", "private", "sh", "-c", _NODE],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if self._holder.stdout.readline() != "ready\n":
            raise AssertionError("no mount namespace: these tests need root")
        self.enter = ["nsenter", f"--mount=/proc/{self._holder.pid}/ns/mnt"]

    def run(self, *words) -> subprocess.CompletedProcess:
        return subprocess.run([*self.enter, *map(str, words)], capture_output=True, text=True, timeout=60, check=False)

    def mounts(self) -> list[list[str]]:
        """Mount point and type of what lies below /mnt."""
        table = pathlib.Path(f"/proc/{self._holder.pid}/mountinfo").read_text().splitlines()
        found = (line.split() for line in table)
        return [[fields[4], fields[fields.index("-") + 1]] for fields in found if fields[4].startswith("/mnt/")]

    def remove(self) -> None:
        self._holder.communicate(timeout=20)
        shutil.rmtree(self.directory, ignore_errors=True)
        self._kept.cleanup()


class Container:
    """Of a pod; what it writes to standard output and error is its log."""

    def __init__(self, pod: "Pod", manifest: dict, words: list[str]) -> None:
        self.manifest = manifest
        self.log_file = pod.directory / f"{manifest['name']}.log"
        root = pathlib.Path(tempfile.mkdtemp(prefix="root-", dir=pod.node.directory))
        volumes = []
        for mount in manifest.get("volumeMounts", []):
            volumes += [pod.volumes[mount["name"]], mount["mountPath"],
                        _PROPAGATION[mount.get("mountPropagation", "None")]]
        writable = "no" if manifest.get("securityContext", {}).get("readOnlyRootFilesystem") else "yes"
        self._environment = {"PATH": "/usr/sbin:/usr/bin", **pod.environment(manifest)}
        user = pod.manifest.get("securityContext", {}).get("runAsUser")
        self._as_user = [] if user is None else ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]
        # A pod has process numbers of its own, or those of the node.
        self._own_numbers = not pod.manifest.get("hostPID")
        numbers = ["--pid", "--fork", "--kill-child"] if self._own_numbers else []
        self.process = subprocess.Popen(
            [*pod.node.enter, "unshare", "--mount", "--propagation", "unchanged", *numbers, "sh", "-c", _CONTAINER,
             "sh", root, pod.node.image, writable, *volumes, "--", *self._as_user,
             *expanded(words, self._environment)],
            env=self._environment, stdin=subprocess.DEVNULL, stdout=self.log_file.open("a"), stderr=subprocess.STDOUT)
        wait_until(self._has_begun, "a container to begin")

    def log(self) -> str:
        return self.log_file.read_text()

    def first(self) -> int | None:
        """The process that its namespaces are entered by."""
        if not self._own_numbers:
            return self.process.pid
        children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return int(children[0]) if children else None

    def _has_begun(self) -> bool:
        return self.process.poll() is not None or pathlib.Path(f"/proc/{self.first()}/root/started").exists()

    def enter(self) -> list[str]:
        own = ["--pid"] if self._own_numbers else []
        return ["nsenter", "--target", str(self.first()), "--mount", *own, *self._as_user]

    def start(self, *words) -> subprocess.Popen:
        return subprocess.Popen([*self.enter(), *map(str, words)], env=self._environment, stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def run(self, *words, seconds: float = 60) -> subprocess.CompletedProcess:
        return subprocess.run([*self.enter(), *map(str, words)], env=self._environment, capture_output=True, text=True,
                              timeout=seconds, check=False)

    def passes(self, probe: str) -> bool:
        """One try of a probe, as kubelet makes it."""
        asked = self.manifest[probe]
        try:
            return self.run(*asked["exec"]["command"], seconds=asked["timeoutSeconds"]).returncode == 0
        except subprocess.TimeoutExpired:
            return False


class Pod:
    """`environment` makes a container's; `secrets` are those of its namespace: name, then file, then text."""

    def __init__(self, node: Node, manifest: dict, environment=lambda container: {},
                 secrets: dict[str, dict[str, str]] | None = None) -> None:
        self.node = node
        self.manifest = manifest
        self.environment = environment
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="pod-", dir=node.directory))
        self.directory.chmod(0o755)
        self.volumes = {each["name"]: self._volume(each, secrets or {}) for each in manifest["volumes"]}
        self.running: list[Container] = []

    def _volume(self, volume: dict, secrets: dict[str, dict[str, str]]) -> str:
        if "hostPath" in volume:
            path = volume["hostPath"]["path"]
            if volume["hostPath"]["type"] == "DirectoryOrCreate":
                made = self.node.run("sh", "-c", f"umask 022; mkdir -p {path}")
                assert made.returncode == 0, made.stderr
            assert self.node.run("test", "-d", path).returncode == 0, f"hostPath type check failed: {path}"
            return path
        directory = self.directory / volume["name"]
        directory.mkdir(mode=0o777)
        if "secret" in volume:
            for name, text in secrets[volume["secret"]["secretName"]].items():
                (directory / name).write_text(text)
                (directory / name).chmod(volume["secret"]["defaultMode"])
        return str(directory)

    def prepare(self) -> None:
        for manifest in self.manifest.get("initContainers", []):
            container = Container(self, manifest, manifest["command"])
            assert container.process.wait(60) == 0, container.log()

    def start(self, *words) -> Container:
        """The container, with other words than its own where they are given."""
        manifest, = self.manifest["containers"]
        container = Container(self, manifest, list(words) or manifest["command"] + manifest.get("args", []))
        self.running.append(container)
        return container

    def stop(self, container: Container) -> int:
        """preStop, SIGTERM, and the grace period; what preStop returned."""
        hook = container.manifest.get("lifecycle", {}).get("preStop")
        code = container.run(*hook["exec"]["command"]).returncode if hook else 0
        if container.process.poll() is None:
            container.process.send_signal(signal.SIGTERM)
        container.process.wait(60)
        return code

    def remove(self) -> None:
        for container in self.running:
            if container.process.poll() is None:
                os.kill(container.first(), signal.SIGCONT)
                # The first process of a pod hears of SIGTERM only what it asks for.
                os.kill(container.first(), signal.SIGTERM if self.manifest.get("hostPID") else signal.SIGKILL)
                try:
                    container.process.wait(30)
                except subprocess.TimeoutExpired:
                    container.process.kill()
                    container.process.wait()
