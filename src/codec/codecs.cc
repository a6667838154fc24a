// SPDX-License-Identifier: Apache-2.0
#include "codec/codecs.h"

#include <algorithm>
#include <charconv>
#include <utility>
#include <vector>

#include "base/globs.h"
#include "base/text.h"
#include "ckptfs/log.h"
#include "codec/container.h"
#include "codec/frame_coding.h"
#include "codec/plain.h"

namespace ckptfs {
namespace {

// User metadata of a container: what stands in it, and the size of the file where it was known when the upload began.
constexpr const char* kFormatMetadata = "ckptfs-format";
constexpr const char* kSizeMetadata = "ckptfs-size";
constexpr const char* kZstdFormat = "zstd-1";
constexpr const char* kPlanesFormat = "planes-1";

class ContainerEncoder final : public FrameEncoder {
public:
    explicit ContainerEncoder(FrameCoding coding)
        : coding_(coding), any_zstd_decodes_it_(coding.choice == CodingChoice::kZstd) {}

    [[nodiscard]] bool identity() const override { return false; }
    Result<EncodedFrame> encode(const Payload& raw, MutableByteSpan output) const override {
        return encode_frame(raw, output, coding_);
    }
    Status decode(const Payload& stored, MutableByteSpan raw, std::uint32_t checksum) const override {
        return decode_frame(stored, raw, checksum);
    }
    [[nodiscard]] Payload padding(std::uint64_t size) const override { return skippable_frame(size); }
    [[nodiscard]] Payload tail(const std::vector<FrameRecord>& frames, std::uint64_t size) const override {
        return Payload::from_string(container_tail(frames, size));
    }
    [[nodiscard]] Metadata metadata(std::optional<std::uint64_t> size) const override {
        Metadata metadata{{kFormatMetadata, any_zstd_decodes_it_ ? kZstdFormat : kPlanesFormat}};
        if (size) {
            metadata.emplace(kSizeMetadata, std::to_string(*size));
        }
        return metadata;
    }
    [[nodiscard]] std::string content_encoding() const override { return any_zstd_decodes_it_ ? "zstd" : ""; }

private:
    const FrameCoding coding_;
    const bool any_zstd_decodes_it_;
};

class ContainerLayout final : public FrameLayout {
public:
    ContainerLayout(std::string key, FrameTable table) : key_(std::move(key)), table_(std::move(table)) {}

    [[nodiscard]] std::uint64_t size() const override { return table_.size(); }
    [[nodiscard]] Frame frame_at(std::uint64_t offset) const override { return table_.frame(offset / kFrameSize); }
    [[nodiscard]] bool identity() const override { return false; }
    [[nodiscard]] const std::vector<FrameRecord>& records() const override { return table_.records(); }
    Status decode(const Frame& frame, const Payload& stored, MutableByteSpan target) const override {
        Status decoded = decode_frame(stored, target, table_.records()[frame.index].checksum);
        if (!decoded) {
            decoded.error().message = format("{}: frame {}: {}", key_, frame.index, decoded.error().message);
        }
        return decoded;
    }

private:
    const std::string key_;
    const FrameTable table_;
};

bool is_container(const ObjectInfo& object) {
    return object.metadata.contains(kFormatMetadata);
}

std::optional<std::uint64_t> described(const ObjectInfo& object) {
    const auto found = object.metadata.find(kSizeMetadata);
    if (found == object.metadata.end()) {
        return std::nullopt;
    }
    std::uint64_t size = 0;
    const char* const end = found->second.data() + found->second.size();
    const auto [stop, error] = std::from_chars(found->second.data(), end, size);
    return error == std::errc() && stop == end ? std::optional(size) : std::nullopt;
}

// Somebody may have rewritten an object and kept its description.
Status check_container(const ObjectInfo& object) {
    const std::string& written_as = object.metadata.at(kFormatMetadata);
    if (written_as != kZstdFormat && written_as != kPlanesFormat) {
        return failure(EIO, format("{}: written in the format \"{}\", which this version does not know; use a newer "
                                   "ckptfs",
                                   escaped(object.key), escaped(written_as)));
    }
    if (!has_container_size(object.size)) {
        return failure(EIO, format("{}: described as compressed, but {} bytes are no whole container; write it anew",
                                   escaped(object.key), object.size));
    }
    return {};
}

// The bytes in one piece.
std::vector<std::byte> in_one_piece(const Payload& payload) {
    std::vector<std::byte> bytes(payload.size());
    payload.copy_to(0, bytes);
    return bytes;
}

Error about(const ObjectInfo& object, Error error) {
    error.message = format("{}: {}", escaped(object.key), error.message);
    return error;
}

class MountCodec final : public Codec {
public:
    MountCodec(std::shared_ptr<const FrameEncoder> chosen, std::vector<std::string> exclude)
        : chosen_(std::move(chosen)), exclude_(std::move(exclude)) {}

