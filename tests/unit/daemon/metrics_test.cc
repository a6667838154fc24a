// SPDX-License-Identifier: Apache-2.0
#include "daemon/metrics.h"

#include <gtest/gtest.h>

#include <string>

#include "daemon/metrics_server.h"

namespace ckptfs {
namespace {

MountFigures figures() {
    MountFigures figures;
    figures.status.mount_point = "/mnt/a \"b\"";
    figures.status.source = "s3://bucket/run/";
    figures.status.version = "1.2.3";
    figures.status.files_unsaved = 2;
    figures.files.bytes_written = 3'000'000'000;
    figures.files.names_known = 65'536;
    figures.files.failures_untold = 1;
    figures.memory.total_buffers = 4;
    figures.memory.touched_buffers = 3;
    figures.memory.in_use[static_cast<std::size_t>(MemoryUse::kWrite)] = 1;
    s3::OperationStatistics parts;
    parts.operation = "UploadPart";
    parts.succeeded = 5;
    parts.failed = {{"SlowDown", 1}};
    parts.durations[0] = 2;
    parts.durations[3] = 3;
    parts.durations.back() = 1;
    parts.total_seconds = 40.5;
    figures.operations = {parts};
    return figures;
}

bool has(const std::string& text, const std::string& line) {
    return ("\n" + text).find("\n" + line + "\n") != std::string::npos;
}

TEST(Metrics, AreTextOfPrometheus) {
    const std::string text = metrics_text(figures());
    const std::string mount = R"(mount="/mnt/a \"b\"")";
    EXPECT_TRUE(has(text, "# TYPE ckptfs_written_bytes_total counter")) << text;
    EXPECT_TRUE(has(text, "ckptfs_written_bytes_total{" + mount + "} 3000000000")) << text;
    EXPECT_TRUE(has(text, "ckptfs_mount_info{" + mount + R"(,source="s3://bucket/run/",version="1.2.3"} 1)")) << text;
    EXPECT_TRUE(has(text, "ckptfs_safe_to_stop{" + mount + "} 0")) << text;
    EXPECT_TRUE(has(text, "ckptfs_files_unsaved{" + mount + "} 2")) << text;
    EXPECT_TRUE(has(text, "ckptfs_names_known{" + mount + "} 65536")) << text;
    EXPECT_TRUE(has(text, "ckptfs_failures_untold{" + mount + "} 1")) << text;
    EXPECT_TRUE(has(text, "ckptfs_memory_limit_bytes{" + mount + "} " + std::to_string(4 * BufferPool::kBufferSize)))
        << text;
    EXPECT_TRUE(has(text, "ckptfs_memory_resident_bytes{" + mount + "} " + std::to_string(3 * BufferPool::kBufferSize)))
        << text;
    EXPECT_TRUE(
        has(text, "ckptfs_memory_used_bytes{" + mount + ",use=\"write\"} " + std::to_string(BufferPool::kBufferSize)))
        << text;
    EXPECT_EQ(text.find("ckptfs_disk_"), std::string::npos) << text;
}

TEST(Metrics, TellOfTheDiskWhereOneIsUsed) {
    MountFigures with_disk = figures();
    with_disk.status.disk = {"/nvme/kept", 8, {5, 6, 7, 3, 2, "cannot read"}, 4, 9};
    const std::string text = metrics_text(with_disk);
    const std::string mount = R"({mount="/mnt/a \"b\""} )";
    EXPECT_TRUE(has(text, "ckptfs_disk_read_bytes_total" + mount + "5")) << text;
    EXPECT_TRUE(has(text, "ckptfs_disk_written_bytes_total" + mount + "6")) << text;
    EXPECT_TRUE(has(text, "ckptfs_disk_held_bytes" + mount + "7")) << text;
    EXPECT_TRUE(has(text, "ckptfs_disk_limit_bytes" + mount + "8")) << text;
    EXPECT_TRUE(has(text, "ckptfs_disk_to_keep" + mount + "9")) << text;
    EXPECT_TRUE(has(text, "ckptfs_disk_left_out_total" + mount + "3")) << text;
    EXPECT_TRUE(has(text, "ckptfs_disk_damaged_total" + mount + "2")) << text;
    EXPECT_TRUE(has(text, "ckptfs_disk_usable" + mount + "0")) << text;
}

TEST(Metrics, TellOfWhatADiskHasAcknowledged) {
    MountFigures acknowledging = figures();
    EXPECT_EQ(metrics_text(acknowledging).find("ckptfs_unsent_"), std::string::npos);
    acknowledging.status.unsent = {true, 3, 7, 9, 75, 1, 12, 9, "run/a.pt", "AccessDenied", 2, "m", {}, 0, 4};
    const std::string text = metrics_text(acknowledging);
    const std::string mount = R"({mount="/mnt/a \"b\""} )";
    EXPECT_TRUE(has(text, "ckptfs_unsent_changes" + mount + "3")) << text;
    EXPECT_TRUE(has(text, "ckptfs_unsent_bytes" + mount + "7")) << text;
    EXPECT_TRUE(has(text, "ckptfs_unsent_limit_bytes" + mount + "9")) << text;
    EXPECT_TRUE(has(text, "ckptfs_unsent_oldest_seconds" + mount + "75")) << text;
    EXPECT_TRUE(has(text, "ckptfs_unsent_failing" + mount + "1")) << text;
    EXPECT_TRUE(has(text, "ckptfs_unsent_given_up" + mount + "2")) << text;
    EXPECT_TRUE(has(text, "ckptfs_unsent_places_left" + mount + "4")) << text;
}

TEST(Metrics, CountAttemptsByOperationAndResult) {
    const std::string text = metrics_text(figures());
    const std::string labels = R"({mount="/mnt/a \"b\"",operation="UploadPart")";
    EXPECT_TRUE(has(text, "ckptfs_s3_requests_total" + labels + ",result=\"ok\"} 5")) << text;
    EXPECT_TRUE(has(text, "ckptfs_s3_requests_total" + labels + ",result=\"SlowDown\"} 1")) << text;
    const std::string bucket = "ckptfs_s3_request_duration_seconds_bucket" + labels;
    EXPECT_TRUE(has(text, bucket + ",le=\"0.005\"} 2")) << text;
    EXPECT_TRUE(has(text, bucket + ",le=\"0.05\"} 5")) << text;
    EXPECT_TRUE(has(text, bucket + ",le=\"30\"} 5")) << text;
    EXPECT_TRUE(has(text, bucket + ",le=\"+Inf\"} 6")) << text;
    EXPECT_TRUE(has(text, "ckptfs_s3_request_duration_seconds_count" + labels + "} 6")) << text;
    EXPECT_TRUE(has(text, "ckptfs_s3_request_duration_seconds_sum" + labels + "} 40.5")) << text;
}

TEST(MetricsServer, SaysThatItsPortIsTaken) {
    const auto first = MetricsServer::create("127.0.0.1:0", figures);
    ASSERT_TRUE(first);
    const auto second = MetricsServer::create("127.0.0.1:" + std::to_string((*first)->port()), figures);
    ASSERT_FALSE(second);
    EXPECT_EQ(second.error().errno_value, EADDRINUSE);
}

}  // namespace
}  // namespace ckptfs
