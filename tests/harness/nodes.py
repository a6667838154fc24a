# SPDX-License-Identifier: Apache-2.0
"""Machines of a cluster: network namespaces with an address of their own, on one bridge with the store."""

import itertools
import os
import subprocess

STORE_ADDRESS = "10.213.0.1"
_clusters = itertools.count()


def ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        raise AssertionError(f"ip {' '.join(words)}: {done.stderr.strip()} (the tests of several nodes need root)")


class Node:
    def __init__(self, cluster: str, number: int) -> None:
        self.namespace = f"{cluster}n{number}"
        self.address = f"10.213.0.{10 + number}"
        self.interface = "eth0"
        link = f"{self.namespace}v"
        ip("netns", "add", self.namespace)
        ip("link", "add", link, "type", "veth", "peer", "name", self.interface, "netns", self.namespace)
        ip("link", "set", link, "master", f"{cluster}br", "up")
        ip("-n", self.namespace, "address", "add", f"{self.address}/24", "dev", self.interface)
        ip("-n", self.namespace, "link", "set", self.interface, "up")
        ip("-n", self.namespace, "link", "set", "lo", "up")

    @property
    def prefix(self) -> list[str]:
        """What a command line begins with that runs on this node."""
        return ["nsenter", f"--net=/run/netns/{self.namespace}"]

    def disconnect(self) -> None:
        ip("-n", self.namespace, "link", "set", self.interface, "down")

    def connect(self) -> None:
        ip("-n", self.namespace, "link", "set", self.interface, "up")


class Cluster:
    """Nodes that reach each other, and the store at STORE_ADDRESS, and nothing else."""

    def __init__(self, nodes: int) -> None:
        self.name = f"ck{os.getpid() % 100000}c{next(_clusters)}"
        self.nodes: list[Node] = []
        try:
            ip("link", "add", f"{self.name}br", "type", "bridge")
            ip("address", "add", f"{STORE_ADDRESS}/24", "dev", f"{self.name}br")
            ip("link", "set", f"{self.name}br", "up")
            for number in range(nodes):
                self.nodes.append(Node(self.name, number))
        except BaseException:
            self.remove()
            raise

    def remove(self) -> None:
        for node in self.nodes:
            subprocess.run(["ip", "netns", "delete", node.namespace], check=False, timeout=60)
        subprocess.run(["ip", "link", "delete", f"{self.name}br"], check=False, timeout=60)
