// SPDX-License-Identifier: Apache-2.0
#include "codec/codecs.h"

#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "base/globs.h"
#include "base/numbers.h"
#include "base/text.h"
#include "ckptfs/bucket_layout.h"
#include "ckptfs/log.h"
#include "codec/container.h"
#include "codec/frame_coding.h"
#include "codec/plain.h"
#include "codec/reference_index.h"
#include "codec/table_budget.h"

namespace ckptfs {
namespace {

// User metadata of a container: its format, and the size of the file if that was known when the upload began.
constexpr const char* kFormatMetadata = "ckptfs-format";
constexpr const char* kSizeMetadata = "ckptfs-size";
constexpr const char* kPlainName = "plain";
// A seek table, with what is made of it, takes at most one part in this many of `max_memory`.
constexpr std::uint64_t kTablesInMemory = 8;
// The limit of all tables together: two of the largest, and at least 32 MiB, which are the tables of 2.7 TiB of open
// files.
constexpr std::uint64_t kLargestTables = 2;
constexpr std::uint64_t kLeastForTables = std::uint64_t{32} << 20;

struct ContainerFormat {
    const char* name;
    const char* content_encoding;
    FrameCoding coding;
    // The coding when CPU time is short.
    CodingChoice least;
    References references;
};
constexpr ContainerFormat kZstdFormat{
    "zstd-1", "zstd", {CodingChoice::kZstd, 3, FrameChecksum::kXxh64}, CodingChoice::kZstd, References::kNever};
constexpr ContainerFormat kPlanesFormat{"planes-1",
                                        "",
                                        {CodingChoice::kPlanes, 0, FrameChecksum::kCrc32c},
                                        CodingChoice::kZerosOnly,
                                        References::kPossible};
constexpr std::array<const ContainerFormat*, 2> kFormats{&kZstdFormat, &kPlanesFormat};

const ContainerFormat* find_format(const std::string& name) {
    const auto* const found =
        std::find_if(kFormats.begin(), kFormats.end(), [&](const auto* format) { return name == format->name; });
    return found == kFormats.end() ? nullptr : *found;
}

const ContainerFormat* find_format(const ObjectInfo& object) {
    return find_format(object.metadata.at(kFormatMetadata));
}

class ContainerEncoder final : public FrameEncoder {
public:
    explicit ContainerEncoder(const ContainerFormat& format) : format_(format) {}

    [[nodiscard]] bool identity() const override { return false; }
    Result<EncodedFrame> encode(const Payload& raw, MutableByteSpan output, EncodeEffort effort) const override {
        return encode_frame(raw, output, coding(effort));
    }
    [[nodiscard]] std::unique_ptr<FrameHistory> new_history(std::uint64_t max_bytes) const override {
        return format_.references == References::kPossible ? std::make_unique<ReferenceIndex>(max_bytes) : nullptr;
    }
    Result<EncodedFrame> encode_in_file(const Payload& raw, std::uint64_t offset, FrameHistory& history,
                                        MutableByteSpan output, EncodeEffort effort) const override {
        return encode_frame_in_file(raw, offset, static_cast<ReferenceIndex&>(history), output, coding(effort));
    }
    Status decode(const Payload& stored, const Payload& referenced, MutableByteSpan raw,
                  std::uint32_t checksum) const override {
        return decode_frame(stored, referenced, raw, format_.coding.checksum, checksum);
    }
    [[nodiscard]] Result<std::vector<FileRange>> references(const Payload& stored,
                                                            std::uint64_t offset) const override {
        return frame_references(stored, offset);
    }
    [[nodiscard]] Payload padding(std::uint64_t size) const override { return skippable_frame(size); }
    [[nodiscard]] Payload tail(const std::vector<FrameRecord>& frames, std::uint64_t size) const override {
        return Payload::from_string(container_tail(frames, size, format_.references));
    }
    [[nodiscard]] Metadata metadata(std::optional<std::uint64_t> size) const override {
        Metadata metadata{{kFormatMetadata, format_.name}};
        if (size) {
            metadata.emplace(kSizeMetadata, std::to_string(*size));
        }
        return metadata;
    }
    [[nodiscard]] std::string content_encoding() const override { return format_.content_encoding; }

private:
    [[nodiscard]] FrameCoding coding(EncodeEffort effort) const {
        FrameCoding coding = format_.coding;
        if (effort == EncodeEffort::kLeast) {
            coding.choice = format_.least;
        }
        return coding;
    }

