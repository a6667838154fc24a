# SPDX-License-Identifier: Apache-2.0
"""boto3, unchanged, against s3sim: what an independent client makes of the simulator."""

import base64
import hashlib
import io
import os
import socket
import time
import urllib.request
import zlib

import boto3
import pytest
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import ClientError, ConnectionClosedError, HTTPClientError
from harness.simulator import ACCESS_KEY, BUCKET, SECRET_KEY, Simulator

MIB = 1 << 20


def client_of(sim, host="127.0.0.1", attempts=1, style="path", **overrides):
    scheme = "https" if sim.certificate.exists() else "http"
    credentials = {"aws_access_key_id": ACCESS_KEY, "aws_secret_access_key": SECRET_KEY, "region_name": "us-east-1"}
    config = Config(
        s3={"addressing_style": style},
        signature_version="s3v4",
        retries={"total_max_attempts": attempts},
        read_timeout=30,
    )
    return boto3.client(
        "s3",
        endpoint_url=f"{scheme}://{host}:{sim.port}",
        verify=str(sim.certificate) if sim.certificate.exists() else None,
        config=config,
        **{**credentials, **overrides},
    )


@pytest.fixture(scope="module")
def running():
    simulator = Simulator()
    yield simulator
    simulator.stop()


@pytest.fixture
def sim(running):
    running.clear_faults()
    running.reset_counters()
    return running


@pytest.fixture
def s3(sim):
    client = client_of(sim)
    for key in sim.keys():
        client.delete_object(Bucket=BUCKET, Key=key)
    sim.reset_counters()
    return client


@pytest.fixture
def start():
    started = []

    def start_one(*options):
        started.append(Simulator(*options))
        return started[-1]

    yield start_one
    for simulator in started:
        simulator.stop()


def code(call, **arguments):
    with pytest.raises(ClientError) as caught:
        call(**arguments)
    return caught.value.response["Error"]["Code"]


def read(s3, key, **arguments):
    return s3.get_object(Bucket=BUCKET, Key=key, **arguments)["Body"].read()


def test_put_get_head_delete(s3):
    key = "dir/a b+c&~*(\u00e9).pt"
    put = s3.put_object(
        Bucket=BUCKET, Key=key, Body=b"hello", Metadata={"step": "7"}, ContentType="text/plain", ContentEncoding="zstd"
    )
    assert read(s3, key) == b"hello"
    head = s3.head_object(Bucket=BUCKET, Key=key, ChecksumMode="ENABLED")
    assert head["ETag"] == put["ETag"]
    assert head["Metadata"] == {"step": "7"}
    assert head["ContentType"] == "text/plain"
    assert head["ContentEncoding"] == "zstd"
    assert head["ContentLength"] == 5
    assert head["ChecksumCRC32"] == base64.b64encode(zlib.crc32(b"hello").to_bytes(4, "big")).decode()
    s3.delete_object(Bucket=BUCKET, Key=key)
    assert code(s3.get_object, Bucket=BUCKET, Key=key) == "NoSuchKey"
    assert code(s3.head_object, Bucket=BUCKET, Key=key) == "404"


@pytest.mark.parametrize("style,host", [("path", "127.0.0.1"), ("virtual", "localhost")])
def test_both_styles_of_address(s3, sim, monkeypatch, style, host):
    resolve = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", lambda name, *rest, **more: resolve("127.0.0.1", *rest, **more))
    client = client_of(sim, host, style=style)
    client.put_object(Bucket=BUCKET, Key="k/l", Body=b"x")
    assert read(client, "k/l") == b"x"
    assert [entry["Key"] for entry in client.list_objects_v2(Bucket=BUCKET)["Contents"]] == ["k/l"]


def test_ranges(s3):
    s3.put_object(Bucket=BUCKET, Key="k", Body=b"0123456789")
    s3.put_object(Bucket=BUCKET, Key="empty", Body=b"")
    assert read(s3, "k", Range="bytes=2-4") == b"234"
    assert read(s3, "k", Range="bytes=7-") == b"789"
    assert read(s3, "k", Range="bytes=-3") == b"789"
    assert read(s3, "k", Range="bytes=-30") == b"0123456789"
    assert s3.get_object(Bucket=BUCKET, Key="k", Range="bytes=2-4")["ContentRange"] == "bytes 2-4/10"
    assert code(s3.get_object, Bucket=BUCKET, Key="k", Range="bytes=10-") == "InvalidRange"
    assert code(s3.get_object, Bucket=BUCKET, Key="empty", Range="bytes=-3") == "InvalidRange"


