# SPDX-License-Identifier: Apache-2.0
"""What the Python suites share: programs of the build, servers on loopback, mounts."""
