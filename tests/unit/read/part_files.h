// SPDX-License-Identifier: Apache-2.0
// Files of many parts, as loaders find them: zip files (APPNOTE.TXT, 4.3) and safetensors.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "read/part_table.h"

namespace ckptfs::testing {

inline void append_number(std::string& bytes, std::uint64_t value, std::size_t size) {
    for (std::size_t i = 0; i < size; ++i) {
        bytes.push_back(static_cast<char>(value >> (8 * i)));
    }
}

// Of records that are stored, each behind a local header of 30 bytes and a name of one.
class ZipFile {
public:
    enum class Form : std::uint8_t {
        kPlain,
        // With the records of zip64 besides, as torch.save writes them.
        kZip64,
        // What would need them stands nowhere else.
        kOnlyZip64,
    };

    explicit ZipFile(const std::vector<std::size_t>& sizes, Form form = Form::kPlain) : form_(form) {
        for (const std::size_t size : sizes) {
            records.push_back(bytes.size());
            append_number(bytes, 0x04034b50, 4);
            bytes.append(26, '\0');
            bytes.push_back('n');
            bytes.append(size, 'x');
        }
        directory_ = bytes.size();
        std::vector<std::size_t> all(sizes.size());
        for (std::size_t i = 0; i < all.size(); ++i) {
            all[i] = i;
        }
        name_in_directory(all);
    }

    // In this order.
    void name_in_directory(const std::vector<std::size_t>& which) {
        bytes.resize(directory_);
        for (const std::size_t index : which) {
            const bool is_in_zip64 = form_ == Form::kOnlyZip64;
            append_number(bytes, 0x02014b50, 4);
            bytes.append(16, '\0');
            append_number(bytes, is_in_zip64 ? 0xffffffff : 0, 4);
            append_number(bytes, 0, 4);
            append_number(bytes, 1, 2);
            append_number(bytes, is_in_zip64 ? 26 : 0, 2);
            bytes.append(10, '\0');
            append_number(bytes, is_in_zip64 ? 0xffffffff : records[index], 4);
            bytes.push_back('n');
            if (is_in_zip64) {
                // An extra field of another kind, then that of zip64: the size, the offset.
                append_number(bytes, 0x5455, 2);
                append_number(bytes, 2, 2);
                append_number(bytes, 0, 2);
                append_number(bytes, 1, 2);
                append_number(bytes, 16, 2);
                append_number(bytes, 0, 8);
                append_number(bytes, records[index], 8);
            }
        }
        append_end(which.size());
    }
    [[nodiscard]] std::size_t end_size() const { return bytes.size() - directory_; }

    std::string bytes;
    PartOffsets records;

private:
    void append_end(std::size_t count) {
        const std::size_t end = bytes.size();
        const bool is_in_zip64 = form_ == Form::kOnlyZip64;
        if (form_ != Form::kPlain) {
            append_number(bytes, 0x06064b50, 4);
            append_number(bytes, 44, 8);
            bytes.append(12, '\0');
            for (const std::size_t number : {count, count, end - directory_, directory_}) {
                append_number(bytes, number, 8);
            }
            append_number(bytes, 0x07064b50, 4);
            append_number(bytes, 0, 4);
            append_number(bytes, end, 8);
            append_number(bytes, 1, 4);
        }
        append_number(bytes, 0x06054b50, 4);
        append_number(bytes, 0, 4);
        append_number(bytes, count, 2);
        append_number(bytes, count, 2);
        append_number(bytes, is_in_zip64 ? 0xffffffff : end - directory_, 4);
        append_number(bytes, is_in_zip64 ? 0xffffffff : directory_, 4);
        append_number(bytes, 0, 2);
    }

    const Form form_;
    std::size_t directory_ = 0;
};

inline std::string safetensors_file(const std::string& header, std::size_t data) {
    std::string bytes;
    append_number(bytes, header.size(), 8);
    return bytes + header + std::string(data, 'x');
}

}  // namespace ckptfs::testing