def test_conditional_reads(s3):
    etag = s3.put_object(Bucket=BUCKET, Key="k", Body=b"a")["ETag"]
    assert read(s3, "k", IfMatch=etag) == b"a"
    assert code(s3.get_object, Bucket=BUCKET, Key="k", IfMatch='"other"') == "PreconditionFailed"
    assert code(s3.get_object, Bucket=BUCKET, Key="k", IfNoneMatch=etag) == "304"


def test_conditional_writes(s3):
    etag = s3.put_object(Bucket=BUCKET, Key="k", Body=b"a", IfNoneMatch="*")["ETag"]
    assert code(s3.put_object, Bucket=BUCKET, Key="k", Body=b"b", IfNoneMatch="*") == "PreconditionFailed"
    assert code(s3.put_object, Bucket=BUCKET, Key="k", Body=b"b", IfMatch='"other"') == "PreconditionFailed"
    assert code(s3.put_object, Bucket=BUCKET, Key="none", Body=b"b", IfMatch=etag) == "NoSuchKey"
    s3.put_object(Bucket=BUCKET, Key="k", Body=b"b", IfMatch=etag)
    assert read(s3, "k") == b"b"


def test_transfer_manager_both_ways(s3, sim):
    data = os.urandom(33 * MIB + 5)
    config = TransferConfig(multipart_threshold=8 * MIB, multipart_chunksize=8 * MIB)
    s3.upload_fileobj(io.BytesIO(data), BUCKET, "big", Config=config)
    counters = sim.counters()
    assert counters["operations"]["UploadPart"]["requests"] == 5
    assert counters["operations"]["UploadPart"]["bytes_in"] >= len(data)
    received = io.BytesIO()
    s3.download_fileobj(BUCKET, "big", received, Config=config)
    assert received.getvalue() == data
    assert s3.head_object(Bucket=BUCKET, Key="big", PartNumber=5)["PartsCount"] == 5
    s3.copy({"Bucket": BUCKET, "Key": "big"}, BUCKET, "copied", Config=config)
    assert read(s3, "copied") == data
    assert "Uploads" not in s3.list_multipart_uploads(Bucket=BUCKET)


def test_multipart_rules(s3):
    upload = {"Bucket": BUCKET, "Key": "k"}
    upload["UploadId"] = s3.create_multipart_upload(Bucket=BUCKET, Key="k")["UploadId"]

    def part(number, body):
        return {"PartNumber": number, "ETag": s3.upload_part(**upload, PartNumber=number, Body=body)["ETag"]}

    small, end = part(1, b"small"), part(2, b"end")
    assert code(s3.upload_part, **upload, PartNumber=10001, Body=b"") == "InvalidArgument"
    assert code(s3.complete_multipart_upload, **upload, MultipartUpload={"Parts": [small, end]}) == "EntityTooSmall"
    assert code(s3.complete_multipart_upload, **upload, MultipartUpload={"Parts": [end, small]}) == "InvalidPartOrder"
    wrong = {"PartNumber": 2, "ETag": '"other"'}
    assert code(s3.complete_multipart_upload, **upload, MultipartUpload={"Parts": [wrong]}) == "InvalidPart"
    assert [p["PartNumber"] for p in s3.list_parts(**upload)["Parts"]] == [1, 2]
    assert [u["Key"] for u in s3.list_multipart_uploads(Bucket=BUCKET)["Uploads"]] == ["k"]

    large = part(1, b"x" * (5 * MIB))
    done = s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": [large, end]})
    again = s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": [large, end]})
    assert done["ETag"] == again["ETag"] and done["ETag"].endswith('-2"')
    assert read(s3, "k", Range="bytes=-4") == b"xend"
    assert code(s3.upload_part, **upload, PartNumber=3, Body=b"late") == "NoSuchUpload"
    assert code(s3.abort_multipart_upload, **upload) == "NoSuchUpload"


