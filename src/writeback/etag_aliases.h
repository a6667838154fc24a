// SPDX-License-Identifier: Apache-2.0
// Maps the ETags under which this mount has acknowledged versions to those that the store gave them, and remembers when
// they were acknowledged: the store's time is that of the sending.
//
// Programs of the mount have a version open, or in their caches, under the first ETag, which stays valid as long as the
// mount lives. Only the last version of each key is remembered. Beyond kMost the oldest entries are dropped: the mount
// then sees another version of the name, and fetches it again.
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

    // Times of one version, by the mount's clock.
    struct Times {
        // Zero if unknown.
        WallTime acknowledged{};
        WallTime sent{};
    };
    // The two ETags are equal if the bucket has made the version as a copy.
    void note(const std::string& key, const std::string& acknowledged, const std::string& etag, const Times& times);
    // When the version in `object` was acknowledged here; empty if unknown. A version with the same ETag that is
    // younger than what was sent is another mount's.
    [[nodiscard]] std::optional<WallTime> acknowledged_at(const ObjectInfo& object) const;
    // The ETag of a version as this mount knows it, and as the store does; `etag` if it has no alias.
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
    // In the order in which they were noted.
    std::deque<Noted> order_;
    std::uint64_t last_ = 0;
};

}  // namespace ckptfs
