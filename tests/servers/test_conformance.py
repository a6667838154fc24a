# SPDX-License-Identifier: Apache-2.0
"""The S3 client of ckptfs (the program s3_conformance) against s3sim, moto, rclone's S3 server, Swift's s3api and
Ceph's RADOS Gateway.

Every test of the program is one test here for each server that has what it needs. Where a server is known to differ
from S3, KNOWN_GAPS says so with the reason, and the test must then fail: a gap that was mended is to be struck off.
"""

import json
import os
import subprocess

import pytest
from harness.programs import BUILD
from harness.servers import SWIFT_PAGE, start_moto, start_radosgw, start_rclone, start_swift
from harness.simulator import BUCKET, Simulator

PROGRAM = BUILD / "s3_conformance"
SERVERS = {"s3sim": Simulator, "moto": start_moto, "rclone": start_rclone, "swift": start_swift,
           "radosgw": start_radosgw}
# Swift refuses writes that name a checksum's algorithm (--checksum none), and takes 20 ms for a request.
SETTINGS = {"swift": {"CKPTFS_TEST_CHECKSUM": "none", "CKPTFS_TEST_PATIENCE": "30",
                      "CKPTFS_TEST_PAGE": str(SWIFT_PAGE)}}
# These use the fault rules of s3sim, which other servers do not have.
FAULT_SUITES = ("Faults.", "All/PassingFaults.")

NO_CHECKSUMS = "does not compare x-amz-checksum-crc32c with the bytes"
NO_COPY_CONDITIONS = "ignores the conditions of a copy"
NO_AUTHENTICATION = "checks no signatures"
NO_WRITE_CONDITIONS = "ignores If-Match and If-None-Match"
NO_DELETE_CONDITIONS = "ignores the ETags of DeleteObjects"
NO_PART_COPY = "has no UploadPartCopy: takes it for an UploadPart without bytes"
FILE_NAMES = "keys are names of files below a folder"

KNOWN_GAPS = {
    "s3sim": {},
    "moto": {
        "Objects.AWrongChecksumIsRefused": NO_CHECKSUMS,
        "Objects.ACopyIsPinnedToItsSource": NO_COPY_CONDITIONS,
        "Objects.ACopyDoesNotReplaceWhereAskedNotTo": NO_COPY_CONDITIONS,
        "Objects.RemovingManyIsPinnedToTheirVersions": NO_DELETE_CONDITIONS,
        "All/KeyNames.AreKept/Newline": "takes no key with a newline",
        "Objects.AWrongSecretIsRefused": NO_AUTHENTICATION,
        "Objects.AnUnknownAccessKeyIsRefused": NO_AUTHENTICATION,
        "Objects.AWrongRegionIsNamed": NO_AUTHENTICATION,
        "Uploads.APartWithAWrongChecksumIsRefused": NO_CHECKSUMS,
        "Uploads.ACompleteWithAWrongChecksumIsRefused": NO_CHECKSUMS,
        "Uploads.AnAbortedUploadIsGone": "answers 500 to the completion of an upload that is gone",
        "Uploads.AnOpenUploadTellsItsAge": "says that every upload began in 2010",
        "Uploads.PartsAreListedWithTheirChecksums": "leaves checksums out of the list of parts",
        "Uploads.ACopiedPartIsAnsweredWithItsChecksum": "computes no checksum of a copied part",
        "Uploads.ARangeOfASmallSourceIsNotCopied": "copies ranges of sources of any size",
    },
    "rclone": {
        "Objects.PutIfNoneMatchRefusesToReplace": NO_WRITE_CONDITIONS,
        "Objects.PutIfMatchReplacesOnlyItsVersion": NO_WRITE_CONDITIONS,
        "Objects.AWrongChecksumIsRefused": NO_CHECKSUMS,
        "Objects.ACopyIsPinnedToItsSource": NO_COPY_CONDITIONS,
        "Objects.ACopyDoesNotReplaceWhereAskedNotTo": NO_COPY_CONDITIONS,
        "Objects.RemovingIsPinnedToItsVersion": NO_WRITE_CONDITIONS,
        "Objects.RemovingManyIsPinnedToTheirVersions": NO_DELETE_CONDITIONS,
        "Objects.AWrongRegionIsNamed": "takes signatures for any region",
        "Uploads.ACompleteTellsTheObjectsETag": "answers the ETag that S3 would give, and later that of the file",
        "Uploads.PartsComeInAnyOrderWithGapsInTheirNumbers": "wants parts numbered from one without gaps",
        "Uploads.APartCanBeSentAgain": "has written the part to its file already",
        "Uploads.ACompleteOfAPartThatHoldsOtherBytesIsRefused": "has written the part to its file already",
        "Uploads.APartWithAWrongChecksumIsRefused": NO_CHECKSUMS,
        "Uploads.ACompleteWithAWrongChecksumIsRefused": NO_CHECKSUMS,
        "Uploads.AShortPartInTheMiddleIsRefused": "takes parts of any size",
        "Uploads.CompleteIfNoneMatchRefusesToReplace": NO_WRITE_CONDITIONS,
        "Uploads.MoreOpenUploadsThanAPageAreListed": "refuses more than a thousand open uploads",
        "Uploads.PartsAreListedWithTheirChecksums": "leaves checksums out of the list of parts",
        "Uploads.PartsAreCopiedFromObjects": NO_PART_COPY,
        "Uploads.ACopiedPartIsAnsweredWithItsChecksum": NO_PART_COPY,
        "Uploads.ACopiedPartIsPinnedToItsSource": NO_PART_COPY,
        "All/KeyNames.AreKept/EmptyStep": FILE_NAMES,
        "All/KeyNames.AreKept/Dots": FILE_NAMES,
        "All/KeyNames.AreKept/Directory": FILE_NAMES,
    },
    "swift": {
        "Objects.AWrongChecksumIsRefused": NO_CHECKSUMS,
        "Objects.RemovingManyIsPinnedToTheirVersions": "takes a DeleteObjects with ETags for XML of another kind",
        "Objects.AnUnknownAccessKeyIsRefused": "answers an unknown key as a wrong secret",
        "Uploads.APartWithAWrongChecksumIsRefused": NO_CHECKSUMS,
        "Uploads.CompleteIfNoneMatchRefusesToReplace": NO_WRITE_CONDITIONS,
        "Uploads.PartsAreListedWithTheirChecksums": "leaves checksums out of the list of parts",
        "Uploads.ACopiedPartIsAnsweredWithItsChecksum": "computes no checksum of a copied part",
        "Uploads.ARangeOfASmallSourceIsNotCopied": "copies ranges of sources of any size",
    },
    "radosgw": {
        "Objects.AWrongChecksumIsRefused": NO_CHECKSUMS,
        "Objects.ACopyIsPinnedToItsSource": NO_COPY_CONDITIONS,
        "Objects.ACopyDoesNotReplaceWhereAskedNotTo": NO_COPY_CONDITIONS,
        "Objects.RemovingIsPinnedToItsVersion": "ignores the conditions of DeleteObject",
        "Objects.RemovingManyIsPinnedToTheirVersions": NO_DELETE_CONDITIONS,
        "Objects.AWrongRegionIsNamed": "takes signatures for any region",
        "Uploads.APartWithAWrongChecksumIsRefused": NO_CHECKSUMS,
        "Uploads.ACompleteWithAWrongChecksumIsRefused": NO_CHECKSUMS,
        "Uploads.CompleteIfNoneMatchRefusesToReplace": "ignores the conditions of CompleteMultipartUpload",
        "Uploads.AnAbortedUploadIsGone": "answers 500 to the completion of an upload that is gone",
        "Uploads.PartsAreListedWithTheirChecksums": "leaves checksums out of the list of parts",
        "Uploads.ACopiedPartIsAnsweredWithItsChecksum": "computes no checksum of a copied part",
        "Uploads.ARangeOfASmallSourceIsNotCopied": "copies ranges of sources of any size",
    },
}


