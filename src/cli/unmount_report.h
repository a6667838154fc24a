// SPDX-License-Identifier: Apache-2.0
// What `ckptfs unmount` shows of a daemon that ends.
#pragma once

#include <string>
#include <string_view>

#include "daemon/control.h"

namespace ckptfs {

// What the daemon's lines become on the terminal.
class UnmountReport {
public:
    // `show_progress`: standard error is a terminal.
    UnmountReport(bool show_progress, int output) : show_progress_(show_progress), output_(output) {}

    void on_line(std::string_view line);
    // Returns 0 if everything is saved. Prints a message if the daemon ended before it had reported that.
    int finish();

private:
    void print(const std::string& text) const;
    void clear_progress();

    const bool show_progress_;
    const int output_;
    bool progress_shown_ = false;
    bool done_ = false;
    int lost_ = 0;
};

}  // namespace ckptfs
