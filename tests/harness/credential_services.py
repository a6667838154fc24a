# SPDX-License-Identifier: Apache-2.0
"""The services that hand out credentials, on one port of this machine: sessions of the simulator that soon expire."""

import collections
import datetime
import http.server
import itertools
import json
import time
import urllib.parse

from .local_server import LocalServer
from .simulator import Simulator

BEARER_TOKEN = "bearer-token-of-the-login"
CLIENT_SECRET = "secret-of-the-client"
CONTAINER_TOKEN = "token-of-the-pod"
METADATA_TOKEN = "token-of-the-instance"
WEB_IDENTITY_TOKEN = "token.of/the+service=account"


class CredentialServices(LocalServer):
    """`valid_s`: what they say; `store_valid_s`: when the store refuses them, where that is another time."""

    def __init__(self, simulator: Simulator, valid_s: float, store_valid_s: float | None = None) -> None:
        self._simulator = simulator
        self._numbers = itertools.count(1)
        self.valid_s = valid_s
        self.store_valid_s = store_valid_s or valid_s
        self.down = False
        # Of the clock that signatures are judged by.
        self.clock_offset_s = 0
        # How often they were asked while they were down, and when the last session that was handed out ends.
        self.refused = 0
        self.last_expiry = 0.0
        # By whom they were asked for: how many sessions were handed out.
        self.issued: collections.Counter[str] = collections.Counter()
        # Of the login: access tokens are good until it ends, each refresh token for one renewal.
        self.access_tokens = {BEARER_TOKEN}
        self.refresh_tokens: set[str] = set()
        self.secrets: list[str] = [BEARER_TOKEN, CLIENT_SECRET, CONTAINER_TOKEN, METADATA_TOKEN, WEB_IDENTITY_TOKEN]
        services = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, *_) -> None:
                pass

            def date_time_string(self, timestamp: float | None = None) -> str:
                return super().date_time_string(time.time() + services.clock_offset_s)

            def serve(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0))).decode()
                status, answer = services._answer(self.command, self.path, self.headers, body)
                self.send_response(status)
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer.encode())

            do_GET = do_PUT = do_POST = serve

        super().__init__(Handler)

    def issue(self, whom: str) -> dict[str, str]:
        number = next(self._numbers)
        secret, token = f"secret-{number}-of-{whom}", f"token-{number}-of-{whom}"
        key = f"SESSION{number}"
        self._simulator.add_session(key, secret, token, self.store_valid_s)
        self.issued[whom] += 1
        self.secrets += [secret, token]
        expires = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=self.valid_s)
        self.last_expiry = expires.timestamp()
        return {"AccessKeyId": key, "SecretAccessKey": secret, "Token": token, "SessionToken": token,
                "Expiration": expires.strftime("%Y-%m-%dT%H:%M:%S.%fZ")}

    def _answer(self, method: str, path: str, headers, body: str) -> tuple[int, str]:
        url = urllib.parse.urlsplit(path)
        if self.down:
            self.refused += 1
            return 503, "down"
        if url.path == "/token":
            return self._renew_login(json.loads(body))
        if method == "POST":
            return self._security_token_service(dict(urllib.parse.parse_qsl(body)), headers)
        if url.path == "/federation/credentials":
            return self._identity_center(dict(urllib.parse.parse_qsl(url.query)), headers)
        if url.path.startswith("/latest/"):
            return self._instance_metadata(method, url.path, headers)
        if url.path == "/process":
            return 200, json.dumps({"Version": 1, **self.issue("process")})
        if url.path == "/container" and headers["authorization"] == CONTAINER_TOKEN:
            return 200, json.dumps(self.issue("container"))
        return 403, json.dumps({"code": "AccessDenied", "message": "not with this token"})

    def _security_token_service(self, form: dict[str, str], headers) -> tuple[int, str]:
        action = form["Action"]
        whom = form["RoleArn"]
        signed = headers.get("authorization", "").startswith("AWS4-HMAC-SHA256 Credential=")
        proved = form.get("WebIdentityToken") == WEB_IDENTITY_TOKEN if action == "AssumeRoleWithWebIdentity" else signed
        if form.get("Version") != "2011-06-15" or not form.get("RoleSessionName") or not proved:
            return 403, "<ErrorResponse><Error><Code>AccessDenied</Code><Message>no</Message></Error></ErrorResponse>"
        if signed and self._is_out_of_time(headers["x-amz-date"]):
            return 403, ("<ErrorResponse><Error><Code>SignatureDoesNotMatch</Code><Message>Signature expired</Message></Error>"
                         "</ErrorResponse>")
        session = "".join(f"<{name}>{value}</{name}>" for name, value in self.issue(whom).items() if name != "Token")
        return 200, (f"<{action}Response><{action}Result><Credentials>{session}</Credentials></{action}Result>"
                     f"</{action}Response>")

    def _is_out_of_time(self, amz_date: str) -> bool:
        signed_at = datetime.datetime.strptime(amz_date + "+0000", "%Y%m%dT%H%M%SZ%z").timestamp()
        return abs(time.time() + self.clock_offset_s - signed_at) > 900

    def add_refresh_token(self) -> str:
        token = f"refresh-token-{next(self._numbers)}"
        self.refresh_tokens.add(token)
        self.secrets.append(token)
        return token

    def end_login(self) -> None:
        self.access_tokens.clear()
        self.refresh_tokens.clear()

    def _renew_login(self, asked: dict[str, str]) -> tuple[int, str]:
        client = {"clientId": "client", "clientSecret": CLIENT_SECRET, "grantType": "refresh_token"}
        refresh = asked.pop("refreshToken")
        if asked != client or refresh not in self.refresh_tokens:
            return 400, json.dumps({"error": "invalid_grant", "error_description": "Invalid refresh token provided"})
        self.refresh_tokens.remove(refresh)
        access = f"access-token-{next(self._numbers)}"
        self.access_tokens.add(access)
        self.secrets.append(access)
        self.issued["login"] += 1
        return 200, json.dumps({"accessToken": access, "expiresIn": 1, "tokenType": "Bearer",
                                "refreshToken": self.add_refresh_token()})

    def _identity_center(self, query: dict[str, str], headers) -> tuple[int, str]:
        if headers["x-amz-sso_bearer_token"] not in self.access_tokens or query != {"role_name": "Train", "account_id": "12"}:
            return 401, json.dumps({"message": "Session token not found or invalid"})
        session = self.issue("sso")
        expires = datetime.datetime.fromisoformat(session["Expiration"].replace("Z", "+00:00"))
        return 200, json.dumps({"roleCredentials": {
            "accessKeyId": session["AccessKeyId"], "secretAccessKey": session["SecretAccessKey"],
            "sessionToken": session["SessionToken"], "expiration": int(expires.timestamp() * 1000)}})

    def _instance_metadata(self, method: str, path: str, headers) -> tuple[int, str]:
        roles = "/latest/meta-data/iam/security-credentials/"
        if method == "PUT" and path == "/latest/api/token" and headers["x-aws-ec2-metadata-token-ttl-seconds"]:
            return 200, METADATA_TOKEN
        if headers["x-aws-ec2-metadata-token"] != METADATA_TOKEN:
            return 401, ""
        if path == roles:
            return 200, "train"
        return (200, json.dumps({"Code": "Success", **self.issue("instance")})) if path == roles + "train" else (404, "")