    const ContainerFormat format_;
};

class ContainerLayout final : public FrameLayout {
public:
    // `memory`: what the table takes of the TableBudget.
    ContainerLayout(std::string key, FrameTable table, FrameChecksum checksum, std::shared_ptr<void> memory)
        : memory_(std::move(memory)), key_(std::move(key)), table_(std::move(table)), checksum_(checksum) {}

    [[nodiscard]] std::uint64_t size() const override { return table_.size(); }
    [[nodiscard]] Frame frame_at(std::uint64_t offset) const override { return table_.frame(offset / kFrameSize); }
    [[nodiscard]] bool identity() const override { return false; }
    [[nodiscard]] const std::vector<FrameRecord>& records() const override { return table_.records(); }
    [[nodiscard]] Result<std::vector<FileRange>> references(const Frame& frame, const Payload& stored) const override {
        auto references = frame_references(stored, frame.offset);
        if (references && !references->empty() && !table_.records()[frame.index].may_refer) {
            references = failure(EIO, "it refers to other frames, although the table says that none does");
        }
        return references.map_error([&](Error error) { return about(frame, std::move(error)); });
    }
    Status decode(const Frame& frame, const Payload& stored, const Payload& referenced,
                  MutableByteSpan target) const override {
        return decode_frame(stored, referenced, target, checksum_, table_.records()[frame.index].checksum)
            .map_error([&](Error error) { return about(frame, std::move(error)); });
    }

private:
    [[nodiscard]] Error about(const Frame& frame, Error error) const {
        error.message = format("{}: frame {}: {}", key_, frame.index, error.message);
        return error;
    }

    const std::shared_ptr<void> memory_;
    const std::string key_;
    const FrameTable table_;
    const FrameChecksum checksum_;
};

bool is_container(const ObjectInfo& object) {
    return object.metadata.contains(kFormatMetadata);
}

std::optional<std::uint64_t> described(const ObjectInfo& object) {
    const auto found = object.metadata.find(kSizeMetadata);
    if (found == object.metadata.end()) {
        return std::nullopt;
    }
    return whole_number<std::uint64_t>(found->second);
}

bool is_one_bit_off(std::string_view name, std::string_view known) {
    int bits = 0;
    for (std::size_t at = 0; at < name.size() && at < known.size(); ++at) {
        bits += std::popcount(static_cast<unsigned char>(name[at] ^ known[at]));
    }
    return name.size() == known.size() && bits == 1;
}

// Reading the object again changes nothing, unless the name was damaged in transit.
Failure unknown_format(const ObjectInfo& object) {
    const std::string& name = object.metadata.at(kFormatMetadata);
    Error error;
    error.damaged = std::any_of(kFormats.begin(), kFormats.end(),
                                [&](const auto* format) { return is_one_bit_off(name, format->name); });
    error.message = format("{}: written in the format \"{}\", which this version does not know; use a newer ckptfs",
                           escaped(object.key), escaped(name));
    return failure(std::move(error));
}

// Another client may have rewritten an object and kept its description.
Status check_container(const ObjectInfo& object) {
    if (find_format(object) == nullptr) {
        return unknown_format(object);
    }
    if (!has_marked_size(object.size)) {
        return damage(format("{}: described as compressed, but {} bytes are no whole container; write it anew",
                             escaped(object.key), object.size));
    }
    return {};
}

Error about(const ObjectInfo& object, Error error) {
    error.message = format("{}: {}", escaped(object.key), error.message);
    return error;
}

// `storage` holds the bytes if they are in several slices.
ByteSpan in_one_piece(const Payload& bytes, std::string& storage) {
    if (bytes.slices().size() == 1) {
        return bytes.slices().front().bytes;
    }
    storage = bytes.to_string();
    return as_bytes(storage);
}

Failure no_room(const std::string& key) {
    return failure(ENOMEM, format("{}: the seek tables of all files that are open take more than a quarter of "
                                  "--max-memory; close files, or raise it",
                                  escaped(key)));
}

class MountCodec final : public Codec {
public:
    // `format`: that of new files; nothing if they are plain.
    MountCodec(std::optional<ContainerFormat> format, std::vector<std::string> exclude, std::uint64_t largest_table)
        : largest_table_(largest_table),
          tables_(std::make_shared<TableBudget>(std::max(largest_table * kLargestTables, kLeastForTables))),
          chosen_(format ? std::make_shared<const ContainerEncoder>(*format) : plain_),
          chosen_format_(format ? format->name : ""),
          exclude_(std::move(exclude)) {}

