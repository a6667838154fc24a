// SPDX-License-Identifier: Apache-2.0
// Files that the kernel reads itself: it fails an open that reads an inode in another way meanwhile.
#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>

#include "unit/fs/file_system_fixture.h"

namespace ckptfs::fs {
namespace {

// All files are there, and checked.
class AllFiles final : public FileCache {
public:
    std::shared_ptr<FileBeingKept> begin() override { return nullptr; }
    bool may_have(const std::string&) const override { return false; }
    void whole_size(const ObjectInfo&, bool, Size done) override { done(std::nullopt); }
    void bytes_kept(const ObjectInfo&, Kept done) override { done(0); }
    void drop(const ObjectInfo&, std::function<void(bool)> done) override { done(true); }
    void renamed(const ObjectInfo&, const ObjectInfo&) override {}
    void renamed(std::vector<RenamedObject>) override {}
    void when_written(std::function<void()> done) override { done(); }
    std::shared_ptr<KeptFile> file(const ObjectInfo& object, bool, std::uint64_t) override {
        return std::make_shared<File>(*this, object.etag);
    }

    bool are_checked = true;
    // Called before an answer.
    std::function<void()> meanwhile;
    // ETags.
    std::vector<std::string> asked;

private:
    class File final : public KeptFile {
    public:
        File(AllFiles& files, std::string etag) : files_(files), etag_(std::move(etag)) {}
        bool may_have(std::uint64_t) const override { return false; }
        void read(std::uint64_t, MutableByteSpan, std::function<void(bool)> done) override { done(false); }
        void open_checked(std::function<void(int)> done) override {
            if (const auto first = std::exchange(files_.meanwhile, nullptr)) {
                first();
            }
            files_.asked.push_back(etag_);
            done(files_.are_checked ? static_cast<int>(files_.asked.size()) : -1);
        }
        std::shared_ptr<void> hold() override { return nullptr; }
        void keep(std::uint64_t, Slice) override {}

    private:
        AllFiles& files_;
        const std::string etag_;
    };
};

class CountedPassthrough final : public Passthrough {
public:
    bool is_possible() const override { return possible; }
    std::shared_ptr<BackingFile> offer(int file) override {
        class File final : public BackingFile {
        public:
            File(std::set<int>& open, int number) : open_(open), number_(number) { open_.insert(number); }
            ~File() override { open_.erase(number_); }
            int number() const override { return number_; }

        private:
            std::set<int>& open_;
            const int number_;
        };
        return std::make_shared<File>(open, file);
    }

    bool possible = true;
    // Registered with the kernel.
    std::set<int> open;
};

class PassthroughTest : public FileSystemTest {
protected:
    PassthroughTest() {
        NameConfig names;
        names.metadata_ttl = Milliseconds(1000);
        fs = FileSystem::create(FileSystemEnvironment{store,
                                                      *blocking,
                                                      clock,
                                                      timer,
                                                      processes,
                                                      kernel_cache,
                                                      *codec,
                                                      write_environment,
                                                      kept_reads,
                                                      names,
                                                      "p/",
                                                      "here",
                                                      {},
                                                      &passthrough});
    }
    ~PassthroughTest() override {
        end_mount();
        wait_for_threads();
    }
    NodeId saved(const std::string& name = "f", std::size_t size = 1 << 20) { return save(name, content(size)); }
    static std::string content(std::size_t size) { return std::string(size, 'x'); }
    OpenedFile opened(NodeId node, int flags = O_RDONLY) {
        const Result<OpenedFile> file = open(node, flags);
        EXPECT_TRUE(file);
        return file ? *file : OpenedFile{};
    }
    // The kernel looks up what ESTALE tells it to, once.
    OpenedFile opened_by_name(const std::string& name, int flags, NodeId known) {
        const Result<OpenedFile> file = open(known, flags);
        EXPECT_EQ(errno_of(file), ESTALE);
        node_of_name = lookup(name)->node;
        return opened(node_of_name, flags);
    }

