// SPDX-License-Identifier: Apache-2.0
#include "counters.h"

#include <algorithm>

namespace ckptfs::s3sim {
namespace {

constexpr std::size_t kRecordsKept = 20'000;

}  // namespace

void Counters::connection_opened() {
    const std::lock_guard lock(mutex_);
    ++counts_.connections_opened;
    counts_.connections.change(1);
}

void Counters::connection_closed() {
    const std::lock_guard lock(mutex_);
    counts_.connections.change(-1);
}

void Counters::request_began(bool is_part) {
    const std::lock_guard lock(mutex_);
    counts_.requests.change(1);
    counts_.parts.change(is_part ? 1 : 0);
}

void Counters::request_ended(bool is_part, RequestRecord record) {
    const std::lock_guard lock(mutex_);
    counts_.requests.change(-1);
    counts_.parts.change(is_part ? -1 : 0);
    OperationCount& count = counts_.operations[record.operation];
    ++count.requests;
    count.errors += record.status == 0 || record.status >= 400 ? 1 : 0;
    count.bytes_in += record.bytes_in;
    count.bytes_out += record.bytes_out;
    records_.push_back(std::move(record));
    if (records_.size() > kRecordsKept) {
        records_.pop_front();
    }
}

void Counters::hung(int by) {
    const std::lock_guard lock(mutex_);
    counts_.hung.change(by);
}

CounterSnapshot Counters::snapshot() const {
    const std::lock_guard lock(mutex_);
    return counts_;
}

std::vector<RequestRecord> Counters::latest(std::size_t limit) const {
    const std::lock_guard lock(mutex_);
    const std::size_t count = std::min(limit, records_.size());
    return {records_.end() - static_cast<std::ptrdiff_t>(count), records_.end()};
}

void Counters::reset() {
    const std::lock_guard lock(mutex_);
    counts_.operations.clear();
    counts_.connections_opened = 0;
    for (Gauge* gauge : {&counts_.connections, &counts_.requests, &counts_.parts, &counts_.hung}) {
        gauge->peak = gauge->now;
    }
    records_.clear();
}

}  // namespace ckptfs::s3sim