def test_list_parts_and_uploads_in_pages(s3):
    ids = {}
    for key in ("a", "b", "dir/c"):
        ids[key] = s3.create_multipart_upload(Bucket=BUCKET, Key=key)["UploadId"]
    for number in (1, 2, 3, 10):
        s3.upload_part(Bucket=BUCKET, Key="a", UploadId=ids["a"], PartNumber=number, Body=b"x")
    pages = s3.get_paginator("list_parts").paginate(
        Bucket=BUCKET, Key="a", UploadId=ids["a"], PaginationConfig={"PageSize": 2}
    )
    assert [p["PartNumber"] for page in pages for p in page["Parts"]] == [1, 2, 3, 10]
    pages = s3.get_paginator("list_multipart_uploads").paginate(Bucket=BUCKET, PaginationConfig={"PageSize": 1})
    assert [u["Key"] for page in pages for u in page.get("Uploads", [])] == ["a", "b", "dir/c"]
    rolled_up = s3.list_multipart_uploads(Bucket=BUCKET, Delimiter="/")
    assert [p["Prefix"] for p in rolled_up["CommonPrefixes"]] == ["dir/"]
    for key, upload_id in ids.items():
        s3.abort_multipart_upload(Bucket=BUCKET, Key=key, UploadId=upload_id)
    assert "Uploads" not in s3.list_multipart_uploads(Bucket=BUCKET)


def test_checksums_of_an_upload(s3):
    created = s3.create_multipart_upload(Bucket=BUCKET, Key="k", ChecksumAlgorithm="SHA256")
    upload = {"Bucket": BUCKET, "Key": "k", "UploadId": created["UploadId"]}
    body = b"y" * 100
    digest = hashlib.sha256(body).digest()
    sha256 = base64.b64encode(digest).decode()
    assert code(s3.upload_part, **upload, PartNumber=1, Body=body) == "InvalidRequest"
    etag = s3.upload_part(**upload, PartNumber=1, Body=body, ChecksumSHA256=sha256)["ETag"]
    bare = {"Parts": [{"PartNumber": 1, "ETag": etag}]}
    assert code(s3.complete_multipart_upload, **upload, MultipartUpload=bare) == "InvalidRequest"
    wrong = {"Parts": [{"PartNumber": 1, "ETag": etag, "ChecksumSHA256": base64.b64encode(b"0" * 32).decode()}]}
    assert code(s3.complete_multipart_upload, **upload, MultipartUpload=wrong) == "InvalidPart"
    right = {"Parts": [{"PartNumber": 1, "ETag": etag, "ChecksumSHA256": sha256}]}
    done = s3.complete_multipart_upload(**upload, MultipartUpload=right)
    composite = base64.b64encode(hashlib.sha256(digest).digest()).decode() + "-1"
    assert done["ChecksumSHA256"] == composite
    assert s3.head_object(Bucket=BUCKET, Key="k", ChecksumMode="ENABLED")["ChecksumSHA256"] == composite


def test_wrong_checksums_store_nothing(s3):
    wrong = base64.b64encode(b"\0\0\0\0").decode()
    assert code(s3.put_object, Bucket=BUCKET, Key="k", Body=b"a", ChecksumCRC32=wrong) == "BadDigest"
    md5 = base64.b64encode(hashlib.md5(b"b").digest()).decode()
    assert code(s3.put_object, Bucket=BUCKET, Key="k", Body=b"a", ContentMD5=md5) == "BadDigest"
    assert code(s3.get_object, Bucket=BUCKET, Key="k") == "NoSuchKey"


def test_copy(s3):
    source = {"Bucket": BUCKET, "Key": "a b+\u00e9"}
    etag = s3.put_object(**source, Body=b"x" * 100, Metadata={"m": "1"}, ContentType="text/x")["ETag"]
    s3.copy_object(Bucket=BUCKET, Key="to", CopySource=source, CopySourceIfMatch=etag)
    head = s3.head_object(Bucket=BUCKET, Key="to")
    assert (head["Metadata"], head["ContentType"], head["ContentLength"]) == ({"m": "1"}, "text/x", 100)
    s3.copy_object(Bucket=BUCKET, Key="to", CopySource=source, MetadataDirective="REPLACE", Metadata={"m": "2"})
    assert s3.head_object(Bucket=BUCKET, Key="to")["Metadata"] == {"m": "2"}
    stale = {"CopySource": source, "CopySourceIfMatch": '"other"'}
    assert code(s3.copy_object, Bucket=BUCKET, Key="to", **stale) == "PreconditionFailed"
    assert code(s3.copy_object, Bucket=BUCKET, Key="to", CopySource=source, IfNoneMatch="*") == "PreconditionFailed"
    assert code(s3.copy_object, CopySource=source, **source) == "InvalidRequest"


