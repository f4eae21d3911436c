// The page: texts in, answers out, and what the dial between quality and speed promises.

import { curve, element, numbers } from "./charts.js";

const MOST_LABELS = 6; // of an exit, the likeliest; more would hide the rest of the page
const STEPS = 20; // of the slider where the model has no dial
const HUES = 6; // colours of spans
const find = (id) => document.getElementById(id);

let model = null;
let key = "";
let asked = 0; // numbers requests, so that a late answer to an old one is dropped

// --- talking to the server

async function call(path, options = {}) {
  const headers = { ...options.headers, ...(key ? { authorization: `Bearer ${key}` } : {}) };
  let reply;
  try {
    reply = await fetch(path, { ...options, headers });
  } catch {
    throw new Error("The server cannot be reached. Is it still running?");
  }
  const said = await reply.json().catch(() => ({}));
  if (reply.status === 401) find("locked").hidden = false;
  if (!reply.ok) throw new Error(said.error ?? `The server answered ${reply.status}.`);
  return said;
}

async function begin() {
  try {
    model = await call("model");
  } catch (error) {
    find("facts").textContent = error.message;
    return;
  }
  find("locked").hidden = true;
  find("name").textContent = model.name;
  document.title = `${model.name} – offramp`;
  const labels = `${model.labels.length} labels`;
  find("facts").textContent = `${model.layers} layers, ${labels}, on ${model.engine}. ${standing()}`;
  find("pairs-hint").hidden = model.word_tags || model.text_pairs === false;
  if (model.text_pairs) find("pairs-hint").textContent = "Each line is a pair of texts with a tab between them.";
  setDial();
  showCurves();
}

function standing() {
  return {
    certified: "A certificate is in force.",
    measured: "The thresholds keep a budget; no risk is promised.",
    void: "The certificate beside the model is void: it is about another model or engine. Run offramp calibrate again.",
    none: "The model has no certificate: nothing is promised. Run offramp calibrate to get one.",
  }[model.certificate_state];
}

// --- the dial

function setDial() {
  const slider = find("point");
  const points = model.dial?.points ?? [];
  const bound = model.certificate_state === "certified" && !model.allow_uncertified;
  const steps = points.length ? (bound ? points.filter((point) => point.certified).length : points.length) - 1 : STEPS;
  slider.max = steps;
  slider.value = points.length ? model.dial.chosen : 0;
  const idle = bound && !points.length;
  slider.disabled = idle;
  slider.title = idle ? "No threshold could be certified." : "";
  readDial();
}

function place() {
  return Number(find("point").value);
}

/** What the slider asks the server for. */
function choice() {
  if (model.dial) return { point: place() };
  if (find("point").disabled) return {};
  return place() ? { policy: "confidence", threshold: threshold() } : { policy: "never" };
}

function threshold() {
  const least = model.label_sets ? 0.5 : 1 / model.labels.length;
  return Number((1 - ((1 - least) * place()) / STEPS).toFixed(4));
}

function readDial() {
  const point = model.dial?.points[place()];
  const tag = find("standing");
  tag.hidden = false;
  tag.classList.toggle("sure", Boolean(point?.certified));
  if (point) {
    const score = point.accuracy === null ? "" : `, accuracy ${point.accuracy.toFixed(3)}`;
    find("reading").textContent = `${point.mean_depth.toFixed(2)} of ${model.layers} layers on average${score}`;
    find("promise").textContent = point.promise;
    tag.textContent = point.certified ? "certified" : "not certified";
  } else if (find("point").disabled) {
    find("reading").textContent = "Every text runs all layers: no threshold could be certified";
    find("promise").textContent = model.promise ?? "";
    tag.textContent = "certified";
  } else {
    const leaves = `An exit answers when it is sure to ${threshold().toFixed(2)}`;
    find("reading").textContent = place() ? leaves : "Every text runs all layers";
    find("promise").textContent = standing();
    tag.textContent = "not certified";
  }
  find("point").setAttribute("aria-valuetext", `${find("reading").textContent}, ${tag.textContent}`);
  if (model.dial) showTrade();
}

// --- answers

function given() {
  const lines = find("texts").value.split("\n").map((line) => line.replace(/\r$/, "")).filter((line) => line.trim());
  if (model.text_pairs === false) return lines;
  const pairs = lines.map((line) => line.split("\t"));
  return lines.length && pairs.every((pair) => pair.length === 2) ? pairs : lines;
}

