// SPDX-License-Identifier: Apache-2.0
#include "codec/codecs.h"

#include "base/text.h"
#include "ckptfs/log.h"
#include "codec/stored_codec.h"

namespace ckptfs {

Result<std::unique_ptr<Codec>> make_codec(const std::string& name) {
    if (name == "none") {
        return make_stored_codec();
    }
    return failure(EINVAL, format("compress: \"{}\" is not known; use \"none\"", escaped(name)));
}

}  // namespace ckptfs
