// SPDX-License-Identifier: Apache-2.0
#include "codec/plain.h"

#include <algorithm>
#include <utility>

#include "base/digest.h"
#include "base/text.h"

namespace ckptfs {
namespace {

class PlainEncoder final : public FrameEncoder {
public:
    [[nodiscard]] bool identity() const override { return true; }
    Result<EncodedFrame> encode(const Payload& raw, MutableByteSpan /*output*/,
                                EncodeEffort /*effort*/) const override {
        EncodedFrame frame;
        frame.crc32c = crc32c(raw);
        frame.record.stored_size = static_cast<std::uint32_t>(raw.size());
        frame.stored = raw;
        return frame;
    }
    Status decode(const Payload& stored, const Payload& /*referenced*/, MutableByteSpan raw,
                  std::uint32_t /*checksum*/) const override {
        if (stored.size() != raw.size()) {
            return failure(EIO, format("{} bytes instead of {}", stored.size(), raw.size()));
        }
        stored.copy_to(0, raw);
        return {};
    }
    [[nodiscard]] Payload padding(std::uint64_t /*size*/) const override { return {}; }
    [[nodiscard]] Payload tail(const std::vector<FrameRecord>& /*frames*/, std::uint64_t /*size*/) const override {
        return {};
    }
    [[nodiscard]] Metadata metadata(std::optional<std::uint64_t> /*size*/) const override { return {}; }
    [[nodiscard]] std::string content_encoding() const override { return {}; }
};

class PlainLayout final : public FrameLayout {
public:
    PlainLayout(std::string key, std::uint64_t size) : key_(std::move(key)), size_(size) {}

    [[nodiscard]] std::uint64_t size() const override { return size_; }
    [[nodiscard]] Frame frame_at(std::uint64_t offset) const override {
        Frame frame;
        frame.index = offset / kFrameSize;
        frame.offset = frame.index * kFrameSize;
        frame.size = std::min<std::uint64_t>(kFrameSize, size_ - std::min(size_, frame.offset));
        frame.stored_offset = frame.offset;
        frame.stored_size = frame.size;
        return frame;
    }
    [[nodiscard]] bool identity() const override { return true; }
    [[nodiscard]] const std::vector<FrameRecord>& records() const override { return none_; }
    Status decode(const Frame& frame, const Payload& stored, const Payload& /*referenced*/,
                  MutableByteSpan target) const override {
        if (stored.size() != frame.size || target.size() != frame.size) {
            return failure(EIO, format("read {}: frame {} has {} bytes instead of {}", key_, frame.index, stored.size(),
                                       frame.size));
        }
        stored.copy_to(0, target);
        return {};
    }

private:
    const std::string key_;
    const std::uint64_t size_;
    const std::vector<FrameRecord> none_;
};

}  // namespace

std::shared_ptr<const FrameEncoder> make_plain_encoder() {
    return std::make_shared<const PlainEncoder>();
}

std::shared_ptr<const FrameLayout> make_plain_layout(const ObjectInfo& object) {
    return std::make_shared<const PlainLayout>(object.key, object.size);
}

}  // namespace ckptfs
