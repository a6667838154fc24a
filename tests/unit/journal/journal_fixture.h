// SPDX-License-Identifier: Apache-2.0
// Journals in a directory of the test's own.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "journal/lost_uploads.h"
#include "journal/mount_journal.h"
#include "support/temporary_directory.h"

namespace ckptfs {

inline std::string content_of(const std::string& path) {
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
}

inline void adopt(LostUploads& lost, const std::vector<UploadIntent>& intents, LostUploads::TellOthers tell_others,
                  std::function<void()> all_told = nullptr) {
    lost.note(intents);
    lost.begin(std::move(tell_others), std::move(all_told));
}

class MountJournalTest : public ::testing::Test {
protected:
    std::unique_ptr<MountJournal> journal(const std::string& place = "place") {
        return MountJournal::create(directory_, place, longest_wait_).value();
    }
    // As if its mount had been killed.
    void leave(const std::string& name, const std::string& text) {
        std::filesystem::create_directories(directory_);
        std::ofstream(directory_ + "/" + name) << text;
    }

    const testing::TemporaryDirectory temporary_;
    const std::string directory_ = temporary_.path() / "state";
    // Of a directory that answers, on a machine that is busy.
    std::chrono::milliseconds longest_wait_{60'000};
};

}  // namespace ckptfs
