// From the counts that the service keeps to what is drawn: few points, so that a curve is a curve.

const SUMMED = ["copies", "lean", "guide", "fallback", "refused", "labels", "wrong"];
const ENDS = ["round", "unsure"]; // what is not summed

// Neighbouring bins together, at most so many points.
export function grouped(series, most) {
  const bins = series?.round?.length ?? 0;
  if (!bins) return [];
  const width = Math.max(1, Math.ceil(bins / most));
  const points = [];
  let unsure = 0;
  for (let start = 0; start < bins; start += width) {
    const end = Math.min(bins, start + width);
    const point = { from: series.round[start], to: series.round[end - 1] + series.width - 1 };
    for (const name of new Set([...SUMMED, ...Object.keys(series).filter((one) => Array.isArray(series[one]) && !ENDS.includes(one))])) {
      point[name] = 0;
      for (let i = start; i < end; i++) point[name] += series[name]?.[i] ?? 0;
    }
    for (let i = start; i < end; i++) unsure = Math.max(unsure, series.unsure?.[i] ?? 0);
    point.unsure = unsure;
    points.push(point);
  }
  return points;
}

// Round numbers for an axis from 0 (or low) to high.
export function ticks(low, high, about = 4) {
  const span = high - low || 1;
  const raw = span / about;
  const unit = 10 ** Math.floor(Math.log10(raw));
  const step = [5, 2, 1].map((one) => one * unit).find((one) => one <= raw);
  const found = [];
  for (let at = Math.ceil(low / step) * step; at <= high + 1e-9 * span; at += step) found.push(Number(at.toPrecision(12)));
  return found;
}

// Round times of day for an axis of seconds since 1970, or days where it is long; in the reader's own time.
const STEPS = [60, 300, 600, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800, 2592000];
export function moments(low, high, about) {
  const step = STEPS.find((one) => (high - low) / one <= about) ?? STEPS.at(-1) * Math.ceil((high - low) / about / STEPS.at(-1));
  const shift = 60 * new Date(1000 * high).getTimezoneOffset();
  const at = [];
  for (let one = Math.ceil((low - shift) / step) * step + shift; one <= high; one += step) at.push(one);
  const form = step < 86400 ? { hour: "2-digit", minute: "2-digit", hour12: false } : { day: "numeric", month: "short" };
  return { at, format: (one) => new Intl.DateTimeFormat("en", form).format(new Date(1000 * one)) };
}

export const when = (time) => new Intl.DateTimeFormat("en", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", hour12: false }).format(new Date(1000 * time));

export const short = (value) =>
  value >= 1e6 ? `${Number((value / 1e6).toPrecision(3))} M` : value >= 1e4 ? `${Number((value / 1e3).toPrecision(3))} k` : value.toLocaleString("en");
