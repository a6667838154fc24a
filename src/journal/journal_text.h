// SPDX-License-Identifier: Apache-2.0
// The text of a mount's journal, a line for each event. What no later line has ended is open.
//
// ?NUMBER SECONDS KEY      before an upload is requested
// &NUMBER NANOSECONDS      right after it: the rest of the time
// ^NUMBER SECONDS ETAG     an earlier version of the file was sent meanwhile; the last line counts
// =NUMBER                  an upload has begun though a reply was lost, or the file was saved otherwise
// !NUMBER                  it is known what became of all uploads that were requested
// +ID KEY, -ID             an upload began, and ended
// *ID                      between these: another upload has saved the file
// >KEY, <KEY               an object began, and ended
// @KEY RECORD              a file failed; the last line counts
// ~KEY                     others know of the failure, or it was resolved
//
// A last line that is torn is ignored, and so is one of another kind, as a later version's.
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

// The request for an upload: whether the store has begun it is not known before the reply.
struct UploadIntent {
    std::string key;
    WallTime asked{};
    // Unique in one journal.
    std::uint64_t number = 0;
    // An upload began, and none of this key is open: its file was saved, or failed while its mount could tell others.
    bool file_ended = false;
    // A version that was acknowledged before this request is in the bucket only since then, and has this ETag there,
    // which is empty in the journals of earlier versions of ckptfs. Zero if there is none.
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
    // Uploads that are to be aborted although no file has failed: their files were saved by other uploads, or are safe
    // on a disk.
    std::vector<UploadId> made_good;
    std::vector<std::string> objects;
    std::vector<UntoldFailure> failures;

    [[nodiscard]] std::size_t size() const {
        return intents.size() + uploads.size() + made_good.size() + objects.size() + failures.size();
    }
};

// Returns what is open.
[[nodiscard]] JournalContents parse_journal(std::string_view text);
// For several journals, one of which may have taken over intents of another: each once, with what any journal has of
// it.
[[nodiscard]] std::vector<UploadIntent> merge_intents(std::vector<UploadIntent> intents);

// These return whole lines, with their ends.
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
