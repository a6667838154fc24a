// SPDX-License-Identifier: Apache-2.0
// An object store in memory that keeps S3's rules, for tests.
//
// By default every operation takes effect and answers inline, on the calling thread. A test can make it answer from
// threads of its own (`answer_from_threads`), hold chosen operations until it lets them go, fail them before or after
// they take effect, and count them.
//
// Threads: all functions may be called from any thread; callbacks run without locks held.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "ckptfs/object_store.h"

namespace ckptfs::testing {

enum class Operation {
    kHead,
    kGet,
    kPut,
    kCopy,
    kList,
    kRemove,
    kRemoveMany,
    kCreateUpload,
    kUploadPart,
    kUploadPartCopy,
    kCompleteUpload,
    kAbortUpload,
    kListUploads,
    kListParts,
};

struct Fault {
    Operation operation = Operation::kGet;
    // Empty: any key.
    std::string key;
    Error error;
    // How many calls pass before the first that fails, and how many fail.
    int skip = 0;
    int times = 1;
    // The operation takes effect, and only its answer is lost.
    bool after_effect = false;
};

class FakeStore : public ObjectStore {
public:
    // S3's limits; small ones keep tests small.
    explicit FakeStore(std::uint64_t minimum_part_size = std::uint64_t{5} << 20);
    ~FakeStore() override;

    void head(std::string key, StoreDone<ObjectInfo> done) override;
    void get(GetRequest request, StoreDone<GetResponse> done) override;
    void put(PutRequest request, StoreDone<PutResponse> done) override;
    void copy(CopyRequest request, StoreDone<PutResponse> done) override;
    void list(ListRequest request, StoreDone<ListResponse> done) override;
    void remove(RemoveRequest request, StoreDone<void> done) override;
    void remove_many(std::vector<RemoveRequest> requests, StoreDone<std::vector<DeleteFailure>> done) override;
    void create_upload(CreateUploadRequest request, StoreDone<UploadId> done) override;
    void upload_part(UploadPartRequest request, StoreDone<UploadedPart> done) override;
    void upload_part_copy(UploadPartCopyRequest request, StoreDone<UploadedPart> done) override;
    [[nodiscard]] bool lacks_part_copy(const std::string& source_key) const override;
    [[nodiscard]] int slowed_to() const override { return slowed_to_; }
    void find_part_copy(std::string key, std::function<void()> found) override;
    void complete_upload(CompleteRequest request, StoreDone<PutResponse> done) override;
    void abort_upload(UploadId upload, StoreDone<void> done) override;
    void list_uploads(std::string prefix, StoreDone<std::vector<OpenUpload>> done) override;
    void list_parts(UploadId upload, StoreDone<std::vector<UploadedPart>> done) override;

    // --- what a test does to it
    void inject(Fault fault);
    void clear_faults();
    // Calls of this operation wait until release(operation).
    void hold(Operation operation);
    // They take effect, and only their answers wait until then. Not for kGet.
    void hold_answers(Operation operation);
    void release(Operation operation);
    // Only the first of them; there is one.
    void release_one(Operation operation);
    // Blocks until `count` calls of the operation are held; false after ten seconds.
    bool wait_until_held(Operation operation, int count);
    void answer_from_threads(int threads);
    // Complete refuses parts of different sizes, the last one aside, as Cloudflare R2 does.
    void require_equal_parts();
    // Callers that ask are told that it has no UploadPartCopy; it is known once it was looked for.
    void lack_part_copy();
    // Has asked its client to slow down, which makes so many requests at once since.
    void slow_down_to(int requests) { slowed_to_ = requests; }
    // Objects of equal content have equal ETags, as on Amazon S3, where one is the MD5 of what was put or copied at
    // once.
    void make_etags_of_content();
    // If-Match of deletes is passed over, as most stores of other makers do.
    void ignore_delete_conditions();
    // In what remove_many() answers.
    void spell_refused_deletes_otherwise() { refused_delete_prefix_ = "%2F"; }
    // As on stores whose lists of uploads lack Initiated.
    void tell_no_upload_times() { tells_upload_times_ = false; }
    // As on stores that tell ETags in lists alone.
    void describe_without_etags() { describes_etags_ = false; }
    // As in Last-Modified; lists tell fractions.
    void describe_to_the_second() { describes_to_the_second_ = true; }
    // Names on one page of a list, at most.
    void limit_pages(int names) { page_size_ = names; }
    // Each removal is changed by this before it takes effect.
    void change_removals(std::function<void(RemoveRequest&)> change);
    // Bytes given to one on_body call of get().
    void set_body_piece(std::size_t bytes);
    // For Last-Modified and Date.
    void advance_clock(Milliseconds by);
    // Last-Modified is so much ahead of Date: a proxy dates the answers.
    void date_objects_ahead(Milliseconds by);
    void put_object(const std::string& key, std::string content, Metadata metadata = {});

