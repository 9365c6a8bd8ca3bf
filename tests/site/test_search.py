"""Twenty things that readers look for, and where they must be led: to the place, not only to the page."""

import json
import re
import subprocess

import pytest

from book_browser import program
from book_search import plain, split_title
from shared import ROOT

# query: part of an address that must be among the first three
QUERIES = {
    "Theorem 6.1": "relu.html#relu-theorem",
    "Exercise 6.4": "relu.html#relu-exercise-",
    "trace test": "generic.html#generic-trace",
    "SwiGLU": "gated",
    "P_S": "P_S",
    "adjunction definition": "adjunction.html#adjunction-definition",
    "pre-norm": "norm",
    "certificate": "transformer.html#transformer-certificate",
    "absorb": "question.html#question-absorb",
    "latent_actions": "latent_actions",
    "hyper-connections": "reduction.html",
    "measure zero": "zero",
    "Sussmann": "identifiable.html#identifiable-sussmann",
    "head permutation": "head",
    "equivariance error": "equivariance",
    "signed permutation": "sign",
    "MiniLM": "transformer.html",
    "tanh form of GELU": "gelu",
    "cloned unit": "submodels.html",
    "homomorphism": "homomorphism",
}
FIND = """
const { default: MiniSearch } = await import(process.argv[1]);
globalThis.MiniSearch = MiniSearch; globalThis.window = {};
const { readFileSync } = await import("node:fs");
const load = (path) => (0, eval)(
  readFileSync(path, "utf8").replace(/^const BookSearch/m, "globalThis.BookSearch"));
load(process.argv[2]); load(process.argv[3]);
const engine = BookSearch.index(window.bookRecords);
const queries = JSON.parse(readFileSync(0, "utf8"));
const found = queries.map((query) => BookSearch.find(engine, query).slice(0, 3).map((hit) =>
    `${hit.url} ${hit.label} ${hit.title}`));
process.stdout.write(JSON.stringify(found));
"""


@pytest.fixture(scope="module")
def found(site):
    library = ROOT / "book/_browser/node_modules/minisearch/dist/es/index.js"
    files = [library, site / "_static/search-records.js", ROOT / "book/_static/search.js"]
    command = [program("node"), "--input-type=module", "--eval", FIND, *files]
    run = subprocess.run(command, input=json.dumps([*QUERIES]), capture_output=True, text=True, check=True)
    return dict(zip(QUERIES, json.loads(run.stdout)))


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_leads_to_its_place(found, query):
    assert any(QUERIES[query].lower() in hit.lower() for hit in found[query]), found[query]


def test_every_record_leads_to_a_place(site):
    records = (site / "_static/search-records.js").read_text("utf8")
    records = json.loads(records.removeprefix("window.bookRecords=").rstrip(";\n"))
    pages = {}
    for record in records:
        page, _, place = record["url"].partition("#")
        text = pages.setdefault(page, (site / page).read_text("utf8"))
        assert not place or f'id="{place}"' in text, record["url"]
        assert not re.search(r"\\(mathrm|operatorname|frac|sum|begin)\b", record["text"] + record["title"])


@pytest.mark.parametrize(
    "tex, text",
    [(r"W_\up x", "W_up x"), (r"P_S = -I", "P_S = -I"), (r"a_iu_i\T", "a_iu_iᵀ"), (r"\R^{d}", "R^d")],
)
def test_a_formula_is_one_line_of_text(tex, text):
    assert plain(tex) == text


def test_titles_are_split():
    assert split_title("Theorem 6.1 (Absorption)") == ("Theorem 6.1", "Absorption")
    assert split_title("6.3.2. Step 2") == ("6.3.2", "Step 2")
    assert split_title("Summary") == ("", "Summary")
