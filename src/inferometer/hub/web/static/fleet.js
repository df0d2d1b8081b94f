// The pages of a device and of a job: what their buttons do, and what happens to a job as it happens.
import { ask, attempt } from "./asking.js";
import { byId, writeMoments } from "./dom.js";
import { follow, toSignIn } from "./follow.js";

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
    return;
  }
  const below = log.scrollTop + log.clientHeight >= log.scrollHeight - 8;
  log.append(line(event));
  if (below) log.scrollTop = log.scrollHeight;
  if (event.state === "queued") byId("progress").value = 0; // for the first time, or once more
  else if (event.state) byId("stage").textContent = (!FINAL.includes(event.state) && event.text) || event.state; // why it ended stands above
}

// A job until it ends. Its log comes event by event; its state, its place in the queue and what becomes of those beside
// it are parts of its page as the hub makes it anew, so that nothing is said here that it would not say.
function watch(box) {
  const all = () => [box, ...document.querySelectorAll("#others [data-job]")];
  const open = () => all().filter((one) => !FINAL.includes(one.dataset.state));
  const problem = byId("problem");
  let after = 0;
  let away = false;

  async function look() {
    if (document.hidden || !open().length) return;
    const answer = await fetch(window.location.href, { cache: "no-cache" }).catch(() => null);
    if (!answer?.ok) return; // the next look finds it, and those who ask for events say so
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const fresh = page.getElementById("job");
    if (!fresh || !open().length) return;
    if (fresh.dataset.state === "queued") byId("stage").textContent = page.getElementById("stage").textContent;
    for (const part of ["state", "reason", "others"]) byId(part)?.replaceChildren(...page.getElementById(part).childNodes);
    const ended = box.dataset.state !== fresh.dataset.state && FINAL.includes(fresh.dataset.state);
    Object.assign(box.dataset, fresh.dataset);
    if (!open().length) become();
    else if (ended) window.location.reload(); // the others go on
  }

  // What was watched until its end becomes its run; several become a comparison. Where one left no run, the page says why.
  function become() {
    const runs = all().map((one) => one.dataset.run).filter(Boolean);
    if (runs.length < all().length) window.location.reload();
    else window.location.replace(runs.length > 1 ? `/compare?${runs.map((run) => `run=${run}`).join("&")}` : `/runs/${runs[0]}`);
  }

  const stop = follow(() => `/api/v1${FLEET}/jobs/${box.dataset.job}/events?after=${after}&inconclusive=true`, {
    heard(events) {
      if (away) problem.hidden = true; // and nothing else that is said there
      away = false;
      for (const event of events) { show(event, byId("log")); after = event.number; }
      if (events.some((event) => event.kind !== "progress")) look();
      if (!events.length && FINAL.includes(box.dataset.state)) stop();
    },
    lost(status) {
      problem.textContent = status === 404 ? "This job is not here any more." : "The hub does not answer. It is asked again until it does; nothing is lost.";
      problem.hidden = false;
      away = true;
    },
    signedOut: toSignIn,
  });
  setInterval(look, AROUND_MS);
  return look;
}

const deviceBox = byId("device");
if (deviceBox) device(deviceBox);
const jobBox = byId("job");
if (jobBox) {
  const job = jobBox.dataset.job;
  const look = watch(jobBox);
  byId("cancel")?.addEventListener("click", () => attempt(async () => {
    byId("cancel").disabled = true;
    await ask("POST", `${FLEET}/jobs/${job}/cancel`);
    await look();
  }));
  byId("run-again")?.addEventListener("click", () => attempt(async () => {
    const chosen = byId("where").value;
    const made = await ask("POST", `${FLEET}/jobs/${job}/again`, chosen ? { device: chosen } : {});
    window.location.assign(made.link);
  }));
}
