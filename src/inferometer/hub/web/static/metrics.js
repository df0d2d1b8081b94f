// Metrics of a run over their steps: a small line for each, and its last value.
import { colour, element } from "./dom.js";
import { digitsOf, quantity } from "./format.js";

const UNITS = [[/_s$/, "s"], [/_bytes$/, "B"], [/_j$/, "J"], [/_w$/, "W"]];

export function written(name, value) {
  const known = UNITS.find(([ending]) => ending.test(name));
  return known ? quantity(value, known[1]) : digitsOf(value);
}

function spark(points) {
  const canvas = element("canvas", { class: "spark" });
  requestAnimationFrame(() => {
    const ratio = window.devicePixelRatio || 1;
    canvas.width = canvas.clientWidth * ratio;
    canvas.height = canvas.clientHeight * ratio;
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    const values = points.map((point) => point.value);
    const low = Math.min(0, ...values);
    const high = Math.max(...values, low + 1e-30);
    const first = points[0].step;
    const span = Math.max(1, points[points.length - 1].step - first);
    pen.strokeStyle = colour("accent");
    pen.lineWidth = 1.5;
    pen.beginPath();
    for (const point of points) pen.lineTo((point.step - first) / span * (canvas.clientWidth - 2) + 1, 56 - 52 * (point.value - low) / (high - low));
    pen.stroke();
  });
  return canvas;
}

export function drawMetrics(box, metrics) {
  const named = new Map();
  for (const metric of metrics) named.set(metric.name, [...(named.get(metric.name) || []), metric]);
  box.replaceChildren(...[...named].map(([name, points]) => {
    const last = points[points.length - 1];
    return element("div", { class: "metric", "data-metric": name },
      element("h3", {}, name), element("p", { class: "value" }, written(name, last.value)),
      points.length > 1 ? spark(points) : null);
  }));
}