    [[nodiscard]] std::shared_ptr<const FrameEncoder> encoder(const std::string& key) const override {
        return matches_any(key.substr(key.rfind('/') + 1), exclude_) ? plain_ : chosen_;
    }
    [[nodiscard]] std::shared_ptr<const FrameEncoder> plain_encoder() const override { return plain_; }
    [[nodiscard]] std::shared_ptr<const FrameEncoder> encoder_like(const ObjectInfo& object) const override {
        if (!is_container(object)) {
            return plain_;
        }
        const ContainerFormat* const format = find_format(object);
        if (format == nullptr || chosen_format_ == format->name) {
            return chosen_;
        }
        return std::make_shared<const ContainerEncoder>(*format);
    }

    Result<std::uint64_t> tail_needed(const ObjectInfo& object, const Payload& tail) const override {
        if (!is_container(object)) {
            return 0;
        }
        if (const Status sound = check_container(object); !sound) {
            return failure(sound.error());
        }
        std::string storage;
        return small_table_size(object, in_one_piece(tail, storage));
    }
    void take_room(const ObjectInfo& object, std::uint64_t bytes, RoomTaken taken) const override {
        tables_->take_room(bytes, [key = object.key, taken = std::move(taken)](std::shared_ptr<TableRoom> room) {
            taken(room != nullptr ? Result<std::shared_ptr<TableRoom>>(std::move(room)) : no_room(key));
        });
    }
    Result<std::shared_ptr<const FrameLayout>> layout(const ObjectInfo& object, const Payload& tail) const override {
        return layout_in(nullptr, object, tail);
    }
    Result<std::shared_ptr<const FrameLayout>> layout_in(const std::shared_ptr<TableRoom>& room,
                                                         const ObjectInfo& object, const Payload& tail) const override {
        if (!is_container(object)) {
            return make_plain_layout(object);
        }
        if (const Status sound = check_container(object); !sound) {
            return failure(sound.error());
        }
        std::string storage;
        const ByteSpan end = in_one_piece(tail, storage);
        const Result<std::uint64_t> size_of_table = small_table_size(object, end);
        if (!size_of_table) {
            return failure(size_of_table.error());
        }
        std::shared_ptr<void> memory = room != nullptr ? room->take(*size_of_table) : nullptr;
        if (memory == nullptr) {
            memory = tables_->take(*size_of_table);
        }
        if (memory == nullptr) {
            return no_room(object.key);
        }
        const ContainerFormat& container = *find_format(object);
        Result<FrameTable> table = FrameTable::parse(end, object.size, container.references);
        if (!table) {
            return failure(about(object, std::move(table.error())));
        }
        if (const auto told = described(object); told && *told != table->size()) {
            return damage(format("{}: described as a file of {} bytes, but its frames hold {}; write it anew",
                                 escaped(object.key), *told, table->size()));
        }
        return std::make_shared<const ContainerLayout>(object.key, std::move(*table), container.coding.checksum,
                                                       std::move(memory));
    }

