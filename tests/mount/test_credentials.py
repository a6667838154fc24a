# SPDX-License-Identifier: Apache-2.0
"""Mounts whose credentials come from a service, and expire while they are used."""

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from harness.credential_services import BEARER_TOKEN, CLIENT_SECRET, CONTAINER_TOKEN, WEB_IDENTITY_TOKEN, CredentialServices
from harness.mounts import Mount
from harness.programs import CKPTFS, wait_until
from harness.simulator import ACCESS_KEY, BUCKET, SECRET_KEY, Simulator

VALID_SECONDS = 2


class Home:
    """A user with nothing but what a test writes into ~/.aws."""

    def __init__(self, path, simulator: Simulator, services: CredentialServices) -> None:
        self.path = path
        self.services = services
        (path / ".aws/sso/cache").mkdir(parents=True)
        self.environment = {"HOME": str(path), "AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL": simulator.url,
                            "AWS_ENDPOINT_URL_STS": services.url, "AWS_ENDPOINT_URL_SSO": services.url,
                            "AWS_ENDPOINT_URL_SSO_OIDC": services.url}

    def write(self, name: str, text: str, mode: int = 0o600) -> str:
        file = self.path / name
        file.write_text(text)
        file.chmod(mode)
        return str(file)


def environment_of_pod(home: Home) -> None:
    home.environment |= {"AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{home.services.url}/container",
                         "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": home.write("token", CONTAINER_TOKEN + "\n")}


def environment_of_service_account(home: Home) -> None:
    home.environment |= {"AWS_ROLE_ARN": "arn:web", "AWS_WEB_IDENTITY_TOKEN_FILE": home.write("token", WEB_IDENTITY_TOKEN)}


def environment_of_instance(home: Home) -> None:
    home.environment |= {"AWS_EC2_METADATA_SERVICE_ENDPOINT": home.services.url, "AWS_EC2_METADATA_DISABLED": "false"}


def profile_with_role(home: Home) -> None:
    home.write(".aws/credentials", "[keys]\naws_access_key_id = me\naws_secret_access_key = mine\n")
    home.write(".aws/config", "[default]\nrole_arn = arn:outer\nsource_profile = middle\n"
                              "[profile middle]\nrole_arn = arn:inner\nsource_profile = keys\n")


def profile_with_process(home: Home) -> None:
    program = home.write("print keys", f"#!{sys.executable}\nimport sys, urllib.request\n"
                                       "print(urllib.request.urlopen(sys.argv[1]).read().decode())\n", 0o700)
    home.write(".aws/config", f"[default]\ncredential_process = '{program}' {home.services.url}/process\n")


LOGIN = f".aws/sso/cache/{hashlib.sha1(b'corp').hexdigest()}.json"


def log_in(home: Home, expires: str, **more: str) -> None:
    home.write(LOGIN, json.dumps({"accessToken": BEARER_TOKEN, "expiresAt": expires, **more}))


def profile_with_login(home: Home) -> None:
    log_in(home, "2100-01-01T00:00:00Z")
    home.write(".aws/config", "[default]\nsso_session = corp\nsso_account_id = 12\nsso_role_name = Train\n"
                              "[sso-session corp]\nsso_start_url = https://corp.example.com\nsso_region = us-east-1\n")


# Who asks the services, and what makes a mount go there.
SOURCES: dict[str, Callable[[Home], None]] = {
    "container": environment_of_pod, "arn:web": environment_of_service_account, "instance": environment_of_instance,
    "arn:outer": profile_with_role, "process": profile_with_process, "sso": profile_with_login}


@pytest.fixture(scope="module")
def store():
    simulator = Simulator()
    yield simulator
    simulator.stop()


@pytest.fixture(scope="module")
def services(store):
    made = CredentialServices(store, VALID_SECONDS)
    yield made
    made.stop()


@pytest.fixture(scope="module")
def mounts(store, services, tmp_path_factory):
    """A mount of each source, all at once, so that they all wait for their keys to expire together."""
    made: dict[str, Mount] = {}
    for whom, configure in SOURCES.items():
        home = Home(tmp_path_factory.mktemp("home"), store, services)
        configure(home)
        made[whom] = Mount(f"s3://{BUCKET}/{len(made)}/", home.environment, "--max-memory", "64M", "--log-level", "debug")
    yield made
    for mount in made.values():
        mount.remove()


