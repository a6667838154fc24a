// SPDX-License-Identifier: Apache-2.0
#include "tools/json_reports.h"

#include <chrono>
#include <utility>

#include "base/json_line.h"

namespace ckptfs {
namespace {

Json json_of(const Totals& totals) {
    return {{"count", totals.count}, {"size", totals.size}, {"stored_size", totals.stored_size}};
}

}  // namespace

std::string json_of(const ObjectReport& report) {
    Json json{{"key", report.object.key},          {"format", report.format},
              {"etag", report.object.etag},        {"size", report.size},
              {"stored_size", report.object.size}, {"percent_saved", report.percent_saved()}};
    if (report.plain()) {
        json["may_have_lost_description"] = report.may_have_lost_description;
        return json_line(json);
    }
    json["checksum"] = report.checksum;
    json["frames"] = report.frames();
    json["padding"] = report.padding;
    for (std::size_t kind = 0; kind < kFrameKinds; ++kind) {
        json["frame_kinds"][name_of(static_cast<FrameKind>(kind))] = json_of(report.kinds[kind]);
    }
    json["planes"] = Json::array();
    for (const auto& [key, totals] : report.planes) {
        Json plane{{"width", key.width}, {"plane", key.plane}, {"coding", name_of(key.coding)}};
        plane.update(json_of(totals));
        json["planes"].push_back(std::move(plane));
    }
    json["references"] = json_of(report.references);
    return json_line(json);
}

std::string json_of(const ObjectProblem& problem) {
    Json json{{"key", problem.key}, {"state", problem.damaged ? "damaged" : "not checked"}};
    if (problem.frame) {
        json["first_damaged_frame"] = *problem.frame;
        json["damaged_frames"] = problem.damaged_frames;
    }
    json["why"] = problem.why;
    return json_line(json);
}

std::string json_of(const VerifyTotals& totals) {
    return json_line({{"objects", totals.objects},
                      {"size", totals.size},
                      {"damaged", totals.damaged},
                      {"not_checked", totals.not_checked}});
}

std::string json_of(const FoundLeftover& leftover) {
    return json_line({{"key", leftover.upload.key},
                      {"kind", name_of(leftover.kind)},
                      {"upload_id", leftover.upload.id},
                      {"age_seconds", std::chrono::duration_cast<std::chrono::seconds>(leftover.age).count()},
                      {"size", leftover.size},
                      {"state", name_of(leftover.state)},
                      {"ended", leftover.ended},
                      {"problem", leftover.problem}});
}

std::string json_of(const GarbageTotals& totals) {
    return json_line({{"uploads", totals.uploads},
                      {"files", totals.files},
                      {"records", totals.records},
                      {"size", totals.size},
                      {"abandoned", totals.abandoned},
                      {"abandoned_size", totals.abandoned_size},
                      {"ended", totals.ended},
                      {"dead_mounts", totals.dead_mounts},
                      {"problems", totals.problems}});
}

}  // namespace ckptfs
