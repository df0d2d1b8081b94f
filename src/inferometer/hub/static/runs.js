// The list of runs: choosing some to compare, and keys to walk it.
import { drawCharts } from "./charts.js";
import { byId, writeMoments } from "./dom.js";

const MOST = 8;

function chosen() {
  return [...document.querySelectorAll("#runs input[name=run]:checked")];
}

function told() {
  const found = chosen();
  const button = byId("compare");
  if (!button) return;
  button.disabled = found.length < 2 || found.length > MOST;
  button.textContent = found.length > MOST ? `At most ${MOST}` : found.length ? `Compare ${found.length}` : "Compare";
  for (const row of document.querySelectorAll("#runs tbody tr")) row.classList.toggle("chosen", row.querySelector("input").checked);
}

function compare(event) {
  event.preventDefault();
  window.location.assign(`/compare?${chosen().map((box) => `run=${encodeURIComponent(box.value)}`).join("&")}`);
}

function walk(event) {
  if (event.target.closest("input, select, textarea")) return;
  const rows = [...document.querySelectorAll("#runs tbody tr")];
  const here = rows.findIndex((row) => row.contains(document.activeElement));
  if (event.key === "j" || event.key === "k") rows[Math.max(0, Math.min(rows.length - 1, here + (event.key === "j" ? 1 : -1)))]?.querySelector("a[href^='/runs/']").focus();
  if (event.key === "x" && here >= 0) { const box = rows[here].querySelector("input"); box.checked = !box.checked; told(); }
  if (event.key === "/") { event.preventDefault(); document.querySelector("input[type=search]")?.focus(); }
}

byId("runs")?.addEventListener("change", told);
byId("compare")?.addEventListener("click", compare);
document.addEventListener("keydown", walk);
told();
drawCharts();
writeMoments();