def test_part_copy(s3):
    data = os.urandom(6 * MIB)
    s3.put_object(Bucket=BUCKET, Key="large", Body=data)
    s3.put_object(Bucket=BUCKET, Key="small", Body=data[: 5 * MIB])
    upload = {"Bucket": BUCKET, "Key": "k"}
    upload["UploadId"] = s3.create_multipart_upload(Bucket=BUCKET, Key="k")["UploadId"]
    ranged = {"CopySource": f"{BUCKET}/small", "CopySourceRange": "bytes=0-99"}
    assert code(s3.upload_part_copy, **upload, PartNumber=1, **ranged) == "InvalidRequest"
    ranged = {"CopySource": f"{BUCKET}/large", "CopySourceRange": f"bytes=1-{6 * MIB}"}
    assert code(s3.upload_part_copy, **upload, PartNumber=1, **ranged) == "InvalidArgument"
    ranged = {"CopySource": f"{BUCKET}/large", "CopySourceRange": f"bytes=1-{6 * MIB - 1}"}
    etag = s3.upload_part_copy(**upload, PartNumber=1, **ranged)["CopyPartResult"]["ETag"]
    s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": etag}]})
    assert read(s3, "k") == data[1:]


def test_list_in_pages(s3):
    keys = sorted(f"p/{n % 7}/{n:03} &<\u00e9\n" for n in range(120)) + ["p/plain", "p/z"]
    for key in [*keys, "q", "p0"]:
        s3.put_object(Bucket=BUCKET, Key=key, Body=b"")
    paginator = s3.get_paginator("list_objects_v2")
    pages = list(paginator.paginate(Bucket=BUCKET, Prefix="p/", PaginationConfig={"PageSize": 17}))
    assert [entry["Key"] for page in pages for entry in page["Contents"]] == keys
    assert all(page["KeyCount"] <= 17 for page in pages)
    pages = list(paginator.paginate(Bucket=BUCKET, Prefix="p/", Delimiter="/", PaginationConfig={"PageSize": 2}))
    assert [p["Prefix"] for page in pages for p in page.get("CommonPrefixes", [])] == [f"p/{n}/" for n in range(7)]
    assert [e["Key"] for page in pages for e in page.get("Contents", [])] == ["p/plain", "p/z"]
    assert [page["KeyCount"] for page in pages] == [2, 2, 2, 2, 1]
    after = s3.list_objects_v2(Bucket=BUCKET, StartAfter="p/plain")
    assert [entry["Key"] for entry in after["Contents"]] == ["p/z", "p0", "q"]
    first = s3.get_paginator("list_objects").paginate(Bucket=BUCKET, Delimiter="/", PaginationConfig={"PageSize": 1})
    assert [p["Prefix"] for page in first for p in page.get("CommonPrefixes", [])] == ["p/"]
    wrong = {"Bucket": BUCKET, "ContinuationToken": "nonsense"}
    assert code(s3.list_objects_v2, **wrong) == "InvalidArgument"


def test_list_is_in_byte_order(s3):
    keys = ["a", "a/", "a/b", "a0", "Z", "\u00e9", "\U0001f600", "\uffee"]
    for key in keys:
        s3.put_object(Bucket=BUCKET, Key=key, Body=b"")
    listed = [entry["Key"] for entry in s3.list_objects_v2(Bucket=BUCKET)["Contents"]]
    assert listed == sorted(keys, key=lambda key: key.encode())


