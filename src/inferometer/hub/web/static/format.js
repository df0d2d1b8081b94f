// Numbers for people: SI prefixes, a few digits, and a dash where nothing is known.

const STEPS = [[1e18, "E"], [1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""], [1e-3, "m"], [1e-6, "µ"], [1e-9, "n"], [1e-12, "p"]];
const NO_LARGE = new Set(["s"]);

export function digitsOf(value, digits = 4) {
  const text = Number(value).toPrecision(digits);
  return text.includes("e") ? String(Number(text)) : text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

export function quantity(value, unit, digits = 4) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (value === 0) return unit ? `0 ${unit}` : "0";
  const size = Math.abs(Number(Math.abs(value).toPrecision(digits)));
  const small = unit === "s" || unit === "J" || unit === "W" || unit === "g";
  const usable = STEPS.filter(([step]) => (step <= 1 || !NO_LARGE.has(unit)) && (step >= 1 || small));
  const [step, prefix] = usable.find(([each]) => size >= each * (1 - 1e-12)) || usable[usable.length - 1];
  return `${digitsOf(value / step, digits)} ${prefix}${unit}`.trim();
}

export function share(part, whole) {
  return whole > 0 && part !== null && part !== undefined ? `${(100 * part / whole).toFixed(1)} %` : "–";
}

export function count(value) {
  return value === null || value === undefined ? "–" : Math.round(value).toLocaleString("en-US");
}

export function niceTicks(most, wanted = 4) {
  if (!(most > 0)) return [0];
  const raw = most / wanted;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= raw);
  const found = [];
  for (let at = 0; at <= most * (1 + 1e-9); at += step) found.push(at);
  return found;
}

export function logTicks(low, high) {
  const decades = Math.log10(high / low);
  const steps = decades <= 2.5 ? [1, 2, 5] : decades <= 5 ? [1, 3] : [1];
  const found = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power += 1) {
    for (const step of steps) {
      const at = step * 10 ** power;
      if (at >= low && at <= high) found.push(at);
    }
  }
  return found;
}
