// SPDX-License-Identifier: Apache-2.0
// Whatever is read, in whatever order, through however little memory: it is the object's bytes.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <string>
#include <utility>
#include <vector>

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

std::string expected(const std::string& content, std::uint64_t offset, std::size_t size) {
    return offset >= content.size() ? std::string() : content.substr(offset, size);
}

RC_GTEST_PROP(ReadProperty, AnyReadsReturnTheObjectsBytes, ()) {
    const auto file_size = *rc::gen::inRange<std::size_t>(0, std::size_t{9} << 20);
    Reading reading(*rc::gen::inRange<std::size_t>(4, 24), *rc::gen::inRange<std::size_t>(1, 24));
    reading.store.set_body_piece(*rc::gen::element<std::size_t>(1'000, 16 << 10, 300'000, 4 << 20));
    reading.store.refuse_suffix_ranges = *rc::gen::element(true, false);
    const std::string content = content_of(file_size);
    reading.store.put_object("k", content);
    const auto reader = reading.open("k");
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
    RC_ASSERT(reading.cache.statistics().requests_in_flight == 0U);
}

RC_GTEST_PROP(ReadProperty, ConcurrentReadsReturnTheObjectsBytes, ()) {
    const auto file_size = *rc::gen::inRange<std::size_t>(1, std::size_t{12} << 20);
    Reading reading(*rc::gen::inRange<std::size_t>(4, 16));
    reading.store.answer_from_threads(3);
    const std::string content = content_of(file_size);
    reading.store.put_object("k", content);
    const auto reader = reading.open("k");
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
