// SPDX-License-Identifier: Apache-2.0
// The text of a mount's journal: a line an event. What is open is what no later line has ended.
//
// "?NUMBER SECONDS KEY" before an upload is asked for, "&NUMBER NANOSECONDS" behind it, the rest of the time, "^NUMBER
// SECONDS ETAG" when an earlier version of the file is sent meanwhile, the last one counts, "=NUMBER" when one has
// begun though an answer was lost, or the file was saved otherwise, and "!NUMBER" when it is known what became of all
// that were asked for; "+ID KEY" and "-ID" of uploads, "*ID" in between when another one has saved the file; ">KEY" and
// "<KEY" of objects; "@KEY RECORD" of a file that failed, the last one counts, and "~KEY" when others know or it was
// made good. A last line that was torn is passed over, and one of another kind, as a later version's.
//
// Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ckptfs/clock.h"
#include "ckptfs/object_store.h"

namespace ckptfs {

// An upload is asked for: whether the store has begun it is not known before the answer.
struct UploadIntent {
    std::string key;
    WallTime asked{};
    // Within one journal.
    std::uint64_t number = 0;
    // One began, and none of this key is open: its file was saved, or failed while its mount could tell others.
    bool file_ended = false;
    // A version that was acknowledged before this was asked for is in the bucket only since then, under this ETag of
    // the store's; that is empty in the journals of earlier versions.
    WallTime earlier_sent{};
    std::string earlier_etag{};
};

struct UntoldFailure {
    std::string key;
    // As FileSystem::recall_failure() takes it.
    std::string record;
};

struct JournalContents {
    std::vector<UploadIntent> intents;
    std::vector<UploadId> uploads;
    // Given up before another upload saved their files: they are to be ended, and no file has failed.
    std::vector<UploadId> made_good;
    std::vector<std::string> objects;
    std::vector<UntoldFailure> failures;

    [[nodiscard]] std::size_t size() const {
        return intents.size() + uploads.size() + made_good.size() + objects.size() + failures.size();
    }
};

// What is open.
[[nodiscard]] JournalContents parse_journal(std::string_view text);
// Of several journals, one of which may have taken over what another tells, too: each once, with what any knows of it.
[[nodiscard]] std::vector<UploadIntent> merge_intents(std::vector<UploadIntent> intents);

// Each with its line's end.
[[nodiscard]] std::string intent_line(const UploadIntent& intent);
[[nodiscard]] std::string intent_earlier_sent_line(const UploadIntent& intent);
[[nodiscard]] std::string intent_answered_line(const UploadIntent& intent);
[[nodiscard]] std::string intent_ended_line(const UploadIntent& intent);
[[nodiscard]] std::string upload_begun_line(const UploadId& upload);
[[nodiscard]] std::string upload_made_good_line(const UploadId& upload);
[[nodiscard]] std::string upload_ended_line(const UploadId& upload);
[[nodiscard]] std::string object_begun_line(const std::string& key);
[[nodiscard]] std::string object_ended_line(const std::string& key);
[[nodiscard]] std::string failure_begun_line(const std::string& key, const std::string& record);
[[nodiscard]] std::string failure_ended_line(const std::string& key);

}  // namespace ckptfs
