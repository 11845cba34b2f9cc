// A page without a kernel: every picture is drawn by its module on a model that sends nothing; then paper, and the theme.

/** @param {{ header: Header; snapshot: string }} data @returns {Model} */
function stub({ header, snapshot }) {
  const raw = Uint8Array.from(atob(snapshot), (letter) => letter.charCodeAt(0)),
    values = { _header: header, _snapshot: raw, _messages: "[]", _code: "", _selection: "" },
    nothing = () => {};
  return {
    get: (name) => /** @type {Record<string, any>} */ (values)[name],
    set: nothing,
    on: nothing,
    off: nothing,
    send: nothing,
    save_changes: nothing,
  };
}
// What is on the first screen is drawn first; the rest follows as soon as that was seen.
/** @param {Record<string, { render(rendered: Rendered): void }>} modules */
function drawPage(modules) {
  const blocks = /** @type {HTMLElement[]} */ ([
    ...document.querySelectorAll("script[data-drlnb]"),
  ]);
  const placeOf = (/** @type {HTMLElement} */ block) =>
    /** @type {HTMLElement} */ (document.getElementById(block.dataset.drlnb || ""));
  function next() {
    const block = blocks.shift();
    if (!block) {
      document.documentElement.dataset.drawn = "yes";
      return false;
    }
    const data = JSON.parse(block.textContent || "");
    modules[data.header.module].render({ model: stub(data), el: placeOf(block) });
    return true;
  }
  function rest() {
    if (next()) setTimeout(rest);
  }
  while (blocks.length && placeOf(blocks[0]).getBoundingClientRect().top < innerHeight) next();
  requestAnimationFrame(() => setTimeout(rest));
  onPaper(() => {
    while (next());
  });
}
// On paper every canvas is a picture, in light colours; what was there before comes back after.
/** @param {() => void} drawAll */
function onPaper(drawAll) {
  const { dataset } = document.documentElement;
  let pictures = /** @type {[HTMLCanvasElement, HTMLImageElement][]} */ ([]),
    theme = /** @type {string | undefined} */ ("");
  addEventListener("beforeprint", () => {
    drawAll();
    theme = dataset.theme;
    dataset.theme = "light";
    const canvases = /** @type {HTMLCanvasElement[]} */ ([
      ...document.querySelectorAll(".drlnb canvas"),
    ]);
    pictures = canvases.map((canvas) => {
      canvas.draw?.();
      const picture = new Image(canvas.clientWidth);
      picture.className = "drlnb-print";
      picture.alt = canvas.getAttribute("aria-label") || "";
      picture.src = canvas.toDataURL("image/png");
      canvas.after(picture);
      canvas.style.display = "none";
      return [canvas, picture];
    });
  });
  addEventListener("afterprint", () => {
    if (theme) dataset.theme = theme;
    else delete dataset.theme;
    for (const [canvas, picture] of pictures) {
      picture.remove();
      canvas.style.display = "";
      canvas.draw?.();
    }
    pictures = [];
  });
}
// The button goes through the themes: the reader's system's, light, dark.
function themeButton() {
  const ways = ["auto", "light", "dark"],
    button = /** @type {HTMLElement} */ (document.getElementById("theme")),
    { dataset } = document.documentElement,
    now = () => dataset.theme || "auto",
    show = () => {
      button.textContent = `Theme: ${now()}`;
    };
  button.addEventListener("click", () => {
    const next = ways[(ways.indexOf(now()) + 1) % 3];
    if (next === "auto") delete dataset.theme;
    else dataset.theme = next;
    show();
  });
  show();
}
