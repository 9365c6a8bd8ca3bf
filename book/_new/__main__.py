"""``make new-chapter PART=skip NAME=foo``: a chapter, its claim and its false worlds from the templates.

They pass every test as they stand, except the one that looks for what is still to be written (TODO).
"""

import keyword
import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
NEXT = """\
{page}.md and {claim} are there, listed in _toc.yml and in samefn.claims.MODULES.  Now
1. write the chapter and its claim (anatomy: CONTRIBUTING.md); `make page P={part}/{name}` builds the page
2. give the claim its id in the page, in the claim, in its false worlds and in MODULES: {id} for now
3. what page, claim and tests share goes to lib/samefn/{part}/{name}.py, its tests to tests/{part}/
4. enter new symbols in book/notation.md, the result in the part's summary and in CHANGELOG.md
"""


def insert_after_last(path, pattern, line):
    """Put ``line`` after the last line of the file that matches, with the same indentation."""
    lines = path.read_text("utf8").splitlines(keepends=True)
    last = max(i for i, text in enumerate(lines) if re.match(pattern, text))
    indent = re.match(r"\s*", lines[last])[0]
    lines.insert(last + 1, f"{indent}{line}\n")
    path.write_text("".join(lines), "utf8")


def problem(root, part, name):
    """What is wrong with the request, or None."""
    parts = sorted(p.name for p in (root / "lib/samefn/claims").iterdir() if (p / "__init__.py").exists())
    if part not in parts:
        return f"PART must be one of {', '.join(parts)}, got {part!r}"
    if not re.fullmatch("[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        return f"NAME must be a module's name in lower case, got {name!r}"
    if (root / "book" / part / f"{name}.md").exists():
        return f"book/{part}/{name}.md exists"
    return None


def create(root, part, name):
    """Write both files and both entries below ``root``; returns what is left to do."""
    claim_id = f"X-{name.upper()}"
    page, claim = f"book/{part}/{name}", f"lib/samefn/claims/{part}/{name}.py"
    worlds = f"tests/claims/sabotages/{part}/{name}.py"
    for template, target in (("chapter.md", f"{page}.md"), ("claim.py", claim), ("sabotage.py", worlds)):
        text = (HERE / template).read_text("utf8")
        for mark, value in (("__PART__", part), ("__NAME__", name), ("__ID__", claim_id)):
            text = text.replace(mark, value)
        (root / target).write_text(text, "utf8")
    insert_after_last(root / "_toc.yml", rf"\s*- file: book/{part}/", f"- file: {page}")
    registry = root / "lib/samefn/claims/__init__.py"
    insert_after_last(registry, rf'\s*"[^"]+": "{part}\.', f'"{claim_id}": "{part}.{name}",')
    return NEXT.format(page=page, claim=claim, part=part, name=name, id=claim_id)


def main(part="", name=""):
    wrong = problem(ROOT, part, name)
    if wrong:
        sys.exit(f"make new-chapter PART=… NAME=…: {wrong}")
    print(create(ROOT, part, name), end="")


if __name__ == "__main__":
    main(*sys.argv[1:])
