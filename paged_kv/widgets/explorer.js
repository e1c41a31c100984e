const root = this.closest(".pkv");
const spans = (el) => el.dataset.b.split(" ").filter(Boolean)
  .map((part) => part.split("-").map(Number)).map(([a, z = a]) => [a, z]);

// A block under the pointer is outlined wherever it stands, a name with all its blocks.
const link = (el) => {
  root.querySelectorAll(".lk").forEach((e) => e.classList.remove("lk"));
  const hint = root.querySelector(".pool:not(.cells) .hint");
  if (hint) hint.textContent = hint.dataset.own ??= hint.textContent;
  if (!el) return;
  const wanted = new Set();
  for (const [a, z] of spans(el)) for (let b = a; b <= z; b++) wanted.add(b);
  const row = el.matches(".nm") && el.closest("tr");
  for (const other of root.querySelectorAll("[data-b]")) {
    if (row && !other.closest(".pool") && other.closest("tr") !== row) continue;
    const meets = spans(other).some(([a, z]) => {
      for (let b = a; b <= z; b++) if (wanted.has(b)) return true;
    });
    if (meets) other.classList.add("lk");
  }
  if (hint && el.closest(".pool"))
    hint.textContent = `${el.dataset.b.replace("-", "…")}: ${el.innerText || el.textContent}`;
};
root.addEventListener("mouseover", (e) => link(e.target.closest("[data-b]")));
root.addEventListener("focusin", (e) => link(e.target.closest("[data-b]")));
root.addEventListener("mouseleave", () => link(null));

// The pool is one tab stop; arrow keys walk it.
root.addEventListener("keydown", (e) => {
  const here = e.target.closest(".pool .b");
  const move = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[e.key];
  if (!here || !move) return;
  e.preventDefault();
  const row = here.closest("tr");
  const rows = [...row.parentNode.rows];
  let cells = [...row.querySelectorAll(".b")];
  let next = cells[cells.indexOf(here) + move[1]];
  if (move[0]) {
    const box = here.getBoundingClientRect();
    const x = box.left + Math.min(box.width / 2, 4);
    cells = [...(rows[rows.indexOf(row) + move[0]]?.querySelectorAll(".b") ?? [])];
    next = cells.findLast((cell) => cell.getBoundingClientRect().left <= x);
  }
  if (!next) return;
  here.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
});

// In the widget: stops can be clicked, and what happened is said aloud.
const slider = () => root.querySelector(".noUi-target")?.noUiSlider;
root.addEventListener("click", (e) => {
  const stop = e.target.closest("li[data-k]");
  if (stop) slider()?.set(stop.dataset.k);
});
const live = document.createElement("div");
live.className = "v";
live.setAttribute("aria-live", "polite");
root.append(live);
const say = () => {
  const now = root.querySelector(".now p")?.textContent;
  const words = root.querySelector("[data-play]")?.dataset;
  root.querySelectorAll(".widget-play button").forEach((button, i) => {
    button.setAttribute("aria-label", i ? words.stop : words.play);
  });
  for (const own of root.querySelectorAll(".pool, .noUi-handle"))
    own.dataset.lmSuppressShortcuts = "true"; // else JupyterLab takes the arrow keys
  for (const handle of root.querySelectorAll(".noUi-handle")) {
    const slider = handle.closest(".widget-slider");
    const label = slider.querySelector(".widget-label");
    const readout = slider.querySelector(".widget-readout");
    const stops = root.querySelector("li[data-k]")?.closest("ol").ariaLabel;
    const name = label?.textContent || stops || label?.title; // a title may be "null"
    const value = readout?.offsetParent ? readout.textContent : now;
    if (name) handle.setAttribute("aria-label", name);
    if (value) handle.setAttribute("aria-valuetext", value);
  }
  if (now && root.querySelector(".noUi-handle") && live.textContent !== now)
    live.textContent = now;
};
new MutationObserver(say).observe(root, { childList: true, subtree: true });
say();
