// SPDX-License-Identifier: Apache-2.0
#include "admin.h"

#include <array>
#include <nlohmann/json.hpp>

#include "request_checks.h"
#include "s3_reply.h"
#include "simulator.h"
#include "uri.h"

namespace ckptfs::s3sim {
namespace {

using Json = nlohmann::json;

constexpr std::uint64_t kLargestDocument = std::uint64_t{1} << 20;

Duration milliseconds(double ms) {
    return std::chrono::duration_cast<Duration>(std::chrono::duration<double, std::milli>(ms));
}

FaultRule read_fault_rule(const Json& json) {
    FaultRule rule;
    for (const auto& [name, value] : json.items()) {
        if (name == "op") {
            rule.operation = value.get<std::string>();
        } else if (name == "key") {
            rule.key = value.get<std::string>();
        } else if (name == "part") {
            rule.part = value.get<int>();
        } else if (name == "action") {
            rule.name = value.get<std::string>();
        } else if (name == "every") {
            rule.every = std::max<std::uint64_t>(value.get<std::uint64_t>(), 1);
        } else if (name == "times") {
            rule.times = value.get<std::uint64_t>();
        } else if (name == "after") {
            rule.skip = value.get<std::uint64_t>();
        } else if (name == "nth") {
            rule.skip = std::max<std::uint64_t>(value.get<std::uint64_t>(), 1) - 1;
            rule.times = 1;
        } else if (name != "code" && name != "status" && name != "message" && name != "bytes" && name != "ms" &&
                   name != "mbps") {
            throw std::invalid_argument("unknown member of a fault rule: " + name);
        }
    }
    const auto fault = fault_of_name(rule.name);
    if (!fault) {
        throw std::invalid_argument("unknown action of a fault rule: " + rule.name);
    }
    rule.fault = *fault;
    return rule;
}

void read_fault_details(const Json& json, Fault& fault) {
    if (json.contains("code")) {
        fault.error = s3_error(json.at("code").get<std::string>());
    }
    if (json.contains("status")) {
        fault.error.status = json.at("status").get<int>();
    }
    if (json.contains("message")) {
        fault.error.message = json.at("message").get<std::string>();
    }
    if (json.contains("bytes")) {
        fault.bytes = json.at("bytes").get<std::uint64_t>();
    }
    if (json.contains("ms")) {
        fault.time = milliseconds(json.at("ms").get<double>());
    }
    if (json.contains("mbps")) {
        fault.bytes_per_second = json.at("mbps").get<double>() * 1e6;
    }
}

Json describe_faults(const std::vector<FaultRule>& rules) {
    Json list = Json::array();
    for (const FaultRule& rule : rules) {
        list.push_back({{"op", rule.operation},
                        {"key", rule.key},
                        {"action", rule.name},
                        {"matches", rule.matches},
                        {"hits", rule.hits}});
    }
    return list;
}

Json describe_gauge(const Gauge& gauge) {
    return {{"now", gauge.now}, {"peak", gauge.peak}};
}

Json describe_counters(Simulator& simulator) {
    const CounterSnapshot counts = simulator.counters().snapshot();
    Json operations = Json::object();
    for (const auto& [name, count] : counts.operations) {
        operations[name] = {{"requests", count.requests},
                            {"errors", count.errors},
                            {"bytes_in", count.bytes_in},
                            {"bytes_out", count.bytes_out}};
    }
    Json connections = describe_gauge(counts.connections);
    connections["opened"] = counts.connections_opened;
    return {{"operations", operations},
            {"connections", connections},
            {"requests", describe_gauge(counts.requests)},
            {"parts_in_flight", describe_gauge(counts.parts)},
            {"hung", counts.hung.now},
            {"memory_bytes", simulator.pool().bytes_in_use()}};
}

Json describe_requests(const std::vector<RequestRecord>& records) {
    Json list = Json::array();
    for (const RequestRecord& record : records) {
        const std::chrono::duration<double, std::milli> took = record.ended - record.began;
        const std::chrono::duration<double, std::milli> began = record.began.time_since_epoch();
        list.push_back({{"op", record.operation},
                        {"bucket", record.bucket},
                        {"key", record.key},
                        {"query", record.query},
                        {"range", record.range},
                        {"fault", record.fault},
                        {"part", record.part},
                        {"status", record.status},
                        {"bytes_in", record.bytes_in},
                        {"bytes_out", record.bytes_out},
                        {"began_ms", began.count()},
                        {"took_ms", took.count()}});
    }
    return list;
}

using ModelField = std::pair<const char*, double Model::*>;
constexpr auto kModelFields = std::to_array<ModelField>({{"latency_ms", &Model::latency_ms},
                                                         {"conn_mbps", &Model::connection_mbps},
                                                         {"total_mbps", &Model::total_mbps},
                                                         {"copy_mbps", &Model::copy_mbps},
                                                         {"clock_offset_s", &Model::clock_offset_s},
                                                         {"read_rate", &Model::read_rate},
                                                         {"write_rate", &Model::write_rate}});

Json describe_model(const Model& model) {
    Json json = Json::object();
    for (const auto& [name, field] : kModelFields) {
        json[name] = model.*field;
    }
    return json;
}

// Members that are absent stay as they are.
Model read_model(Model model, const Json& json) {
    for (const auto& [name, value] : json.items()) {
        const auto* known = std::find_if(kModelFields.begin(), kModelFields.end(),
                                         [&name = name](const ModelField& field) { return field.first == name; });
        if (known == kModelFields.end()) {
            throw std::invalid_argument("unknown member of the model: " + name);
        }
        model.*(known->second) = value.get<double>();
    }
    return model;
}

SessionKeys read_session(const Json& json, SystemTime now) {
    const std::chrono::duration<double> valid(json.at("valid_s").get<double>());
    return {json.at("access_key").get<std::string>(), json.at("secret_key").get<std::string>(),
            json.at("session_token").get<std::string>(), now + std::chrono::duration_cast<SystemTime::duration>(valid)};
}

std::size_t read_limit(const std::string& query) {
    for (const auto& [name, value] : parse_query(query).value_or(std::vector<NameValue>())) {
        if (name == "limit") {
            return static_cast<std::size_t>(parse_number(value).value_or(100));
        }
    }
    return 100;
}

class AdminExchange final : public Exchange {
public:
    AdminExchange(Simulator& simulator, HttpRequest request) : simulator_(simulator), request_(std::move(request)) {
        const auto framing = read_body_framing(request_);
        plan_.body = framing.value_or(BodyPlan{});
        plan_.body.keep = true;
        plan_.body.limit = kLargestDocument;
        plan_.refuse_body = !framing;
    }

