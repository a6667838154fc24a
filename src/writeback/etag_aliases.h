// SPDX-License-Identifier: Apache-2.0
// Versions that were acknowledged under an ETag of this mount's, and that the store knows by another one.
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
#include <string>
#include <string_view>
#include <unordered_map>

namespace ckptfs {

class EtagAliases {
public:
    // Each takes about 300 bytes.
    static constexpr std::size_t kMost = 65'536;

    // Nothing where both are the same.
    void note(const std::string& key, const std::string& acknowledged, const std::string& etag);
    // As it is known here, and as the store knows it.
    [[nodiscard]] std::string here(const std::string& key, const std::string& etag) const;
    [[nodiscard]] std::string there(const std::string& key, const std::string& etag) const;
    [[nodiscard]] std::size_t size() const { return aliases_.size(); }

private:
    struct Alias {
        std::string acknowledged;
        std::string etag;
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
