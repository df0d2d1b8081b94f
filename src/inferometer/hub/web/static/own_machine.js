// The hub's own machine as a device: an agent is started there, and waited for.
import { ask } from "./asking.js";

const LOOKING_MS = 500;
const PATIENCE = 360; // looks: a busy machine takes a minute to start an agent, which then measures its roof for the first time

export async function ownMachine(told) {
  const { name } = await ask("POST", "/fleet/here");
  for (let looks = 0; looks < PATIENCE; looks += 1) {
    told.textContent = `An agent starts on ${name} …`;
    const devices = await ask("GET", "/fleet/devices"); // eslint-disable-line no-await-in-loop -- until it is there
    if (devices.some((device) => device.name === name && !device.away)) return name;
    await new Promise((done) => { setTimeout(done, LOOKING_MS); }); // eslint-disable-line no-await-in-loop -- as above
  }
  throw new Error(`No agent came up on ${name}. The hub's terminal says why; \`inferometer hub agent\` starts one by hand.`);
}
