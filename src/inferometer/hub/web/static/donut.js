// Shares as a ring: the kinds of op beside their bars, in the same colours.
import { colour, hideTip, showTip } from "./dom.js";

const SVG = "http://www.w3.org/2000/svg";
const MORE = ["#56b4e9", "#6b5b95", "#8c8c00", "#7a3600", "#005c43", "#7d3a5f"];
const FEW = 0.004; // less of the whole than this is not seen

// A colour for each name, in the order of their sizes; what is in no layer is grey.
export function inks(names) {
  const known = ["cpu", "npu", "gpu", "dsp", "tpu"].map(colour).concat(MORE);
  const named = names.filter((name) => name !== "unattributed");
  return (name) => (name === "unattributed" ? colour("rest") : known[named.indexOf(name) % known.length]);
}

function node(tag, attributes) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

function point(share, radius) {
  const angle = 2 * Math.PI * share - Math.PI / 2;
  return `${(radius * Math.cos(angle)).toFixed(2)} ${(radius * Math.sin(angle)).toFixed(2)}`;
}

function arc(from, to) {
  const large = to - from > 0.5 ? 1 : 0;
  return `M ${point(from, 48)} A 48 48 0 ${large} 1 ${point(to, 48)} L ${point(to, 30)} A 30 30 0 ${large} 0 ${point(from, 30)} Z`;
}

export function drawDonut(box, rows, written, ink, chosen) {
  const whole = rows.reduce((total, row) => total + row.value, 0) || 1;
  const ring = node("svg", { viewBox: "-50 -50 100 100", role: "img", "aria-label": rows.map((row) => `${row.name} ${(100 * row.value / whole).toFixed(1)} %`).join(", ") });
  let from = 0;
  for (const row of rows) {
    const part = row.value / whole;
    if (part >= FEW) {
      const piece = node("path", { d: arc(from, from + Math.min(part, 0.9999)), fill: ink(row.name), "data-name": row.name });
      piece.addEventListener("mousemove", (event) => showTip(event, row.name, [["", written(row.value)], ["share", `${(100 * part).toFixed(1)} %`]]));
      piece.addEventListener("mouseleave", hideTip);
      piece.addEventListener("click", () => chosen(row.name));
      ring.append(piece);
    }
    from += part;
  }
  const text = node("text", { "text-anchor": "middle", dy: ".35em" });
  text.textContent = written(whole);
  ring.append(text);
  box.replaceChildren(ring);
}
