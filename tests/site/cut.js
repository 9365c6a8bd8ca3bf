() => {
  const name = (e) => `${e.tagName.toLowerCase()}.${String(e.className).split(" ").join(".")} ` +
    (e.closest("[id]")?.id ?? "") + `: ${e.textContent.trim().slice(0, 60)}`;
  const found = [];
  const article = document.querySelector("article");
  const scrolls = (e) => ["auto", "scroll"].includes(getComputedStyle(e).overflowX);
  // What is wider than what shows it, and no box on the way lets a reader scroll.
  for (const e of article.querySelectorAll(".katex-html .base, pre code, pre > span, td, th, .eqno, svg text, p, li, code")) {
    const box = e.getBoundingClientRect();
    if (!box.width || getComputedStyle(e).visibility === "hidden") continue;
    for (let a = e.parentElement; a && a !== document.documentElement; a = a.parentElement) {
      const style = getComputedStyle(a), frame = a.getBoundingClientRect();
      if (style.display === "inline" || style.display === "contents") continue;
      if (scrolls(a)) break;
      const hides = style.overflowX !== "visible" || a === document.body;
      if (hides && (box.right > frame.right + 1.5 || box.left < frame.left - 1.5)) { found.push(`cut: ${name(e)}`); break; }
    }
  }
  if (document.documentElement.scrollWidth > innerWidth) found.push("the page scrolls sideways");
  if (innerWidth >= 1280) for (const pre of article.querySelectorAll(".cell_input pre"))
    if (pre.scrollWidth > pre.clientWidth + 1) found.push(`code wider than its box: ${pre.textContent.trim().slice(0, 60)}`);
  for (const number of article.querySelectorAll(".eqno")) {
    const formula = number.parentElement.querySelector(".katex-display");
    const [a, b] = [number, formula].map((e) => e.getBoundingClientRect());
    const overlap = Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 1;
    if (overlap) found.push(`number over formula: ${number.textContent}`);
  }
  for (const image of article.querySelectorAll("picture img")) {
    const narrow = matchMedia("(max-width: 500px)").matches;
    const drawn = narrow ? image.parentElement.querySelector("source") : image;
    const letters = drawn.dataset.letters * image.getBoundingClientRect().width / drawn.getAttribute("width");
    if (letters < 9) found.push(`letters of ${letters.toFixed(1)} px: ${image.alt.slice(0, 60)}`);
  }
  return found;
}
