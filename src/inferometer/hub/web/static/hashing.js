// SHA-256 of a file, in a worker. The browser's own is several times as fast, but takes whole files only, and is there
// only over https or on this machine: everything else is hashed piece by piece by ours.
const WHOLE = 512e6; // bytes that may be in memory at once
const K = new Int32Array(64); // signed, so that the engine adds them as whole numbers
const START = new Int32Array(8);
const PIECE = 4 << 20;

// The constants are the first bits of the fractional parts of roots of primes (FIPS 180-4, 4.2.2 and 5.3.3).
function derive() {
  const fraction = (value) => Math.floor((value - Math.floor(value)) * 2 ** 32);
  for (let number = 2, found = 0; found < 64; number += 1) {
    let prime = true;
    for (let part = 2; part * part <= number && prime; part += 1) prime = number % part !== 0;
    if (!prime) continue;
    if (found < 8) START[found] = fraction(Math.sqrt(number));
    K[found] = fraction(Math.cbrt(number));
    found += 1;
  }
}

export class Sha256 {
  constructor() {
    if (!K[0]) derive();
    this.state = START.slice();
    this.words = new Int32Array(64);
    this.rest = new Uint8Array(0);
    this.length = 0;
  }

  update(bytes) {
    this.length += bytes.length;
    let at = 0;
    if (this.rest.length) {
      at = Math.min(64 - this.rest.length, bytes.length);
      const joined = new Uint8Array(this.rest.length + at);
      joined.set(this.rest);
      joined.set(bytes.subarray(0, at), this.rest.length);
      this.rest = joined;
      if (joined.length < 64) return this;
      this.block(joined, 0);
    }
    for (; at + 64 <= bytes.length; at += 64) this.block(bytes, at);
    this.rest = bytes.slice(at);
    return this;
  }

  block(bytes, at) {
    const w = this.words;
    for (let i = 0, j = at; i < 16; i += 1, j += 4) w[i] = (bytes[j] << 24) | (bytes[j + 1] << 16) | (bytes[j + 2] << 8) | bytes[j + 3];
    for (let i = 16; i < 64; i += 1) {
      const x = w[i - 15];
      const y = w[i - 2];
      w[i] = (w[i - 16] + w[i - 7] + (((x >>> 7) | (x << 25)) ^ ((x >>> 18) | (x << 14)) ^ (x >>> 3)) + (((y >>> 17) | (y << 15)) ^ ((y >>> 19) | (y << 13)) ^ (y >>> 10))) | 0;
    }
    const from = this.state;
    let a = from[0]; let b = from[1]; let c = from[2]; let d = from[3]; let e = from[4]; let f = from[5]; let g = from[6]; let h = from[7];
    for (let i = 0; i < 64; i += 1) {
      const one = (h + (((e >>> 6) | (e << 26)) ^ ((e >>> 11) | (e << 21)) ^ ((e >>> 25) | (e << 7))) + ((e & f) ^ (~e & g)) + K[i] + w[i]) | 0;
      const two = ((((a >>> 2) | (a << 30)) ^ ((a >>> 13) | (a << 19)) ^ ((a >>> 22) | (a << 10))) + ((a & b) ^ (a & c) ^ (b & c))) | 0;
      h = g; g = f; f = e; e = (d + one) | 0; d = c; c = b; b = a; a = (one + two) | 0;
    }
    // Written out, as above: this runs once for every 64 bytes of a model.
    from[0] += a; from[1] += b; from[2] += c; from[3] += d; from[4] += e; from[5] += f; from[6] += g; from[7] += h;
  }

  hex() {
    const bits = this.length * 8;
    const padded = new Uint8Array(this.rest.length < 56 ? 64 : 128);
    padded.set(this.rest);
    padded[this.rest.length] = 0x80;
    const view = new DataView(padded.buffer);
    view.setUint32(padded.length - 8, Math.floor(bits / 2 ** 32));
    view.setUint32(padded.length - 4, bits >>> 0);
    for (let at = 0; at < padded.length; at += 64) this.block(padded, at);
    return [...this.state].map((word) => (word >>> 0).toString(16).padStart(8, "0")).join("");
  }
}

self.onmessage = async ({ data: { file } }) => {
  try {
    if (self.crypto?.subtle && file.size <= WHOLE) {
      const digest = new Uint8Array(await self.crypto.subtle.digest("SHA-256", await file.arrayBuffer()));
      self.postMessage({ sha256: [...digest].map((byte) => byte.toString(16).padStart(2, "0")).join("") });
      return;
    }
    const hash = new Sha256();
    for (let at = 0; at < file.size; at += PIECE) {
      hash.update(new Uint8Array(await file.slice(at, at + PIECE).arrayBuffer())); // eslint-disable-line no-await-in-loop -- in order
      self.postMessage({ read: Math.min(at + PIECE, file.size) });
    }
    self.postMessage({ sha256: hash.hex() });
  } catch (error) {
    self.postMessage({ error: error.message });
  }
};
