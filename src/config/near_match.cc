// SPDX-License-Identifier: Apache-2.0
#include "config/near_match.h"

#include <algorithm>
#include <numeric>

#include "base/text.h"

namespace ckptfs {
namespace {

// Too many names begin with a shorter word.
constexpr std::size_t kShortestBeginning = 4;
// No option is as long, and the time grows with the square.
constexpr std::size_t kLongestWord = 64;

std::string_view only_completion(std::string_view word, const std::vector<std::string>& names) {
    const auto begins = [&](const std::string& name) { return name.starts_with(word); };
    if (word.size() < kShortestBeginning || std::count_if(names.begin(), names.end(), begins) != 1) {
        return {};
    }
    return *std::find_if(names.begin(), names.end(), begins);
}

}  // namespace

std::size_t edit_distance(std::string_view from, std::string_view to) {
    // Optimal string alignment: three rows of its table.
    std::vector<std::size_t> before_last(to.size() + 1);
    std::vector<std::size_t> last(to.size() + 1);
    std::vector<std::size_t> row(to.size() + 1);
    std::iota(last.begin(), last.end(), std::size_t{0});
    for (std::size_t i = 1; i <= from.size(); ++i) {
        row[0] = i;
        for (std::size_t j = 1; j <= to.size(); ++j) {
            const std::size_t changed = last[j - 1] + (from[i - 1] == to[j - 1] ? 0 : 1);
            row[j] = std::min({last[j] + 1, row[j - 1] + 1, changed});
            if (i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1]) {
                row[j] = std::min(row[j], before_last[j - 2] + 1);
            }
        }
        std::swap(before_last, last);
        std::swap(last, row);
    }
    return last[to.size()];
}

std::string_view near_match(std::string_view word, const std::vector<std::string>& names) {
    if (word.empty() || word.size() > kLongestWord) {
        return {};
    }
    std::string_view closest;
    std::size_t smallest = std::max<std::size_t>(1, word.size() / 3) + 1;
    for (const std::string& name : names) {
        const std::size_t distance = edit_distance(word, name);
        // A word that would have to be replaced as a whole is a different one.
        const bool begins_better =
            distance == smallest && !closest.empty() && closest.front() != word.front() && name.front() == word.front();
        if ((distance < smallest && distance < name.size()) || begins_better) {
            smallest = distance;
            closest = name;
        }
    }
    return closest.empty() ? only_completion(word, names) : closest;
}

std::string did_you_mean(std::string_view prefix, std::string_view word, const std::vector<std::string>& names) {
    const std::string_view meant = near_match(word, names);
    return meant.empty() ? "." : format("; did you mean {}{}?", prefix, meant);
}

}  // namespace ckptfs
