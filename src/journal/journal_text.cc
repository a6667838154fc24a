// SPDX-License-Identifier: Apache-2.0
#include "journal/journal_text.h"

#include <charconv>
#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/numbers.h"
#include "base/text.h"

namespace ckptfs {
namespace {

// One word without spaces or line ends, whatever bytes the store's IDs and others' keys have.
std::string encoded(std::string_view text) {
    std::string word;
    for (const char each : text) {
        const auto byte = static_cast<unsigned char>(each);
        word += byte <= ' ' || byte == '%' || byte == 0x7F ? format("%{:02X}", byte) : std::string(1, each);
    }
    return word;
}

std::string decoded(std::string_view word) {
    std::string text;
    for (std::size_t i = 0; i < word.size(); ++i) {
        unsigned byte = 0;
        const char* digits = word.data() + i + 1;
        if (word[i] == '%' && i + 2 < word.size() && std::from_chars(digits, digits + 2, byte, 16).ptr == digits + 2) {
            text += static_cast<char>(byte);
            i += 2;
        } else {
            text += word[i];
        }
    }
    return text;
}

std::int64_t seconds_of(WallTime time) {
    return std::chrono::floor<std::chrono::seconds>(time.time_since_epoch()).count();
}

// "SECONDS KEY"
std::optional<UploadIntent> parse_intent(std::string_view text) {
    const auto seconds = take_number<std::int64_t>(text);
    if (!seconds || !text.starts_with(' ')) {
        return std::nullopt;
    }
    return UploadIntent{decoded(text.substr(1)), WallTime(std::chrono::seconds(*seconds)), 0};
}

struct OpenLines {
    std::map<std::string, UploadIntent, std::less<>> intents;
    std::map<std::string, UploadId> uploads;
    // IDs of uploads.
    std::set<std::string> made_good;
    std::set<std::string> objects;
    std::map<std::string, std::string> failures;
};

void parse_line(std::string_view line, OpenLines& open) {
    const std::size_t space = line.find(' ');
    if (line.starts_with('?') && space != std::string_view::npos) {
        if (std::optional<UploadIntent> intent = parse_intent(line.substr(space + 1))) {
            open.intents[std::string(line.substr(1, space - 1))] = std::move(*intent);
        }
    } else if (line.starts_with('^') && space != std::string_view::npos) {
        std::string_view rest = line.substr(space + 1);
        const auto seconds = take_number<std::int64_t>(rest);
        if (const auto sent = open.intents.find(line.substr(1, space - 1)); seconds && sent != open.intents.end()) {
            sent->second.earlier_sent = WallTime(std::chrono::seconds(*seconds));
            sent->second.earlier_etag = rest.starts_with(' ') ? decoded(rest.substr(1)) : "";
        }
    } else if (line.starts_with('&') && space != std::string_view::npos) {
        std::string_view rest = line.substr(space + 1);
        const auto more = take_number<std::int64_t>(rest);
        if (const auto asked = open.intents.find(line.substr(1, space - 1)); more && asked != open.intents.end()) {
            asked->second.asked += std::chrono::duration_cast<WallTime::duration>(std::chrono::nanoseconds(*more));
        }
    } else if (line.starts_with('=')) {
        if (const auto answered = open.intents.find(line.substr(1)); answered != open.intents.end()) {
            answered->second.file_ended = true;
        }
    } else if (line.starts_with('!')) {
        if (const auto ended = open.intents.find(line.substr(1)); ended != open.intents.end()) {
            open.intents.erase(ended);
        }
    } else if (line.starts_with('+') && space != std::string_view::npos) {
        const std::string id = decoded(line.substr(1, space - 1));
        open.uploads[id] = {decoded(line.substr(space + 1)), id};
    } else if (line.starts_with('-')) {
        open.uploads.erase(decoded(line.substr(1)));
    } else if (line.starts_with('*')) {
        open.made_good.insert(decoded(line.substr(1)));
    } else if (line.starts_with('>')) {
        open.objects.insert(decoded(line.substr(1)));
    } else if (line.starts_with('<')) {
        open.objects.erase(decoded(line.substr(1)));
    } else if (line.starts_with('@') && space != std::string_view::npos) {
        open.failures[decoded(line.substr(1, space - 1))] = decoded(line.substr(space + 1));
    } else if (line.starts_with('~')) {
        open.failures.erase(decoded(line.substr(1)));
    }
}

}  // namespace

JournalContents parse_journal(std::string_view text) {
    OpenLines open;
    for (std::size_t end = text.find('\n'); end != std::string_view::npos; end = text.find('\n')) {
        parse_line(text.substr(0, end), open);
        text.remove_prefix(end + 1);
    }
    JournalContents contents;
    std::set<std::string> unfinished;
    for (auto& [id, upload] : open.uploads) {
        if (open.made_good.contains(id)) {
            contents.made_good.push_back(std::move(upload));
        } else {
            unfinished.insert(upload.key);
            contents.uploads.push_back(std::move(upload));
        }
    }
    for (auto& [number, intent] : open.intents) {
        intent.file_ended = intent.file_ended && !unfinished.contains(intent.key);
        contents.intents.push_back(std::move(intent));
    }
    contents.objects.assign(open.objects.begin(), open.objects.end());
    for (auto& [key, record] : open.failures) {
        contents.failures.push_back({key, std::move(record)});
    }
    return contents;
}

std::vector<UploadIntent> merge_intents(std::vector<UploadIntent> intents) {
    std::map<std::pair<std::string, WallTime>, std::size_t> places;
    std::vector<UploadIntent> merged;
    for (UploadIntent& each : intents) {
        const auto [place, is_new] = places.emplace(std::pair(each.key, each.asked), merged.size());
        if (is_new) {
            merged.push_back(std::move(each));
            continue;
        }
        UploadIntent& same = merged[place->second];
        same.file_ended = same.file_ended && each.file_ended;
        if (same.earlier_sent < each.earlier_sent) {
            same.earlier_sent = each.earlier_sent;
            same.earlier_etag = std::move(each.earlier_etag);
        }
    }
    return merged;
}

std::string intent_line(const UploadIntent& intent) {
    const std::chrono::nanoseconds rest = intent.asked - std::chrono::floor<std::chrono::seconds>(intent.asked);
    const std::string more = rest.count() > 0 ? format("&{} {}\n", intent.number, rest.count()) : "";
    return format("?{} {} {}\n", intent.number, seconds_of(intent.asked), encoded(intent.key)) + more;
}

std::string intent_earlier_sent_line(const UploadIntent& intent) {
    const std::string etag = intent.earlier_etag.empty() ? "" : " " + encoded(intent.earlier_etag);
    return format("^{} {}{}\n", intent.number, seconds_of(intent.earlier_sent), etag);
}

std::string intent_answered_line(const UploadIntent& intent) {
    return format("={}\n", intent.number);
}

std::string intent_ended_line(const UploadIntent& intent) {
    return format("!{}\n", intent.number);
}

std::string upload_begun_line(const UploadId& upload) {
    return format("+{} {}\n", encoded(upload.id), encoded(upload.key));
}

std::string upload_made_good_line(const UploadId& upload) {
    return format("*{}\n", encoded(upload.id));
}

std::string upload_ended_line(const UploadId& upload) {
    return format("-{}\n", encoded(upload.id));
}

std::string object_begun_line(const std::string& key) {
    return format(">{}\n", encoded(key));
}

std::string object_ended_line(const std::string& key) {
    return format("<{}\n", encoded(key));
}

std::string failure_begun_line(const std::string& key, const std::string& record) {
    return format("@{} {}\n", encoded(key), encoded(record));
}

std::string failure_ended_line(const std::string& key) {
    return format("~{}\n", encoded(key));
}

}  // namespace ckptfs
