// Making and reading elements. Text from data only ever becomes text.

export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "class") made.className = value;
    else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

export function byId(id) {
  return document.getElementById(id);
}

export function dataOf(id) {
  const found = byId(id);
  return found ? JSON.parse(found.textContent) : null;
}

// What this browser keeps for its reader; a private window, or a full one, keeps nothing, and that is no error.
export function kept(name) {
  try { return JSON.parse(localStorage.getItem(name)); } catch { return null; }
}

export function keep(name, value) {
  try { if (value === null) localStorage.removeItem(name); else localStorage.setItem(name, JSON.stringify(value)); } catch { /* as said */ }
}

export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

export function debounced(work, wait) {
  let timer = 0;
  return (...given) => { clearTimeout(timer); timer = setTimeout(() => work(...given), wait); };
}

export function showTip(event, title, rows) {
  const tip = byId("tip");
  tip.replaceChildren(element("strong", {}, title), element("table", {}, element("tbody", {}, ...rows
    .filter(([, value]) => value !== null && value !== undefined && value !== "")
    .map(([name, value]) => element("tr", {}, element("td", {}, name), element("td", {}, String(value)))))));
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  const left = Math.min(event.clientX + 14, window.innerWidth - box.width - 8);
  const top = event.clientY + 18 + box.height > window.innerHeight ? event.clientY - box.height - 12 : event.clientY + 18;
  tip.style.left = `${Math.max(8, left)}px`;
  tip.style.top = `${Math.max(8, top)}px`;
}

export function hideTip() {
  byId("tip").hidden = true;
}

// A drawing that is moved by dragging it: what moves less than a finger trembles is a click.
export function dragged(canvas, { hover, move, click }) {
  let held = null;
  canvas.addEventListener("pointerdown", (event) => { held = { x: event.clientX, y: event.clientY, moved: false }; canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener("pointermove", (event) => {
    if (!held) { hover(event); return; }
    const [x, y] = [event.clientX - held.x, event.clientY - held.y];
    if (!held.moved && Math.hypot(x, y) < 4) return;
    held = { x: event.clientX, y: event.clientY, moved: true };
    hideTip();
    move(x, y);
  });
  canvas.addEventListener("pointerup", (event) => { const still = held && !held.moved; held = null; if (still) click(event); });
  canvas.addEventListener("pointerleave", hideTip);
}

export function writeMoments(within = document) {
  const now = Date.now() / 1000;
  for (const each of within.querySelectorAll("time[datetime]")) {
    const at = Number(each.getAttribute("datetime"));
    if (!Number.isFinite(at)) continue;
    const when = new Date(at * 1000);
    each.title = when.toLocaleString();
    each.textContent = moment(at, now);
  }
}

export function moment(at, now = Date.now() / 1000) {
  const ago = now - at;
  const when = new Date(at * 1000);
  if (ago < 60) return "just now";
  if (ago < 3600) return `${Math.floor(ago / 60)} min ago`;
  if (ago < 86400) return `${Math.floor(ago / 3600)} h ago`;
  const pad = (number) => String(number).padStart(2, "0");
  const year = when.getFullYear() === new Date(now * 1000).getFullYear() ? "" : `${when.getFullYear()}-`;
  return `${year}${pad(when.getMonth() + 1)}-${pad(when.getDate())} ${pad(when.getHours())}:${pad(when.getMinutes())}`;
}