def test_delete_many(s3):
    for n in range(5):
        s3.put_object(Bucket=BUCKET, Key=f"k{n}", Body=b"")
    objects = [{"Key": f"k{n}"} for n in range(4)] + [{"Key": "never there"}]
    deleted = s3.delete_objects(Bucket=BUCKET, Delete={"Objects": objects})["Deleted"]
    assert len(deleted) == 5
    assert [entry["Key"] for entry in s3.list_objects_v2(Bucket=BUCKET)["Contents"]] == ["k4"]


def test_delete_many_needs_a_checksum(s3):
    s3.meta.events.register("before-sign.s3.DeleteObjects", lambda request, **_: drop_checksums(request))
    objects = {"Objects": [{"Key": "k"}]}
    assert code(s3.delete_objects, Bucket=BUCKET, Delete=objects) == "InvalidRequest"


def drop_checksums(request):
    for name in list(request.headers):
        if name.lower().startswith(("x-amz-checksum", "x-amz-sdk-checksum", "content-md5")):
            del request.headers[name]


def test_buckets(s3, sim):
    assert BUCKET in [bucket["Name"] for bucket in s3.list_buckets()["Buckets"]]
    s3.head_bucket(Bucket=BUCKET)
    assert s3.get_bucket_location(Bucket=BUCKET)["LocationConstraint"] is None
    assert code(s3.list_objects_v2, Bucket="nothing-here") == "NoSuchBucket"
    s3.create_bucket(Bucket="another-one")
    assert code(s3.create_bucket, Bucket="another-one") == "BucketAlreadyOwnedByYou"
    s3.delete_bucket(Bucket="another-one")


def test_limits(s3):
    assert code(s3.put_object, Bucket=BUCKET, Key="k" * 1025, Body=b"") == "KeyTooLongError"
    assert code(s3.put_object, Bucket=BUCKET, Key="k", Body=b"", Metadata={"m": "x" * 2048}) == "MetadataTooLarge"
    s3.put_object(Bucket=BUCKET, Key="k" * 1024, Body=b"", Metadata={"m": "x" * 2047})


def test_authentication(s3, sim):
    listing = {"Bucket": BUCKET}
    assert code(client_of(sim, aws_access_key_id="x").list_objects_v2, **listing) == "InvalidAccessKeyId"
    assert code(client_of(sim, aws_secret_access_key="x").list_objects_v2, **listing) == "SignatureDoesNotMatch"
    sim.reset_counters()
    elsewhere = client_of(sim, region_name="eu-west-1")
    elsewhere.put_object(Bucket=BUCKET, Key="k", Body=b"")  # follows x-amz-bucket-region
    assert [request["status"] for request in sim.requests()] == [400, 200]
    sim.set_model(clock_offset_s=3600)
    skewed = code(s3.list_objects_v2, **listing)
    sim.set_model(clock_offset_s=0)
    assert skewed == "RequestTimeTooSkewed"


def test_presigned_urls(s3):
    put = s3.generate_presigned_url("put_object", Params={"Bucket": BUCKET, "Key": "k"})
    with urllib.request.urlopen(urllib.request.Request(put, data=b"hello", method="PUT"), timeout=10) as reply:
        assert reply.status == 200
    get = s3.generate_presigned_url("get_object", Params={"Bucket": BUCKET, "Key": "k"})
    with urllib.request.urlopen(get, timeout=10) as reply:
        assert reply.read() == b"hello"


@pytest.mark.parametrize(
    "action,expected",
    [
        ("500", "InternalError"),
        ("503", "ServiceUnavailable"),
        ("slowdown", "SlowDown"),
        ("expired-token", "ExpiredToken"),
        ("skew", "RequestTimeTooSkewed"),
        ("precondition-failed", "PreconditionFailed"),
        ("conflict", "ConditionalRequestConflict"),
        ("no-such-upload", "NoSuchUpload"),
    ],
)
def test_faults_that_are_errors(s3, sim, action, expected):
    sim.inject({"op": "PutObject", "key": "k*", "nth": 1, "action": action})
    assert code(s3.put_object, Bucket=BUCKET, Key="key", Body=b"a") == expected
    assert code(s3.head_object, Bucket=BUCKET, Key="key") == "404"
    s3.put_object(Bucket=BUCKET, Key="key", Body=b"a")


