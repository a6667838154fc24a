// SPDX-License-Identifier: Apache-2.0
#include "staged/content_view.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/text.h"

namespace ckptfs {
namespace {

class Assembly : public std::enable_shared_from_this<Assembly> {
public:
    Assembly(Executor& disk, ContentView view, MutableByteSpan target, std::function<void(Status)> done)
        : disk_(disk), view_(std::move(view)), target_(target), done_(std::move(done)) {}

    // On the disk's executor.
    void begin() {
        // By one read, which checks each page once; what lies between staged pieces is overwritten below.
        const ByteRun staged = extent(ByteSource::kStaged);
        if (staged.begin < staged.end) {
            if (Status read = view_.staged->read(staged.begin, place(staged)); !read) {
                done_(std::move(read));
                return;
            }
        }
        for (const ContentPiece& piece : view_.pieces) {
            if (piece.source == ByteSource::kZeros) {
                const MutableByteSpan zeros = place({piece.begin, piece.end});
                std::memset(zeros.data(), 0, zeros.size());
            }
        }
        const ByteRun base = extent(ByteSource::kBase);
        if (base.begin < base.end) {
            read_base(base);
        } else {
            done_({});
        }
    }

private:
    [[nodiscard]] MutableByteSpan place(const ByteRun& run) const {
        return target_.subspan(run.begin - view_.pieces.front().begin, run.end - run.begin);
    }

    // From the first piece of this source to the end of the last.
    [[nodiscard]] ByteRun extent(ByteSource source) const {
        ByteRun run;
        for (const ContentPiece& piece : view_.pieces) {
            if (piece.source == source) {
                run = {run.end == 0 ? piece.begin : run.begin, piece.end};
            }
        }
        return run;
    }

    // By one read, with what is changed in between: pieces would be read one after the other, and each that is to be
    // sent would be compared by a request of its own.
    void read_base(const ByteRun& run) {
        const auto size = static_cast<std::size_t>(run.end - run.begin);
        auto here = [self = shared_from_this(), run](Result<Payload> bytes) { self->base_here(run, std::move(bytes)); };
        if (view_.is_sent) {
            view_.base->read_to_write(run.begin, size, std::move(here));
        } else {
            view_.base->read(run.begin, size, std::move(here));
        }
    }

    void base_here(const ByteRun& run, Result<Payload> bytes) {
        disk_.post([self = shared_from_this(), run, bytes = std::move(bytes)] {
            self->done_(bytes ? self->take_base(run, *bytes) : failure(bytes.error()));
        });
    }

    [[nodiscard]] Status take_base(const ByteRun& run, const Payload& bytes) const {
        if (bytes.size() != run.end - run.begin) {
            return failure(EIO, format("{} bytes came instead of {}", bytes.size(), run.end - run.begin));
        }
        for (const ContentPiece& piece : view_.pieces) {
            if (piece.source == ByteSource::kBase) {
                bytes.copy_to(piece.begin - run.begin, place({piece.begin, piece.end}));
            }
        }
        return {};
    }

    Executor& disk_;
    const ContentView view_;
    const MutableByteSpan target_;
    const std::function<void(Status)> done_;
};

}  // namespace

void read_content(Executor& disk, ContentView view, MutableByteSpan target, std::function<void(Status)> done) {
    auto assembly = std::make_shared<Assembly>(disk, std::move(view), target, std::move(done));
    disk.post([assembly = std::move(assembly)] { assembly->begin(); });
}

}  // namespace ckptfs
