// Is a filter equivariant?  Change its nine weights and move the picture.  (samefn.pages.live.filter)
const LiveFilter = (() => {
  const make = (n, f) => Array.from({ length: n }, (_, r) => Array.from({ length: n }, (_, c) => f(r, c)));
  // Cross-correlation on a picture that is closed up at its edges.
  const convolve = (image, kernel) => {
    const n = image.length;
    return make(n, (r, c) => kernel.reduce((sum, row, i) => sum + row.reduce((part, weight, j) =>
      part + weight * image[(r + i - 1 + n) % n][(c + j - 1 + n) % n], 0), 0));
  };
  // An element of D4: a number of quarter turns, counter-clockwise, after a mirror left-right or not.
  const move = (image, { turns, mirror }) => {
    let moved = mirror ? image.map((row) => [...row].reverse()) : image;
    for (let k = 0; k < turns; k++) {
      const before = moved, n = before.length;
      moved = make(n, (r, c) => before[c][n - 1 - r]);
    }
    return moved;
  };
  const apart = (one, other) => Math.max(...one.flatMap((row, r) => row.map((v, c) => Math.abs(v - other[r][c]))));
  const ELEMENTS = [false, true].flatMap((mirror) => [0, 1, 2, 3].map((turns) => ({ turns, mirror })));
  const misses = (image, kernel) =>
    ELEMENTS.map((g) => apart(convolve(move(image, g), kernel), move(convolve(image, kernel), g)));
  return { convolve, move, misses, ELEMENTS };
})();

if (typeof document !== "undefined") for (const figure of document.querySelectorAll(".live-filter")) {
  const data = JSON.parse(figure.dataset.live);
  const kernel = data.kernel.map((row) => [...row]);
  const weights = [...figure.querySelectorAll("button.weight")];
  const choose = figure.querySelector("select");
  const result = figure.querySelector("p output");
  const paint = (name, image) => {
    const most = Math.max(1e-9, ...image.flat().map(Math.abs));
    const cells = figure.querySelectorAll(`.${name} rect`);
    image.flat().forEach((value, i) => {
      cells[i].style.fill = value < 0 ? "#D55E00" : "#0072B2";
      cells[i].style.fillOpacity = Math.abs(value) / most;
    });
  };
  const show = () => {
    const g = LiveFilter.ELEMENTS[choose.value];
    paint("input", LiveFilter.move(data.image, g));
    paint("moved-first", LiveFilter.convolve(LiveFilter.move(data.image, g), kernel));
    paint("moved-last", LiveFilter.move(LiveFilter.convolve(data.image, kernel), g));
    weights.forEach((button, i) => {
      const value = kernel[Math.floor(i / 3)][i % 3];
      button.textContent = String(value).replace("-", "−");
      button.setAttribute("aria-label", `weight in row ${Math.floor(i / 3) + 1}, column ${(i % 3) + 1}: ${value}`);
    });
    const misses = LiveFilter.misses(data.image, kernel);
    const kept = misses.filter((miss) => miss < 1e-9).length;
    const here = misses[choose.value];
    result.textContent = (here < 1e-9 ? "f(gx) = g f(x) for this picture and this g. " :
      `f(gx) and g f(x) differ by up to ${here.toFixed(1)}. `) + `They agree for ${kept} of the 8 elements of D₄.`;
  };
  weights.forEach((button, i) => {
    button.disabled = false;
    button.addEventListener("click", () => {
      const [r, c] = [Math.floor(i / 3), i % 3];
      kernel[r][c] = kernel[r][c] === 2 ? -1 : kernel[r][c] + 1;
      show();
    });
  });
  choose.disabled = false;
  choose.addEventListener("change", show);
}
if (typeof module !== "undefined") module.exports = LiveFilter;
