// SPDX-License-Identifier: Apache-2.0
#include "staged/content_view.h"

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
    void go_on() {
        for (; next_ < view_.pieces.size(); ++next_) {
            const ContentPiece& piece = view_.pieces[next_];
            const MutableByteSpan target = place(piece);
            switch (piece.source) {
                case ByteSource::kZeros:
                    std::memset(target.data(), 0, target.size());
                    break;
                case ByteSource::kStaged:
                    if (Status read = view_.staged->read(piece.begin, target); !read) {
                        done_(std::move(read));
                        return;
                    }
                    break;
                case ByteSource::kBase:
                    read_base(piece.begin, target);
                    return;
            }
        }
        done_({});
    }

private:
    [[nodiscard]] MutableByteSpan place(const ContentPiece& piece) const {
        return target_.subspan(piece.begin - view_.pieces.front().begin, piece.end - piece.begin);
    }

    void read_base(std::uint64_t offset, MutableByteSpan target) {
        auto here = [self = shared_from_this(), target](Result<Payload> bytes) {
            self->base_here(target, std::move(bytes));
        };
        if (view_.is_sent) {
            view_.base->read_to_write(offset, target.size(), std::move(here));
        } else {
            view_.base->read(offset, target.size(), std::move(here));
        }
    }

    void base_here(MutableByteSpan target, Result<Payload> bytes) {
        disk_.post([self = shared_from_this(), target, bytes = std::move(bytes)] {
            if (!bytes) {
                self->done_(failure(bytes.error()));
            } else if (bytes->copy_to(0, target) != target.size()) {
                self->done_(failure(EIO, format("{} bytes came instead of {}", bytes->size(), target.size())));
            } else {
                ++self->next_;
                self->go_on();
            }
        });
    }

    Executor& disk_;
    const ContentView view_;
    const MutableByteSpan target_;
    const std::function<void(Status)> done_;
    std::size_t next_ = 0;
};

}  // namespace

void read_content(Executor& disk, ContentView view, MutableByteSpan target, std::function<void(Status)> done) {
    auto assembly = std::make_shared<Assembly>(disk, std::move(view), target, std::move(done));
    disk.post([assembly = std::move(assembly)] { assembly->go_on(); });
}

}  // namespace ckptfs
