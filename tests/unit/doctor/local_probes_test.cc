// SPDX-License-Identifier: Apache-2.0
#include "doctor/local_probes.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>

#include "doctor/diagnosis.h"
#include "doctor/rules.h"

namespace ckptfs::doctor {
namespace {

TEST(DoctorLocal, APlaceOfThisUserAlone) {
    const std::filesystem::path base = std::filesystem::path(::testing::TempDir()) / "doctor-places";
    std::filesystem::remove_all(base);
    ASSERT_EQ(mkdir(base.c_str(), 0755), 0);
    EXPECT_TRUE(check_private_place(base / "not" / "there")) << "can be made";
    EXPECT_FALSE(std::filesystem::exists(base / "not")) << "is not made";
    ASSERT_EQ(mkdir((base / "own").c_str(), 0700), 0);
    EXPECT_TRUE(check_private_place(base / "own"));
    EXPECT_FALSE(check_private_place(base)) << "others can enter it";
    std::filesystem::remove_all(base);
}

TEST(DoctorLocal, SaysWhatAMountWouldMiss) {
    LocalPlaces places;
    places.fuse_device = "/no/such/device";
    places.mount_point = "/no/such/mount/point";
    places.staging_directory = "/no/such/directory";
    places.control_directory = "/dev/null";
    places.cache_directory = "/dev/null";
    places.kernel_release = "6.8.12";
    places.is_root = true;
    places.open_files_limit = 100;
    places.max_connections = 64;
    Findings findings;
    probe_this_machine(places, findings);
    for (auto each = 0; each < static_cast<int>(kFirstStoreProbe); ++each) {
        const auto probe = static_cast<Probe>(each);
        EXPECT_TRUE(findings.is(probe, ProbeAnswer::kNo)) << name_of(probe);
    }
    EXPECT_FALSE(diagnose(findings).usable());
}

TEST(DoctorLocal, KnowsWhichKernelsReadKeptFilesThemselves) {
    for (const char* const release : {"6.9.0", "6.10.3-generic", "7.0", "10.1.2"}) {
        EXPECT_TRUE(has_passthrough(release)) << release;
    }
    for (const char* const release : {"6.8.12", "5.19.0", "6", "", "6.", "x.9"}) {
        EXPECT_FALSE(has_passthrough(release)) << release;
    }
}

TEST(DoctorLocal, LooksAtTheCacheDirectoryAndDoesNotMakeIt) {
    const std::filesystem::path base = std::filesystem::path(::testing::TempDir()) / "doctor-cache";
    std::filesystem::remove_all(base);
    LocalPlaces places;
    places.staging_directory = "/tmp";
    places.cache_directory = base / "cache";
    places.kernel_release = "6.9.1";
    Findings findings;
    probe_this_machine(places, findings);
    EXPECT_TRUE(findings.is(Probe::kCacheDirectory, ProbeAnswer::kYes));
    EXPECT_FALSE(std::filesystem::exists(base));
    EXPECT_TRUE(findings.is(Probe::kPassthrough, ProbeAnswer::kNo)) << "not root";
    MountEntry mount;
    mount.mount_point = base;
    mount.type = kFileSystemType;
    places.mounts = {mount};
    Findings inside;
    probe_this_machine(places, inside);
    EXPECT_TRUE(inside.is(Probe::kCacheDirectory, ProbeAnswer::kNo)) << "on a FUSE mount";
}

TEST(DoctorLocal, AsksTheDaemonOfWhatIsMounted) {
    LocalPlaces places;
    places.mount_point = "/mnt/a";
    MountEntry mount;
    mount.mount_point = "/mnt/a";
    mount.type = kFileSystemType;
    places.mounts = {mount};
    places.staging_directory = "/tmp";
    for (const bool well : {true, false}) {
        places.ask_daemon = [well](const MountEntry&) { return well ? Status() : failure(EIO, "no answer"); };
        Findings findings;
        probe_this_machine(places, findings);
        EXPECT_TRUE(findings.is(Probe::kMountPoint, well ? ProbeAnswer::kYes : ProbeAnswer::kNo));
    }
}

}  // namespace
}  // namespace ckptfs::doctor
