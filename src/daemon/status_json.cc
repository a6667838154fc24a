// SPDX-License-Identifier: Apache-2.0
#include "daemon/status_json.h"

#include <cerrno>
#include <cstdint>
#include <limits>
#include <utility>

#include "base/json_line.h"

namespace ckptfs {
namespace {

Json object_of(const Traffic& traffic) {
    return {
        {"written", traffic.written}, {"read", traffic.read}, {"sent", traffic.sent}, {"received", traffic.received}};
}

Traffic traffic_of(const Json& json) {
    return {json.at("written"), json.at("read"), json.at("sent"), json.at("received")};
}

Json object_of(const StoreActivity& store) {
    return {{"requests", store.requests},
            {"retries", store.retries},
            {"slow_downs", store.slow_downs},
            {"late_reads", store.late_reads},
            {"in_flight", store.in_flight},
            {"waiting", store.waiting},
            {"limit", store.limit}};
}

StoreActivity activity_of(const Json& json) {
    return {json.at("requests"),  json.at("retries"), json.at("slow_downs"), json.value("late_reads", std::uint64_t{0}),
            json.at("in_flight"), json.at("waiting"), json.at("limit")};
}

Json object_of(const DiskActivity& disk) {
    return {{"directory", disk.directory},
            {"bytes_read", disk.counts.bytes_read},
            {"bytes_written", disk.counts.bytes_written},
            {"bytes_held", disk.counts.bytes_held},
            {"size", disk.size},
            {"opens_passed_through", disk.opens_passed_through},
            {"files_to_keep", disk.files_to_keep},
            {"cache_only", disk.is_all},
            {"frames_left_out", disk.counts.frames_left_out},
            {"frames_damaged", disk.counts.frames_damaged},
            {"failure", disk.counts.failure}};
}

DiskActivity disk_of(const Json& json) {
    return {json.at("directory"),
            json.at("size"),
            {json.at("bytes_read"), json.at("bytes_written"), json.at("bytes_held"), json.at("frames_left_out"),
             json.at("frames_damaged"), json.at("failure")},
            json.value("opens_passed_through", std::uint64_t{0}),
            json.value("files_to_keep", std::uint64_t{0}),
            json.value("cache_only", false)};
}

Json object_of(const UnsentActivity& unsent) {
    return {{"acknowledges", unsent.acknowledges},
            {"changes", unsent.changes},
            {"bytes", unsent.bytes},
            {"limit", unsent.limit},
            {"seconds", unsent.seconds},
            {"waiting", unsent.waiting},
            {"last_acknowledged", unsent.last_acknowledged},
            {"all_sent_up_to", unsent.all_sent_up_to},
            {"failing_key", unsent.failing_key},
            {"failure", unsent.failure},
            {"given_up", unsent.given_up},
            {"given_up_key", unsent.given_up_key},
            {"places", unsent.places},
            {"changes_elsewhere", unsent.changes_elsewhere},
            {"places_left", unsent.places_left}};
}

UnsentActivity unsent_of(const Json& json) {
    return {json.at("acknowledges"),
            json.at("changes"),
            json.at("bytes"),
            json.at("limit"),
            json.at("seconds"),
            json.at("waiting"),
            json.at("last_acknowledged"),
            json.at("all_sent_up_to"),
            json.at("failing_key"),
            json.at("failure"),
            json.at("given_up"),
            json.at("given_up_key"),
            json.value("places", std::vector<std::string>()),
            json.value("changes_elsewhere", std::uint64_t{0}),
            json.value("places_left", std::uint64_t{0})};
}

}  // namespace

std::string json_of(const MountStatus& status) {
    Json files = Json::array();
    for (const FileInFlight& file : status.files) {
        files.push_back({{"key", file.key},
                         {"size", file.size},
                         {"bytes_acknowledged", file.bytes_acknowledged},
                         {"bytes_in_store", file.bytes_in_store},
                         {"parts_in_flight", file.parts_in_flight},
                         {"unsaved", file.unsaved},
                         {"failure", file.failure}});
    }
    Json unwritten = Json::array();
    for (const UnwrittenFile& file : status.unwritten) {
        unwritten.push_back({{"key", file.key}, {"reason", file.reason}});
    }
    Json reads = Json::array();
    for (const FileBeingRead& read : status.reads) {
        reads.push_back({{"key", read.key}, {"size", read.size}, {"position", read.position}});
    }
    return json_line({{"source", status.source},
                      {"mount_point", status.mount_point},
                      {"device", status.device},
                      {"version", status.version},
                      {"pid", status.pid},
                      {"seconds_mounted", status.seconds_mounted},
                      {"safe_to_stop", status.safe_to_stop()},
                      {"draining", status.draining},
                      {"files_open", status.files_open},
                      {"files_unsaved", status.files_unsaved},
                      {"files_failed", status.files_failed},
                      {"files_held_back", status.files_held_back},
                      {"names_known", status.names_known},
                      {"files_unwritten", status.files_unwritten},
                      {"unwritten", std::move(unwritten)},
                      {"files", std::move(files)},
                      {"renames", status.renames},
                      {"removals", status.removals},
                      {"failures_untold", status.failures_untold},
                      {"files_read", status.files_read},
                      {"reads", std::move(reads)},
                      {"totals", object_of(status.totals)},
                      {"rates", object_of(status.rates)},
                      {"store", object_of(status.store)},
                      {"disk", object_of(status.disk)},
                      {"unsent", object_of(status.unsent)},
                      {"cache_hits", status.cache_hits},
                      {"cache_misses", status.cache_misses},
                      {"memory_used", status.memory_used},
                      {"memory_for_reading", status.memory_for_reading},
                      {"memory_total", status.memory_total},
                      {"memory_resident", status.memory_resident},
                      {"problems", status.problems}});
}

Result<MountStatus> parse_status(std::string_view text) {
    const auto unknown = failure(EPROTO, "cannot parse the daemon's status; is it another version of ckptfs?");
    // The conversion of a fraction to a whole number is undefined if that does not fit.
    bool all_fit = true;
    const auto check = [&all_fit](int /*depth*/, Json::parse_event_t /*event*/, const Json& parsed) {
        constexpr double kLimit = std::numeric_limits<std::int32_t>::max();
        all_fit =
            all_fit && (!parsed.is_number_float() || (parsed.get<double>() >= 0 && parsed.get<double>() < kLimit));
        return true;
    };
    try {
        const Json json = Json::parse(text, check);
        if (!all_fit) {
            return unknown;
        }
        MountStatus status;
        for (const Json& each : json.at("files")) {
            FileInFlight file;
            each.at("key").get_to(file.key);
            each.at("size").get_to(file.size);
            each.at("bytes_acknowledged").get_to(file.bytes_acknowledged);
            each.at("bytes_in_store").get_to(file.bytes_in_store);
            each.at("parts_in_flight").get_to(file.parts_in_flight);
            each.at("unsaved").get_to(file.unsaved);
            each.at("failure").get_to(file.failure);
            status.files.push_back(std::move(file));
        }
        // Daemons of earlier versions, which an upgrade leaves running, do not report this.
        status.files_unwritten = json.value("files_unwritten", std::uint64_t{0});
        for (const Json& each : json.value("unwritten", Json::array())) {
            status.unwritten.push_back({each.at("key"), each.at("reason")});
        }
        for (const Json& each : json.at("reads")) {
            status.reads.push_back({each.at("key"), each.at("size"), each.at("position")});
        }
        json.at("source").get_to(status.source);
        json.at("mount_point").get_to(status.mount_point);
        json.at("version").get_to(status.version);
        json.at("pid").get_to(status.pid);
        json.at("seconds_mounted").get_to(status.seconds_mounted);
        json.at("draining").get_to(status.draining);
        json.at("files_open").get_to(status.files_open);
        json.at("files_unsaved").get_to(status.files_unsaved);
        json.at("files_failed").get_to(status.files_failed);
        json.at("files_held_back").get_to(status.files_held_back);
        // Daemons of earlier versions do not report these.
        status.device = json.value("device", std::string());
        status.names_known = json.value("names_known", std::uint64_t{0});
        status.removals = json.value("removals", std::uint64_t{0});
        status.failures_untold = json.value("failures_untold", std::uint64_t{0});
        json.at("renames").get_to(status.renames);
        json.at("files_read").get_to(status.files_read);
        status.totals = traffic_of(json.at("totals"));
        status.rates = traffic_of(json.at("rates"));
        status.store = activity_of(json.at("store"));
        status.disk = json.contains("disk") ? disk_of(json.at("disk")) : DiskActivity{};
        status.unsent = json.contains("unsent") ? unsent_of(json.at("unsent")) : UnsentActivity{};
        json.at("cache_hits").get_to(status.cache_hits);
        json.at("cache_misses").get_to(status.cache_misses);
        json.at("memory_used").get_to(status.memory_used);
        json.at("memory_for_reading").get_to(status.memory_for_reading);
        json.at("memory_total").get_to(status.memory_total);
        status.memory_resident = json.value("memory_resident", std::uint64_t{0});
        json.at("problems").get_to(status.problems);
        return status;
    } catch (const Json::exception&) {
        return unknown;
    }
}

}  // namespace ckptfs
