// The pages of a device and of a job: what their buttons do, and what happens to a job as it happens.
import { ask, attempt } from "./asking.js";
import { byId, writeMoments } from "./dom.js";

const FLEET = "/fleet";
const FINAL = ["done", "failed", "cancelled", "inconclusive"];

writeMoments();

function device(box) {
  for (const button of box.querySelectorAll("button[data-state]")) {
    button.addEventListener("click", () => attempt(async () => {
      await ask("PATCH", `${FLEET}/devices/${encodeURIComponent(box.dataset.name)}`, { state: button.dataset.state });
      window.location.reload();
    }));
  }
}

function line(event) {
  const at = new Date(event.at * 1000).toLocaleTimeString();
  const words = event.kind === "progress" ? `${event.stage} ${Math.round(100 * (event.share ?? 0))} %` : [event.state, event.text].filter(Boolean).join(": ");
  return `${at}  ${words}\n`;
}

function show(event, log) {
  if (event.kind === "progress") {
    byId("progress").value = event.share ?? 0;
    byId("stage").textContent = event.stage;
  } else {
    const below = log.scrollTop + log.clientHeight >= log.scrollHeight - 8;
    log.append(line(event));
    if (below) log.scrollTop = log.scrollHeight;
  }
  if (event.state) byId("stage").textContent = event.text || event.state;
}

async function follow(job, begun) {
  const log = byId("log");
  let after = 0;
  while (true) {
    let events = [];
    try {
      events = await ask("GET", `${FLEET}/jobs/${job}/events?after=${after}&wait_s=20&inconclusive=true`);
    } catch {
      await new Promise((resolve) => setTimeout(resolve, 2000));  // the hub is being restarted
      continue;
    }
    for (const event of events) {
      show(event, log);
      after = event.number;
      if (FINAL.includes(event.state)) {
        if (!FINAL.includes(begun)) window.location.reload();
        return;
      }
    }
  }
}

const deviceBox = byId("device");
if (deviceBox) device(deviceBox);
const jobBox = byId("job");
if (jobBox) {
  const job = jobBox.dataset.job;
  byId("cancel")?.addEventListener("click", () => attempt(async () => {
    byId("cancel").disabled = true;
    await ask("POST", `${FLEET}/jobs/${job}/cancel`);
  }));
  byId("run-again")?.addEventListener("click", () => attempt(async () => {
    const chosen = byId("where").value;
    const made = await ask("POST", `${FLEET}/jobs/${job}/again`, chosen ? { device: chosen } : {});
    window.location.assign(made.link);
  }));
  follow(job, jobBox.dataset.state);
}
