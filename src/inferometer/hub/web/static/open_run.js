// The page of a run that is not done yet: its metrics as they come, and the result when it is there.
import { byId, writeMoments } from "./dom.js";
import { follow, toSignIn } from "./follow.js";
import { quantity } from "./format.js";
import { drawMetrics } from "./metrics.js";

writeMoments();
const box = byId("live");
if (box) {
  let started = null;
  const stop = follow(() => `/api/v1/runs/${encodeURIComponent(box.dataset.run)}/live?once=1`, { heard, lost: () => badge("the hub does not answer", "bad"), signedOut: toSignIn });
  function badge(word, tone) {
    Object.assign(byId("status").querySelector(".badge"), { textContent: word, className: `badge ${tone}` });
  }
  function heard(found, changed) {
    badge(found.run.status, found.run.status === "running" ? "busy" : "quiet");
    if (!changed) return;
    started = found.run.started;
    const far = found.metrics.filter((metric) => metric.name === "progress").pop();
    byId("progress").hidden = !far;
    if (far) byId("progress").value = far.value;
    drawMetrics(byId("metrics"), found.metrics.filter((metric) => metric.name !== "progress"));
    if (!["running", "pending"].includes(found.run.status)) { stop(); window.location.reload(); }
  }
  setInterval(() => { if (started) byId("elapsed").textContent = quantity(Math.max(0, Date.now() / 1000 - started), "s", 3); }, 250);
}
