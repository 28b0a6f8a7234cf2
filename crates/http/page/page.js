// The live page: asks for the device's state once a second, draws it, and says the same in words.
//
// Invariants: everything shown comes from /api/live, /api/map and /api/hosts; text from hosts is set as text, never as markup;
// one request of a kind at a time. Absent: libraries, storage beyond this tab, cookies.
"use strict";

const $ = (id) => document.getElementById(id);
const HISTORY = 180;
const history = [];
let last = null;
let map = null;
let chosen = -1;
let mode = "use";
let mapWidth = 1;

// --- Asking -----------------------------------------------------------------------------------------------------------

async function ask(path, body) {
  const headers = {};
  const token = sessionStorage.getItem("token");
  if (token) headers.Authorization = `Bearer ${token}`;
  const options = { headers, signal: AbortSignal.timeout(8000) };
  if (body) Object.assign(options, { method: "POST", body: JSON.stringify(body) });
  const answer = await fetch(path, options);
  if (answer.status === 401) {
    $("ask").hidden = false;
    $("ask-error").textContent = token ? "This was not the token." : "";
    sessionStorage.removeItem("token");
    throw new Error("a token is needed");
  }
  if (!answer.ok) throw new Error((await answer.json()).error);
  $("ask").hidden = true;
  return answer.json();
}

$("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("token", $("token").value.trim());
  $("token").value = "";
  tick();
});

let busy = false;
async function tick() {
  if (busy) return;
  busy = true;
  try {
    const [live, cells, hosts] = await Promise.all([ask("/api/live"), ask("/api/map?cells=1024"), ask("/api/hosts")]);
    map = cells;
    note(live);
    show(live);
    showHosts(hosts, live);
    showMap();
    state("live", false);
  } catch (error) {
    state(error.name === "TimeoutError" || error instanceof TypeError ? "no answer: is the service still there?" : error.message, true);
  } finally {
    busy = false;
  }
}

function state(text, bad) {
  if ($("state").textContent !== text) $("state").textContent = text;
  $("state").classList.toggle("bad", bad);
}

// --- What happened since the last answer --------------------------------------------------------------------------------

function note(live) {
  const counters = live.counters;
  if (last && counters.flash_pages >= last.counters.flash_pages && live.uptime_seconds > last.uptime_seconds) {
    const seconds = live.uptime_seconds - last.uptime_seconds;
    const rate = (of) => (of(live) - of(last)) / seconds;
    history.push({
      read: rate((one) => one.host_read_bytes) / 1e6,
      written: rate((one) => one.host_written_bytes) / 1e6,
      host: rate((one) => one.counters.data_pages),
      gc: rate((one) => one.counters.gc_pages),
      metadata: rate((one) => one.counters.metadata_pages),
      latency: ["read", "write"].map((name) => [0.5, 0.99].map((part) => quantile(name, live, last, part))),
    });
    if (history.length > HISTORY) history.shift();
  }
  last = live;
}

// A quantile of the commands since the last answer, in microseconds, from buckets of powers of two; null without commands.
function quantile(name, live, before, part) {
  const of = (one) => one.commands.find((command) => command.name === name);
  if (!of(live) || !of(before)) return null;
  const counts = of(live).buckets.map((count, bucket) => count - of(before).buckets[bucket]);
  const all = counts.reduce((sum, count) => sum + count, 0);
  if (all === 0) return null;
  let rest = all * part;
  for (let bucket = 0; bucket < counts.length; bucket++) {
    if (rest <= counts[bucket]) {
      const [low, high] = [bucket === 0 ? 0 : 2 ** (bucket - 1), 2 ** bucket];
      return low + ((high - low) * rest) / counts[bucket];
    }
    rest -= counts[bucket];
  }
  return 2 ** counts.length;
}

// --- Saying it in words and figures --------------------------------------------------------------------------------------

