// Four ReLU units in the plane: which of them, turned round, make up for the skip?  (samefn.pages.live.turn)
const LiveTurn = (() => {
  const relu = (z) => Math.max(z, 0);
  // The block with the rows of the turned units negated, at the point x.
  const block = (up, down, turned, x) => {
    const y = down.map(() => 0);
    up.forEach((u, i) => {
      const z = relu((turned[i] ? -1 : 1) * u.reduce((sum, w, k) => sum + w * x[k], 0));
      down.forEach((row, k) => { y[k] += row[i] * z; });
    });
    return y;
  };
  // Largest length of x + B(x) - B'(x) on a grid of size × size points of the square.
  const difference = ({ up, down, size, reach }, turned) => {
    const none = turned.map(() => false);
    let largest = 0;
    for (let r = 0; r < size; r++) for (let c = 0; c < size; c++) {
      const x = [c, r].map((k) => -reach + (2 * reach * k) / (size - 1));
      const [kept, free] = [block(up, down, none, x), block(up, down, turned, x)];
      largest = Math.max(largest, Math.hypot(...x.map((w, k) => w + kept[k] - free[k])));
    }
    return largest;
  };
  return { block, difference };
})();

if (typeof document !== "undefined") for (const figure of document.querySelectorAll(".live-turn")) {
  const data = JSON.parse(figure.dataset.live);
  const turned = data.up.map(() => false);
  const output = figure.querySelector("output");
  const picture = figure.querySelector("image.free");
  const arrows = [...figure.querySelectorAll("g.arrow")];
  const buttons = [...figure.querySelectorAll("button")];
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = data.size;
  const colour = (value) => {  // white to blue, as the first state was drawn
    const share = Math.min(1, Math.max(0, (value + data.range) / (2 * data.range)));
    return data.colours[0].map((from, k) => Math.round(from + share * (data.colours[1][k] - from)));
  };
  const paint = () => {
    const context = canvas.getContext("2d"), image = context.createImageData(data.size, data.size);
    for (let r = 0; r < data.size; r++) for (let c = 0; c < data.size; c++) {
      const x = [c, data.size - 1 - r].map((k) => -data.reach + (2 * data.reach * k) / (data.size - 1));
      image.data.set([...colour(LiveTurn.block(data.up, data.down, turned, x)[0]), 255], 4 * (r * data.size + c));
    }
    context.putImageData(image, 0, 0);
    picture.setAttribute("href", canvas.toDataURL());
  };
  const show = () => {
    paint();
    arrows.forEach((arrow, i) => arrow.classList.toggle("turned", turned[i]));
    buttons.forEach((button, i) => button.setAttribute("aria-pressed", String(turned[i])));
    const gap = LiveTurn.difference(data, turned);
    const units = turned.flatMap((is, i) => (is ? [i + 1] : []));
    const which = units.length ? `Turned: unit${units.length > 1 ? "s" : ""} ${units.join(", ")}. ` : "No unit is turned. ";
    // The difference is linear, (I + P_S)x: 0 on the grid, which spans the plane, it is 0 everywhere.
    output.textContent = `${which}Largest difference on the grid: ` +
      (gap < 1e-9 ? "0. The two functions are equal." : `${gap.toFixed(2)}.`);
    figure.classList.toggle("solved", gap < 1e-9);
    history.replaceState(null, "", units.length ? `#turned=${units.join("-")}` : location.pathname + location.search);
  };
  const turn = (i) => { turned[i] = !turned[i]; show(); };
  buttons.forEach((button, i) => { button.disabled = false; button.addEventListener("click", () => turn(i)); });
  arrows.forEach((arrow, i) => arrow.addEventListener("click", () => turn(i)));
  const start = /^#turned=([\d-]+)$/.exec(location.hash);
  if (start) { for (const unit of start[1].split("-")) if (unit - 1 in turned) turned[unit - 1] = true; show(); }
}
if (typeof module !== "undefined") module.exports = LiveTurn;
