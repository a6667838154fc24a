#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Where third-party headers may be included, and which module may know which."""

import re

from repository import FOLDERS_OF, MODULES, ROOT, report, sources

# Every third-party header, and the only places that may name it. A library that is exchanged is exchanged there.
THIRD_PARTY = {
    "CLI/": ("src/cli/command_line.cc", "tests/s3sim/options.cc"),
    "curl/": ("src/http/", "bench/raw_transfers.cc"),
    "fmt/": ("src/base/text.h",),
    "fuse": ("src/fuse/",),
    "isa-l/": ("src/base/digest.cc", "tests/s3sim/digest.cc"),
    "nlohmann/": ("src/base/json_text.cc", "src/base/json_line.h", "tests/s3sim/admin.cc"),
    "openssl/": ("src/base/digest.cc", "tests/s3sim/digest.cc", "tests/s3sim/tls.cc"),
    "prometheus/": ("src/daemon/metric",),
    "pugixml": ("src/s3/xml.cc", "tests/s3sim/xml.cc"),
    "spdlog/": ("src/base/log.cc", "src/base/rotating_log.cc"),
    "tl/": ("include/ckptfs/status.h", "tests/s3sim/outcome.h"),
    "xxhash.h": ("src/base/xxhash.cc",),
    "zstd": ("src/codec/zstd_frames.cc", "bench/codec.cc", "tests/unit/codec/huffman_test.cc"),
    "gtest/": ("tests/",),
    "gmock/": ("tests/",),
    "rapidcheck": ("tests/",),
}
# Of the C library and the kernel: <name.h> without a folder, or in one of these.
SYSTEM = re.compile(r"^([a-z0-9_]+(\.h)?|(arpa|linux|net|netinet|sys|sanitizer)/[a-z0-9_]+\.h)$")

INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^">]+)[">]', re.MULTILINE)


def folder_problem_of(path: str, header: str) -> str | None:
    """Where a header of the same module lies in one of its folders."""
    module, *inside = path.removeprefix("src/").split("/")
    folders = FOLDERS_OF.get(module)
    if folders is None or not path.startswith("src/") or not header.startswith(f"{module}/") or header.count("/") < 2:
        return None
    known = header.split("/")[1]
    if len(inside) > 1:
        own = inside[0]
        return None if known == own or known in folders[own] else "this folder may not know that one"
    # The contract of the module; its one source puts everything together.
    return None if not path.endswith(".h") or header == path.removeprefix("src/") else "a contract knows no folder"


def problem_of(path: str, bracket: str, header: str) -> str | None:
    if bracket == '"':
        module = header.split("/")[0]
        if path.startswith("include/"):
            return None if module == "ckptfs" else "a contract knows no module"
        if path.startswith("src/") and module != "ckptfs" and module not in MODULES[path.split("/")[1]]:
            return "this module may not know that one"
        return folder_problem_of(path, header)
    for library, places in THIRD_PARTY.items():
        if header.startswith(library):
            return None if path.startswith(places) else f"only for {', '.join(places)}"
    return None if SYSTEM.match(header) else "not in the list of third-party headers"


problems = []
for file in sources():
    name = str(file.relative_to(ROOT))
    for bracket, header in INCLUDE.findall(file.read_text()):
        if why := problem_of(name, bracket, header):
            problems.append(f"{name}: {header}: {why}")
report(problems)