const exact = (value) => Math.round(value).toLocaleString("en-US");
const rounded = (value) => (value >= 100 ? exact(value) : value.toFixed(value >= 10 ? 1 : 2));
const micros = (us) => (us === null || us === undefined ? "–" : us >= 1e6 ? `${rounded(us / 1e6)} s` : us >= 1e3 ? `${rounded(us / 1e3)} ms` : `${rounded(us)} µs`);
// Of marks, which are round: without zeroes behind the point.
const tidy = (value) => Number(value.toPrecision(3)).toLocaleString("en-US");
const time = (us) => (us >= 1e6 ? `${tidy(us / 1e6)} s` : us >= 1e3 ? `${tidy(us / 1e3)} ms` : `${tidy(us)} µs`);
const bytes = (count) => {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  for (; count >= 1024 && unit < units.length - 1; unit++) count /= 1024;
  return `${unit === 0 ? count : rounded(count)} ${units[unit]}`;
};
const seconds = (count) => (count >= 3600 ? `${rounded(count / 3600)} h` : count >= 60 ? `${rounded(count / 60)} min` : `${rounded(count)} s`);

function put(id, text, value) {
  const element = $(id);
  if (element.textContent !== text) element.textContent = text;
  if (value !== undefined) element.dataset.value = value;
}

function show(live) {
  const counters = live.counters;
  const { superblocks, wear, nvram } = live;
  const amplification = counters.host_pages ? counters.flash_pages / counters.host_pages : 0;
  put("title", `${live.title} · ${live.scheme}${live.simulated ? " · simulated" : ""} · ${seconds(live.uptime_seconds)}${live.read_only ? " · read-only" : ""}`);
  put("wa", amplification.toFixed(2), amplification);
  put("host-pages", exact(counters.host_pages), counters.host_pages);
  put("flash-pages", exact(counters.flash_pages), counters.flash_pages);
  put("remaps", exact(counters.remaps), counters.remaps);
  const causes = { "counter full": counters.demoted_counter_full, "NVRAM full": counters.demoted_nvram_full, watermark: counters.demoted_watermark };
  const demoted = Object.values(causes).reduce((sum, count) => sum + count, 0);
  put("remaps-note", `${exact(demoted)} demoted to copies`);
  put("gc-runs", exact(counters.gc_runs), counters.gc_runs);
  put("gc-note", `superblocks, ${exact(counters.gc_pages)} pages moved`);
  put("free", exact(superblocks.free), superblocks.free);
  const all = superblocks.free + superblocks.open + superblocks.closed + superblocks.retired;
  put("free-note", `of ${exact(all)}; collection from ${exact(superblocks.gc_start)} on`);
  put("wear", rounded(wear.mean), wear.mean);
  put("wear-note", `on average, ${wear.min} to ${wear.max}`);
  put("connections", exact(live.connections), live.connections);
  put("connections-note", `${exact(live.accepted)} so far`);

  // The table's rows stay, so that a reader is not thrown out of them.
  for (const [cause, count] of Object.entries(causes)) row("demotions", cause, [cause, exact(count)]);
  const room = nvram.capacity_bytes || Math.max(nvram.used_bytes, 1);
  const valid = Math.min(nvram.valid_bytes, nvram.used_bytes);
  const [validPart, stalePart] = [valid / room, (nvram.used_bytes - valid) / room];
  $("nvram-bar").querySelector(".valid").style.width = `${100 * validPart}%`;
  $("nvram-bar").querySelector(".stale").style.width = `${100 * stalePart}%`;
  const words = `${bytes(nvram.used_bytes)} of ${nvram.capacity_bytes ? bytes(nvram.capacity_bytes) : "unlimited"} used, ${bytes(valid)} valid; largest group ${bytes(nvram.largest_group_bytes)}`;
  put("nvram-now", words, nvram.used_bytes);
  $("nvram-bar").setAttribute("aria-label", `NVRAM: ${words}`);

  showCharts();
  showPlayer(live);
}

