// The pages of a device and of a job: what their buttons do, and what happens to a job as it happens.
import { ask, attempt } from "./asking.js";
import { byId, writeMoments } from "./dom.js";
import { quantity } from "./format.js";

const FLEET = "/fleet";
const AROUND_MS = 3000;
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
  // While it waits, its place in the queue stands there, which says more than the word.
  if (event.state && (event.text || event.state !== "queued")) byId("stage").textContent = event.text || event.state;
  if (event.state && !FINAL.includes(event.state)) {  // what has ended is loaded anew
    const badge = document.querySelector("#state .badge");
    badge.textContent = event.state;
    badge.className = `badge ${event.state === "queued" ? "quiet" : "busy"}`;
  }
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
        if (!FINAL.includes(begun)) ended(job);
        return;
      }
    }
  }
}

// A job that was watched until its end becomes its run; several become a comparison once the last of them has ended.
async function ended(job) {
  const others = [...document.querySelectorAll("#others [data-job]")].map((row) => row.dataset.job);
  const rows = await Promise.all([job, ...others].map((each) => ask("GET", `${FLEET}/jobs/${each}`)));
  const [mine] = rows;
  const runs = rows.map((row) => row.run).filter(Boolean);
  if (!others.length && mine.run) window.location.replace(mine.run_link);
  else if (others.length && runs.length === rows.length) window.location.replace(`/compare?${runs.map((run) => `run=${run}`).join("&")}`);
  else window.location.reload();
}

// While it waits, its place in the queue; while others run beside it, what becomes of them.
async function lookAround(job) {
  const others = [...document.querySelectorAll("#others [data-job]")];
  try {
    if (byId("job").dataset.state === "queued") {
      const row = await ask("GET", `${FLEET}/jobs/${job}`);
      if (row.state !== "queued") byId("job").dataset.state = row.state;
      else if (row.begins_s > 0) byId("stage").textContent = `${row.ahead} before it; should begin in ${quantity(row.begins_s, "s", 2)}.`;
    }
    const rows = await Promise.all(others.map((line) => ask("GET", `${FLEET}/jobs/${line.dataset.job}`)));
    if (rows.some((row, place) => row.state !== others[place].querySelector(".badge").textContent)) {
      if (FINAL.includes(byId("job").dataset.state) && rows.every((row) => FINAL.includes(row.state))) await ended(job);
      else window.location.reload();
      return;
    }
  } catch { /* the hub is being restarted: the next look finds it */ }
  setTimeout(() => lookAround(job), AROUND_MS);
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
  if (!FINAL.includes(jobBox.dataset.state) || byId("others")) setTimeout(() => lookAround(job), AROUND_MS);
}
