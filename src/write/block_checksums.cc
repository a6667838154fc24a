// SPDX-License-Identifier: Apache-2.0
#include "write/block_checksums.h"

#include <algorithm>
#include <utility>

#include "base/digest.h"
#include "base/text.h"
#include "ckptfs/log.h"

namespace ckptfs {
namespace {

using Done = std::function<void(Result<std::shared_ptr<const BlockChecksums>>)>;

class ChecksumRequest : public std::enable_shared_from_this<ChecksumRequest> {
public:
    ChecksumRequest(ObjectStore& store, std::string key, std::shared_ptr<BlockChecksums> wanted, Done done)
        : store_(store), key_(std::move(key)), wanted_(std::move(wanted)), done_(std::move(done)) {}

    void send() {
        taken_ = 0;
        wanted_->checksums.clear();
        GetRequest request;
        request.key = key_;
        request.if_match = wanted_->etag;
        if (wanted_->from > 0) {
            request.range = ByteRange{wanted_->from, length(), false};
        }
        request.on_body = [self = shared_from_this()](ByteSpan bytes) { return self->take(bytes); };
        store_.get(std::move(request),
                   [self = shared_from_this()](const Result<GetResponse>& result) { self->here(result); });
    }

private:
    [[nodiscard]] std::uint64_t length() const { return wanted_->end - wanted_->from; }

    bool take(ByteSpan bytes) {
        while (!bytes.empty() && taken_ < length()) {
            const std::uint64_t in_block = taken_ % BufferPool::kPayloadSize;
            if (in_block == 0) {
                wanted_->checksums.push_back(0);
            }
            const std::uint64_t room = std::min(BufferPool::kPayloadSize - in_block, length() - taken_);
            const ByteSpan piece = bytes.first(std::min<std::uint64_t>(bytes.size(), room));
            wanted_->checksums.back() = crc32c(piece, wanted_->checksums.back());
            taken_ += piece.size();
            bytes = bytes.subspan(piece.size());
        }
        return true;
    }

    void here(const Result<GetResponse>& result) {
        if (!result && result.error().damaged && !std::exchange(again_, true)) {
            // Perhaps only damaged in transit.
            send();
        } else if (!result) {
            done_(failure(result.error()));
        } else if (taken_ != length()) {
            done_(failure(EIO, format("write {}: the store sent {} bytes from offset {} instead of {}", escaped(key_),
                                      taken_, wanted_->from, length())));
        } else {
            wanted_->are_vouched_for = result->has_checksum;
            done_(wanted_);
        }
    }

    ObjectStore& store_;
    const std::string key_;
    const std::shared_ptr<BlockChecksums> wanted_;
    const Done done_;
    std::uint64_t taken_ = 0;
    bool again_ = false;
};

}  // namespace

Error damaged_on_its_way(const std::string& key, std::uint64_t offset) {
    return failure(EIO, format("write {}: what is there is damaged on its way from the store at offset {}, also when "
                               "fetched again",
                               escaped(key), offset))
        .value();
}

void fetch_checksums(ObjectStore& store, std::string key, std::string etag, std::uint64_t from, std::uint64_t end,
                     Done done) {
    auto wanted = std::make_shared<BlockChecksums>();
    wanted->etag = std::move(etag);
    wanted->from = from;
    wanted->end = end;
    std::make_shared<ChecksumRequest>(store, std::move(key), std::move(wanted), std::move(done))->send();
}

}  // namespace ckptfs