function row(table, key, cells) {
  const body = $(table);
  let tr = [...body.children].find((one) => one.dataset.key === key);
  if (!tr) {
    tr = document.createElement("tr");
    tr.dataset.key = key;
    body.append(tr);
  }
  while (tr.children.length < cells.length) tr.append(document.createElement("td"));
  cells.forEach((text, at) => {
    if (tr.children[at].textContent !== text) tr.children[at].textContent = text;
  });
}

function showHosts(hosts, live) {
  const keys = new Set(hosts.map((host) => String(host.connection)));
  for (const tr of [...$("hosts").children]) if (!keys.has(tr.dataset.key)) tr.remove();
  for (const host of hosts) {
    const queue = host.discovery ? "discovery" : host.queue === 0 ? "admin" : String(host.queue);
    const rights = host.rights === "all:rw" ? "" : `, ${host.rights}`;
    row("hosts", String(host.connection), [`${host.hostnqn} from ${host.peer}${rights}`, queue, exact(host.commands), seconds(host.seconds)]);
  }
  if (hosts.length === 0) row("hosts", "none", [live.simulated ? "A simulation has no hosts." : "Nobody is connected."]);
  const refused = Object.entries(live.refused).map(([why, count]) => `${exact(count)} × ${why}`);
  put("refused", refused.length ? `Refused: ${refused.join("; ")}.` : "");
}

// --- Charts ----------------------------------------------------------------------------------------------------------

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

// The map's canvas, as many pixels large as it is shown.
function prepare(canvas, height) {
  const scale = window.devicePixelRatio || 1;
  const width = canvas.clientWidth;
  if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
  }
  const context = canvas.getContext("2d");
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, height);
  return { context, width, height };
}

// Charts are drawn as the program's figures are (crates/sim/src/plot): the same style sheet, and marks of the 1-2-5 series.
const DASH = "5 2 1 2";

