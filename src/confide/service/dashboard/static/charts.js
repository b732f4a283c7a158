// Two pictures, drawn at the size that they have on the screen so that letters stay readable; the numbers are beside.

import { h, s } from "./dom.js";
import { moments, short, ticks } from "./series.js";

const HEIGHT = 210;
const PAD = { left: 46, right: 10, top: 12, bottom: 34 };

// A figure whose picture is drawn anew when its width or its data change.
export function figure(title, table) {
  const canvas = h("div", { class: "canvas" });
  const numbers = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `${title}, in numbers` });
  const legend = h("ul", { class: "legend" });
  const element = h("figure", null, h("figcaption", null, title), canvas, legend,
    h("details", null, h("summary", null, "In numbers"), numbers));
  let draw = null;
  const again = () => draw !== null && canvas.clientWidth > 0 && canvas.replaceChildren(draw(canvas.clientWidth));
  new ResizeObserver(again).observe(canvas);
  return {
    element,
    show(drawn, keys, said, rows) {
      draw = (width) => {
        const svg = drawn(width);
        svg.setAttribute("role", "img");
        svg.setAttribute("aria-label", `${title}. ${said}`);
        return svg;
      };
      legend.replaceChildren(...keys.map(([name, kind]) => h("li", null, h("span", { class: `key ${kind}`, "aria-hidden": "true" }), name)));
      numbers.replaceChildren(tabled(table, rows));
      again();
    },
    empty(why) {
      draw = null;
      legend.replaceChildren();
      numbers.replaceChildren(h("p", null, why));
      canvas.replaceChildren(h("p", { class: "empty" }, why));
    },
  };
}

function tabled(heads, rows) {
  return h("table", null,
    h("thead", null, h("tr", null, heads.map((one) => h("th", { scope: "col" }, one)))),
    h("tbody", null, rows.map((row) => h("tr", null, row.map((one) => h("td", null, one))))));
}

// The axis below: rounds, or, where `clock` says so, the time of day.
function below(x, about, clock) {
  if (!clock) return { at: ticks(x[0], x[1], about), format: short, name: "round" };
  const { at, format } = moments(x[0], x[1], about);
  return { at, format, name: "" };
}

function frame(width, x, y, format, clock = false) {
  const inner = { width: width - PAD.left - PAD.right, height: HEIGHT - PAD.top - PAD.bottom };
  const px = (value) => PAD.left + (inner.width * (value - x[0])) / (x[1] - x[0] || 1);
  const py = (value) => PAD.top + inner.height * (1 - value / (y || 1));
  const svg = s("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, width, height: HEIGHT, class: "chart" });
  for (const at of ticks(0, y, 3)) {
    svg.append(s("line", { class: "grid", x1: PAD.left, x2: width - PAD.right, y1: py(at), y2: py(at) }),
      s("text", { class: "tick", x: PAD.left - 6, y: py(at) + 4, "text-anchor": "end" }, format(at)));
  }
  const axis = below(x, Math.max(2, Math.floor(inner.width / 130)), clock);
  for (const at of axis.at) {
    const anchor = px(at) > width - 26 ? "end" : "middle";
    svg.append(s("text", { class: "tick", x: px(at), y: HEIGHT - 18, "text-anchor": anchor }, axis.format(at)));
  }
  svg.append(s("text", { class: "tick", x: PAD.left + inner.width / 2, y: HEIGHT - 3, "text-anchor": "middle" }, axis.name));
  return { svg, px, py };
}

// Where epochs of a plan without an end begin: over whatever else is drawn.
function cut(svg, px, x, cuts) {
  for (const at of cuts.filter((one) => one > x[0] && one < x[1])) {
    svg.append(s("line", { class: "cut", x1: px(at), x2: px(at), y1: PAD.top, y2: HEIGHT - PAD.bottom }, s("title", null, `a new epoch, after round ${short(at)}`)));
  }
  return svg;
}

// lines: [{kind, points: [[x, y], …]}], drawn in this order.
export function lines(width, { x, y, format, lines: drawn, marks = [], cuts = [], clock = false }) {
  const { svg, px, py } = frame(width, x, y, format, clock);
  for (const { kind, points } of drawn) {
    const path = points.map(([a, b], i) => `${i ? "L" : "M"}${px(a).toFixed(1)} ${py(Math.min(b, y)).toFixed(1)}`).join("");
    svg.append(s("path", { class: `line ${kind}`, d: path }));
    if (points.length === 1) svg.append(s("circle", { class: `dot ${kind}`, cx: px(points[0][0]), cy: py(points[0][1]), r: 3.5 }));
  }
  for (const { kind, at, low, high } of marks) {
    if (high > low) {
      svg.append(s("rect", {
        class: `band ${kind}`, x: PAD.left, width: width - PAD.left - PAD.right, y: py(Math.min(high, y)),
        height: Math.max(0, py(Math.max(low, 0)) - py(Math.min(high, y))),
      }));
    }
    svg.append(s("line", { class: `line ${kind}`, x1: PAD.left, x2: width - PAD.right, y1: py(Math.min(at, y)), y2: py(Math.min(at, y)) }));
  }
  return cut(svg, px, x, cuts);
}

// bars: [{from, to, parts: [share, …]}] with shares that add up to 1, one class of kinds for each part.
export function stacks(width, { x, format, kinds, bars, cuts = [] }) {
  const { svg, px, py } = frame(width, x, 1, format);
  for (const { from, to, parts } of bars) {
    let below = 0;
    const left = px(from), wide = Math.max(0.5, px(to + 1) - left - (px(to + 1) - left > 4 ? 1 : 0));
    parts.forEach((part, i) => {
      if (part > 0) svg.append(s("rect", { class: `fill ${kinds[i]}`, x: left, width: wide, y: py(below + part), height: Math.max(0, py(below) - py(below + part)) }));
      below += part;
    });
  }
  return cut(svg, px, x, cuts);
}