    [[nodiscard]] std::shared_ptr<const FrameEncoder> encoder(const std::string& key) const override {
        return matches_any(key.substr(key.rfind('/') + 1), exclude_) ? plain_ : chosen_;
    }
    [[nodiscard]] std::shared_ptr<const FrameEncoder> plain_encoder() const override { return plain_; }
    [[nodiscard]] std::shared_ptr<const FrameEncoder> encoder_like(const ObjectInfo& object) const override {
        if (!is_container(object)) {
            return plain_;
        }
        const bool zstd = object.metadata.at(kFormatMetadata) == kZstdFormat;
        const bool chosen_goes_on = !chosen_->identity() && chosen_->content_encoding().empty() != zstd;
        return chosen_goes_on ? chosen_
                              : std::make_shared<const ContainerEncoder>(
                                    FrameCoding{zstd ? CodingChoice::kZstd : CodingChoice::kPlanes});
    }

    Result<std::uint64_t> tail_needed(const ObjectInfo& object, const Payload& tail) const override {
        if (!is_container(object)) {
            return 0;
        }
        if (const Status sound = check_container(object); !sound) {
            return failure(sound.error());
        }
        return table_size(in_one_piece(tail), object.size).map_error([&](Error error) {
            return about(object, std::move(error));
        });
    }
    Result<std::shared_ptr<const FrameLayout>> layout(const ObjectInfo& object, const Payload& tail) const override {
        if (!is_container(object)) {
            return make_plain_layout(object);
        }
        if (const Status sound = check_container(object); !sound) {
            return failure(sound.error());
        }
        Result<FrameTable> table = FrameTable::parse(in_one_piece(tail), object.size);
        if (!table) {
            return failure(about(object, std::move(table.error())));
        }
        if (const auto told = described(object); told && *told != table->size()) {
            return failure(EIO, format("{}: described as a file of {} bytes, but its frames hold {}; write it anew",
                                       escaped(object.key), *told, table->size()));
        }
        return std::make_shared<const ContainerLayout>(object.key, std::move(*table));
    }

    [[nodiscard]] bool may_be_encoded(std::uint64_t stored_size) const override {
        return has_container_size(stored_size);
    }
    [[nodiscard]] std::optional<std::uint64_t> described_size(const ObjectInfo& object) const override {
        if (!is_container(object)) {
            return object.size;
        }
        return described(object);
    }
    Result<std::uint64_t> size_from_tail(const ObjectInfo& object, const Payload& tail) const override {
        if (!is_container(object)) {
            return object.size;
        }
        if (const Status sound = check_container(object); !sound) {
            return failure(sound.error());
        }
        return container_file_size(in_one_piece(tail), object.size).map_error([&](Error error) {
            return about(object, std::move(error));
        });
    }

private:
    const std::shared_ptr<const FrameEncoder> plain_ = make_plain_encoder();
    const std::shared_ptr<const FrameEncoder> chosen_;
    const std::vector<std::string> exclude_;
};

// "zstd" or "zstd:LEVEL".
std::optional<int> zstd_level(std::string_view compress) {
    if (compress == "zstd") {
        return FrameCoding().zstd_level;
    }
    constexpr std::string_view kPrefix = "zstd:";
    if (!compress.starts_with(kPrefix)) {
        return std::nullopt;
    }
    compress.remove_prefix(kPrefix.size());
    int level = 0;
    const auto [stop, error] = std::from_chars(compress.data(), compress.data() + compress.size(), level);
    const bool whole = error == std::errc() && stop == compress.data() + compress.size();
    return whole && level >= kLowestZstdLevel && level <= kHighestZstdLevel ? std::optional(level) : std::nullopt;
}

}  // namespace

Result<std::unique_ptr<Codec>> make_codec(const CodecConfig& config) {
    std::shared_ptr<const FrameEncoder> chosen;
    if (config.compress == "none") {
        chosen = make_plain_encoder();
    } else if (config.compress == "auto") {
        chosen = std::make_shared<const ContainerEncoder>(FrameCoding{CodingChoice::kPlanes});
    } else if (const std::optional<int> level = zstd_level(config.compress)) {
        chosen = std::make_shared<const ContainerEncoder>(FrameCoding{CodingChoice::kZstd, *level});
    } else {
        return failure(
            EINVAL, format("compress: \"{}\" is not known; use \"auto\", \"none\", \"zstd\" or \"zstd:LEVEL\" with a "
                           "level from {} to {}",
                           escaped(config.compress), kLowestZstdLevel, kHighestZstdLevel));
    }
    return std::make_unique<MountCodec>(std::move(chosen), config.exclude);
}

}  // namespace ckptfs
