// SPDX-License-Identifier: Apache-2.0
#include "tools/inspect_object.h"

#include <cerrno>
#include <memory>
#include <optional>
#include <utility>

#include "base/mutex.h"
#include "base/text.h"
#include "base/thread.h"
#include "ckptfs/log.h"
#include "codec/codecs.h"
#include "tools/object_frames.h"

namespace ckptfs {
namespace {

double percent_less(std::uint64_t before, std::uint64_t after) {
    return before == 0 ? 0 : 100 * (1 - static_cast<double>(after) / static_cast<double>(before));
}

// Adds up what the threads find.
class Inspection {
public:
    Inspection(ObjectStore& store, const OpenObject& from, ObjectReport& report)
        : store_(store), from_(from), runs_(from.layout), report_(report) {}

    void work() {
        RunReader reader(store_);
        while (const auto run = runs_.next()) {
            if (const Status fetched = reader.fetch(from_, *run); !fetched) {
                fail(fetched.error());
                return;
            }
            for (std::size_t i = 0; i < run->frames.size(); ++i) {
                add(run->frames[i], report_frame(reader.stored(i)));
            }
        }
    }

    [[nodiscard]] std::optional<Error> error() const {
        const MutexLock lock(mutex_);
        return error_;
    }

private:
    void add(const Frame& frame, Result<FrameReport> found) {
        if (found) {
            const MutexLock lock(mutex_);
            report_.add(frame, *found);
            return;
        }
        found.error().message =
            format("{}: frame {}: {}", from_.object.key, frame.index, std::move(found.error().message));
        fail(std::move(found.error()));
    }

    void fail(Error error) {
        runs_.stop();
        const MutexLock lock(mutex_);
        if (!error_) {
            error_ = std::move(error);
        }
    }

    ObjectStore& store_;
    const OpenObject& from_;
    RunQueue runs_;

    mutable Mutex mutex_;
    ObjectReport& report_ GUARDED_BY(mutex_);
    std::optional<Error> error_ GUARDED_BY(mutex_);
};

std::string row(const char* name, const Totals& totals, const char* what) {
    return format("  {:<12} {:>9} {:<7} {:>15} -> {:>15} bytes {:>6.1f} %\n", name, totals.count, what, totals.size,
                  totals.stored_size, percent_less(totals.size, totals.stored_size));
}

}  // namespace

std::uint64_t ObjectReport::frames() const {
    std::uint64_t sum = 0;
    for (const Totals& kind : kinds) {
        sum += kind.count;
    }
    return sum;
}

double ObjectReport::percent_saved() const {
    return percent_less(size, object.size);
}

void ObjectReport::add(const Frame& frame, const FrameReport& report) {
    kinds[static_cast<std::size_t>(report.kind)].add(frame.size, frame.stored_size - report.padding);
    padding += report.padding;
    for (const StoredPlane& plane : report.planes) {
        planes[{plane.width, plane.plane, plane.coding}].add(plane.size, plane.stored_size);
    }
    for (const StoredReference& reference : report.references) {
        references.add(reference.size, reference.stored_size);
    }
}

Result<ObjectReport> inspect_object(ObjectStore& store, const Codec& codec, const std::string& key) {
    const Result<OpenObject> from = open_object(store, codec, key);
    if (!from) {
        return failure(from.error());
    }
    ObjectReport report;
    report.object = from->object;
    report.format = codec.format_name(from->object);
    report.size = from->layout->size();
    report.may_have_lost_description = from->may_have_lost_description;
    if (from->layout->identity()) {
        return report;
    }
    report.checksum = frame_checksum_name(report.format);
    Inspection inspection(store, *from, report);
    run_on_threads("ckptfs-tool", kToolThreads, [&] { inspection.work(); });
    if (inspection.error()) {
        return failure(*inspection.error());
    }
    return report;
}

const char* name_of(FrameKind kind) {
    switch (kind) {
        case FrameKind::kZstd:
            return "zstd";
        case FrameKind::kRawBlocks:
            return "raw";
        case FrameKind::kPlanes:
            return "planes";
    }
    return "";
}

const char* name_of(plane_format::Coding coding) {
    switch (coding) {
        case plane_format::Coding::kRaw:
            return "raw";
        case plane_format::Coding::kRepeatedByte:
            return "repeated";
        case plane_format::Coding::kZstd:
            return "zstd";
        case plane_format::Coding::kPackedBits:
            return "packed";
        case plane_format::Coding::kCentred:
            return "centred";
    }
    return "";
}

std::string describe(const ObjectReport& report) {
    std::string text =
        format("key       {}\nformat    {}\nfile      {} bytes\nstored    {} bytes, {:.1f} % saved\n",
               escaped(report.object.key), report.format, report.size, report.object.size, report.percent_saved());
    text += format("etag      {}\n", escaped(report.object.etag));
    if (report.may_have_lost_description) {
        return text + format("Mounts show the object as it is, but {}.\n", kLostDescription);
    }
    if (report.plain()) {
        return text + "The object is the file, byte for byte.\n";
    }
    text += format("frames    {}, each with a checksum ({})\n", report.frames(), report.checksum);
    for (std::size_t kind = 0; kind < kFrameKinds; ++kind) {
        if (report.kinds[kind].count > 0) {
            text += row(name_of(static_cast<FrameKind>(kind)), report.kinds[kind], "frames");
        }
    }
    if (report.padding > 0) {
        text += format("  {} bytes of padding in front of frames\n", report.padding);
    }
    if (report.planes.empty()) {
        return text;
    }
    text += "planes    by width of the element, plane (0: its lowest byte) and coding\n";
    for (const auto& [key, totals] : report.planes) {
        text += row(format("{}.{} {}", key.width, key.plane, name_of(key.coding)).c_str(), totals, "blocks");
    }
    if (report.references.count > 0) {
        text += "references  upper halves of fp32 that follow from bf16 earlier in the file\n";
        text += row("4.2-4.3", report.references, "blocks");
    }
    return text;
}

}  // namespace ckptfs