function svg(name, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

// The smallest of 1, 2, 5 times a power of ten that is not below `value`.
function above(value) {
  const decade = 10 ** Math.floor(Math.log10(value * 1.000001));
  return [1, 2, 5, 10].map((digit) => digit * decade).find((step) => step >= value * 0.999999);
}

// From zero to the first mark that is not below `largest`.
function linear(largest, label) {
  const step = above(Math.max(largest, 1e-3) / 4);
  const steps = Math.max(1, Math.ceil(largest / step - 1e-9));
  const marks = Array.from({ length: steps + 1 }, (_, at) => at * step);
  return { marks: marks.map((value) => [value, label(value)]), place: (value) => value / (steps * step) };
}

// Powers of ten from `low` on, a decade at least.
function logarithmic(low, largest, label) {
  const decades = Math.max(1, Math.ceil(Math.log10(Math.max(largest, low) / low) - 1e-9));
  const marks = Array.from({ length: decades + 1 }, (_, at) => low * 10 ** at);
  return { marks: marks.map((value) => [value, label(value)]), place: (value) => Math.log10(Math.max(value, low) / low) / decades };
}

// Lines or stacked areas over time. `series`: name, colour, dash, and a value of each point; `low`: logarithmic from there on.
function chart(id, series, { label, low, stacked = false }) {
  const picture = $(id);
  const { width, height } = picture.getBoundingClientRect();
  if (width < 50 || height < 50) return;
  picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
  picture.replaceChildren();
  legend(id, series, stacked);

  const values = history.map((point) => series.map((one) => one.of(point)));
  const tops = values.map((of) => (stacked ? of.reduce((sum, value) => sum + value, 0) : Math.max(0, ...of.map((value) => value ?? 0))));
  const largest = Math.max(0, ...tops);
  const axis = low ? logarithmic(low, largest, label) : linear(largest, label);

  // Labels are measured before anything is placed beside them.
  const labels = axis.marks.map(([, text]) => picture.appendChild(svg("text", { "text-anchor": "end" }, text)));
  const left = Math.max(24, ...labels.map((text) => text.getComputedTextLength())) + 12;
  const [top, right, bottom] = [10, width - 6, height - 24];
  const y = (value) => bottom - (bottom - top) * axis.place(value);
  const span = Math.max(30, history.length);
  const x = (at) => right - ((right - left) * (history.length - 1 - at)) / (span - 1);
  const number = (coordinate) => coordinate.toFixed(1);

  axis.marks.forEach(([value], at) => {
    labels[at].setAttribute("x", number(left - 6));
    labels[at].setAttribute("y", number(y(value) + 4));
    picture.append(svg("line", { class: at === 0 ? "base" : "grid", x1: number(left), x2: number(right), y1: number(y(value)), y2: number(y(value)) }));
  });
  picture.append(svg("text", { x: number((left + right) / 2), y: number(height - 6), "text-anchor": "middle" }, `the last ${span} answers`));

  let base = values.map(() => 0);
  series.forEach((one, index) => {
    let data = "";
    if (stacked) {
      const upper = values.map((of, at) => base[at] + of[index]);
      const along = (heights) => heights.map((value, at) => `${number(x(at))} ${number(y(value))}`);
      if (upper.length > 1) data = `M${along(upper).join("L")}L${along(base).reverse().join("L")}Z`;
      base = upper;
    } else {
      // A gap where nothing was measured; a point without neighbours is seen, too.
      values.forEach((of, at) => {
        if (of[index] === null) return;
        const begins = at === 0 || values[at - 1][index] === null;
        data += `${begins ? "M" : "L"}${number(x(at))} ${number(y(of[index]))}${begins ? "h.1" : ""}`;
      });
    }
    if (data) picture.append(mark(one, stacked, { d: data }, svg("title", {}, one.name)));
  });
}

// A line or an area, or a sample of it.
function mark(one, stacked, attributes, ...children) {
  const path = svg("path", { class: stacked ? "part" : "line", "stroke-dasharray": one.dash ? DASH : "none", ...attributes }, ...children);
  path.style.setProperty("--c", `var(--${one.colour})`);
  return path;
}

// What is what, above the chart; the names take as many rows as they need.
function legend(id, series, stacked) {
  const list = $(`${id}-legend`);
  if (list.children.length) return;
  list.append(...series.map((one) => {
    const item = document.createElement("li");
    const sample = svg("svg", { class: "plot sample", viewBox: "0 0 24 12", "aria-hidden": "true" });
    sample.append(mark(one, stacked, { d: stacked ? "M6 1h11v11h-11Z" : "M0 6h24" }));
    item.append(sample, one.name);
    return item;
  }));
}

function showCharts() {
  const now = history[history.length - 1];
  const throughput = now ? `read ${rounded(now.read)} MB/s, written ${rounded(now.written)} MB/s` : "";
  put("throughput-now", throughput, now ? now.written : 0);
  chart("throughput", [
    { name: "read", colour: "blue", of: (point) => point.read },
    { name: "written", colour: "orange", of: (point) => point.written },
  ], { label: (value) => (value ? `${tidy(value)}` : "0") });

  const latency = now ? `p99: read ${micros(now.latency[0][1])}, write ${micros(now.latency[1][1])}` : "";
  put("latency-now", latency);
  chart("latency", [
    { name: "read p50", colour: "blue", of: (point) => point.latency[0][0] },
    { name: "read p99", colour: "blue", dash: true, of: (point) => point.latency[0][1] },
    { name: "write p50", colour: "orange", of: (point) => point.latency[1][0] },
    { name: "write p99", colour: "orange", dash: true, of: (point) => point.latency[1][1] },
  ], { label: time, low: 1 });

  const programs = now ? `host ${exact(now.host)}, collection ${exact(now.gc)}, metadata ${exact(now.metadata)} pages/s` : "";
  put("programs-now", programs);
  chart("programs", [
    { name: "host", colour: "sky", of: (point) => point.host },
    { name: "collection", colour: "vermilion", of: (point) => point.gc },
    { name: "metadata", colour: "yellow", of: (point) => point.metadata },
  ], { label: exact, stacked: true });

  $("throughput").setAttribute("aria-label", `Throughput: ${throughput || "nothing yet"}`);
  $("latency").setAttribute("aria-label", `Latency: ${latency || "nothing yet"}`);
  $("programs").setAttribute("aria-label", `Flash pages programmed: ${programs || "nothing yet"}`);
}

// --- The map ---------------------------------------------------------------------------------------------------------

const NAMES = { f: "free", h: "open for the host", g: "open for collection", c: "full", r: "retired" };
const LEGENDS = {
  use: [["valid", "valid"], ["shared", "mapped by remaps"], ["garbage", "garbage"], ["free", "free"], ["ink", "framed: open for the host"], ["gc", "framed: open for collection"], ["retired", "retired"]],
  wear: [["free", "least erased"], ["garbage", "most erased"]],
  segments: [["free", "no segment"], ["shared", "most segments of remaps"]],
};

function layout(width) {
  const count = map.state.length;
  // Cells so large that the map is about a third as high as it is wide, from 8 to 34 pixels.
  let size = Math.floor(Math.sqrt((width * width * 0.35) / count));
  size = Math.max(8, Math.min(34, size));
  const columns = Math.max(1, Math.floor(width / size));
  return { count, size, columns, rows: Math.ceil(count / columns) };
}

function showMap() {
  if (!map || !map.state) return;
  const canvas = $("map");
  mapWidth = canvas.clientWidth;
  const { count, size, columns, rows } = layout(mapWidth);
  canvas.style.height = `${rows * size}px`;
  const { context } = prepare(canvas, rows * size);
  const colours = Object.fromEntries(["valid", "shared", "garbage", "free", "gc", "retired", "ink", "focus"].map((name) => [name, colour(name)]));
  const pages = map.pages_per_superblock * map.per_cell;
  const top = (values) => Math.max(1, ...values);
  const [wearMin, wearMax, segmentsMax] = [Math.min(...map.erases), top(map.erases), top(map.segments)];

  for (let at = 0; at < count; at++) {
    const [x, y, side] = [(at % columns) * size, Math.floor(at / columns) * size, size - 1];
    context.fillStyle = colours.free;
    context.fillRect(x, y, side, side);
    if (mode !== "use") {
      const part = mode === "wear" ? (map.erases[at] - wearMin) / Math.max(1, wearMax - wearMin) : map.segments[at] / segmentsMax;
      context.globalAlpha = part;
      context.fillStyle = mode === "wear" ? colours.garbage : colours.shared;
      context.fillRect(x, y, side, side);
      context.globalAlpha = 1;
    } else if (map.state[at] === "r") {
      context.fillStyle = colours.retired;
      context.fillRect(x, y, side, side);
    } else {
      // From below: pages mapped by remaps, other valid ones, garbage; what is left is free.
      const shared = Math.min(map.remapped[at], map.valid[at]);
      let floor = y + side;
      for (const [name, count] of [["shared", shared], ["valid", map.valid[at] - shared], ["garbage", map.garbage[at]]]) {
        const height = (side * count) / pages;
        context.fillStyle = colours[name];
        context.fillRect(x, floor - height, side, height);
        floor -= height;
      }
      if ("hg".includes(map.state[at])) {
        context.strokeStyle = map.state[at] === "h" ? colours.ink : colours.gc;
        context.lineWidth = 2;
        context.strokeRect(x + 1, y + 1, side - 2, side - 2);
      }
    }
    if (at === chosen) {
      context.strokeStyle = colours.focus;
      context.lineWidth = 3;
      context.strokeRect(x + 1, y + 1, side - 2, side - 2);
    }
  }
  const total = (values) => values.reduce((sum, value) => sum + value, 0);
  canvas.dataset.valid = total(map.valid);
  canvas.dataset.garbage = total(map.garbage);
  canvas.dataset.cells = count;
  canvas.setAttribute("aria-label", `Map of ${exact(map.superblocks)} superblocks: ${exact(total(map.valid))} pages valid, ${exact(total(map.garbage))} garbage`);
  if (chosen >= 0) put("cell", words(chosen));
}

function words(at) {
  const first = at * map.per_cell;
  const until = Math.min(first + map.per_cell, map.superblocks) - 1;
  const which = map.per_cell === 1 ? `Superblock ${first}` : `Superblocks ${first} to ${until}`;
  return `${which}: ${NAMES[map.state[at]]}, ${exact(map.valid[at])} pages valid, ${exact(map.remapped[at])} mapped by remaps, ${exact(map.garbage[at])} garbage, erased ${map.erases[at]} times, ${exact(map.segments[at])} segments`;
}

function choose(at) {
  if (!map) return;
  chosen = Math.max(0, Math.min(map.state.length - 1, at));
  showMap();
}

$("map").addEventListener("pointermove", (event) => {
  if (!map) return;
  const { size, columns } = layout(mapWidth);
  const [column, line] = [Math.floor(event.offsetX / size), Math.floor(event.offsetY / size)];
  if (column < columns && line * columns + column < map.state.length) choose(line * columns + column);
});
$("map").addEventListener("keydown", (event) => {
  if (!map) return;
  const { columns, count } = layout(mapWidth);
  const to = { ArrowRight: chosen + 1, ArrowLeft: chosen - 1, ArrowDown: chosen + columns, ArrowUp: chosen - columns, Home: 0, End: count - 1 }[event.key];
  if (to === undefined) return;
  event.preventDefault();
  choose(to);
});

function showLegend() {
  $("legend").replaceChildren(...LEGENDS[mode].map(([name, text]) => {
    const [item, swatch] = [document.createElement("li"), document.createElement("i")];
    swatch.className = "swatch";
    swatch.style.background = text.startsWith("framed") ? "transparent" : `var(--${name})`;
    if (text.startsWith("framed")) swatch.style.border = `2px solid var(--${name})`;
    item.append(swatch, text.replace("framed: ", ""));
    return item;
  }));
}
for (const input of document.querySelectorAll("input[name=mode]")) {
  input.addEventListener("change", () => {
    mode = input.value;
    showLegend();
    showMap();
  });
}

// --- Playing a simulation ------------------------------------------------------------------------------------------------

function showPlayer(live) {
  $("player").hidden = !live.playing;
  if (!live.playing) return;
  const { speed, ended, done } = live.playing;
  $("progress").value = done;
  $("pause").disabled = ended;
  $("pause").textContent = ended ? "Ended" : speed === 0 ? "Go on" : "Pause";
  // The slider follows what is, unless somebody moves it.
  if (speed > 0 && document.activeElement !== $("speed")) {
    $("speed").value = Math.log10(speed);
    tellSpeed(speed);
  }
  if (ended) state("ended", false);
}
async function play(change) {
  try {
    await ask("/api/play", change);
    await tick();
  } catch (error) {
    state(error.message, true);
  }
}
const chosenSpeed = () => 10 ** Number($("speed").value);
$("pause").addEventListener("click", () => play({ speed: $("pause").textContent === "Pause" ? 0 : chosenSpeed() }));
const tellSpeed = (speed) => {
  put("speed-text", speed >= 1 ? `${rounded(speed)} virtual seconds a second` : `${rounded(1000 * speed)} virtual ms a second`);
};
$("speed").addEventListener("input", () => tellSpeed(chosenSpeed()));
$("speed").addEventListener("change", () => play({ speed: chosenSpeed() }));

// --- Beginning -------------------------------------------------------------------------------------------------------

const redraw = () => {
  if (last) showCharts();
  showMap();
};
window.addEventListener("resize", redraw);
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
showLegend();
tick();
setInterval(tick, 1000);
