// SPDX-License-Identifier: Apache-2.0
// A store as one process sees it whose requests a test decides about, one by one.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "ckptfs/object_store.h"

namespace ckptfs::testing {

// The lowest bit of this byte of the answer comes flipped.
inline void flip_a_bit(GetRequest& request, std::uint64_t offset) {
    request.on_body = [on_body = std::move(request.on_body), offset, taken = std::uint64_t{0}](ByteSpan bytes) mutable {
        std::vector<std::byte> flipped(bytes.begin(), bytes.end());
        if (offset >= taken && offset - taken < flipped.size()) {
            flipped[offset - taken] ^= std::byte{1};
        }
        taken += flipped.size();
        return on_body(flipped);
    };
}

enum class Fate { kPasses, kFails, kTakesEffectAndFails };

class HookedStore final : public ObjectStore {
public:
    // `decide` is asked before each request, which it gets the number of, from 0.
    HookedStore(ObjectStore& store, std::function<Fate(int request)> decide)
        : store_(store), decide_(std::move(decide)) {}

    // Called once, before the first DeleteObjects whose keys begin with this is sent.
    void before_removals(std::string prefix, std::function<void()> run) {
        removals_ = std::move(prefix);
        before_removals_ = std::move(run);
    }

    // Called once, before the first list of exactly this prefix is sent.
    void before_list(std::string prefix, std::function<void()> run) {
        list_ = std::move(prefix);
        before_list_ = std::move(run);
    }

    // Called with each GetObject before it is sent; may change it.
    void look_at_gets(std::function<void(GetRequest&)> look) { look_at_get_ = std::move(look); }

    // Called with each CopyObject before it is sent.
    void look_at_copies(std::function<void(const CopyRequest&)> look) { look_at_copy_ = std::move(look); }

    // The next write of this key: its first attempt gets no answer, and is carried out by carry_out_late(). A second
    // one is made, or it fails.
    void delay_write(std::string key, bool is_repeated) {
        delayed_key_ = std::move(key);
        delayed_is_repeated_ = is_repeated;
    }
    void carry_out_late() { std::exchange(late_, nullptr)(); }

    void head(std::string key, StoreDone<ObjectInfo> done) override {
        pass(std::move(done), [&](auto answer) { store_.head(std::move(key), answer); });
    }
    void get(GetRequest request, StoreDone<GetResponse> done) override {
        if (look_at_get_) {
            look_at_get_(request);
        }
        pass(std::move(done), [&](auto answer) { store_.get(std::move(request), answer); });
    }
    void put(PutRequest request, StoreDone<PutResponse> done) override {
        pass(std::move(done), [&](auto answer) {
            write([this](PutRequest sent, auto put) { store_.put(std::move(sent), put); }, std::move(request), answer);
        });
    }
    void copy(CopyRequest request, StoreDone<PutResponse> done) override {
        if (look_at_copy_) {
            look_at_copy_(request);
        }
        pass(std::move(done), [&](auto answer) {
            write([this](CopyRequest sent, auto put) { store_.copy(std::move(sent), put); }, std::move(request),
                  answer);
        });
    }
    void list(ListRequest request, StoreDone<ListResponse> done) override {
        if (before_list_ && request.prefix == list_) {
            std::exchange(before_list_, nullptr)();
        }
        pass(std::move(done), [&](auto answer) { store_.list(std::move(request), answer); });
    }
    void remove(RemoveRequest request, StoreDone<void> done) override {
        pass(std::move(done), [&](auto answer) { store_.remove(std::move(request), answer); });
    }
    void remove_many(std::vector<RemoveRequest> requests, StoreDone<std::vector<DeleteFailure>> done) override {
        if (before_removals_ && requests.front().key.starts_with(removals_)) {
            std::exchange(before_removals_, nullptr)();
        }
        pass(std::move(done), [&](auto answer) { store_.remove_many(std::move(requests), answer); });
    }
    void create_upload(CreateUploadRequest request, StoreDone<UploadId> done) override {
        pass(std::move(done), [&](auto answer) { store_.create_upload(std::move(request), answer); });
    }
    void upload_part(UploadPartRequest request, StoreDone<UploadedPart> done) override {
        pass(std::move(done), [&](auto answer) { store_.upload_part(std::move(request), answer); });
    }
    void upload_part_copy(UploadPartCopyRequest request, StoreDone<UploadedPart> done) override {
        pass(std::move(done), [&](auto answer) { store_.upload_part_copy(std::move(request), answer); });
    }
    [[nodiscard]] bool lacks_part_copy(const std::string& source_key) const override {
        return store_.lacks_part_copy(source_key);
    }
    [[nodiscard]] int slowed_to() const override { return store_.slowed_to(); }
    void find_part_copy(std::string key, std::function<void()> found) override {
        store_.find_part_copy(std::move(key), std::move(found));
    }
    void complete_upload(CompleteRequest request, StoreDone<PutResponse> done) override {
        pass(std::move(done), [&](auto answer) { store_.complete_upload(std::move(request), answer); });
    }
    void abort_upload(UploadId upload, StoreDone<void> done) override {
        pass(std::move(done), [&](auto answer) { store_.abort_upload(std::move(upload), answer); });
    }
    void list_uploads(std::string prefix, StoreDone<std::vector<OpenUpload>> done) override {
        pass(std::move(done), [&](auto answer) { store_.list_uploads(std::move(prefix), answer); });
    }
    void list_parts(UploadId upload, StoreDone<std::vector<UploadedPart>> done) override {
        pass(std::move(done), [&](auto answer) { store_.list_parts(std::move(upload), answer); });
    }

private:
    template <class Request, class Send>
    void write(Send send, Request request, StoreDone<PutResponse> done) {
        if (request.key != delayed_key_) {
            send(std::move(request), std::move(done));
            return;
        }
        delayed_key_.clear();
        request.may_send = nullptr;
        late_ = [send, request] { send(request, StoreDone<PutResponse>([](const Result<PutResponse>&) {})); };
        if (!delayed_is_repeated_) {
            done(no_answer());
            return;
        }
        send(std::move(request), [done](Result<PutResponse> written) {
            if (written) {
                written->may_come_again = true;
            }
            done(std::move(written));
        });
    }

    static Failure no_answer() {
        Error error;
        error.outcome_unknown = true;
        error.message = "no answer";
        return failure(std::move(error));
    }

    template <class T, class Send>
    void pass(StoreDone<T> done, Send send) {
        const Fate fate = decide_(requests_++);
        if (fate == Fate::kPasses) {
            send(std::move(done));
            return;
        }
        if (fate == Fate::kTakesEffectAndFails) {
            send(StoreDone<T>([](const Result<T>&) {}));
        }
        done(no_answer());
    }

    ObjectStore& store_;
    const std::function<Fate(int)> decide_;
    std::atomic<int> requests_ = 0;
    // Set before there are requests, then used by one thread.
    std::string removals_;
    std::function<void()> before_removals_;
    std::string list_;
    std::function<void()> before_list_;
    std::function<void(GetRequest&)> look_at_get_;
    std::function<void(const CopyRequest&)> look_at_copy_;
    std::string delayed_key_;
    bool delayed_is_repeated_ = false;
    std::function<void()> late_;
};

}  // namespace ckptfs::testing
