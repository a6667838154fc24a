// SPDX-License-Identifier: Apache-2.0
#include "base/direct_write.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

#include "base/unlinked_file.h"

namespace ckptfs {
namespace {

// Size of the copy in bytes: it stays in the processor's cache, and is enough for one request to the disk.
constexpr std::uint64_t kCopied = std::uint64_t{1} << 20;

std::uint64_t past_alignment(const std::byte* bytes) {
    return reinterpret_cast<std::uintptr_t>(bytes) % kDirectAlignment;
}

class DirectWrite {
public:
    DirectWrite(int file, std::uint64_t offset) : file_(file), offset_(offset) {}

    int add(ByteSpan bytes) {
        int error = 0;
        while (error == 0 && !bytes.empty()) {
            const bool is_aligned = copied_ % kDirectAlignment == 0 && past_alignment(bytes.data()) == 0;
            if (is_aligned && bytes.size() >= kDirectAlignment) {
                const ByteSpan whole = bytes.first(bytes.size() / kDirectAlignment * kDirectAlignment);
                error = write_copied();
                in_place_.append(Slice{nullptr, whole});
                bytes = bytes.subspan(whole.size());
            } else {
                error = copy(bytes);
            }
        }
        return error;
    }

    int finish() {
        const int error = write_copied();
        return error != 0 ? error : write_in_place();
    }

private:
    // Copies as much as has to be copied, or as there is room for; removes it from `bytes`.
    int copy(ByteSpan& bytes) {
        if (const int error = write_in_place(); error != 0) {
            return error;
        }
        if (copy_ == nullptr) {
            copy_.reset(static_cast<std::byte*>(std::aligned_alloc(kDirectAlignment, kCopied)));
            if (copy_ == nullptr) {
                return ENOMEM;
            }
        }
        // From there on the bytes are aligned in memory as in the file, or they never are.
        const std::uint64_t to_alignment = (kDirectAlignment - past_alignment(bytes.data())) % kDirectAlignment;
        const bool gets_aligned = to_alignment > 0 && (copied_ + to_alignment) % kDirectAlignment == 0;
        const std::uint64_t wanted = gets_aligned ? to_alignment : kCopied;
        const std::uint64_t size = std::min<std::uint64_t>({wanted, kCopied - copied_, bytes.size()});
        std::memcpy(copy_.get() + copied_, bytes.data(), size);
        copied_ += size;
        bytes = bytes.subspan(size);
        return copied_ == kCopied ? write_copied() : 0;
    }

    int write_copied() {
        Payload copied;
        copied.append(Slice{nullptr, ByteSpan(copy_.get(), std::exchange(copied_, 0))});
        return write(copied);
    }

    int write_in_place() { return write(std::exchange(in_place_, {})); }

    int write(const Payload& bytes) {
        const std::uint64_t offset = std::exchange(offset_, offset_ + bytes.size());
        return write_all(file_, bytes, offset);
    }

    struct Free {
        void operator()(void* memory) const { std::free(memory); }
    };

    const int file_;
    // Where the bytes that are not written yet begin in the file. Of the two groups that wait (in_place_, copy_), one
    // is empty.
    std::uint64_t offset_;
    Payload in_place_;
    std::unique_ptr<std::byte, Free> copy_;
    std::uint64_t copied_ = 0;
};

}  // namespace

int write_direct(int file, const Payload& bytes, std::uint64_t offset) {
    DirectWrite write(file, offset);
    for (const Slice& slice : bytes.slices()) {
        if (const int error = write.add(slice.bytes); error != 0) {
            return error;
        }
    }
    return write.finish();
}

}  // namespace ckptfs
