"""The notation page: a symbol first occurs where the page says, and no letter of two chapters is missing."""

import re

import pytest
import yaml

from shared import ROOT

BOOK = ROOT / "book"
GREEK = re.compile(
    r"\\(?:alpha|beta|gamma|delta|(?:var)?epsilon|eta|theta|kappa|lambda|mu|nu|pi|rho|sigma|tau"
    r"|varphi|chi|psi|omega|ell|Gamma|Delta|Theta|Lambda|Phi|Psi|Omega)"
)
WORDS = re.compile(
    r"\\(?:text|textbf|mathrm|mathsf|operatorname|label|begin|end|array)\*?\s*(?:\{[^{}]*\}|[A-Z])"
)
SPACING = re.compile(r"\\[,;!: ]|\\q?quad|\\[bB]igg?[lrm]?(?![A-Za-z])|\\left|\\right")
ACCENTS = {"_", r"\mathrm", r"\bar", r"\tilde", r"\hat", r"\mathbf", r"\mathcal"}


def formulas(text):
    """What stands between dollars, outside of code."""
    text = re.sub(r"^ *(`{3,}|---\n).*?^ *\1", "", text, flags=re.S | re.M)
    text = re.sub(r"`[^`\n]*`", "", text)
    return [a or b for a, b in re.findall(r"\$\$(.*?)\$\$|\$([^$]+)\$", text, re.S)]


def tokens(formula):
    """The formula as a list of TeX commands and characters, without spaces."""
    return re.findall(r"\\[A-Za-z]+|\\.|\S", SPACING.sub(" ", formula))


def letters(formula):
    """The letters of a formula, Latin and Greek; words in it do not count."""
    found = tokens(WORDS.sub(" ", formula))
    return {t for t in found if GREEK.fullmatch(t) or (len(t) == 1 and t.isalpha())}


def occurs(symbol, formula):
    """Whether the tokens of ``symbol`` stand in the formula, and are not part of a longer symbol."""
    words = "\\mathrm" in symbol
    wanted, found = tokens(symbol), ["", *tokens(formula if words else WORDS.sub(" ", formula)), ""]
    length = len(wanted)
    return any(
        found[i : i + length] == wanted
        and found[i - 1] not in ACCENTS
        and found[i + length] not in ("_", "'")
        for i in range(1, len(found) - length)
    )


def chapters():
    """The formulas of each chapter, in the order of the book."""
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text("utf8"))
    files = [entry["file"].removeprefix("book/") for part in toc["parts"] for entry in part["chapters"]]
    return {name: formulas((BOOK / f"{name}.md").read_text("utf8")) for name in files if "/" in name}


def rows():
    """The stem of each symbol of the tables, and the chapter that the page names."""
    for line in (BOOK / "notation.md").read_text("utf8").splitlines():
        if line.startswith("| $"):
            cells = re.split(r"(?<!\\)\|", line)
            for symbol in formulas(cells[1]):
                stem = re.split(r"=|\\in\b|\\mapsto", symbol)[0].strip()
                yield pytest.param(stem, re.search(r"\{chapter\}`(.*?)`", cells[3])[1], id=stem)


CHAPTERS = chapters()


@pytest.mark.parametrize("symbol, chapter", list(rows()))
def test_a_symbol_is_first_used_in_its_part_where_the_page_says(symbol, chapter):
    part = chapter.split("/")[0]
    using = [n for n, math in CHAPTERS.items() if any(occurs(symbol, f) for f in math) and n.startswith(part)]
    assert using[:1] == [chapter]


def test_every_letter_that_two_chapters_use_is_on_the_page():
    listed = set().union(*map(letters, formulas((BOOK / "notation.md").read_text("utf8"))))
    used = [letter for math in CHAPTERS.values() for letter in set().union(*map(letters, math))]
    assert not {letter for letter in used if used.count(letter) > 1} - listed


def test_a_longer_symbol_is_another_one():
    assert occurs("k", r"\lambda^k x") and not occurs("k", r"k_i + x_k")
    assert occurs(r"P_S", r"2c\,P_S = -M") and not occurs("S", r"P_S")
    assert occurs(r"b_{\mathrm{out}}", r"B + b_{\mathrm{out}}") and not occurs("T", r"W^{-\mathsf T}")
    assert letters(r"\operatorname{sigmoid}(\omega t) \in \R") == {r"\omega", "t"}
