// SPDX-License-Identifier: Apache-2.0
#include "doctor/findings.h"

#include <algorithm>
#include <array>
#include <utility>

namespace ckptfs::doctor {
namespace {

constexpr auto kNames = std::to_array<std::string_view>({
    "fuse",
    "mount_point",
    "staging_directory",
    "open_files",
    "killed_writers",
    "control_directory",
    "state_directory",
    "endpoint",
    "clock",
    "credentials",
    "region",
    "bucket",
    "list",
    "put",
    "head",
    "get",
    "delete",
    "multipart",
    "abort",
    "list_uploads",
    "checksum_headers",
    "checksum_of_put",
    "checksum_of_part",
    "metadata",
    "etag",
    "list_after_write",
    "list_order",
    "key_names",
    "ranges",
    "if_match",
    "if_none_match",
    "if_none_match_of_uploads",
    "if_match_of_put",
    "copy",
    "copy_conditions",
    "part_copy",
    "parts",
    "unequal_parts",
    "part_order",
    "part_again",
    "delete_batch",
    "delete_conditions",
    "latency",
    "upload",
    "download",
    "slow_down",
    "cleanup",
});
static_assert(kNames.size() == static_cast<std::size_t>(kLastProbe) + 1);

}  // namespace

std::string_view name_of(Probe probe) {
    return kNames.at(static_cast<std::size_t>(probe));
}

void Findings::add(Probe probe, ProbeAnswer answer, std::string seen) {
    list.push_back({probe, answer, std::move(seen), {}, 0, 0, std::nullopt});
}

void Findings::add(Probe probe, ProbeAnswer answer, const Error& error) {
    list.push_back({probe, answer, error.message, error.s3_code, error.errno_value, error.http_status, std::nullopt});
}

void Findings::not_asked(Probe probe, Probe because) {
    if (find(probe) == nullptr) {
        list.push_back({probe, ProbeAnswer::kNotAsked, {}, {}, 0, 0, because});
    }
}

void Findings::not_asked_from(Probe first, Probe last, Probe because) {
    for (auto each = static_cast<int>(first); each <= static_cast<int>(last); ++each) {
        not_asked(static_cast<Probe>(each), because);
    }
}

const Finding* Findings::find(Probe probe) const {
    const auto found = std::find_if(list.begin(), list.end(), [&](const Finding& each) { return each.probe == probe; });
    return found == list.end() ? nullptr : &*found;
}

bool Findings::is(Probe probe, ProbeAnswer answer) const {
    const Finding* found = find(probe);
    return found != nullptr && found->answer == answer;
}

}  // namespace ckptfs::doctor
