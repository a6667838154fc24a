// SPDX-License-Identifier: Apache-2.0
// Bodies of replies that are collected: lists, errors, and what else is read as a whole.
//
// They are outside the budget for file data. So each has a limit, and so have all of a transport together, whatever a
// store replies to as many requests as there may be: 64 MiB, where lists of 1,000 names usually take 0.3 MiB each.
//
// Headers do not count in this limit; 192 connections may have 48 MiB of them.
//
// Ownership: a CollectedBody belongs to one transfer, and counts until that is destroyed, after its reply has been
// read.
// Threads: CollectedBodies may be used from any thread; a CollectedBody only on the thread of its transfer.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "ckptfs/bytes.h"
#include "ckptfs/http.h"
#include "ckptfs/status.h"

namespace ckptfs {

class CollectedBodies {
public:
    explicit CollectedBodies(std::size_t most) : most_(most) {}

    // Counts `bytes`; false, and nothing is counted, if there is no room.
    [[nodiscard]] bool take(std::size_t bytes);
    void give_back(std::size_t bytes) { taken_ -= bytes; }

private:
    const std::size_t most_;
    std::atomic<std::size_t> taken_{0};
};

class CollectedBody {
public:
    // Only the status and the first words of an error are looked at. The rest is dropped.
    static constexpr std::size_t kMostOfAnError = std::size_t{64} << 10;

    CollectedBody() = default;
    ~CollectedBody();
    CollectedBody(const CollectedBody&) = delete;
    CollectedBody& operator=(const CollectedBody&) = delete;

    // Amazon S3 sends 8 KiB of headers at most.
    static constexpr std::size_t kMostOfAHead = std::size_t{256} << 10;

    void begin(CollectedBodies& all) { all_ = &all; }
    // Counts `bytes` of headers; interim responses have some, too. False if the transfer must end.
    [[nodiscard]] bool take_head(std::size_t bytes);
    // Appends to the body of `response`, of which `most` bytes may be collected if it is a success. False if the
    // transfer must end.
    [[nodiscard]] bool take(HttpResponse& response, ByteSpan bytes, std::size_t most);
    // The rest of an error was dropped.
    [[nodiscard]] bool was_cut() const { return end_ == End::kCut; }
    // Why the body cannot be used; empty if it can.
    [[nodiscard]] std::optional<Error> unusable(const std::string& authority, int status) const;

private:
    enum class End : std::uint8_t { kNone, kCut, kTooLarge, kNoRoom };

    CollectedBodies* all_ = nullptr;
    std::size_t taken_ = 0;
    std::size_t head_ = 0;
    End end_ = End::kNone;
    // The limit that was exceeded.
    std::size_t limit_ = 0;
};

}  // namespace ckptfs
