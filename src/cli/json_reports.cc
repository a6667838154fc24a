// SPDX-License-Identifier: Apache-2.0
#include "cli/json_reports.h"

#include <nlohmann/json.hpp>

namespace ckptfs {
namespace {

// In the order in which they are written.
using Json = nlohmann::ordered_json;

std::string line(const Json& value) {
    return value.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Json json_of(const Totals& totals) {
    return {{"count", totals.count}, {"size", totals.size}, {"stored_size", totals.stored_size}};
}

}  // namespace

std::string json_of(const ObjectReport& report) {
    Json json{{"key", report.object.key},          {"format", report.format},
              {"etag", report.object.etag},        {"size", report.size},
              {"stored_size", report.object.size}, {"percent_saved", report.percent_saved()}};
    if (report.plain()) {
        return line(json);
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
    return line(json);
}

std::string json_of(const ObjectProblem& problem) {
    Json json{{"key", problem.key}, {"state", problem.damaged ? "damaged" : "not checked"}};
    if (problem.frame) {
        json["first_damaged_frame"] = *problem.frame;
        json["damaged_frames"] = problem.damaged_frames;
    }
    json["why"] = problem.why;
    return line(json);
}

std::string json_of(const VerifyTotals& totals) {
    return line({{"objects", totals.objects},
                 {"size", totals.size},
                 {"damaged", totals.damaged},
                 {"not_checked", totals.not_checked}});
}

}  // namespace ckptfs