    const RequestPlan& plan() const override { return plan_; }
    void hang() override {}
    void transferred(const Transferred& /*bytes*/) override {}

    ReplyPlan reply(ReceivedBody body) override {
        S3Reply answer;
        Json document;
        try {
            document = serve(body.bytes.to_string(), answer.status);
        } catch (const std::exception& error) {
            answer.status = 400;
            document = {{"error", error.what()}};
        }
        answer.headers.emplace_back("Content-Type", "application/json");
        answer.body = ByteChain::from_string(document.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
        ReplyContext context;
        context.keep_alive = request_.keep_alive() && !plan_.refuse_body;
        context.region = simulator_.options().region;
        context.now = simulator_.table().now();
        ByteChain bytes = ByteChain::from_string(render_head(answer, context));
        bytes.append(answer.body);
        ReplyPlan plan;
        plan.segments.push_back({Duration{}, std::move(bytes)});
        return plan;
    }

private:
    Json serve(const std::string& body, int& status) {
        const std::string what = request_.method + " " + request_.path.substr(kAdminPrefix.size());
        if (what == "POST faults") {
            auto rules = read_fault_rules(body);
            if (!rules) {
                throw std::invalid_argument(rules.error().message);
            }
            simulator_.faults().add(std::move(*rules));
            return describe_faults(simulator_.faults().rules());
        }
        if (what == "GET faults") {
            return describe_faults(simulator_.faults().rules());
        }
        if (what == "DELETE faults") {
            simulator_.clear_faults();
            return Json::array();
        }
        if (what == "GET counters") {
            return describe_counters(simulator_);
        }
        if (what == "DELETE counters") {
            simulator_.counters().reset();
            return Json::object();
        }
        if (what == "GET requests") {
            return describe_requests(simulator_.counters().latest(read_limit(request_.query)));
        }
        if (what == "POST model") {
            simulator_.set_model(read_model(simulator_.model(), Json::parse(body)));
            return describe_model(simulator_.model());
        }
        if (what == "GET model") {
            return describe_model(simulator_.model());
        }
        if (what == "POST sessions") {
            simulator_.verifier().add(read_session(Json::parse(body), simulator_.table().now()));
            return Json::object();
        }
        status = 404;
        return {{"error", "there is " + std::string(kAdminPrefix) + "faults, counters, requests, model and sessions"}};
    }

    Simulator& simulator_;
    const HttpRequest request_;
    RequestPlan plan_;
};

}  // namespace

std::unique_ptr<Exchange> make_admin_exchange(Simulator& simulator, HttpRequest request) {
    return std::make_unique<AdminExchange>(simulator, std::move(request));
}

Outcome<std::vector<FaultRule>> read_fault_rules(std::string_view json) {
    try {
        const Json document = Json::parse(json);
        std::vector<FaultRule> rules;
        for (const Json& entry : document.is_array() ? document : Json::array({document})) {
            rules.push_back(read_fault_rule(entry));
            read_fault_details(entry, rules.back().fault);
        }
        return rules;
    } catch (const std::exception& error) {
        return fail("InvalidArgument", error.what());
    }
}

}  // namespace ckptfs::s3sim
