// SPDX-License-Identifier: Apache-2.0
#include "writeback/merged_listing.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "base/text.h"

namespace ckptfs {
namespace {

// As S3 gives at most.
constexpr int kNamesOnAPage = 1'000;

// "LENGTH:PLACE" and the store's token.
std::string joined_token(const std::string& place, const std::string& token) {
    return format("{}:{}{}", place.size(), place, token);
}

struct SplitToken {
    std::string place;
    std::string token;
};

Result<SplitToken> split_token(std::string_view joined) {
    std::size_t size = 0;
    const auto [end, error] = std::from_chars(joined.data(), joined.data() + joined.size(), size);
    const auto digits = static_cast<std::size_t>(end - joined.data());
    if (error != std::errc{} || digits >= joined.size() || joined[digits] != ':' || joined.size() - digits - 1 < size) {
        return failure(EINVAL, "invalid continuation token of a listing");
    }
    const std::string_view rest = joined.substr(digits + 1);
    return SplitToken{std::string(rest.substr(0, size)), std::string(rest.substr(size))};
}

class MergedPage : public std::enable_shared_from_this<MergedPage> {
public:
    MergedPage(ObjectStore& store, const UnsentChanges& unsent, ListRequest request, StoreDone<ListResponse> done)
        : store_(store),
          unsent_(unsent),
          request_(std::move(request)),
          asked_for_(request_.max_keys),
          done_(std::move(done)) {}

    void begin() {
        range_.after = request_.start_after;
        if (!request_.continuation_token.empty()) {
            Result<SplitToken> split = split_token(request_.continuation_token);
            if (!split) {
                done_(failure(std::move(split.error())));
                return;
            }
            range_.after = std::move(split->place);
            request_.continuation_token = std::move(split->token);
        }
        changes_ = unsent_.below(request_.prefix);
        ask();
    }

private:
    void ask() {
        store_.list(request_, [self = shared_from_this()](Result<ListResponse> page) {
            if (!page) {
                self->done_(failure(std::move(page.error())));
                return;
            }
            self->page_ = std::move(*page);
            self->doubtful_ = doubtful_prefixes(self->page_, self->changes_);
            self->check_next();
        });
    }

    // Looks whether anything is left below the next common prefix of which only removals are known here.
    void check_next() {
        if (doubtful_.empty()) {
            end();
            return;
        }
        look_below(doubtful_.back(), "");
    }

    void look_below(const std::string& prefix, const std::string& token) {
        ListRequest below;
        below.prefix = prefix;
        below.continuation_token = token;
        store_.list(below, [self = shared_from_this(), prefix](const Result<ListResponse>& page) {
            if (!page) {
                self->done_(failure(page.error()));
                return;
            }
            const bool is_left = std::any_of(page->objects.begin(), page->objects.end(), [&](const ObjectInfo& object) {
                return !self->changes_.contains(object.key);
            });
            if (!is_left && !page->next_continuation_token.empty()) {
                self->look_below(prefix, page->next_continuation_token);
                return;
            }
            if (!is_left) {
                self->gone_.push_back(prefix);
            }
            self->doubtful_.pop_back();
            self->check_next();
        });
    }

    void end() {
        const std::string token = page_.next_continuation_token;
        range_.last = token.empty() ? "" : last_name();
        for (ObjectInfo& object : page_.objects) {
            unsent_.show_as_here(object);
        }
        const bool covers_some = token.empty() || !range_.last.empty();
        ListResponse merged =
            covers_some ? merge_page(std::move(page_), request_, changes_, range_, gone_) : std::move(page_);
        if (covers_some) {
            range_.after = range_.last;
        }
        std::move(merged.objects.begin(), merged.objects.end(), std::back_inserter(whole_.objects));
        std::move(merged.common_prefixes.begin(), merged.common_prefixes.end(),
                  std::back_inserter(whole_.common_prefixes));
        if (!token.empty() && !is_full()) {
            request_.continuation_token = token;
            // Of many names that were removed here few are left; a page may have more than it was asked for.
            request_.max_keys = std::max(request_.max_keys, kNamesOnAPage);
            gone_.clear();
            ask();
            return;
        }
        whole_.next_continuation_token = token.empty() ? "" : joined_token(range_.after, token);
        done_(std::move(whole_));
    }

    // A caller may take a page that has less than it asked for, of which removals here leave few, for the last one.
    [[nodiscard]] bool is_full() const {
        const std::size_t listed = whole_.objects.size() + whole_.common_prefixes.size();
        return listed >= kFewestListed || listed >= static_cast<std::size_t>(asked_for_);
    }

    [[nodiscard]] std::string last_name() const {
        std::string last = page_.objects.empty() ? "" : page_.objects.back().key;
        return page_.common_prefixes.empty() ? last : std::max(last, page_.common_prefixes.back());
    }

    ObjectStore& store_;
    const UnsentChanges& unsent_;
    ListRequest request_;
    // By the caller.
    const int asked_for_;
    const StoreDone<ListResponse> done_;
    KeyRange range_;
    Overlay::Changes changes_;
    ListResponse page_;
    // What is merged of this page and those before it.
    ListResponse whole_;
    std::vector<std::string> doubtful_;
    std::vector<std::string> gone_;
};

}  // namespace

void list_merged(ObjectStore& store, const UnsentChanges& unsent, ListRequest request, StoreDone<ListResponse> done) {
    std::make_shared<MergedPage>(store, unsent, std::move(request), std::move(done))->begin();
}

}  // namespace ckptfs