    AllFiles files;
    CountedPassthrough passthrough;
    BlockCache kept_cache{*pool, clock, BlockCache::Limits(), &files};
    ReadEnvironment kept_reads{store, *pool, *executor, clock, *codec, kept_cache, ReadConfig{}, &files};
    NodeId node_of_name = 0;
};

TEST_F(PassthroughTest, AllThatReadAFileAtATimeReadTheSame) {
    const NodeId node = saved();
    const OpenedFile first = opened(node);
    const OpenedFile second = opened(node);
    EXPECT_EQ(first.backing, 1);
    EXPECT_EQ(second.backing, 1);
    EXPECT_EQ(files.asked.size(), 1U);
    EXPECT_FALSE(first.direct_io);
    files.are_checked = false;
    EXPECT_EQ(opened(node).backing, 1);
    EXPECT_TRUE(release(first.handle));
    EXPECT_EQ(passthrough.open.size(), 1U);
    EXPECT_EQ(fs->statistics().opens_passed_through, 3U);
}

TEST_F(PassthroughTest, IsEndedWithTheLastThatReads) {
    const NodeId node = saved();
    const OpenedFile first = opened(node);
    EXPECT_TRUE(release(first.handle));
    wait_for_threads();
    EXPECT_TRUE(passthrough.open.empty());
    EXPECT_NE(opened(node).backing, 0);
}

TEST_F(PassthroughTest, DoesNotBeginWhileTheFileIsReadInAnotherWay) {
    const NodeId node = saved();
    files.are_checked = false;
    const OpenedFile cached = opened(node);
    EXPECT_EQ(cached.backing, 0);
    files.are_checked = true;
    EXPECT_EQ(opened(node).backing, 0);
    EXPECT_TRUE(passthrough.open.empty());
}

TEST_F(PassthroughTest, WhoWritesGetsANodeOfItsOwn) {
    for (const int flags : {O_RDWR, O_WRONLY | O_APPEND, O_RDWR | O_TRUNC}) {
        const std::string name = "f" + std::to_string(flags);
        const NodeId node = saved(name);
        const OpenedFile reader = opened(node);
        EXPECT_NE(reader.backing, 0);
        const OpenedFile writer = opened_by_name(name, flags, node);
        EXPECT_NE(node_of_name, node);
        EXPECT_EQ(writer.backing, 0);
        EXPECT_TRUE(write(writer.handle, 0, "y"));
        EXPECT_TRUE(close(writer.handle));
        // Its size does not follow.
        EXPECT_EQ(getattr(node)->size, 1U << 20);
        EXPECT_TRUE(release(reader.handle));
    }
}

TEST_F(PassthroughTest, DoesNotBeginWhereAWriterIs) {
    const NodeId node = saved();
    const OpenedFile writer = opened(node, O_RDWR);
    EXPECT_EQ(opened(node).backing, 0);
    EXPECT_TRUE(write(writer.handle, 0, "y"));
    EXPECT_EQ(opened(node).backing, 0);
    EXPECT_TRUE(close(writer.handle));
}

TEST_F(PassthroughTest, DoesNotBeginWhereAWriterIsOnItsWay) {
    const NodeId node = saved();
    // It waits for what the bucket has.
    store.hold(Operation::kHead);
    std::promise<Result<OpenedFile>> answered;
    fs->open(node, O_RDWR, Caller{kProcess, 0, 0},
             [&](Result<OpenedFile> file) { answered.set_value(std::move(file)); });
    ASSERT_TRUE(store.wait_until_held(Operation::kHead, 1));
    EXPECT_EQ(opened(node).backing, 0);
    store.release(Operation::kHead);
    EXPECT_TRUE(answered.get_future().get());
}

TEST_F(PassthroughTest, TheWriterThatWasToldToLookAgainIsWaitedFor) {
    const NodeId node = saved();
    const OpenedFile reader = opened(node);
    EXPECT_EQ(errno_of(open(node, O_RDWR)), ESTALE);
    const NodeId writers = lookup("f")->node;
    EXPECT_EQ(opened(writers).backing, 0);
    EXPECT_TRUE(open(writers, O_RDWR));
    EXPECT_TRUE(release(reader.handle));
}

TEST_F(PassthroughTest, TheFileIsThatOfTheVersionThatIsOpened) {
    const NodeId node = saved();
    files.meanwhile = [&] {
        const OpenedFile writer = opened(node, O_RDWR);
        EXPECT_TRUE(write(writer.handle, 0, "y"));
        EXPECT_TRUE(close(writer.handle));
    };
    const OpenedFile reader = opened(node);
    // That of the version which is there now.
    ASSERT_EQ(files.asked.size(), 2U);
    EXPECT_EQ(reader.backing, 2);
    EXPECT_EQ(files.asked.back(),
              *answer<std::string>([&](auto reply) { fs->get_extended(node, "user.ckptfs.etag", reply); }));
    EXPECT_NE(files.asked.front(), files.asked.back());
}

TEST_F(PassthroughTest, LogsSmallFilesAndDirectReadsAreLeftOut) {
    EXPECT_EQ(opened(saved("train.log")).backing, 0);
    EXPECT_EQ(opened(saved("small", 1 << 19)).backing, 0);
    EXPECT_EQ(opened(saved("f"), O_RDONLY | O_DIRECT).backing, 0);
    passthrough.possible = false;
    EXPECT_EQ(opened(saved("g")).backing, 0);
}

TEST_F(PassthroughTest, AFileThatIsCreatedAndIsThereIsLookedUpAgain) {
    const NodeId node = saved();
    const OpenedFile reader = opened(node);
    EXPECT_EQ(errno_of(create("f", O_RDONLY)), ESTALE);
    EXPECT_TRUE(release(reader.handle));
    wait_for_threads();
    EXPECT_TRUE(passthrough.open.empty());
}

}  // namespace
}  // namespace ckptfs::fs
