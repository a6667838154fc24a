// SPDX-License-Identifier: Apache-2.0
// Whatever is read, in whatever order, through however little memory: it is the object's bytes.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "codec/codecs.h"
#include "read/reading.h"

namespace ckptfs::testing {
namespace {

struct Step {
    std::size_t stream = 0;
    std::uint64_t offset = 0;
    std::size_t size = 0;
};

rc::Gen<Step> any_step(std::uint64_t file_size) {
    return rc::gen::map(
        rc::gen::tuple(
            rc::gen::inRange<std::size_t>(0, 3), rc::gen::inRange<std::uint64_t>(0, file_size + 10),
            rc::gen::weightedOneOf<std::size_t>({{3, rc::gen::inRange<std::size_t>(0, 5'000)},
                                                 {2, rc::gen::inRange<std::size_t>(0, std::size_t{2} << 20)},
                                                 {2, rc::gen::element<std::size_t>(4096, 128 << 10, 1 << 20)}})),
        [](const std::tuple<std::size_t, std::uint64_t, std::size_t>& drawn) {
            return Step{std::get<0>(drawn), std::get<1>(drawn), std::get<2>(drawn)};
        });
}

// How objects are stored, and a reader of such.
struct AnyReading : Reading {
    AnyReading(const std::string& compress, std::size_t buffers, std::size_t max_blocks = BlockCache::Limits().blocks)
        : Reading(buffers, max_blocks), any_codec(make_codec({compress, {}}).value()) {}

    void put(const std::string& content) {
        const auto encoder = content.size() < kFrameSize ? any_codec->plain_encoder() : any_codec->encoder("k");
        std::string stored;
        std::vector<FrameRecord> records;
        std::vector<std::byte> output(kMaxStoredFrame);
        for (std::size_t begin = 0; begin < content.size(); begin += kFrameSize) {
            const Payload raw = Payload::from_string(content.substr(begin, kFrameSize));
            const EncodedFrame frame = encoder->encode(raw, output, EncodeEffort::kNormal).value();
            records.push_back(frame.record);
            stored += frame.stored ? frame.stored->to_string()
                                   : std::string(as_text(ByteSpan(output).first(frame.record.stored_size)));
        }
        stored += encoder->tail(records, content.size()).to_string();
        store.put_object("k", std::move(stored), encoder->metadata(std::nullopt));
    }

    std::shared_ptr<FileReader> open() {
        Awaited<std::shared_ptr<FileReader>> opened;
        FileReader::open(any_environment, "k", "", false, opened.callback());
        return opened.get().value();
    }

    std::unique_ptr<Codec> any_codec;
    ReadEnvironment any_environment{store, pool, executor, clock, *any_codec, cache, {}};
};

rc::Gen<std::string> any_compress() {
    return rc::gen::element<std::string>("none", "zstd:1", "auto");
}

// The largest step touches three blocks, and each takes two buffers while it is decoded.
rc::Gen<std::size_t> any_buffers() {
    return rc::gen::inRange<std::size_t>(7, 24);
}

std::string expected(const std::string& content, std::uint64_t offset, std::size_t size) {
    return offset >= content.size() ? std::string() : content.substr(offset, size);
}

RC_GTEST_PROP(ReadProperty, AnyReadsReturnTheObjectsBytes, ()) {
    const auto file_size = *rc::gen::inRange<std::size_t>(0, std::size_t{9} << 20);
    AnyReading reading(*any_compress(), *any_buffers(), *rc::gen::inRange<std::size_t>(1, 24));
    reading.store.set_body_piece(*rc::gen::element<std::size_t>(1'000, 16 << 10, 300'000, 4 << 20));
    reading.store.refuse_suffix_ranges = *rc::gen::element(true, false);
    const std::string content = content_of(file_size);
    reading.put(content);
    const auto reader = reading.open();
    RC_ASSERT(reader->size() == file_size);
    std::vector<std::shared_ptr<ReadStream>> streams(3);
    for (auto& stream : streams) {
        stream = reader->open_stream();
    }
    for (const Step& step : *rc::gen::container<std::vector<Step>>(any_step(file_size))) {
        std::uint64_t offset = step.offset;
        // Now and then a short walk, which makes a stream.
        for (int i = 0; i < (step.size % 3 == 0 ? 4 : 1); ++i, offset += step.size) {
            const auto bytes = Reading::read(*reader, streams[step.stream], offset, step.size);
            RC_ASSERT(bytes.has_value());
            RC_ASSERT(*bytes == expected(content, offset, step.size));
        }
    }
    streams.clear();
    RC_ASSERT(reading.comes_to_rest());
}

RC_GTEST_PROP(ReadProperty, ConcurrentReadsReturnTheObjectsBytes, ()) {
    const auto file_size = *rc::gen::inRange<std::size_t>(1, std::size_t{12} << 20);
    AnyReading reading(*any_compress(), *any_buffers());
    reading.store.answer_from_threads(3);
    const std::string content = content_of(file_size);
    reading.put(content);
    const auto reader = reading.open();
    const auto stream = reader->open_stream();
    const auto steps = *rc::gen::container<std::vector<Step>>(any_step(file_size));
    std::vector<Awaited<Payload>> answers(steps.size());
    for (std::size_t i = 0; i < steps.size(); ++i) {
        reader->read(stream, steps[i].offset, steps[i].size,
                     [done = answers[i].callback(),
                      want = expected(content, steps[i].offset, steps[i].size)](Result<Payload> payload) {
                         // Compared here, so that the payload's blocks are free for the reads that still wait.
                         done(payload && payload->to_string() == want ? Result<Payload>(Payload{})
                                                                      : failure(EBADMSG, "other bytes"));
                     });
    }
    for (auto& answer : answers) {
        RC_ASSERT(answer.get().has_value());
    }
}

}  // namespace
}  // namespace ckptfs::testing
