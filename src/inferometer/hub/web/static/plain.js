// Pages that only show: times on the reader's clock, charts, and that an answer is being worked out.
import { drawCharts } from "./charts.js";
import { byId, writeMoments } from "./dom.js";

drawCharts();
writeMoments();
document.querySelector("form.ask")?.addEventListener("submit", () => { byId("why").textContent = "Working it out …"; });
window.addEventListener("pageshow", () => { if (byId("why")) byId("why").textContent = ""; }); // whoever comes back from the answer
