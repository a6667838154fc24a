// SPDX-License-Identifier: Apache-2.0
#include "cli/unmount_report.h"

#include <unistd.h>

#include "base/text.h"
#include "ckptfs/log.h"
#include "cli/commands.h"

namespace ckptfs {
namespace {

constexpr std::string_view kLost = "lost ";
constexpr std::string_view kUndone = "undone ";

}  // namespace

void UnmountReport::print(const std::string& text) const {
    // A terminal that is gone is no reason to fail.
    static_cast<void>(!write(output_, text.data(), text.size()));
}

void UnmountReport::clear_progress() {
    if (progress_shown_) {
        print(kClearLine);
        progress_shown_ = false;
    }
}

void UnmountReport::on_line(std::string_view line) {
    if (line == "done") {
        done_ = true;
    } else if (line.starts_with(kLost)) {
        clear_progress();
        ++lost_;
        print(format("ckptfs: not saved: {}\n", escaped(line.substr(kLost.size()))));
    } else if (line.starts_with(kUndone)) {
        clear_progress();
        ++lost_;
        print(format("ckptfs: not done: {}\n", escaped(line.substr(kUndone.size()))));
    } else if (const auto progress = parse_progress(line); progress && show_progress_ && progress->files > 0) {
        clear_progress();
        print(progress_text(*progress));
        progress_shown_ = true;
    }
}

int UnmountReport::finish() {
    clear_progress();
    if (!done_) {
        print("ckptfs: the daemon ended before everything was saved; see its log\n");
    }
    return done_ && lost_ == 0 ? 0 : 1;
}

}  // namespace ckptfs