def test_faults_of_the_connection(s3, sim):
    sim.inject({"op": "PutObject", "nth": 1, "action": "performed-but-reply-lost"})
    with pytest.raises((ConnectionClosedError, HTTPClientError)):
        s3.put_object(Bucket=BUCKET, Key="k", Body=b"abc")
    assert read(s3, "k") == b"abc"
    sim.inject({"op": "GetObject", "nth": 1, "action": "truncate", "bytes": 1})
    with pytest.raises(Exception, match="1 bytes read|IncompleteRead"):
        read(s3, "k")
    assert sim.requests(1)[0]["fault"] == "truncate"


def test_a_client_that_retries_gets_over_faults(s3, sim):
    sim.inject({"action": "500", "every": 2}, {"action": "reset", "every": 5})
    patient = client_of(sim, attempts=5)
    for n in range(6):
        patient.put_object(Bucket=BUCKET, Key=f"k{n}", Body=b"x")
    sim.clear_faults()
    assert s3.list_objects_v2(Bucket=BUCKET)["KeyCount"] == 6


def test_an_error_inside_a_200(s3, sim):
    created = s3.create_multipart_upload(Bucket=BUCKET, Key="k")
    upload = {"Bucket": BUCKET, "Key": "k", "UploadId": created["UploadId"]}
    etag = s3.upload_part(**upload, PartNumber=1, Body=b"x")["ETag"]
    parts = {"Parts": [{"PartNumber": 1, "ETag": etag}]}
    sim.inject({"op": "CompleteMultipartUpload", "nth": 1, "action": "200-error"})
    assert code(s3.complete_multipart_upload, **upload, MultipartUpload=parts) == "InternalError"
    sim.inject({"op": "CompleteMultipartUpload", "nth": 1, "action": "blanks", "ms": 300})
    s3.complete_multipart_upload(**upload, MultipartUpload=parts)
    assert read(s3, "k") == b"x"


def test_latest_requests(s3, sim):
    s3.put_object(Bucket=BUCKET, Key="k", Body=b"hello")
    read(s3, "k", Range="bytes=1-2")
    put, get = sim.requests(2)
    assert (put["op"], put["key"], put["status"]) == ("PutObject", "k", 200)
    assert (get["op"], get["range"], get["status"]) == ("GetObject", "bytes=1-2", 206)


def test_tls_and_aws_chunked(start):
    sim = start("--tls")
    s3 = client_of(sim)
    data = os.urandom(9 * MIB)
    s3.upload_fileobj(io.BytesIO(data), BUCKET, "k")
    assert read(s3, "k", ChecksumMode="ENABLED") == data
    s3.put_object(Bucket=BUCKET, Key="small", Body=io.BytesIO(b"hello"), ContentEncoding="zstd")
    assert read(s3, "small") == b"hello"
    assert s3.head_object(Bucket=BUCKET, Key="small")["ContentEncoding"] == "zstd"


def test_options(start, tmp_path):
    faults = tmp_path / "faults.json"
    faults.write_text('[{"op": "HeadBucket", "action": "access-denied", "nth": 1}]')
    sim = start("--md5-etags", "--faults", str(faults), "--region", "eu-west-1", "--session-token", "token")
    s3 = client_of(sim, region_name="eu-west-1", aws_session_token="token")
    assert code(s3.head_bucket, Bucket=BUCKET) == "403"
    assert s3.put_object(Bucket=BUCKET, Key="k", Body=b"hello")["ETag"] == '"5d41402abc4b2a76b9719d911017c592"'
    assert s3.get_bucket_location(Bucket=BUCKET)["LocationConstraint"] == "eu-west-1"
    other = client_of(sim, region_name="eu-west-1", aws_session_token="other")
    assert code(other.list_objects_v2, Bucket=BUCKET) == "InvalidToken"


def test_the_model_of_a_distant_store(start):
    sim = start("--latency-ms", "30", "--conn-mbps", "90")
    s3 = client_of(sim)
    body = b"x" * (16 * MIB)
    began = time.monotonic()
    s3.put_object(Bucket=BUCKET, Key="k", Body=body)
    put = time.monotonic() - began
    began = time.monotonic()
    assert len(read(s3, "k")) == len(body)
    get = time.monotonic() - began
    # Never faster than 30 ms and 16 MiB at 90 MB/s; how much slower depends on what else the machine does.
    assert put > 0.215 and get > 0.215
