// A number over time as a line with axes: what a model held of memory while it was measured.
import { colour, element, hideTip, showTip } from "./dom.js";
import { niceTicks, quantity } from "./format.js";

const EDGE = { left: 62, right: 8, top: 8, bottom: 22 };

function paintLine(box, canvas, points, unit) {
  const [wide, high] = [box.clientWidth, box.clientHeight];
  const ratio = window.devicePixelRatio || 1;
  canvas.width = wide * ratio;
  canvas.height = high * ratio;
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  const last = points[points.length - 1][0] || 1;
  const most = 1.04 * Math.max(...points.map(([, value]) => value), 1e-30);
  const x = (at) => EDGE.left + (wide - EDGE.left - EDGE.right) * at / last;
  const y = (value) => EDGE.top + (high - EDGE.top - EDGE.bottom) * (1 - value / most);
  pen.font = "11px system-ui, sans-serif";
  pen.fillStyle = colour("soft");
  pen.strokeStyle = colour("line");
  pen.textAlign = "right";
  pen.textBaseline = "middle";
  for (const tick of niceTicks(most)) {
    pen.beginPath();
    pen.moveTo(EDGE.left, Math.round(y(tick)) + 0.5);
    pen.lineTo(wide - EDGE.right, Math.round(y(tick)) + 0.5);
    pen.stroke();
    pen.fillText(quantity(tick, unit, 3), EDGE.left - 6, y(tick));
  }
  pen.textBaseline = "alphabetic";
  pen.fillText(quantity(last, "s", 3), wide - EDGE.right, high - 6);
  pen.textAlign = "left";
  pen.fillText("0 s", EDGE.left, high - 6);
  pen.strokeStyle = colour("accent");
  pen.lineWidth = 1.6;
  pen.beginPath();
  for (const [at, value] of points) pen.lineTo(x(at), y(value));
  pen.stroke();
  return x;
}

export function drawLine(box, points, unit, label) {
  const canvas = element("canvas", { role: "img", "aria-label": label });
  box.replaceChildren(canvas);
  let place = null;
  const draw = () => { if (box.clientWidth) place = paintLine(box, canvas, points, unit); };
  canvas.addEventListener("pointermove", (event) => {
    const at = event.clientX - canvas.getBoundingClientRect().left;
    const near = points.reduce((best, point) => (Math.abs(place(point[0]) - at) < Math.abs(place(best[0]) - at) ? point : best));
    showTip(event, quantity(near[1], unit), [["after", quantity(near[0], "s", 3)]]);
  });
  canvas.addEventListener("pointerleave", hideTip);
  new ResizeObserver(draw).observe(box);
  document.addEventListener("themechange", draw);
}
