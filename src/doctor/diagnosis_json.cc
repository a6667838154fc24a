// SPDX-License-Identifier: Apache-2.0
#include "doctor/diagnosis_json.h"

#include <optional>
#include <utility>
#include <vector>

#include "base/json_line.h"
#include "doctor/rules.h"

namespace ckptfs::doctor {
namespace {

Json json_of(const std::optional<double>& figure) {
    return figure ? Json(*figure) : Json();
}

Json json_of(const Rates& rates) {
    return {{"bytes_per_second_on_one_connection", rates.one_connection},
            {"bytes_per_second", rates.all_connections},
            {"connections", rates.connections}};
}

Json texts_of(const std::vector<SuggestedOption>& options) {
    Json texts = Json::array();
    for (const SuggestedOption& each : options) {
        texts.push_back(each.text());
    }
    return texts;
}

}  // namespace

std::string json_of(const Diagnosis& diagnosis) {
    Json findings = Json::array();
    for (const DiagnosisLine& each : diagnosis.lines) {
        findings.push_back({{"name", name_of(each.probe)},
                            {"state", name_of(each.severity)},
                            {"found", each.found},
                            {"means", each.means},
                            {"options", texts_of(each.options)}});
    }
    const StoreFacts& facts = diagnosis.facts;
    return json_line({{"source", diagnosis.source},
                      {"usable", exit_code(diagnosis) == 0},
                      {"interrupted", diagnosis.interrupted},
                      {"options", texts_of(diagnosis.options())},
                      {"url", facts.url},
                      {"server", facts.server},
                      {"region", facts.region},
                      {"bucket_region", facts.bucket_region},
                      {"clock_skew_seconds", json_of(facts.clock_skew_seconds)},
                      {"median_latency_ms", json_of(facts.median_latency_ms)},
                      {"slowest_latency_ms", json_of(facts.slowest_latency_ms)},
                      {"upload", json_of(facts.up)},
                      {"download", json_of(facts.down)},
                      {"findings", std::move(findings)}});
}

}  // namespace ckptfs::doctor