def needs_faults(test: str) -> bool:
    return test.startswith(FAULT_SUITES)


def list_of_tests() -> list[str]:
    tests, suite = [], ""
    for line in subprocess.run([PROGRAM, "--gtest_list_tests"], check=True, capture_output=True,
                               text=True).stdout.splitlines():
        name = line.split("#")[0].rstrip()
        if name.startswith("  "):
            tests.append(suite + name.strip())
        elif name.endswith("."):
            suite = name
    return tests


TESTS = list_of_tests()


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """Of all tests on one server, by their names: the messages of what failed. Runs the program once for each."""
    known = {}

    def of(server: str) -> dict[str, list[str]]:
        if server not in known:
            known[server] = {}
            known[server] = run_program(server, tmp_path_factory.mktemp(server) / "report.json")
        assert known[server], "the program broke off; see the first test of this server"
        return known[server]

    return of


def run_program(server: str, report) -> dict[str, list[str]]:
    started = SERVERS[server]()
    try:
        environment = {**os.environ, **started.environment(), "CKPTFS_TEST_ENDPOINT": started.url,
                       "CKPTFS_TEST_BUCKET": BUCKET}
        environment.update(SETTINGS.get(server, {}))
        filters = "*"
        if server == "s3sim":
            environment["CKPTFS_TEST_FAULTS"] = "1"
        else:
            filters = "*-" + ":".join(suite + "*" for suite in FAULT_SUITES)
        run = subprocess.run([PROGRAM, f"--gtest_filter={filters}", f"--gtest_output=json:{report}"], env=environment,
                             capture_output=True, text=True, timeout=200)
    finally:
        started.stop()
    assert report.exists(), f"the program broke off: {run.stdout[-3000:]}{run.stderr[-3000:]}"
    suites = json.loads(report.read_text())["testsuites"]
    return {f"{suite['name']}.{test['name']}": [failure["failure"] for failure in test.get("failures", [])]
            for suite in suites for test in suite["testsuite"] if test["result"] == "COMPLETED"}


@pytest.mark.parametrize(("server", "test"), [(server, test) for server in SERVERS for test in TESTS
                                              if server == "s3sim" or not needs_faults(test)])
def test_conforms(outcomes, server, test):
    failures = outcomes(server)[test]
    if test in KNOWN_GAPS[server]:
        assert failures, f"{server} {KNOWN_GAPS[server][test]}: no longer true"
    else:
        assert not failures, "\n".join(failures)


def test_every_known_gap_names_a_test():
    assert {gap for gaps in KNOWN_GAPS.values() for gap in gaps} <= set(TESTS)
