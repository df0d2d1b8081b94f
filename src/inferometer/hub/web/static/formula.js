// The calculator: every change is asked again.
import { ask } from "./asking.js";
import { byId, dataOf, debounced } from "./dom.js";

const { name } = dataOf("data");
let turn = 0;

async function calculate() {
  const mine = (turn += 1);
  const inputs = Object.fromEntries([...new FormData(byId("calculator"))].filter(([, value]) => value !== ""));
  const [found, problem] = await ask("POST", `/formulas/${encodeURIComponent(name)}/calculate`, { inputs }).then((answer) => [answer, null], (error) => [null, error.message]);
  if (mine !== turn) return;
  const box = byId("answer");
  box.className = problem ? "value told" : "value";
  box.textContent = problem ?? found.text;
}

byId("calculator").addEventListener("input", debounced(calculate, 120));
byId("calculator").addEventListener("submit", (event) => { event.preventDefault(); calculate(); });
calculate();
