// What the dashboard needs of the text for Prometheus: counts and quantiles of each operation of a model.

const LINE = /^(\w+)\{([^}]*)\} (\S+)$/;
const LABEL = /(\w+)="((?:[^"\\]|\\.)*)"/g;

export function read(text) {
  const rows = [];
  for (const line of text.split("\n")) {
    const found = LINE.exec(line);
    if (found === null) continue;
    const labels = Object.fromEntries([...found[2].matchAll(LABEL)].map((one) => [one[1], one[2]]));
    rows.push({ name: found[1], labels, value: Number(found[3]) });
  }
  return rows;
}

// [{operation, requests, refused, quantiles: [p50, p95, p99]}] of one model, by operation.
export function latencies(rows, model) {
  const operations = new Map();
  const of = (name) => {
    if (!operations.has(name)) operations.set(name, { operation: name, requests: 0, refused: 0, buckets: [] });
    return operations.get(name);
  };
  for (const { name, labels, value } of rows) {
    if (labels.model !== model) continue;
    if (name === "confide_requests_total") {
      of(labels.operation).requests += value;
      if (Number(labels.status) >= 400) of(labels.operation).refused += value;
    } else if (name === "confide_request_seconds_bucket") {
      of(labels.operation).buckets.push([labels.le === "+Inf" ? Infinity : Number(labels.le), value]);
    }
  }
  return [...operations.values()].map((one) => ({ ...one, quantiles: [0.5, 0.95, 0.99].map((q) => quantile(one.buckets, q)) }));
}

// Within a bucket the times are taken to be spread evenly; beyond the last one nothing is known but that.
export function quantile(buckets, q) {
  const sorted = [...buckets].sort((a, b) => a[0] - b[0]);
  const total = sorted.at(-1)?.[1] ?? 0;
  if (!total) return null;
  let [low, before] = [0, 0];
  for (const [high, count] of sorted) {
    if (count >= q * total) return high === Infinity ? low : low + ((high - low) * (q * total - before)) / (count - before || 1);
    [low, before] = [high, count];
  }
  return low;
}