@pytest.fixture
def own_mount(request, simulator, prefix, tmp_path):
    """Makes a mount with services of its own, which say and do what the test wants."""
    ends: list[Callable[[], None]] = []
    request.node.mounts = []

    def make(valid_s: float, store_valid_s: float | None = None, *options: str,
             configure: Callable[[Home], None] = environment_of_pod) -> tuple[Mount, CredentialServices]:
        services = CredentialServices(simulator, valid_s, store_valid_s)
        ends.append(services.stop)
        home = Home(tmp_path / "home", simulator, services)
        configure(home)
        mount = Mount(f"s3://{BUCKET}/{prefix}", home.environment, *options)
        ends.append(mount.remove)
        request.node.mounts.append(mount)
        return mount, services

    yield make
    for end in reversed(ends):
        end()


@pytest.mark.parametrize("whom", SOURCES)
def test_keys_are_renewed_before_they_expire(store, services, mounts, whom):
    mount = mounts[whom]
    (mount / "first").write_bytes(b"1" * 1000)
    # In the background: nobody asks anything of the mount.
    wait_until(lambda: services.issued[whom] >= 4, "three more sessions than the first")
    (mount / "second").write_bytes(b"2" * 1000)
    assert (mount / "first").read_bytes() == b"1" * 1000
    refused = [request for request in store.requests() if request["status"] in (400, 403)]
    assert refused == []


def test_no_secret_is_in_a_log_or_a_command_line(services, mounts):
    for whom, mount in mounts.items():
        with open(f"/proc/{mount.process.pid}/cmdline", "rb") as words:
            seen = mount.log() + words.read().decode()
        assert not [secret for secret in services.secrets if secret in seen], whom


def test_keys_that_the_store_refuses_are_fetched_again(own_mount):
    mount, services = own_mount(3600, 0.7)
    first = services.issued["container"]
    wait_until(lambda: (mount / "file").write_bytes(b"x") == 1 and services.issued["container"] > first + 1,
               "the store to refuse keys twice")
    assert (mount / "file").read_bytes() == b"x"


def test_requests_wait_for_a_service_that_is_down(own_mount):
    mount, services = own_mount(1.2)
    services.down = True
    wait_until(lambda: "retrying" in mount.log(), "the mount to notice")
    wait_until(lambda: time.time() > services.last_expiry, "nothing that is held to be valid")
    asked = services.refused
    writer = subprocess.Popen([sys.executable, "-c", f"open({str(mount / 'file')!r}, 'wb').write(b'x' * 10)"])
    wait_until(lambda: services.refused > asked + 1, "the mount to ask again while somebody waits")
    assert writer.poll() is None
    services.down = False
    assert writer.wait(30) == 0
    assert (mount / "file").read_bytes() == b"x" * 10


def test_a_login_is_renewed_until_a_person_is_needed(own_mount, tmp_path):
    def configure(home: Home) -> None:
        profile_with_login(home)
        log_in(home, "2020-01-01T00:00:00Z", refreshToken=home.services.add_refresh_token(), clientId="client",
               clientSecret=CLIENT_SECRET, registrationExpiresAt="2100-01-01T00:00:00Z", ofTheTools="kept")

    mount, services = own_mount(VALID_SECONDS, configure=configure)
    wait_until(lambda: services.issued["login"] >= 3, "two more renewals than the first")
    (mount / "file").write_bytes(b"x" * 10)
    login = tmp_path / "home" / LOGIN
    written = json.loads(login.read_text())
    assert written["ofTheTools"] == "kept" and written["refreshToken"] in services.secrets
    assert login.stat().st_mode & 0o777 == 0o600
    services.end_login()
    wait_until(lambda: "run aws sso login --sso-session corp" in mount.log(), "the mount to say what to do")
    services.access_tokens.add(BEARER_TOKEN)
    login.write_text(json.dumps({"accessToken": BEARER_TOKEN, "expiresAt": "2100-01-01T00:00:00Z"}))
    wait_until(lambda: "credentials were renewed" in mount.log(), "the new login to be taken")
    assert (mount / "file").read_bytes() == b"x" * 10
    assert not [secret for secret in services.secrets if secret in mount.log()]


