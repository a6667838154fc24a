// SPDX-License-Identifier: Apache-2.0
// Compares the bytes of a whole object with what the store says of them: with the checksum that it keeps, or with the
// ETag if that is an MD5 of the bytes.
//
// Ownership: belongs to one request. Threads: those of its reply.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/digest.h"
#include "ckptfs/bytes.h"
#include "ckptfs/http.h"
#include "s3/store_habits.h"

namespace ckptfs::s3 {

enum class Verdict : std::uint8_t { kNothingKnown, kRight, kDamaged };

class WholeCheck {
public:
    // `md5_properties`: as in md5().
    explicit WholeCheck(const HttpResponse& head, const char* md5_properties = nullptr);

    void take(ByteSpan bytes) {
        if (digest_) {
            digest_->take(bytes);
        }
    }
    // Not every store makes ETags of MD5: a mismatch counts only if other ETags of the store have matched.
    [[nodiscard]] Verdict verdict(StoreHabits& habits);

private:
    // Null if the store has no digest of the bytes, or only one that this machine does not compute.
    std::unique_ptr<RunningDigest> digest_;
    std::string expected_;
    bool is_etag_ = false;
};

}  // namespace ckptfs::s3
