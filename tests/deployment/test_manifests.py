# SPDX-License-Identifier: Apache-2.0
"""The manifests of packaging/kubernetes: what kustomize makes of them, and whether Kubernetes and ckptfs take it."""

import copy
import json
import os
import re
import subprocess

import kubernetes_validate
import pytest

from harness.manifests import (EXAMPLES, KUBERNETES, OVERLAYS, applied, containers, environment, example, expanded,
                               objects, overlay, pod_specs)
from harness.programs import CKPTFS, ROOT

# The first that labels the pods of a StatefulSet by their number, and the last that the package knows.
VERSIONS = ["1.28", kubernetes_validate.latest_version()]
MOUNT_POINT = "/mnt/ckptfs/checkpoints"
MIB = 1 << 20
# Beside what is data; as tests/mount/test_memory.py has it.
OVERHEAD = 64 * MIB
UNITS = {"Mi": MIB, "Gi": 1 << 30, "M": MIB, "G": 1 << 30, "s": 1, "m": 60}


def amount(text: str) -> int:
    number, unit = re.fullmatch(r"(\d+)(\D+)", text).groups()
    return int(number) * UNITS[unit]


@pytest.fixture(scope="module", params=OVERLAYS)
def built(request) -> list[dict]:
    return overlay(request.param)


def daemon_of(documents: list[dict]) -> dict:
    pod, = pod_specs(documents)
    container, = pod["containers"]
    return container


@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_knows_every_field(built, version):
    assert {each["kind"] for each in built} == {"Namespace", "ResourceQuota", "ServiceAccount", "ConfigMap",
                                                 "DaemonSet"}
    for document in built:
        kubernetes_validate.validate(document, version, strict=True)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", EXAMPLES)
def test_kubernetes_knows_every_field_of_the_examples(name, version):
    for document in example(name):
        kubernetes_validate.validate(document, version, strict=True)


def test_a_field_that_does_not_exist_is_found():
    daemon_set, = objects(overlay("irsa"), "DaemonSet")
    for spoil in (lambda pod: pod.update(hostPid=True),
                  lambda pod: pod["containers"][0]["volumeMounts"][0].update(mountPropagation=1),
                  lambda pod: pod["containers"][0].pop("name")):
        spoilt = copy.deepcopy(daemon_set)
        spoil(spoilt["spec"]["template"]["spec"])
        with pytest.raises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate(spoilt, VERSIONS[-1], strict=True)


def entry_point() -> list[str]:
    text = (ROOT / "packaging/container/Containerfile").read_text()
    return json.loads(re.search(r"^ENTRYPOINT (.*)$", text, re.MULTILINE)[1])


