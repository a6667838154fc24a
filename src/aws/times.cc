// SPDX-License-Identifier: Apache-2.0
#include "aws/times.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>

#include "base/text.h"

namespace ckptfs {
namespace {

using std::chrono::days;
using std::chrono::hours;
using std::chrono::minutes;
using std::chrono::seconds;
using std::chrono::sys_days;
using std::chrono::year_month_day;

// Takes numbers and fixed text from the front; remembers the first mismatch.
class Scanner {
public:
    explicit Scanner(std::string_view text) : rest_(text) {}

    int number(std::size_t digits) {
        int value = 0;
        if (rest_.size() < digits) {
            failed_ = true;
            return 0;
        }
        const char* end = rest_.data() + digits;
        const auto [parsed_to, error] = std::from_chars(rest_.data(), end, value);
        failed_ = failed_ || error != std::errc{} || parsed_to != end || value < 0;
        rest_.remove_prefix(digits);
        return value;
    }

    void expect(std::string_view text) {
        failed_ = failed_ || !rest_.starts_with(text);
        rest_.remove_prefix(std::min(rest_.size(), text.size()));
    }

    std::string_view take(std::size_t size) {
        const std::string_view taken = rest_.substr(0, size);
        failed_ = failed_ || taken.size() < size;
        rest_.remove_prefix(taken.size());
        return taken;
    }

    [[nodiscard]] std::string_view rest() const { return rest_; }
    [[nodiscard]] bool failed() const { return failed_; }

private:
    std::string_view rest_;
    bool failed_ = false;
};

struct CivilTime {
    int year;
    int month;
    int day;
    int hour;
    int minute;
    int second;
};

// A WallTime counts nanoseconds in 64 bits and ends in the year 2262. No object is older than S3; what some servers
// send for "never" lies before 1970.
constexpr int kFirstYear = 1970;
constexpr int kLastYear = 2261;

std::optional<WallTime> wall_time(const CivilTime& civil) {
    const year_month_day date{std::chrono::year(civil.year), std::chrono::month(static_cast<unsigned>(civil.month)),
                              std::chrono::day(static_cast<unsigned>(civil.day))};
    // 60 is a leap second.
    if (civil.year < kFirstYear || civil.year > kLastYear || !date.ok() || civil.hour > 23 || civil.minute > 59 ||
        civil.second > 60) {
        return std::nullopt;
    }
    return WallTime(sys_days(date) + hours(civil.hour) + minutes(civil.minute) + seconds(civil.second));
}

CivilTime civil_time(WallTime time) {
    const auto day = std::chrono::floor<days>(time);
    const year_month_day date(day);
    const std::chrono::hh_mm_ss clock(std::chrono::floor<seconds>(time - day));
    return {static_cast<int>(date.year()),
            static_cast<int>(static_cast<unsigned>(date.month())),
            static_cast<int>(static_cast<unsigned>(date.day())),
            static_cast<int>(clock.hours().count()),
            static_cast<int>(clock.minutes().count()),
            static_cast<int>(clock.seconds().count())};
}

int month_number(std::string_view name) {
    constexpr std::array<std::string_view, 12> kMonths = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                                          "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    const auto* const found = std::find(kMonths.begin(), kMonths.end(), name);
    return found == kMonths.end() ? 0 : static_cast<int>(found - kMonths.begin()) + 1;
}

}  // namespace

std::string basic_iso8601(WallTime time) {
    const CivilTime civil = civil_time(time);
    return format("{:04}{:02}{:02}T{:02}{:02}{:02}Z", civil.year, civil.month, civil.day, civil.hour, civil.minute,
                  civil.second);
}

std::string extended_iso8601(WallTime time) {
    const CivilTime civil = civil_time(time);
    return format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", civil.year, civil.month, civil.day, civil.hour, civil.minute,
                  civil.second);
}

std::optional<WallTime> parse_iso8601(std::string_view text) {
    Scanner scanner(text);
    CivilTime civil{};
    civil.year = scanner.number(4);
    scanner.expect("-");
    civil.month = scanner.number(2);
    scanner.expect("-");
    civil.day = scanner.number(2);
    scanner.expect("T");
    civil.hour = scanner.number(2);
    scanner.expect(":");
    civil.minute = scanner.number(2);
    scanner.expect(":");
    civil.second = scanner.number(2);
    if (scanner.failed()) {
        return std::nullopt;
    }
    std::string_view rest = scanner.rest();
    Milliseconds fraction{0};
    if (rest.starts_with('.')) {
        rest.remove_prefix(1);
        Milliseconds::rep unit = 100;
        for (; !rest.empty() && rest.front() >= '0' && rest.front() <= '9'; rest.remove_prefix(1)) {
            fraction += Milliseconds((rest.front() - '0') * unit);
            unit /= 10;
        }
    }
    if (rest != "Z" && rest != "+00:00") {
        return std::nullopt;
    }
    auto time = wall_time(civil);
    if (time) {
        *time += fraction;
    }
    return time;
}

std::optional<WallTime> parse_http_date(std::string_view text) {
    Scanner scanner(text);
    CivilTime civil{};
    scanner.take(3);
    scanner.expect(", ");
    civil.day = scanner.number(2);
    scanner.expect(" ");
    civil.month = month_number(scanner.take(3));
    scanner.expect(" ");
    civil.year = scanner.number(4);
    scanner.expect(" ");
    civil.hour = scanner.number(2);
    scanner.expect(":");
    civil.minute = scanner.number(2);
    scanner.expect(":");
    civil.second = scanner.number(2);
    scanner.expect(" GMT");
    return scanner.failed() || !scanner.rest().empty() ? std::nullopt : wall_time(civil);
}

}  // namespace ckptfs
