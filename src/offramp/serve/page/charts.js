// Two curves, drawn as SVG from numbers, each with the same numbers as a table for whoever cannot see it.

const SPACE = { left: 46, right: 14, top: 14, bottom: 40 };
const SIZE = { width: 460, height: 250 };

export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  return filled(made, attributes, children);
}

function drawn(name, attributes = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

function filled(made, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

/** A curve of points {x, y, hollow} with axes; `here` is the place that is ringed. */
export function curve({ points, labels, here, name }) {
  const [low, high] = range(points.map((point) => point.y), 0.01);
  const [first, last] = range(points.map((point) => point.x), 0.5);
  const wide = SIZE.width - SPACE.left - SPACE.right;
  const tall = SIZE.height - SPACE.top - SPACE.bottom;
  const across = (x) => SPACE.left + ((x - first) / (last - first)) * wide;
  const up = (y) => SPACE.top + (1 - (y - low) / (high - low)) * tall;
  const sheet = drawn("svg", { viewBox: `0 0 ${SIZE.width} ${SIZE.height}`, role: "img", "aria-label": name });
  for (const [y, told] of ticks(low, high, 4)) {
    sheet.append(
      drawn("path", { class: "axis", d: `M${SPACE.left} ${up(y)}H${SIZE.width - SPACE.right}` }),
      drawn("text", { x: SPACE.left - 6, y: up(y) + 4, "text-anchor": "end" }, told),
    );
  }
  for (const [x, told] of ticks(first, last, 8)) {
    sheet.append(drawn("text", { x: across(x), y: SIZE.height - 22, "text-anchor": "middle" }, told));
  }
  sheet.append(
    drawn("text", { x: SPACE.left + wide / 2, y: SIZE.height - 5, "text-anchor": "middle" }, labels.x),
    drawn("path", { class: "curve", d: points.map(({ x, y }, n) => `${n ? "L" : "M"}${across(x)} ${up(y)}`).join("") }),
  );
  for (const { x, y, hollow } of points) {
    sheet.append(drawn("circle", { class: hollow ? "dot hollow" : "dot", cx: across(x), cy: up(y), r: 4 }));
  }
  if (here !== undefined && points[here]) {
    sheet.append(drawn("circle", { class: "here", cx: across(points[here].x), cy: up(points[here].y), r: 8 }));
  }
  return sheet;
}

/** The numbers behind a curve, folded away. */
export function numbers(head, rows, caption) {
  const top = element("tr", {}, ...head.map((cell) => element("th", { scope: "col" }, cell)));
  const body = rows.map((row) => element("tr", {}, ...row.map((cell) => element("td", {}, cell))));
  const table = element("table", {}, element("caption", {}, caption), element("thead", {}, top), element("tbody", {}, ...body));
  const scroll = element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption }, table);
  return element("details", {}, element("summary", {}, "The same as a table"), scroll);
}

function range(values, least) {
  const low = Math.min(...values);
  const high = Math.max(...values);
  const room = Math.max((high - low) * 0.12, least / 2);
  return [low - room, high + room];
}

/** Round numbers between two others, each with how it is written. */
function ticks(low, high, most) {
  const rough = (high - low) / most;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((times) => times * power).find((each) => each >= rough);
  const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  const found = [];
  for (let tick = Math.ceil(low / step); tick * step <= high; tick++) found.push([tick * step, (tick * step).toFixed(digits)]);
  return found;
}