def test_the_clock_of_the_service_counts(own_mount):
    def configure(home: Home) -> None:
        home.services.clock_offset_s = 3600
        profile_with_role(home)

    mount, services = own_mount(VALID_SECONDS, configure=configure)
    wait_until(lambda: services.issued["arn:outer"] >= 3, "two more sessions than the first")
    (mount / "file").write_bytes(b"x" * 10)
    assert mount.log().count("this machine's clock differs from that of the AWS Security Token Service by 3") == 1


def test_without_credentials_the_mount_says_where_it_looked(store, services, tmp_path):
    home = Home(tmp_path / "home", store, services)
    (tmp_path / "mnt").mkdir()

    def refused(*options: str) -> str:
        done = subprocess.run([CKPTFS, "mount", f"s3://{BUCKET}/", tmp_path / "mnt", "-f", *options], timeout=30,
                              env={**os.environ, **home.environment}, capture_output=True, text=True)
        assert done.returncode != 0
        return done.stderr

    said = refused()
    for place in ("AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "profile default", ".aws/credentials",
                  "AWS_CONTAINER_CREDENTIALS_FULL_URI", "instance metadata", "--no-sign-request"):
        assert place in said
    profile_with_login(home)
    log_in(home, "2020-01-01T00:00:00Z")
    assert "the login has expired; run aws sso login --sso-session corp" in refused()
    assert "there is no profile absent" in refused("--profile", "absent")
    missing = str(tmp_path / "nowhere" / "credentials")
    assert f"--credentials-file {missing}: No such file" in refused("--credentials-file", missing)
    home.environment["AWS_SHARED_CREDENTIALS_FILE"] = missing
    said = refused("--profile", "absent")
    assert f"there is no profile absent in {missing} (no such file) and " in said and ".aws/config" in said
    del home.environment["AWS_SHARED_CREDENTIALS_FILE"]
    home.environment["AWS_CONTAINER_CREDENTIALS_FULL_URI"] = "http://example.com/"
    home.write(".aws/config", "")
    assert "https" in refused()


def test_a_credentials_file_that_others_may_read_is_named_once(request, store, services, tmp_path):
    home = Home(tmp_path / "home", store, services)
    path = home.write(".aws/credentials", "[default]\naws_access_key_id = " + ACCESS_KEY +
                      "\naws_secret_access_key = " + SECRET_KEY + "\n", 0o644)
    mount = Mount(f"s3://{BUCKET}/open/", home.environment)
    request.node.mounts = [mount]
    try:
        assert mount.log().count(f"chmod 600 {path}") == 1
        assert SECRET_KEY not in mount.log()
    finally:
        mount.remove()


def test_files_are_named_from_where_the_mount_was_made(request, store, services, tmp_path, monkeypatch):
    home = Home(tmp_path / "home", store, services)
    home.write("keys", f"[default]\naws_access_key_id = {ACCESS_KEY}\naws_secret_access_key = {SECRET_KEY}\n")
    monkeypatch.chdir(home.path)
    mount = Mount(f"s3://{BUCKET}/relative/", {**home.environment, "AWS_SHARED_CREDENTIALS_FILE": "keys"})
    request.node.mounts = [mount]
    mount.remove()


@pytest.mark.full
def test_keys_expire_many_times_during_one_upload(own_mount, simulator, prefix):
    simulator.set_model(total_mbps=2)
    try:
        # They expire sooner than they say.
        mount, services = own_mount(6, 4.5, "--compress", "none", "--max-connections", "4")
        content = os.urandom(1 << 20) * 300
        with open(mount / "large", "wb") as file:
            file.write(content)
        # 150 s at a session every 4.5 s; what a busy machine takes for each is left out.
        assert services.issued["container"] > 25
    finally:
        simulator.set_model(total_mbps=0)
    assert simulator.digest(prefix + "large") == hashlib.md5(content).hexdigest()
    assert simulator.open_uploads(prefix) == []
