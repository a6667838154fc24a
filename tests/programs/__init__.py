# SPDX-License-Identifier: Apache-2.0
"""Unchanged programs, and what their tests share: what they save, and how it is compared."""