    // --- what a test sees of it
    [[nodiscard]] bool exists(const std::string& key) const;
    [[nodiscard]] std::string content(const std::string& key) const;
    [[nodiscard]] ObjectInfo info(const std::string& key) const;
    [[nodiscard]] std::vector<std::string> keys() const;
    [[nodiscard]] int open_uploads() const;
    [[nodiscard]] int calls(Operation operation) const;
    [[nodiscard]] int calls() const;
    void reset_calls();

protected:
    // Waits for what its threads are at; for destructors of what derives from it, whose functions they may be in.
    void stop();

private:
    struct Object {
        ObjectInfo info;
        std::shared_ptr<const std::string> content;
    };
    struct StoredPart {
        UploadedPart uploaded;
        std::string content;
    };
    struct Upload {
        CreateUploadRequest request;
        std::map<int, StoredPart> parts;
        WallTime initiated{};
    };
    using Step = std::function<void()>;

    // Counts, holds, faults; then runs `take_effect` (under the lock, returns the answer) and answers.
    template <class T>
    void perform(Operation operation, const std::string& key, std::function<Result<T>()> take_effect,
                 StoreDone<T> done);
    void run_or_queue(Operation operation, Step step);
    void dispatch(Step step);
    void work();
    std::optional<Fault> due_fault(Operation operation, const std::string& key);
    Result<PutResponse> store_object(const std::string& key, std::string content, Metadata metadata,
                                     const std::string& content_type, const std::string& content_encoding);
    Result<ListResponse> list_now(const ListRequest& request) const;
    Result<PutResponse> complete_now(const CompleteRequest& request);
    Result<const Object*> find(const std::string& key, const std::string& if_match) const;
    Status remove_now(RemoveRequest request);
    std::string next_etag();
    // As HEAD and GET tell.
    [[nodiscard]] ObjectInfo described(ObjectInfo info) const;
    [[nodiscard]] WallTime now() const { return std::chrono::system_clock::now() + clock_offset_; }

    const std::uint64_t minimum_part_size_;
    bool equal_parts_required_ = false;
    bool delete_conditions_ignored_ = false;
    bool etags_of_content_ = false;
    bool part_copy_lacking_ = false;
    bool part_copy_sought_ = false;
    std::atomic<int> slowed_to_{0};
    std::function<void(RemoveRequest&)> change_removal_ = [](RemoveRequest&) {};

    mutable std::mutex mutex_;
    std::map<std::string, Object> objects_;
    std::map<std::string, Upload> uploads_;
    std::vector<Fault> faults_;
    std::map<Operation, int> calls_;
    std::set<Operation> holding_;
    std::set<Operation> holding_answers_;
    std::map<Operation, std::vector<Step>> held_;
    std::condition_variable held_changed_;
    std::size_t body_piece_ = std::size_t{64} << 10;
    std::uint64_t serial_ = 0;
    std::atomic<int> page_size_ = 1000;
    std::atomic<bool> tells_upload_times_ = true;
    std::string refused_delete_prefix_;
    std::atomic<bool> describes_to_the_second_ = false;
    std::atomic<bool> describes_etags_ = true;
    Milliseconds clock_offset_{0};
    Milliseconds objects_ahead_{0};

    // Worker threads, when asked for.
    std::deque<Step> steps_;
    std::condition_variable steps_changed_;
    bool stopping_ = false;
    std::vector<std::thread> threads_;
};

// What a store answers for these.
Error store_error(int errno_value, std::string s3_code, int http_status);

}  // namespace ckptfs::testing
