// SPDX-License-Identifier: Apache-2.0
#include "doctor/findings.h"

#include <algorithm>
#include <utility>

namespace ckptfs::doctor {

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
