// Bars with a name, a length and a number: kinds of op, units, memory.
import { element } from "./dom.js";

export function drawBars(box, rows, written, fill) {
  const whole = rows.reduce((total, row) => total + row.value, 0) || 1;
  const most = Math.max(...rows.map((row) => row.value), 1e-30);
  box.replaceChildren(...rows.map((row) => {
    const bar = element("div", { class: "fill" });
    bar.style.width = `${100 * row.value / most}%`;
    const ink = fill ? fill(row.name) : null;
    if (ink) bar.style.background = ink;
    return element("div", { class: "row", "data-name": row.name, title: row.title || row.name, role: "button", tabindex: "0", onkeydown: (event) => { if (event.key === "Enter") event.currentTarget.click(); } },
      element("span", { class: "name" }, row.name), element("span", { class: "track" }, bar),
      element("span", { class: "number" }, written(row.value)), element("span", { class: "number" }, `${(100 * row.value / whole).toFixed(1)} %`));
  }));
}
