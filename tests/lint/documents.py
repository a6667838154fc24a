#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What src/README.md and .github/CONTRIBUTING.md quote is there: paths, names of the sources, lints, and who knows whom."""

import re

from repository import MODULES, ROOT, report, sources

FLOOR_PLAN = ROOT / "src/README.md"
CONTRIBUTING = ROOT / ".github/CONTRIBUTING.md"
# Where a quoted path may begin.
PLACES = (ROOT, ROOT / "src", ROOT / "include")
# Made by a build, of another machine, or of the web.
ELSEWHERE = re.compile(r"build/|/|https?:|<")
FILE = re.compile(r"[\w.@-]+\.(h|cc|py|md|scd|txt|cmake|json)")
FENCED = re.compile(r"^```\n(.*?)^```$", re.MULTILINE | re.DOTALL)
QUOTED = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)#]+)\)")
# A::b belongs together; "op_…" stands for all that begin so.
NAME = re.compile(r"[A-Za-z_]\w*(?:::~?\w+)*…?")

# The sources, and what runs them; not the checks, which speak of names.
TEXTS = [path.read_text() for path in [*sources(endings=(".h", ".cc", ".py", ".txt")), ROOT / "tests/run"]
         if path.parent != ROOT / "tests/lint"]
WORDS = [set(re.findall(r"\w+", text)) for text in TEXTS]
ALL_WORDS = set().union(*WORDS)
ALL_TEXT = "\n".join(TEXTS)


def missing_path(word: str) -> bool:
    if ELSEWHERE.match(word):
        return False
    if "/" in word:
        return not any((place / word).exists() for place in PLACES)
    return FILE.fullmatch(word) is not None and not any(ROOT.glob(word)) and not any((ROOT / "src").rglob(word))


def missing_name(name: str) -> bool:
    *owner, last = name.rstrip("…").replace("~", "").split("::")
    if name.endswith("…"):
        return not any(word.startswith(last) for word in ALL_WORDS)
    if not owner or name in ALL_TEXT:
        return last not in ALL_WORDS
    # Where the class is, the member is declared.
    is_defined = re.compile(rf"\b(?:class|struct)\s+{owner[-1]}\b[^;]*\{{")
    return not any(last in words and is_defined.search(text) for words, text in zip(WORDS, TEXTS))


def missing_flag(flag: str) -> bool:
    return flag not in ALL_TEXT and f'"{flag[2:]}"' not in ALL_TEXT


def problems_of(quoted: str, with_names: bool) -> list[str]:
    problems = []
    for word in quoted.replace(",", " ").split():
        if "/" in word or FILE.fullmatch(word):
            problems += [f"no file {word}"] if missing_path(word) else []
        elif with_names and word.startswith("--"):
            problems += [f"no option {word}"] if missing_flag(word) else []
        elif with_names:
            problems += [f"no source names {name}" for name in NAME.findall(word) if missing_name(name)]
    return problems


def modules_of(plan: str) -> dict[str, set[str]]:
    """The table of modules: `module/` | those that it knows | …"""
    rows = re.findall(r"^\| `(\w+)/` \|([^|]*)\|", plan, re.MULTILINE)
    return {module: {module, *re.findall(r"\w+", known)} for module, known in rows}


problems = []
for document in (FLOOR_PLAN, CONTRIBUTING, ROOT / "README.md"):
    name = document.relative_to(ROOT)
    text = document.read_text()
    problems += [f"{name}: no file {link}" for link in LINK.findall(text)
                 if not link.startswith("http") and not (document.parent / link).exists()]
    if document == ROOT / "README.md":
        continue
    for block in FENCED.findall(text):
        problems += [f"{name}: {problem}" for problem in problems_of(block, False)]
    for quoted in QUOTED.findall(FENCED.sub("", text)):
        problems += [f"{name}: {problem}" for problem in problems_of(quoted, document == FLOOR_PLAN)]
    problems += [f"{name}: no lint {lint}" for lint in re.findall(r"\blint\.(\w+)", text)
                 if not (ROOT / f"tests/lint/{lint}.py").exists()]
for module, known in modules_of(FLOOR_PLAN.read_text()).items():
    if known != MODULES.get(module):
        problems.append(f"src/README.md: {module}/ knows {sorted(MODULES.get(module, {'nothing'}))}")
if missing := set(MODULES) - set(modules_of(FLOOR_PLAN.read_text())):
    problems.append(f"src/README.md: modules without a row: {sorted(missing)}")
report(problems)
