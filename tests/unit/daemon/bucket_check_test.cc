// SPDX-License-Identifier: Apache-2.0
#include "daemon/bucket_check.h"

#include <gtest/gtest.h>

#include "support/fake_store.h"

namespace ckptfs {
namespace {

using testing::FakeStore;
using testing::Fault;
using testing::Operation;

Error store_error(int errno_value, std::string code, std::string message) {
    Error error;
    error.errno_value = errno_value;
    error.s3_code = std::move(code);
    error.message = std::move(message);
    return error;
}

Fault fault(Operation operation, std::string message) {
    Fault made;
    made.operation = operation;
    made.error = store_error(EACCES, "AccessDenied", std::move(message));
    made.times = 100;
    return made;
}

TEST(BucketCheck, LeavesNothingBehind) {
    FakeStore store;
    EXPECT_TRUE(check_bucket(store, "run/", false, "trial"));
    EXPECT_EQ(store.open_uploads(), 0);
    EXPECT_TRUE(store.keys().empty());
}

TEST(BucketCheck, SaysThatTheBucketCannotBeListed) {
    FakeStore store;
    store.inject(fault(Operation::kList, "the store's own words"));
    const Status checked = check_bucket(store, "run/", false, "trial");
    ASSERT_FALSE(checked);
    EXPECT_EQ(checked.error().message, "cannot list the bucket: the store's own words");
    EXPECT_EQ(checked.error().s3_code, "AccessDenied");
}

TEST(BucketCheck, SaysThatTheBucketCannotBeWritten) {
    FakeStore store;
    store.inject(fault(Operation::kCreateUpload, "no rights"));
    const Status checked = check_bucket(store, "run/", false, "trial");
    ASSERT_FALSE(checked);
    EXPECT_EQ(checked.error().message,
              "cannot write to the bucket (--read-only mounts it without write access): no rights");
}

TEST(BucketCheck, AReadOnlyMountNeedsNoRightToWrite) {
    FakeStore store;
    store.inject(fault(Operation::kCreateUpload, "no rights"));
    EXPECT_TRUE(check_bucket(store, "run/", true, "trial"));
}

}  // namespace
}  // namespace ckptfs