    void when_tables_are_short(std::function<void()> give) const override { tables_->when_short(std::move(give)); }

    [[nodiscard]] Status check_description(const ObjectInfo& object) const override {
        return is_container(object) ? check_container(object) : Status();
    }
    [[nodiscard]] std::string format_name(const ObjectInfo& object) const override {
        return is_container(object) ? object.metadata.at(kFormatMetadata) : kPlainName;
    }
    [[nodiscard]] bool may_have_lost_description(const ObjectInfo& object, const Payload& tail) const override {
        return !is_container(object) && has_marked_size(object.size) &&
               container_file_size(as_bytes(tail.to_string()), object.size).has_value();
    }
    [[nodiscard]] bool may_be_encoded(std::uint64_t stored_size) const override { return has_marked_size(stored_size); }
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
        return container_file_size(as_bytes(tail.to_string()), object.size).map_error([&](Error error) {
            return about(object, std::move(error));
        });
    }

private:
    // EFBIG for a table that is too large: the writer of the object has chosen its size, and the pool's budget does not
    // count its memory.
    Result<std::uint64_t> small_table_size(const ObjectInfo& object, ByteSpan end) const {
        const Result<std::uint64_t> size = table_size(end, object.size);
        if (!size) {
            return failure(about(object, size.error()));
        }
        if (*size > largest_table_) {
            return failure(EFBIG,
                           format("{}: its seek table of {} bytes takes more than an eighth of --max-memory; use "
                                  "--max-memory {}M or more",
                                  escaped(object.key), *size, (*size * kTablesInMemory >> 20) + 1));
        }
        return size;
    }

    const std::shared_ptr<const FrameEncoder> plain_ = make_plain_encoder();
    const std::uint64_t largest_table_;
    const std::shared_ptr<TableBudget> tables_;
    const std::shared_ptr<const FrameEncoder> chosen_;
    const std::string chosen_format_;
    const std::vector<std::string> exclude_;
};

// "zstd" or "zstd:LEVEL".
std::optional<int> zstd_level(std::string_view compress) {
    if (compress == "zstd") {
        return kZstdFormat.coding.zstd_level;
    }
    constexpr std::string_view kPrefix = "zstd:";
    if (!compress.starts_with(kPrefix)) {
        return std::nullopt;
    }
    compress.remove_prefix(kPrefix.size());
    const auto level = whole_number<int>(compress);
    return level && *level >= kLowestZstdLevel && *level <= kHighestZstdLevel ? level : std::nullopt;
}

}  // namespace

Result<std::unique_ptr<Codec>> make_codec(const CodecConfig& config, std::uint64_t max_memory) {
    std::optional<ContainerFormat> chosen;
    if (config.compress == "auto") {
        chosen = kPlanesFormat;
    } else if (const std::optional<int> level = zstd_level(config.compress)) {
        chosen = kZstdFormat;
        chosen->coding.zstd_level = *level;
    } else if (config.compress != "none") {
        return failure(
            EINVAL, format("compress: \"{}\" is not known; use \"auto\", \"none\", \"zstd\" or \"zstd:LEVEL\" with a "
                           "level from {} to {}",
                           escaped(config.compress), kLowestZstdLevel, kHighestZstdLevel));
    }
    return std::make_unique<MountCodec>(chosen, config.exclude, max_memory / kTablesInMemory);
}

std::string frame_checksum_name(const std::string& format) {
    const ContainerFormat* const known = find_format(format);
    if (known == nullptr) {
        return "";
    }
    return known->coding.checksum == FrameChecksum::kCrc32c ? "crc32c" : "xxh64";
}

}  // namespace ckptfs
