// The calculator: every change is asked again.
import { byId, dataOf, debounced } from "./dom.js";

const { name } = dataOf("data");
let turn = 0;

async function calculate() {
  const mine = (turn += 1);
  const inputs = Object.fromEntries([...new FormData(byId("calculator"))].filter(([, value]) => value !== ""));
  const answer = await fetch(`/api/v1/formulas/${encodeURIComponent(name)}/calculate`, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ inputs }) });
  const found = await answer.json();
  if (mine !== turn) return;
  const box = byId("answer");
  box.classList.toggle("quiet", !answer.ok);
  box.textContent = answer.ok ? found.text : `${found.error} ${found.remedy || ""}`;
  box.style.whiteSpace = answer.ok ? "pre-line" : "normal";
  box.style.fontSize = answer.ok ? "" : "1rem";
}

byId("calculator").addEventListener("input", debounced(calculate, 120));
byId("calculator").addEventListener("submit", (event) => { event.preventDefault(); calculate(); });
calculate();
