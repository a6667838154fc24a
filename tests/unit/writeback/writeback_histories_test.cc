// SPDX-License-Identifier: Apache-2.0
// Random histories: whatever is put, copied and removed, while requests fail, answers get lost and the mount is killed,
// what this mount sees is what was acknowledged, and what the bucket holds is, at any moment, what was acknowledged up
// to its last marker, or later.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "base/text.h"
#include "support/eventually.h"
#include "unit/writeback/writeback_fixture.h"

namespace ckptfs::testing {
namespace {

const std::vector<std::string> kKeys = {"a", "b", "d/1", "d/2", "d/e/1", "d/e/2", "f/1", "f/2", "g/h/i/1"};
const std::string kMarker = "ckpt/.metadata";
#ifdef CKPTFS_SANITIZED
constexpr int kHistories = 21;
#else
constexpr int kHistories = 41;
#endif

class History : public ::testing::TestWithParam<int> {
protected:
    using State = std::map<std::string, std::string>;

    std::size_t draw(std::size_t below) { return std::uniform_int_distribution<std::size_t>(0, below - 1)(random); }
    const std::string& any_key() { return kKeys[draw(kKeys.size())]; }
    std::string any_content() {
        const std::size_t sizes[] = {0, 10, 4'096, 4'097, 70'000, 1'048'577};
        std::string content = std::to_string(++serial) + ":";
        content.resize(std::max(content.size(), sizes[draw(std::size(sizes))]), static_cast<char>('a' + serial % 26));
        return content;
    }

    void begin() {
        auto fate = [this](int request) {
            std::uint64_t dice = (static_cast<std::uint64_t>(request) + 1) * 0x9E3779B97F4A7C15U + seed;
            dice ^= dice >> 31U;
            return dice % 23 == 0 ? Fate::kFails : Fate::kPasses;
        };
        // Every second one in segments of a few changes.
        made = std::make_unique<WritebackMount>(
            bucket, pool, directory(), std::uint64_t{4} << 20, fate, [this](WritebackEnvironment& environment) {
                environment.segment_size = seed % 2 == 0 ? 600 : environment.segment_size;
            });
        made->unsent().start();
    }
    void lose_answers() {
        Error lost;
        lost.outcome_unknown = true;
        lost.message = "no answer";
        for (const Operation operation : {Operation::kPut, Operation::kCopy, Operation::kRemove, Operation::kUploadPart,
                                          Operation::kCreateUpload, Operation::kCompleteUpload}) {
            for (int number = 0; number < 6; ++number) {
                bucket.inject({operation, "", lost, static_cast<int>(draw(20)), 1, true});
            }
        }
    }
    [[nodiscard]] std::string directory() const { return (temporary.path() / std::to_string(life)).string(); }

    void put(const std::string& key) {
        std::string content = any_content();
        played += "(" + std::to_string(serial) + ")";
        ASSERT_TRUE(made->put(key, content, {{kWriteIdMetadata, "id" + std::to_string(serial)}}));
        acknowledged[key] = std::move(content);
    }
    void put_in_parts(const std::string& key) {
        const auto id = "id" + std::to_string(++serial);
        const auto upload = (*made)->create_upload({key, {{kWriteIdMetadata, id}}, "", "", "", {}});
        std::string whole;
        std::vector<UploadedPart> parts;
        for (int number = 1; number <= 3; ++number) {
            const std::string content = any_content();
            const auto part =
                (*made)->upload_part({*upload, number, Payload::from_string(content), crc32c(as_bytes(content))});
            ASSERT_TRUE(part);
            parts.push_back(*part);
            whole += content;
            played += "(" + std::to_string(serial) + ")";
        }
        ASSERT_TRUE((*made)->complete_upload({*upload, parts, id, whole.size(), false, nullptr}));
        acknowledged[key] = std::move(whole);
    }
    // Of what is there, and more.
    void append(const std::string& key) {
        const auto id = "id" + std::to_string(++serial);
        const auto upload = (*made)->create_upload({key, {{kWriteIdMetadata, id}}, "", "", "", {}});
        std::vector<UploadedPart> parts;
        if (acknowledged.contains(key) && !acknowledged[key].empty()) {
            const auto copied = (*made)->upload_part_copy({*upload, 1, key, "", std::nullopt});
            // A look at the store may fail, as any request.
            if (!copied) {
                ASSERT_EQ(copied.error().errno_value, EIO);
                ASSERT_TRUE((*made)->abort_upload(*upload));
                return;
            }
            parts.push_back(*copied);
        }
        const std::string content = any_content();
        parts.push_back(
            (*made)->upload_part({*upload, 2, Payload::from_string(content), crc32c(as_bytes(content))}).value());
        ASSERT_TRUE((*made)->complete_upload({*upload, parts, id, 0, false, nullptr}));
        acknowledged[key] += content;
    }
    void copy(const std::string& source, const std::string& key) {
        if (source == key) {
            return;
        }
        const auto copied = made->copy(source, key);
        // A look at the store may fail, as any request.
        if (!copied && copied.error().errno_value == EIO) {
            return;
        }
        ASSERT_EQ(copied.has_value(), acknowledged.contains(source)) << source;
        if (copied) {
            acknowledged[key] = acknowledged[source];
        }
    }
    void remove(const std::string& key) {
        ASSERT_TRUE((*made)->remove(key));
        acknowledged.erase(key);
    }
    // All that was acknowledged by now comes before it.
    void mark() {
        const std::string number = std::to_string(marked.size());
        marked.push_back(acknowledged);
        ASSERT_TRUE(made->put(kMarker, number));
    }
    void kill() {
        made->cut_off();
        const std::string before = directory();
        ++life;
        copy_disk(before, directory());
        made.reset();
        begin();
    }

    void check_key(const std::string& key) {
        std::string content;
        Result<std::string> got = made->content(key);
        while (!got && got.error().errno_value == EIO) {
            got = made->content(key);
        }
        const auto expected = acknowledged.find(key);
        ASSERT_EQ(got.has_value(), expected != acknowledged.end()) << key;
        if (got) {
            ASSERT_TRUE(*got == expected->second)
                << key << " is " << got->substr(0, 8) << " of " << got->size() << ", was "
                << expected->second.substr(0, 8) << " of " << expected->second.size();
        }
    }
    void check_list(const std::string& prefix, const std::string& delimiter) {
        std::set<std::string> expected;
        for (const auto& [key, content] : acknowledged) {
            if (key.starts_with(prefix)) {
                const std::size_t cut = delimiter.empty() ? std::string::npos : key.find(delimiter, prefix.size());
                expected.insert(cut == std::string::npos ? key : key.substr(0, cut + 1));
            }
        }
        ListRequest request;
        request.prefix = prefix;
        request.delimiter = delimiter;
        request.max_keys = static_cast<int>(draw(4)) + 1;
        std::vector<std::string> found;
        do {
            const auto page = (*made)->list(request);
            if (!page) {
                ASSERT_EQ(page.error().errno_value, EIO);
                continue;
            }
            for (const ObjectInfo& object : page->objects) {
                found.push_back(object.key);
            }
            found.insert(found.end(), page->common_prefixes.begin(), page->common_prefixes.end());
            request.continuation_token = page->next_continuation_token;
            if (request.continuation_token.empty()) {
                break;
            }
        } while (true);
        std::sort(found.begin(), found.end());
        std::erase(found, prefix.empty() && delimiter == "/" ? "ckpt/" : kMarker);
        ASSERT_EQ(found, std::vector<std::string>(expected.begin(), expected.end())) << prefix << " " << delimiter;
    }
    // Nothing of what came before the marker is missing: each key is as it was then, or as it was made later.
    void check_bucket() {
        if (!bucket.exists(kMarker)) {
            return;
        }
        const auto number = std::stoul(bucket.content(kMarker));
        for (const auto& [key, content] : marked[number]) {
            // Empty where it is not there; no content is.
            const std::string there = bucket.content(key);
            if (!there.empty()) {
                const bool is_later = std::any_of(versions[key].begin(), versions[key].end(), [&](const auto& version) {
                    return version.first > number && version.second == there;
                });
                ASSERT_TRUE(there == content || is_later) << key << " of marker " << number << " is "
                                                          << there.substr(0, 8) << ", was " << content.substr(0, 8);
            } else {
                ASSERT_TRUE(removed_after(key, number)) << key << " of marker " << number;
            }
        }
    }
    // Since so many markers were acknowledged.
    void note_version(const std::string& key) {
        const auto found = acknowledged.find(key);
        if (found == acknowledged.end()) {
            removals[key].push_back(marked.size());
        } else {
            versions[key].emplace_back(marked.size(), found->second);
        }
    }
    bool removed_after(const std::string& key, std::size_t number) {
        return std::any_of(removals[key].begin(), removals[key].end(),
                           [number](std::size_t markers) { return markers > number; });
    }

    void step() {
        const std::size_t dice = draw(100);
        const std::string key = any_key();
        if (dice < 22) {
            played += " put " + key;
            put(key);
        } else if (dice < 30) {
            played += " append " + key;
            append(key);
        } else if (dice < 38) {
            played += " upload " + key;
            put_in_parts(key);
        } else if (dice < 52) {
            const std::string& source = any_key();
            played += " copy " + source + "=" + key;
            copy(source, key);
        } else if (dice < 66) {
            played += " remove " + key;
            remove(key);
        } else if (dice < 72) {
            played += " mark";
            mark();
        } else if (dice < 84) {
            check_key(key);
        } else if (dice < 95) {
            const char* const prefixes[] = {"", "d/", "d/e/", "f/", "g/"};
            check_list(prefixes[draw(5)], draw(2) == 0 ? "/" : "");
        } else if (dice < 98) {
            check_bucket();
        } else {
            played += " kill";
            kill();
        }
        note_version(key);
    }

    const std::uint64_t seed = static_cast<std::uint64_t>(GetParam());
    std::mt19937_64 random{seed};
    int serial = 0;
    std::string played;
    const TemporaryDirectory temporary;
    int life = 0;
    HeapBufferPool pool{16};
    FakeStore bucket{0};
    std::unique_ptr<WritebackMount> made;
    State acknowledged;
    // As it was acknowledged before each marker.
    std::vector<State> marked;
    std::map<std::string, std::vector<std::pair<std::size_t, std::string>>> versions;
    std::map<std::string, std::vector<std::size_t>> removals;
};

TEST_P(History, IsWhatWasAcknowledged) {
    lose_answers();
    bucket.answer_from_threads(3);
    std::filesystem::create_directory(directory());
    begin();
    for (int number = 0; number < 300; ++number) {
        ASSERT_NO_FATAL_FAILURE(step()) << "step " << number << ":" << played;
    }
    made->wait_until_sent();
    for (const std::string& key : kKeys) {
        ASSERT_NO_FATAL_FAILURE(check_key(key));
        ASSERT_EQ(bucket.exists(key), acknowledged.contains(key)) << key;
        ASSERT_TRUE(!bucket.exists(key) || bucket.content(key) == acknowledged[key]) << key;
    }
    EXPECT_EQ(made->unsent().status().changes, 0U);
    made.reset();
    // A thread of the bucket may hold the last body a little longer.
    EXPECT_TRUE(eventually([this] { return std::filesystem::is_empty(directory()); }));
}

INSTANTIATE_TEST_SUITE_P(Seeds, History, ::testing::Range(1, kHistories));

}  // namespace
}  // namespace ckptfs::testing
