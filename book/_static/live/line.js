// A ReLU block on the line and the two units that absorb its skip.  (samefn.pages.live.line)
const LiveLine = (() => {
  const relu = (z) => Math.max(z, 0);
  const block = (slopes, weights, x) => slopes.reduce((sum, u, i) => sum + weights[i] * relu(u * x), 0);
  // Slopes of x + B(x) to the right and to the left of 0: those of the two units that compute the same.
  const sides = (slopes, weights) => [1, -1].map((x) => x * (x + block(slopes, weights, x)));
  const two = ([right, left], x) => right * relu(x) - left * relu(-x);
  return { block, sides, two };
})();

if (typeof document !== "undefined") for (const figure of document.querySelectorAll(".live-line")) {
  const data = JSON.parse(figure.dataset.live);
  const inputs = [...figure.querySelectorAll("input")];
  const values = [...figure.querySelectorAll("label output")];
  const result = figure.querySelector("p output");
  const curve = (name, f) => {
    const points = [-data.reach, 0, data.reach].map((x) => {
      const y = Math.max(-data.height, Math.min(data.height, f(x)));
      return `${data.scale * x},${(-data.scale * data.reach * y) / data.height}`;
    });
    figure.querySelector(`.${name}`).setAttribute("points", points.join(" "));
  };
  const minus = (number) => number.toFixed(2).replace("-", "−");
  const show = () => {
    const weights = inputs.map((input) => Number(input.value));
    const [right, left] = LiveLine.sides(data.slopes, weights);
    curve("block", (x) => LiveLine.block(data.slopes, weights, x));
    curve("skip", (x) => x + LiveLine.block(data.slopes, weights, x));
    curve("right", (x) => right * Math.max(x, 0));
    curve("left", (x) => -left * Math.max(-x, 0));
    values.forEach((value, i) => { value.textContent = minus(weights[i]); });
    inputs.forEach((input, i) => input.setAttribute("aria-valuetext", minus(weights[i])));
    result.textContent = `With the skip, the slope is ${minus(left)} on the left and ${minus(right)} on the right. ` +
      "Two units with these slopes compute the same function.";
  };
  for (const input of inputs) { input.disabled = false; input.addEventListener("input", show); }
}
if (typeof module !== "undefined") module.exports = LiveLine;
