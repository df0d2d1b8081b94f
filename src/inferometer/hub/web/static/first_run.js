// An empty hub: one click measures something, so that there is a run to look at.
import { ask, attempt } from "./asking.js";
import { byId } from "./dom.js";
import { ownMachine } from "./own_machine.js";

byId("first").addEventListener("click", () => attempt(async () => {
  byId("first").disabled = true;
  try {
    const device = await ownMachine(byId("why"));
    byId("why").textContent = "The model is being read …";
    const { job } = await ask("POST", "/fleet/preview", { model: "mobilenet-v2" });
    const row = await ask("POST", "/fleet/jobs", { job, device });
    window.location.assign(row.link);
  } finally {
    byId("first").disabled = false;
  }
}));
