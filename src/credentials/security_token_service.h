// SPDX-License-Identifier: Apache-2.0
// AWS Security Token Service: sessions of roles.
//
// Source: "AssumeRole" and "AssumeRoleWithWebIdentity", AWS Security Token Service API Reference, version 2011-06-15.
#pragma once

#include <stop_token>
#include <string>

#include "aws/clock_correction.h"
#include "aws/credentials.h"
#include "aws/url.h"
#include "ckptfs/clock.h"
#include "ckptfs/http.h"
#include "ckptfs/status.h"
#include "credentials/source.h"

namespace ckptfs {

struct Role {
    std::string arn;
    // What the service's log will call the session; if empty, "ckptfs-" and the time.
    std::string session_name;
    // Empty if the role asks for none.
    std::string external_id;
    // Seconds, as the profile says; empty for the service's own (an hour).
    std::string duration;
};

// Signed with `signer`. `name`: of the session. Pure.
[[nodiscard]] HttpRequest assume_role_request(const Role& role, const std::string& name, const Url& service,
                                              const std::string& region, const Credentials& signer, WallTime time);
// Not signed: the token is the proof. It travels in the body, where no proxy logs it.
[[nodiscard]] HttpRequest assume_role_with_web_identity_request(const Role& role, const std::string& name,
                                                                const Url& service, const Secret& token);

// If the service refuses the time, `clock` takes the service's, and the service is asked once more.
[[nodiscard]] Result<SharedCredentials> assume_role(const SourceContext& context, const Role& role,
                                                    const Credentials& signer, ClockCorrection& clock,
                                                    const std::stop_token& stop);
[[nodiscard]] Result<SharedCredentials> assume_role_with_web_identity(const SourceContext& context, const Role& role,
                                                                      const Secret& token, const std::stop_token& stop);

}  // namespace ckptfs
