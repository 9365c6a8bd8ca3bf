// Which chapters has the reader read?  Kept in this browser only, under one key.  (samefn.pages.display.reading_map)
for (const map of document.querySelectorAll(".reading-map")) {
  const KEY = "same-function-read";
  const boxes = [...map.querySelectorAll("input")];
  const count = map.querySelector(".reading-count");
  const stored = () => {
    try { return new Set(JSON.parse(localStorage.getItem(KEY) ?? "[]")); } catch { return new Set(); }
  };
  const show = (read) => {
    boxes.forEach((box) => {
      box.checked = read.has(box.dataset.page);
      box.closest("li").classList.toggle("read", box.checked);
    });
    const number = boxes.filter((box) => box.checked).length;
    count.textContent = `You have read ${number} of ${boxes.length} chapters. This is kept in your browser only.`;
  };
  boxes.forEach((box) => {
    box.hidden = false;
    box.addEventListener("change", () => {
      const read = stored();
      if (box.checked) read.add(box.dataset.page); else read.delete(box.dataset.page);
      try { localStorage.setItem(KEY, JSON.stringify([...read])); } catch { /* a browser that keeps nothing */ }
      show(read);
    });
  });
  show(stored());
}
