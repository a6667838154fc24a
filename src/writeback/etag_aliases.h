// SPDX-License-Identifier: Apache-2.0
// Versions that were acknowledged under an ETag of this mount's, and that the store knows by another one; and when they
// were acknowledged, which the store dates to the time when they were sent.
//
// Programs of the mount have them open, or in their caches, under the first: it stays theirs as long as the mount
// lives. Of each key only the last version counts; the others are gone. Beyond kMost the oldest go first: then the
// mount sees another version of the name, and fetches it anew.
//
// Not synchronised.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "ckptfs/clock.h"
#include "ckptfs/object_store.h"

namespace ckptfs {

class EtagAliases {
public:
    // Each takes about 300 bytes.
    static constexpr std::size_t kMost = 65'536;

    // Of one version, by the clock of the mount.
    struct Times {
        // Not known where it is zero.
        WallTime acknowledged{};
        WallTime sent{};
    };
    // Both are the same where the bucket has made a copy of it.
    void note(const std::string& key, const std::string& acknowledged, const std::string& etag, const Times& times);
    // When what the store tells of was acknowledged here; empty where that is not known. One of the same bytes that is
    // younger than what was sent is another mount's.
    [[nodiscard]] std::optional<WallTime> acknowledged_at(const ObjectInfo& object) const;
    // As it is known here, and as the store knows it.
    [[nodiscard]] std::string here(const std::string& key, const std::string& etag) const;
    [[nodiscard]] std::string there(const std::string& key, const std::string& etag) const;
    [[nodiscard]] std::size_t size() const { return aliases_.size(); }

private:
    struct Alias {
        std::string acknowledged;
        std::string etag;
        Times times{};
        std::uint64_t number = 0;
    };
    struct Noted {
        std::string key;
        std::uint64_t number = 0;
    };
    std::unordered_map<std::string, Alias> aliases_;
    // As they came.
    std::deque<Noted> order_;
    std::uint64_t last_ = 0;
};

}  // namespace ckptfs
