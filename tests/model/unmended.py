# SPDX-License-Identifier: Apache-2.0
"""What histories leave out because it is known to be broken. The list shrinks; nothing else is left out.

Each entry says what goes wrong, and tells whether a step would lead there. The histories that name it wait for its end:
when it is mended the entry goes, and its histories become tests.
"""

import time

from reference import TTL


def cut_after_removal_elsewhere(model, step):
    # Without O_CREAT, within --metadata-ttl.
    return (step["do"] == "open" and step["flags"] == "rt" and model.mounts > 1
            and time.monotonic() < model.names[step["path"]].changed_at + TTL)


UNMENDED = {
    "O_TRUNC without O_CREAT makes a name again that another mount has removed": cut_after_removal_elsewhere,
}


def unmended(model, step) -> str | None:
    """Why the step is left out."""
    return next((why for why, leads_there in UNMENDED.items() if leads_there(model, step)), None)
