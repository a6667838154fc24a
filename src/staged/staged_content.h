// SPDX-License-Identifier: Apache-2.0
// Where the bytes of a file lie that is changed in place: in the object it started from, in the staging file, or
// nowhere, which reads as zeros. Pure.
//
// The staging file holds a byte at the offset that it has in the file, so that ranges are all there is to know.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "ckptfs/codec.h"

namespace ckptfs {

enum class ByteSource : std::uint8_t { kBase, kStaged, kZeros };

struct ContentPiece {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    ByteSource source = ByteSource::kZeros;

    bool operator==(const ContentPiece&) const = default;
};

struct ByteRun {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
};

class StagedContent {
public:
    StagedContent() = default;
    explicit StagedContent(std::uint64_t base_size) : base_size_(base_size), kept_(base_size), size_(base_size) {}

    void write(std::uint64_t begin, std::uint64_t end);
    // To a larger size: zeros follow. To a smaller size: what lay after it is gone, even if the file grows again.
    void truncate(std::uint64_t size);

    [[nodiscard]] std::uint64_t size() const { return size_; }
    [[nodiscard]] std::uint64_t base_size() const { return base_size_; }
    [[nodiscard]] bool any_staged() const { return !staged_.empty(); }
    [[nodiscard]] std::uint64_t staged_bytes() const;
    // The pieces of the range, which is cut at the end of the file; neighbours have different sources.
    [[nodiscard]] std::vector<ContentPiece> pieces(std::uint64_t begin, std::uint64_t end) const;

    // How many bytes from the beginning on are those of the base.
    [[nodiscard]] std::uint64_t unchanged_prefix() const;
    // The only staged range, if nothing of the base is left after it: it follows a prefix of the base and was written
    // in one go.
    [[nodiscard]] std::optional<ByteRun> run_behind_base() const;

private:
    std::uint64_t base_size_ = 0;
    // The base's bytes before this are still the file's, unless others are staged over them.
    std::uint64_t kept_ = 0;
    std::uint64_t size_ = 0;
    // Staged ranges, begin to end; neither empty nor touching one another.
    std::map<std::uint64_t, std::uint64_t> staged_;
};

// How much of the base a commit keeps as it is: whole frames, and enough of them to be copied within the store as a
// part of an upload; else nothing.
[[nodiscard]] std::uint64_t prefix_to_copy(const StagedContent& content);
// Which runs after that prefix it keeps, as KeptContent has them: those of which copying saves something. `frames`:
// those of the base, as they lie in its object; empty for a plain one.
[[nodiscard]] std::vector<FileRange> runs_to_copy(const StagedContent& content, const std::vector<FrameRecord>& frames);

}  // namespace ckptfs
