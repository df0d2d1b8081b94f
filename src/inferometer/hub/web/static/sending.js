// Files of somebody's own, to the hub: hashed, and sent in pieces from wherever an earlier attempt ended.
import { ask, HubAway } from "./asking.js";

const PIECE = 8_000_000;
const AGAIN_MS = 1500;
const HEAD = 65_536;
const HEADS = 8; // files whose first bytes are shown to the hub; of more their names say enough

function pause(ms) { return new Promise((done) => { setTimeout(done, ms); }); }

// The members of a .zip as files. It is taken apart here, so that the hub never has to.
export async function unzipped(file) {
  const tail = new DataView(await file.slice(Math.max(0, file.size - 65_557)).arrayBuffer());
  let end = tail.byteLength - 22;
  while (end >= 0 && tail.getUint32(end, true) !== 0x06054b50) end -= 1;
  if (end < 0) throw new Error(`${file.name} is no complete .zip: its table of contents is missing.`);
  const [count, size, start] = [tail.getUint16(end + 10, true), tail.getUint32(end + 12, true), tail.getUint32(end + 16, true)];
  if (start === 0xffffffff || count === 0xffff) throw new Error(`${file.name} is too large a .zip to be opened here. Unpack it, and choose the folder.`);
  const table = new DataView(await file.slice(start, start + size).arrayBuffer());
  const members = [];
  for (let at = 0; at + 46 <= table.byteLength && members.length < count;) {
    const [flags, method, packed, whole] = [table.getUint16(at + 8, true), table.getUint16(at + 10, true), table.getUint32(at + 20, true), table.getUint32(at + 24, true)];
    const [letters, extra, remark, offset] = [table.getUint16(at + 28, true), table.getUint16(at + 30, true), table.getUint16(at + 32, true), table.getUint32(at + 42, true)];
    const path = new TextDecoder().decode(new Uint8Array(table.buffer, at + 46, letters));
    if (!path.endsWith("/")) members.push({ path, flags, method, packed, whole, offset });
    at += 46 + letters + extra + remark;
  }
  return Promise.all(members.map((member) => unpacked(file, member)));
}

async function unpacked(file, { path, flags, method, packed, whole, offset }) {
  if (flags & 1) throw new Error(`${file.name} is encrypted. Unpack it, and choose the folder.`);
  if (method !== 0 && method !== 8) throw new Error(`${path} in ${file.name} is packed in a way that browsers do not open. Unpack it, and choose the folder.`);
  const head = new DataView(await file.slice(offset, offset + 30).arrayBuffer());
  const from = offset + 30 + head.getUint16(26, true) + head.getUint16(28, true);
  const stored = file.slice(from, from + packed);
  const blob = method === 0 ? stored : await new Response(stored.stream().pipeThrough(new DecompressionStream("deflate-raw"))).blob();
  if (blob.size !== whole) throw new Error(`${path} in ${file.name} has ${blob.size} bytes and not the ${whole} that it should have.`);
  return { path, blob };
}

async function base64(blob) {
  const bytes = new Uint8Array(await blob.slice(0, HEAD).arrayBuffer());
  let text = "";
  for (let at = 0; at < bytes.length; at += 0x8000) text += String.fromCharCode(...bytes.subarray(at, at + 0x8000));
  return btoa(text);
}

// What the hub makes of the chosen files before any is sent: its error is about a file that is no model.
export async function sortedOut(chosen) {
  const listed = await Promise.all(chosen.map(async ({ path, blob }) => ({ path, size_bytes: blob.size, head: chosen.length <= HEADS ? await base64(blob) : "" })));
  const found = await ask("POST", "/fleet/models/chosen", listed);
  return { ...found, files: found.files.map(({ path, at }) => ({ path, blob: chosen[at].blob })) };
}

export function hashed(blob, tell, signal) {
  return new Promise((done, failed) => {
    const worker = new Worker(new URL("./hashing.js", import.meta.url), { type: "module" });
    const end = (finish, value) => { worker.terminate(); finish(value); };
    signal.addEventListener("abort", () => end(failed, signal.reason));
    worker.onerror = () => end(failed, new Error("The file could not be read."));
    worker.onmessage = ({ data }) => {
      if (data.sha256) end(done, data.sha256);
      else if (data.error) end(failed, new Error(`The file could not be read: ${data.error}`));
      else tell(data.read);
    };
    worker.postMessage({ file: blob });
  });
}

// A hub that is away is waited for; what has arrived there is not sent again.
async function patiently(work, told, signal) {
  for (;;) {
    signal.throwIfAborted();
    try {
      return await work(); // eslint-disable-line no-await-in-loop -- one attempt after the other
    } catch (error) {
      if (!(error instanceof HubAway)) throw error;
      told("The hub does not answer. It goes on where it was as soon as it does …");
      await pause(AGAIN_MS); // eslint-disable-line no-await-in-loop -- as above
    }
  }
}

async function arrivedOf(sha256, size) {
  const { missing } = await ask("POST", "/fleet/artifacts/missing", [{ sha256, size_bytes: size }]);
  return sha256 in missing ? [missing[sha256], false] : [size, true];
}

export async function send({ blob, sha256 }, tell, told, signal) {
  const size = blob.size;
  const path = `/fleet/artifacts/${sha256}`;
  let [at, complete] = await patiently(() => arrivedOf(sha256, size), told, signal);
  while (!complete) {
    tell(at);
    try {
      const from = at;
      const state = await ask("PUT", `${path}?offset=${from}&size=${size}`, blob.slice(from, from + PIECE), signal); // eslint-disable-line no-await-in-loop -- in order
      at = state.arrived;
      complete = state.complete;
    } catch (error) {
      if (!(error instanceof HubAway)) throw error;
      [at, complete] = await patiently(() => arrivedOf(sha256, size), told, signal); // eslint-disable-line no-await-in-loop -- as above
    }
  }
  tell(size);
}
