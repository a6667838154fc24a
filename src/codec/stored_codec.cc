// SPDX-License-Identifier: Apache-2.0
#include "codec/stored_codec.h"

#include <algorithm>
#include <utility>

#include "base/digest.h"
#include "base/text.h"

namespace ckptfs {
namespace {

class StoredEncoder final : public FrameEncoder {
public:
    Result<EncodedFrame> encode(Payload raw) const override {
        EncodedFrame frame;
        frame.crc32c = crc32c(raw);
        frame.size = raw.size();
        frame.stored = std::move(raw);
        return frame;
    }
    Payload tail(const std::vector<Frame>& /*frames*/) const override { return {}; }
    [[nodiscard]] Metadata metadata() const override { return {}; }
    [[nodiscard]] std::string content_encoding() const override { return {}; }
};

class IdentityLayout final : public FrameLayout {
public:
    IdentityLayout(std::string key, std::uint64_t size) : key_(std::move(key)), size_(size) {}

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
    Status decode(const Frame& frame, const Payload& stored, MutableByteSpan target) const override {
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
};

class StoredCodec final : public Codec {
public:
    [[nodiscard]] std::shared_ptr<const FrameEncoder> encoder(const std::string& /*key*/) const override {
        return encoder_;
    }
    Result<std::shared_ptr<const FrameLayout>> layout(const ObjectInfo& object,
                                                      const Payload& /*tail*/) const override {
        return std::make_shared<const IdentityLayout>(object.key, object.size);
    }
    [[nodiscard]] bool size_is_known(const ObjectInfo& /*object*/) const override { return true; }

private:
    const std::shared_ptr<const FrameEncoder> encoder_ = std::make_shared<const StoredEncoder>();
};

}  // namespace

std::unique_ptr<Codec> make_stored_codec() {
    return std::make_unique<StoredCodec>();
}

}  // namespace ckptfs
