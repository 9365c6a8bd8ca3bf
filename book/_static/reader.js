// What a page needs of scripts, for all else is there without.
// A slider over pictures: a range input, and files that are loaded when it is touched.
const phone = matchMedia("(max-width: 500px)");
for (const slider of document.querySelectorAll(".frame-slider")) {
  const frames = JSON.parse(slider.dataset.frames);
  const [control, input, output, source, image] =
    [".frame-control", "input", "output", "source", "img"].map((part) => slider.querySelector(part));
  const loaded = [];
  const load = () => {
    while (loaded.length < frames.length) {
      const picture = new Image();
      picture.src = frames[loaded.length][phone.matches ? "narrow" : "wide"];
      loaded.push(picture);
    }
  };
  const show = () => {
    const frame = frames[input.value];
    source.srcset = frame.narrow;
    image.src = frame.wide;
    image.alt = frame.alt;
    output.value = frame.value;
    input.setAttribute("aria-valuetext", frame.value);
  };
  for (const touch of ["pointerenter", "pointerdown", "focusin"]) control.addEventListener(touch, load, { once: true });
  input.addEventListener("input", show);
  control.hidden = false;
}

// Who reads by keyboard must be able to scroll what is too wide: such a box is a tab stop, and no other.
const wide = [...document.querySelectorAll(".katex-display, .claim-table, .pst-scrollable-table-container, pre")];
const watch = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    if (target.scrollWidth > target.clientWidth + 1) target.tabIndex = 0;
    else target.removeAttribute("tabindex");
  }
});
for (const box of wide) watch.observe(box);
