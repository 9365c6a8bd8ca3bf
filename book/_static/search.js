// Search by section, statement, exercise and term: the records come from book/_ext/book_search.py.
const BookSearch = (() => {
  // "latent_actions" is found as a whole and by its parts, "6.1" and "P_S" as a whole.
  const words = (text) => {
    const whole = text.toLowerCase().normalize("NFC").match(/[\p{L}\p{N}²]+(?:[._^'’-][\p{L}\p{N}]+)*/gu) ?? [];
    return whole.flatMap((word) => {
      const parts = word.split(/[._^'’-]/).filter((part) => part.length > 2 && !/^\d+$/.test(part));
      return parts.length > 1 || (parts.length && parts[0] !== word) ? [word, ...parts] : [word];
    });
  };
  // The plural and the singular of a word are one; nothing more is cut off.
  const stem = (word) => (/^[\p{L}]{4,}s$/u.test(word) && !/ss$/.test(word) ? word.replace(/ies$/, "y").replace(/s$/, "") : word);
  const index = (records) => {
    const engine = new MiniSearch({
      idField: "url",
      fields: ["label", "title", "chapter", "text"],
      storeFields: ["url", "label", "title", "chapter", "text", "kind"],
      tokenize: words,
      processTerm: stem,
    });
    engine.addAll(records);
    return engine;
  };
  const KINDS = { term: 3, statement: 2, chapter: 2, code: 0.9, section: 1.3, exercise: 1, figure: 0.8, entry: 0.3 };
  const find = (engine, query) => {
    const options = {
      boost: { label: 6, title: 5, chapter: 1.5 },
      boostDocument: (id, term, stored) => KINDS[stored.kind],
      prefix: (term) => term.length > 3 && !/\d/.test(term),
      fuzzy: (term) => (term.length > 5 && !/\d/.test(term) ? 0.15 : false),
      weights: { fuzzy: 0.15, prefix: 0.35 },
    };
    const all = engine.search(query, { ...options, combineWith: "AND" });
    return all.length ? all : engine.search(query, { ...options, combineWith: "OR" });
  };
  const around = (text, terms, length = 220) => {
    const low = text.toLowerCase();
    const hits = terms.map((term) => low.indexOf(term)).filter((at) => at >= 0);
    const start = Math.max(0, (hits.length ? Math.min(...hits) : 0) - 60);
    return (start ? "… " : "") + text.slice(start, start + length) + (start + length < text.length ? " …" : "");
  };
  return { words, stem, index, find, around };
})();

if (typeof document !== "undefined" && document.getElementById("book-search-words")) {
  const [input, count, list] =
    ["words", "count", "results"].map((part) => document.getElementById(`book-search-${part}`));
  const engine = BookSearch.index(window.bookRecords);
  const item = (hit) => {
    const [line, link, place, text] = ["li", "a", "span", "p"].map((tag) => document.createElement(tag));
    link.href = hit.url;
    link.textContent = [hit.label, hit.title].filter(Boolean).join(". ") || hit.chapter;
    place.className = "search-place";
    if (hit.chapter !== hit.title) place.textContent = ` ${hit.chapter}`;
    text.textContent = BookSearch.around(hit.text, hit.terms);
    line.append(link, place, text);
    return line;
  };
  const show = () => {
    const query = input.value.trim();
    const hits = query ? BookSearch.find(engine, query) : [];
    count.textContent = !query ? "" : hits.length > 40 ? `${hits.length} places, the best 40:` : `${hits.length} places`;
    list.replaceChildren(...hits.slice(0, 40).map(item));
    history.replaceState(null, "", query ? `?q=${encodeURIComponent(query)}` : location.pathname);
  };
  input.value = new URLSearchParams(location.search).get("q") ?? "";
  input.addEventListener("input", show);
  input.form.addEventListener("submit", (event) => { event.preventDefault(); show(); });
  show();
  input.focus();
}
if (typeof module !== "undefined") module.exports = BookSearch;