async function answer() {
  if (!model) return;
  const number = ++asked;
  const texts = given();
  find("problem").textContent = "";
  busy(true);
  try {
    if (!texts.length) throw new Error("There should be a text. Type one, or paste some, one per line.");
    const most = model.limits.max_texts;
    if (texts.length > most) throw new Error(`There should be at most ${most} texts at a time. Found ${texts.length}.`);
    const begun = performance.now();
    const reply = await call("predict", {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ texts, detail: true, ...choice() }),
    });
    if (number !== asked) return;
    show(texts, reply);
    const count = texts.length === 1 ? "1 text" : `${texts.length} texts`;
    find("status").textContent = `${count} answered in ${Math.round(performance.now() - begun)} ms.`;
  } catch (error) {
    if (number !== asked) return;
    find("status").textContent = "";
    find("problem").textContent = error.message;
  } finally {
    if (number === asked) busy(false);
  }
}

function busy(now) {
  find("send").setAttribute("aria-disabled", now);
  if (now) find("status").textContent = "Answering …";
}

function show(texts, reply) {
  find("answers").hidden = false;
  find("list").replaceChildren(
    ...texts.map((text, place) => card([text].flat().join(" ⇥ "), reply.answers[place], reply, place === 0)),
  );
}

/** The label of an answer, or all labels of a set. */
function named(found) {
  if (!found.labels) return String(found.label);
  return found.labels.length ? found.labels.join(", ") : "no label";
}

/** The text with its spans marked. Places count characters as the server does, of which an emoji is one. */
function marked(text, spans) {
  const letters = Array.from(text);
  const parts = [];
  let done = 0;
  for (const span of spans) {
    parts.push(letters.slice(done, span.start).join(""));
    const name = element("small", {}, span.label);
    const title = `${span.label}, probability ${share(span.probability)}, left at depth ${span.depth}`;
    parts.push(element("mark", { class: `hue-${hue(span.label)}`, title }, letters.slice(span.start, span.end).join(""), name));
    done = span.end;
  }
  return [...parts, letters.slice(done).join("")].filter((part) => part !== "");
}

/** The number of a label's colour: its place among the labels of spans. */
function hue(label) {
  const names = [...new Set(model.labels.map(String).filter((tag) => tag !== "O").map((tag) => tag.replace(/^[BI]-(?=.)/, "")))];
  return Math.max(0, names.indexOf(label)) % HUES;
}

/** Where a text left, with its badge, which stays beside it where there is room. */
function leaving(found, ...told) {
  const badge = element("span", { class: found.certified ? "tag sure" : "tag" }, found.certified ? "certified" : "not certified");
  return element("span", { class: "leaving" }, element("span", {}, ...told), badge);
}

/** A text of which the first lines are shown, and the rest on request. */
function folded(...parts) {
  const shown = element("p", { class: "text" }, ...parts);
  const button = element("button", { type: "button", class: "more", "aria-expanded": "false", hidden: "" }, "Show all of it");
  button.addEventListener("click", () => {
    const open = shown.classList.toggle("whole");
    button.setAttribute("aria-expanded", open);
    button.textContent = open ? "Show less" : "Show all of it";
  });
  // Only once it stands in the page is it known what does not fit; a window may become narrower, and details be opened.
  new ResizeObserver(() => {
    if (!shown.classList.contains("whole")) button.hidden = shown.scrollHeight <= shown.clientHeight + 1;
  }).observe(shown);
  return [shown, button];
}

function tagged(text, found, reply, open) {
  const unread = found.tags.filter((tag) => tag === null).length;
  const result = element(
    "p",
    { class: "result" },
    element("span", {}, `${found.spans.length} spans in ${found.words.length} words`),
    element("span", {}, `least probability ${share(found.probability)}`),
    leaving(found, ` last word left at depth ${found.depth} of ${reply.layers}`),
  );
  if (unread) result.append(element("span", { class: "tag" }, `${unread} words not read`));
  const every = found.exits.map((exit) => {
    const words = found.depths.filter((depth) => depth === exit.depth).length;
    const title = `Exit ${exit.depth}: ${words} words left here${exit.trained ? "" : " (not trained)"}`;
    return element("div", { class: words ? "exit left" : "exit" }, element("p", { class: "hint" }, title), ...folded(...marked(text, exit.spans)));
  });
  const detail = element("details", open ? { open: "" } : {}, element("summary", {}, "What every exit says"), element("div", { class: "exits" }, ...every));
  return element("li", { class: "answer" }, ...folded(...marked(text, found.spans)), result, detail);
}

function card(text, found, reply, open) {
  if (found.tags) return tagged(text, found, reply, open);
  const track = element("span", { class: "track", "aria-hidden": "true" });
  for (let depth = 1; depth <= reply.layers; depth++) track.append(element("span", depth <= found.depth ? { class: "ran" } : {}));
  const result = element(
    "p",
    { class: "result" },
    element("span", { class: "label" }, named(found)),
    element("span", {}, `${found.labels ? "least sure label" : "probability"} ${share(found.probability)}`),
    leaving(found, track, ` left at depth ${found.depth} of ${reply.layers}`),
  );
  if (found.cut) result.append(element("span", { class: "tag" }, `cut to ${model.max_tokens} tokens`));
  const every = element("div", { class: "exits" }, ...found.exits.map((exit) => table(exit, reply.labels, found.depth)));
  const detail = element("details", open ? { open: "" } : {}, element("summary", {}, "What every exit says"), every);
  return element("li", { class: "answer" }, ...folded(text), result, detail);
}

