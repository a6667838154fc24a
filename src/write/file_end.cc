// SPDX-License-Identifier: Apache-2.0
#include "write/file_end.h"

#include "base/text.h"
#include "ckptfs/log.h"

namespace ckptfs {

void FileEnd::log(const Error& error) {
    if (!failure_) {
        outbox_.add([line = escaped(error.message)] { log_error(line); });
    }
}

void FileEnd::fail(Error error) {
    if (failure_) {
        return;
    }
    failure_ = kept_failure(std::move(error));
    tell(*failure_);
    for (End& end : std::exchange(undecided_, {})) {
        end_when_told(std::move(end));
    }
}

void FileEnd::tell(const Error& error) {
    if (when_failed_) {
        outbox_.add([told = std::exchange(when_failed_, nullptr), error] { told(error); });
    }
}

void FileEnd::end_when_told(End end) {
    if (before_ending_) {
        outbox_.add([wait = before_ending_, end = std::move(end)] { wait(end); });
    } else {
        outbox_.add(std::move(end));
    }
}

void FileEnd::goes_on() {
    for (End& end : std::exchange(undecided_, {})) {
        outbox_.add(std::move(end));
    }
}

void FileEnd::ended(const Status& status) {
    if (!status) {
        status_ = status;
    }
    --under_way_;
}

void FileEnd::answer() {
    if (under_way_ > 0) {
        return;
    }
    const Status status = std::exchange(status_, {});
    for (FileWriter::Done& done : std::exchange(waiting_, {})) {
        outbox_.add([done = std::move(done), status] { done(status); });
    }
}

}  // namespace ckptfs
