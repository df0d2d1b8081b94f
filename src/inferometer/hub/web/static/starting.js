// A form whose button starts something: a job of the queue, or a load test on the hub's own machine.
import { ask, attempt, submitted } from "./asking.js";
import { byId, debounced } from "./dom.js";

const form = byId("start");
const texts = () => Object.fromEntries([...new FormData(form)].filter(([, text]) => text.trim()));

form.addEventListener("submit", (event) => {
  event.preventDefault();
  const button = form.querySelector("button");
  attempt(async () => {
    button.disabled = true;
    byId("why").textContent = "Starting …";
    try {
      const made = await ask("POST", `/fleet/start/${form.dataset.verb}`, texts());
      window.location.assign(made.link || (await submitted(made)).link);
    } finally {
      button.disabled = false;
      byId("why").textContent = "";
    }
  });
});

// The command follows what is typed, and the address with it, so that either can be passed on.
form.addEventListener("input", debounced(async () => {
  const address = `${window.location.pathname}?${new URLSearchParams(texts())}`;
  const answer = await fetch(address).catch(() => null);
  if (!answer?.ok) return; // the button says what is wrong
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  for (const id of ["command", "python"]) if (byId(id)) byId(id).textContent = page.getElementById(id).textContent;
  window.history.replaceState(null, "", address);
}, 300));
