// Elements by hand: text is always text, so nothing that comes from elsewhere can become a script.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export const h = (name, attributes, ...children) => fill(document.createElement(name), attributes, children);
export const s = (name, attributes, ...children) => fill(document.createElementNS(SVG, name), attributes, children);

// What stands between backticks is code.
export const coded = (text) => String(text).split("`").map((part, i) => (i % 2 ? h("code", null, part) : part));

export const whole = (value) => (value === null || value === undefined ? "–" : Math.round(value).toLocaleString("en"));
export const share = (value, digits = 1) =>
  value === null || value === undefined ? "–" : `${(100 * value).toFixed(digits)} %`;
// As it is promised, to four digits: 41 for 40.99999994, 1e-6 for 0.000001.
export const exact = (value) => (value < 1e-3 ? value.toExponential(3).replace(/\.?0*e/, "e") : String(Number(value.toPrecision(4))));
export function bytes(value) {
  if (value === undefined || value === null) return "–";
  const units = ["bytes", "kB", "MB", "GB"];
  let at = 0;
  while (value >= 1000 && at < units.length - 1) [value, at] = [value / 1000, at + 1];
  return `${at ? value.toFixed(1) : value} ${units[at]}`;
}
export function seconds(value) {
  if (value === null) return "–";
  return value < 0.9995 ? `${Number((1000 * value).toPrecision(2))} ms` : `${Number(value.toPrecision(2))} s`;
}

// Replace what is inside only if it says something else: what has the focus keeps it.
export function put(parent, ...children) {
  const next = h("div", null, ...children);
  if (next.innerHTML !== parent.innerHTML) parent.replaceChildren(...next.childNodes);
}
