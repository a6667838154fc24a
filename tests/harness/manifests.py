# SPDX-License-Identifier: Apache-2.0
"""packaging/kubernetes as kubectl reads it."""

import pathlib
import re
import subprocess
import sys

import yaml

from .programs import ROOT

KUBERNETES = ROOT / "packaging/kubernetes"
OVERLAYS = sorted(path.name for path in (KUBERNETES / "overlays").iterdir())
EXAMPLES = sorted(path.name for path in (KUBERNETES / "examples").iterdir())


def overlay(name: str) -> list[dict]:
    return applied(KUBERNETES / "overlays" / name)


def applied(directory: pathlib.Path) -> list[dict]:
    """What `kubectl apply -k` would send."""
    kubectl = pathlib.Path(sys.executable).with_name("kubectl")
    built = subprocess.run([kubectl, "kustomize", directory], capture_output=True, text=True,
                           timeout=60, check=False)
    assert (built.returncode, built.stderr) == (0, "")
    return list(yaml.safe_load_all(built.stdout))


def example(name: str) -> list[dict]:
    return list(yaml.safe_load_all((KUBERNETES / "examples" / name).read_text()))


def objects(documents: list[dict], kind: str) -> list[dict]:
    return [each for each in documents if each["kind"] == kind]


def pod_specs(documents: list[dict]) -> list[dict]:
    return [each["spec"]["template"]["spec"] for each in documents if "template" in each.get("spec", {})]


def containers(pod: dict) -> list[dict]:
    return pod.get("initContainers", []) + pod["containers"]


def environment(container: dict, documents: list[dict]) -> dict[str, str]:
    """What is written in the manifests, and nothing that a cluster adds."""
    maps = {each["metadata"]["name"]: each["data"] for each in objects(documents, "ConfigMap")}
    values: dict[str, str] = {}
    for source in container.get("envFrom", []):
        values.update(maps[source["configMapRef"]["name"]])
    values.update({each["name"]: each["value"] for each in container.get("env", []) if "value" in each})
    return values


def expanded(words: list[str], values: dict[str, str]) -> list[str]:
    """$(NAME), as in a container's command and args."""
    return [re.sub(r"\$\((\w+)\)", lambda match: values.get(match[1], match[0]), word) for word in words]
