// SPDX-License-Identifier: Apache-2.0
#include "staged/content_feed.h"

#include <algorithm>
#include <utility>

#include "ckptfs/codec.h"

namespace ckptfs {
namespace {

class Feed : public std::enable_shared_from_this<Feed> {
public:
    Feed(WriteEnvironment& environment, FeedSource source, ByteRun run, std::shared_ptr<StreamWriter> writer,
         std::function<void(Status)> done)
        : environment_(environment),
          source_(std::move(source)),
          run_(run),
          writer_(std::move(writer)),
          done_(std::move(done)) {}

    void go_on() {
        ContentView view{{}, source_.staged, source_.base, true};
        while (run_.begin < run_.end) {
            if (const FileRange* kept = kept_here()) {
                run_.begin = kept->end();
                continue;
            }
            // Ends where a frame does, so that the frame is made of one buffer.
            const std::uint64_t end = std::min(run_.end, (run_.begin / kFrameSize + 1) * kFrameSize);
            view.pieces = source_.content.pieces(run_.begin, end);
            if (!view.only(ByteSource::kZeros)) {
                break;
            }
            run_.begin = end;
        }
        if (run_.begin >= run_.end) {
            done_({});
            return;
        }
        if (!std::exchange(begun_, true)) {
            begin();
            return;
        }
        environment_.pool.take(MemoryUse::kWrite, [self = shared_from_this(), view](Buffer buffer) {
            self->buffer_ = std::move(buffer);
            self->fill(view);
        });
    }

private:
    [[nodiscard]] const FileRange* kept_here() const {
        const auto found = std::find_if(source_.kept.begin(), source_.kept.end(),
                                        [this](const FileRange& kept) { return kept.offset == run_.begin; });
        return found == source_.kept.end() ? nullptr : &*found;
    }

    void begin() {
        writer_->begin_writing([self = shared_from_this()](const Status& begun) {
            if (begun) {
                self->go_on();
            } else {
                self->done_(begun);
            }
        });
    }

    void fill(const ContentView& view) {
        const MutableByteSpan target = buffer_.bytes().first(view.size());
        read_content(environment_.staging, view, target, [self = shared_from_this(), target](Status read) {
            if (read) {
                self->send(target);
            } else {
                self->buffer_.reset();
                self->done_(std::move(read));
            }
        });
    }

    void send(ByteSpan bytes) {
        const std::uint64_t offset = std::exchange(run_.begin, run_.begin + bytes.size());
        writer_->write(offset, WriteData{std::move(buffer_), bytes}, [self = shared_from_this()](const Status& taken) {
            if (taken) {
                self->go_on();
            } else {
                self->done_(taken);
            }
        });
    }

    WriteEnvironment& environment_;
    const FeedSource source_;
    ByteRun run_;
    const std::shared_ptr<StreamWriter> writer_;
    const std::function<void(Status)> done_;
    bool begun_ = false;
    Buffer buffer_;
};

}  // namespace

void feed(WriteEnvironment& environment, FeedSource source, ByteRun run, std::shared_ptr<StreamWriter> writer,
          std::function<void(Status)> done) {
    std::make_shared<Feed>(environment, std::move(source), run, std::move(writer), std::move(done))->go_on();
}

}  // namespace ckptfs
