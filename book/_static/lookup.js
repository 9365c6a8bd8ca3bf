// Filters the rows of a table by what is typed; the table is complete without.  (book/lookup.md)
for (const form of document.querySelectorAll(".lookup")) {
  const [input, count] = ["input", "output"].map((part) => form.querySelector(part));
  const rows = [...document.querySelectorAll(".lookup-table tbody tr")];
  const plain = (text) => text.toLowerCase().normalize("NFKD").replace(/[^a-z0-9 ]/g, "");
  const texts = rows.map((row) => plain(row.textContent));
  const show = () => {
    const words = plain(input.value).split(" ").filter(Boolean);
    const hits = rows.filter((row, i) => (row.hidden = !words.every((word) => texts[i].includes(word)), !row.hidden));
    count.textContent = !words.length ? "" : hits.length ? `${hits.length} of ${rows.length} kinds of blocks` :
      "Not in the table. Which activation does it use, and has it a gate? Look that up.";
  };
  form.hidden = false;
  input.addEventListener("input", show);
}