function table(exit, labels, left) {
  const order = labels.map((_, place) => place).sort((a, b) => exit.probabilities[b] - exit.probabilities[a]);
  const shown = order.slice(0, MOST_LABELS);
  const rows = shown.map((place, rank) =>
    element(
      "tr",
      (exit.labels ? exit.labels.includes(labels[place]) : rank === 0) ? { class: "top" } : {},
      element("th", { scope: "row" }, String(labels[place])),
      element("td", {}, bar(exit.probabilities[place], 1, share(exit.probabilities[place]))),
      element("td", {}, bar(exit.distances[place], 2, exit.distances[place].toFixed(2), "far")),
    ),
  );
  const rest = order.length - shown.length;
  const here = exit.depth === left ? ": left here" : exit.depth > left ? ": not needed" : "";
  const title = `Exit ${exit.depth}${here}${exit.trained ? "" : " (not trained)"}`;
  const head = ["label", "probability", "distance"].map((name) => element("th", { scope: "col" }, name));
  const made = element(
    "table",
    {},
    element("caption", {}, title),
    element("thead", {}, element("tr", {}, ...head)),
    element("tbody", {}, ...rows),
  );
  const box = element("div", { class: exit.depth === left ? "exit left" : "exit" }, made);
  if (rest) box.append(element("p", { class: "hint" }, `and ${rest} less likely labels`));
  return box;
}

function bar(value, most, told, kind = "") {
  const filled = element("b");
  filled.style.width = `${Math.max(0, Math.min(100, (100 * value) / most))}%`;
  return element("div", { class: `bar ${kind}` }, element("i", { "aria-hidden": "true" }, filled), element("span", {}, told));
}

function share(value) {
  return value.toFixed(3);
}

// --- curves

function showTrade() {
  const box = find("trade");
  const points = model.dial.points;
  if (points[0].accuracy === null) return without(box, "The texts of the calibration had no labels: there is no accuracy to draw.");
  const drawn = curve({
    points: points.map((point) => ({ x: point.mean_depth, y: point.accuracy, hollow: !point.certified })),
    labels: { x: "mean layers run" },
    here: place(),
    name: "Accuracy against the mean number of layers; the table below has its numbers.",
  });
  const rows = points.map((point, number) => [
    String(number), point.mean_depth.toFixed(2), point.accuracy.toFixed(4), point.certified ? "yes" : "no",
  ]);
  const told =
    `Accuracy of the dial's points on ${model.dial.texts} texts of the calibration. ` +
    "Filled points are certified, hollow ones are not; the ring is where the slider stands.";
  const open = box.querySelector("details")?.open;
  fill(box, drawn, told, numbers(["point", "layers", "accuracy", "certified"], rows, "Speed and quality"));
  box.querySelector("details").open = Boolean(open);
}

function showCurves() {
  if (!model.dial) {
    const why = model.certificate_state === "certified"
      ? "no threshold could be certified. More texts, or a larger drop, may do, in offramp calibrate."
      : "the model folder has no dial. offramp calibrate measures one.";
    without(find("trade"), `There is no curve: ${why}`);
  }
  if (!model.scores) {
    without(find("layers"), "There is no curve: neither training nor calibration left the scores of the exits in the model folder.");
    return;
  }
  const scores = Object.entries(model.scores.by_exit).map(([depth, score]) => ({ x: Number(depth), y: score }));
  const drawn = curve({
    points: scores,
    labels: { x: "depth of the exit" },
    name: `${model.scores.metric} of each exit; the table below has its numbers.`,
  });
  const rows = scores.map(({ x, y }) => [String(x), y.toFixed(4)]);
  const told = `What each exit scores (${model.scores.metric}) if every text leaves there, on ${model.scores.source}.`;
  fill(find("layers"), drawn, told, numbers(["depth", model.scores.metric], rows, "Score of each exit"));
}

function fill(box, drawn, caption, table) {
  box.replaceChildren(box.querySelector("h3"), drawn, element("figcaption", {}, caption), table);
}

function without(box, why) {
  box.replaceChildren(box.querySelector("h3"), element("p", { class: "soft" }, why));
}

// --- what the user does

find("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  answer();
});
find("texts").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    answer();
  }
});
find("point").addEventListener("input", readDial);
find("point").addEventListener("change", () => {
  if (!find("answers").hidden) answer();
});
find("locked").addEventListener("submit", (event) => {
  event.preventDefault();
  key = find("key").value.trim();
  begin();
});
begin();
