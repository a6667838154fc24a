// SPDX-License-Identifier: Apache-2.0
#include "codec/entropy.h"

#include <cmath>

namespace ckptfs {
namespace {

// c * log2(c), tabulated for the counts that samples have.
class CountLogarithms {
public:
    CountLogarithms() {
        for (std::uint32_t count = 1; count < values_.size(); ++count) {
            values_[count] = exact(count);
        }
    }
    double operator()(std::uint32_t count) const { return count < values_.size() ? values_[count] : exact(count); }

private:
    static double exact(std::uint32_t count) { return count * std::log2(static_cast<double>(count)); }

    std::array<double, 1024> values_{};
};

}  // namespace

double bits_per_byte(const ByteCounts& counts) {
    static const CountLogarithms logarithms;
    std::uint32_t total = 0;
    std::uint32_t present = 0;
    double sum = 0;
    for (const std::uint32_t count : counts) {
        total += count;
        present += count > 0 ? 1 : 0;
        sum += logarithms(count);
    }
    if (present <= 1) {
        return 0;
    }
    const double size = total;
    const double hidden = (present - 1) / (2 * size * std::log(2.0));
    return std::fmin(8, std::log2(size) - sum / size + hidden);
}

}  // namespace ckptfs
