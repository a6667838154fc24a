// SPDX-License-Identifier: Apache-2.0
// Whether frames are compressed, or passed on as they are because the processors hold the store up. Pure: times and
// counts in, decisions out.
//
// A save is slower for compression only while frames wait for a processor and little is on its way to the store at the
// same time. When that has prevailed, frames are compressed only as long as the store has enough to do meanwhile, and
// no other thread, such as one that sends, wants the processors. A mount remembers this from save to save, and also
// what it has observed so far, because a save of a second has no time to learn. After a while it tries again, more and
// more rarely as long as nothing has changed.
//
// Guarded by its owner's mutex.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "ckptfs/clock.h"
#include "ckptfs/codec.h"

namespace ckptfs {

class EncodingPace {
public:
    // `enough_leaving`: bytes on their way that keep the store busy.
    EncodingPace(std::size_t processors, std::uint64_t enough_leaving)
        : many_frames_(kFramesPerProcessor * std::max<std::size_t>(processors, 1)), enough_leaving_(enough_leaving) {}

    // How long a thread that encodes ran, and waited to run, since its last call.
    void note_processor_times(std::chrono::nanoseconds ran, std::chrono::nanoseconds waited) {
        const auto all = static_cast<double>((ran + waited).count());
        if (all > 0) {
            contention_ += (static_cast<double>(waited.count()) / all - contention_) * kWeightOfOne;
        }
    }

    // The effort for the next frame. `waiting`: frames that wait for a processor, this one included; `leaving`: bytes
    // on their way to the store.
    EncodeEffort choose(SteadyTime now, std::size_t waiting, std::uint64_t leaving) {
        const bool store_is_busy = leaving >= enough_leaving_;
        if (hurried_until_) {
            if (now < *hurried_until_) {
                const bool processors_are_free = contention_ < kMuchContention;
                return store_is_busy && processors_are_free ? EncodeEffort::kNormal : EncodeEffort::kLeast;
            }
            hurried_until_.reset();
            unhurried_since_ = now;
        }
        // A pause between saves counts as one step at most, since nothing is known of it.
        const auto since_last = std::min<std::chrono::nanoseconds>(now - std::exchange(last_frame_, now), kLongestStep);
        note_leaving(now, leaving, since_last);
        if (store_is_busy) {
            starved_ = std::max(starved_ - since_last, std::chrono::nanoseconds(0));
        } else if (waiting >= many_frames_ && now - grew_at_ >= kGrowing) {
            starved_ += since_last;
        }
        if (starved_ >= kPatience) {
            starved_ = std::chrono::nanoseconds(0);
            hurry_ = now - unhurried_since_ >= kForgetAfter ? kFirstHurry : std::min(2 * hurry_, kLongestHurry);
            hurried_until_ = now + hurry_;
            return EncodeEffort::kLeast;
        }
        return EncodeEffort::kNormal;
    }

    [[nodiscard]] bool hurried() const { return hurried_until_.has_value(); }

    // How much longer the store has to starve than to be busy. Parts fill and requests begin to flow within this time.
    static constexpr Milliseconds kPatience{300};
    static constexpr Milliseconds kLongestStep{50};
    // Several parts fill within this time.
    static constexpr Milliseconds kGrowing{100};
    static constexpr std::chrono::duration<double> kMostFadesWithin{2};
    static constexpr double kMuchLess = 8;
    static constexpr Milliseconds kFirstHurry{std::chrono::seconds(30)};
    static constexpr Milliseconds kLongestHurry{std::chrono::minutes(16)};
    // A mount that has kept up for this long begins again with kFirstHurry.
    static constexpr Milliseconds kForgetAfter{std::chrono::minutes(5)};
    static constexpr std::size_t kFramesPerProcessor = 4;
    // Share of the time that threads waited for a processor.
    static constexpr double kMuchContention = 0.15;
    static constexpr double kWeightOfOne = 1.0 / 32;

private:
    // While more and more is on its way, the store is the slower side, whether or not it has enough yet.
    void note_leaving(SteadyTime now, std::uint64_t leaving, std::chrono::nanoseconds since_last) {
        most_leaving_ -= most_leaving_ * (std::chrono::duration<double>(since_last) / kMostFadesWithin);
        if (const auto bytes = static_cast<double>(leaving); bytes > most_leaving_) {
            most_leaving_ = bytes;
            grew_at_ = now;
        } else if (bytes < most_leaving_ / kMuchLess) {
            // Another save begins.
            most_leaving_ = bytes;
        }
    }

    const std::size_t many_frames_;
    const std::uint64_t enough_leaving_;

    double contention_ = 0;
    SteadyTime last_frame_{};
    double most_leaving_ = 0;
    SteadyTime grew_at_{};
    std::chrono::nanoseconds starved_{0};
    std::optional<SteadyTime> hurried_until_;
    SteadyTime unhurried_since_{};
    Milliseconds hurry_{kFirstHurry / 2};
};

}  // namespace ckptfs
