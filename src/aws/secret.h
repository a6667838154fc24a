// SPDX-License-Identifier: Apache-2.0
// Text that must never be printed: it has no stream operator and no formatter, and has to be asked for by name.
#pragma once

#include <string>
#include <utility>

namespace ckptfs {

class Secret {
public:
    Secret() = default;
    explicit Secret(std::string text) : text_(std::move(text)) {}

    [[nodiscard]] const std::string& reveal() const { return text_; }
    [[nodiscard]] bool empty() const { return text_.empty(); }
    friend bool operator==(const Secret&, const Secret&) = default;

private:
    std::string text_;
};

}  // namespace ckptfs