def test_ckptfs_takes_the_options_as_they_are_written(built, tmp_path):
    container = daemon_of(built)
    values = environment(container, built)
    words = entry_point() + expanded(container["args"], values)
    assert words[:4] == ["ckptfs", "mount", "--foreground", values["SOURCE"]] and words[4] == MOUNT_POINT
    # As mount(8) has it, -f checks all options and mounts nothing.
    helper = tmp_path / "mount.ckptfs"
    helper.symlink_to(CKPTFS)
    for extra, code in ([], 0), (["--no-such-option=1"], 1):
        done = subprocess.run([helper, *words[2:], *extra, "-f"], env={"PATH": os.environ["PATH"], **values},
                              capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == code, done.stderr


def test_every_variable_is_an_option(built):
    options = set(re.findall(r"--([a-z-]+)", subprocess.run([CKPTFS, "mount", "--help"], capture_output=True, text=True,
                                                            timeout=60, check=True).stdout))
    known = {f"CKPTFS_{option.replace('-', '_').upper()}" for option in options} | {
        "SOURCE", "AWS_REGION", "AWS_EC2_METADATA_DISABLED"}
    assert set(environment(daemon_of(built), built)) - known == set()


def test_what_belongs_together_agrees(built):
    pod, = pod_specs(built)
    container = daemon_of(built)
    values = environment(container, built)
    # What is given up is ended within ten seconds.
    assert pod["terminationGracePeriodSeconds"] >= amount(values["CKPTFS_DRAIN_TIMEOUT"]) + 30
    limit = amount(container["resources"]["limits"]["memory"])
    assert limit >= amount(values["CKPTFS_MAX_MEMORY"]) + OVERHEAD + 128 * MIB
    assert amount(container["resources"]["requests"]["memory"]) == limit
    for probe in container["livenessProbe"], container["startupProbe"], container["readinessProbe"]:
        assert MOUNT_POINT in " ".join(probe["exec"]["command"])
        within, = {int(word) for word in " ".join(probe["exec"]["command"]).split() if word in ("8", "20")}
        assert within < probe["timeoutSeconds"]
    # Half a MiB of buffers each.
    assert int(values["CKPTFS_MAX_CONNECTIONS"]) * MIB // 2 <= 64 * MIB
    # By default its journal is found by the next pod, whatever that is called.
    assert "CKPTFS_STATE_DIR" not in values
    state, = [each for each in container["volumeMounts"] if each["mountPath"] == "/var/lib/ckptfs"]
    assert [each["hostPath"]["path"] for each in pod["volumes"] if each["name"] == state["name"]] == ["/var/lib/ckptfs"]
    assert container["lifecycle"]["preStop"]["exec"]["command"] == ["ckptfs", "unmount", MOUNT_POINT]


@pytest.mark.parametrize("documents", [*map(overlay, OVERLAYS), *map(example, EXAMPLES)], ids=[*OVERLAYS, *EXAMPLES])
def test_what_the_api_server_would_refuse_besides(documents):
    for pod in pod_specs(documents):
        volumes = {each["name"] for each in pod["volumes"]}
        for container in containers(pod):
            for mount in container["volumeMounts"]:
                assert mount["name"] in volumes
                if mount.get("mountPropagation") == "Bidirectional":
                    assert container["securityContext"]["privileged"]
    for document in documents:
        selector = document.get("spec", {}).get("selector", {})
        labels = document.get("spec", {}).get("template", {}).get("metadata", {}).get("labels", {})
        assert selector.get("matchLabels", {}).items() <= labels.items()
    names = {(each["kind"], each["metadata"]["name"]) for each in documents}
    assert len(names) == len(documents)


def test_daemon_and_jobs_mean_the_same_directory(built):
    pod, = pod_specs(built)
    place, = [each["hostPath"]["path"] for each in pod["volumes"] if each["name"] == "mounts"]
    assert os.path.dirname(MOUNT_POINT) == place
    for name in EXAMPLES:
        consumer, = pod_specs(example(name))
        assert [each["hostPath"]["path"] for each in consumer["volumes"]] == [place]
        for container in containers(consumer):
            mount, = container["volumeMounts"]
            assert (mount["mountPath"], mount["mountPropagation"]) == (place, "HostToContainer")
            assert any(MOUNT_POINT in word for word in container["command"])
        # Modes are enforced.
        values = environment(daemon_of(built), built)
        assert consumer["securityContext"]["runAsUser"] == int(values["CKPTFS_UID"])
        assert consumer["securityContext"]["runAsGroup"] == int(values["CKPTFS_GID"])


def test_credentials_come_from_where_the_overlay_says():
    account, = objects(overlay("irsa"), "ServiceAccount")
    assert account["metadata"]["annotations"]["eks.amazonaws.com/role-arn"].startswith("arn:aws:iam::")
    built = overlay("static-keys")
    pod, = pod_specs(built)
    file = environment(daemon_of(built), built)["CKPTFS_CREDENTIALS_FILE"]
    secret, = [each for each in pod["volumes"] if "secret" in each]
    mount, = [each for each in daemon_of(built)["volumeMounts"] if each["name"] == secret["name"]]
    assert (mount["mountPath"], secret["secret"]["defaultMode"]) == (os.path.dirname(file), 0o400)


def test_metrics_are_open_to_monitoring_only_and_only_on_request(tmp_path):
    assert "CKPTFS_METRICS_ADDRESS" not in environment(daemon_of(overlay("irsa")), overlay("irsa"))
    place = os.path.relpath(KUBERNETES, tmp_path.resolve())
    (tmp_path / "kustomization.yaml").write_text(
        f"resources: [{place}/overlays/irsa]\ncomponents: [{place}/components/metrics]\n")
    documents = applied(tmp_path)
    for document in documents:
        kubernetes_validate.validate(document, VERSIONS[-1], strict=True)
    container = daemon_of(documents)
    port, = container["ports"]
    assert environment(container, documents)["CKPTFS_METRICS_ADDRESS"] == f"0.0.0.0:{port['containerPort']}"
    daemon_set, = objects(documents, "DaemonSet")
    assert daemon_set["spec"]["template"]["metadata"]["annotations"]["prometheus.io/port"] == str(port["containerPort"])
    policy, = objects(documents, "NetworkPolicy")
    assert policy["spec"]["podSelector"]["matchLabels"].items() <= daemon_set["spec"]["template"]["metadata"][
        "labels"].items()
    assert [rule["ports"] for rule in policy["spec"]["ingress"]] == [[{"port": port["name"]}]]


def test_a_nodes_disk_is_used_on_request(tmp_path):
    assert "CKPTFS_CACHE_DIR" not in environment(daemon_of(overlay("irsa")), overlay("irsa"))
    place = os.path.relpath(KUBERNETES, tmp_path.resolve())
    (tmp_path / "kustomization.yaml").write_text(
        f"resources: [{place}/overlays/irsa]\ncomponents: [{place}/components/cache-dir]\n")
    documents = applied(tmp_path)
    for document in documents:
        kubernetes_validate.validate(document, VERSIONS[-1], strict=True)
    container, (pod,) = daemon_of(documents), pod_specs(documents)
    directory = environment(container, documents)["CKPTFS_CACHE_DIR"]
    mounted, = [each for each in container["volumeMounts"] if directory.startswith(each["mountPath"] + "/")]
    volume, = [each for each in pod["volumes"] if each["name"] == mounted["name"]]
    # What is kept outlives the pod.
    assert volume["hostPath"]["type"] == "DirectoryOrCreate"
    assert not mounted.get("readOnly", False)


def test_a_nodes_disk_acknowledges_on_request(tmp_path):
    assert "CKPTFS_ACK" not in environment(daemon_of(overlay("irsa")), overlay("irsa"))
    place = os.path.relpath(KUBERNETES, tmp_path.resolve())
    (tmp_path / "kustomization.yaml").write_text(
        f"resources: [{place}/overlays/irsa]\n"
        f"components: [{place}/components/cache-dir, {place}/components/ack-disk]\n")
    documents = applied(tmp_path)
    for document in documents:
        kubernetes_validate.validate(document, VERSIONS[-1], strict=True)
    settings = environment(daemon_of(documents), documents)
    assert settings["CKPTFS_ACK"] == "disk"
    assert settings["CKPTFS_CACHE_DIR"]


def test_kustomize_uses_every_file():
    used = {path for path in KUBERNETES.rglob("kustomization.yaml")}
    for kustomization in list(used):
        used |= {kustomization.parent / name for name in
                 re.findall(r"^\s*(?:- path:|-) ([\w.-]+\.(?:yaml|env))$", kustomization.read_text(), re.MULTILINE)}
    used |= {KUBERNETES / "examples" / name for name in EXAMPLES}
    assert {path for path in KUBERNETES.rglob("*") if path.is_file() and path.suffix != ".md"} == used
