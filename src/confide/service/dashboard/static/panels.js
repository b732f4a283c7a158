// What is seen of one model: each panel is an element and a way to bring it up to date.

import { figure, lines, stacks } from "./charts.js";
import { bytes, coded, exact, h, put, seconds, share, whole } from "./dom.js";
import { latencies } from "./prometheus.js";
import { grouped, short, when } from "./series.js";

const POINTS = 60;
const OWN = ["audit"]; // this page looks whether an audit runs: nobody asked for one
const SOURCES = [["copies", "sure: the copies"], ["lean", "lean"], ["guide", "guide"], ["fallback", "fallback"], ["refused", "refused"]];

const shade = (name) => (SOURCES.some(([known]) => known === name) ? name : "guide"); // the colour of other parts

export function panel(title, ...children) {
  return h("section", { class: "panel" }, h("h3", null, title), ...children);
}

function facts(pairs, kind = "facts") {
  return h("dl", { class: kind }, pairs.map(([name, value]) => h("div", { class: String(value).length > 28 ? "long" : null }, h("dt", null, name), h("dd", null, value))));
}

// ------------------------------------------------------------------ what may be shown

export function promise() {
  const sentence = h("p", { class: "sentence" });
  const where = h("div");
  const plan = h("pre", { class: "scroll", tabindex: "0", "aria-label": "The plan" });
  return {
    element: panel("The promise", sentence, where, h("details", null, h("summary", null, "The plan"), plan)),
    update({ public: seen }) {
      const { guarantee, monitor, guide } = seen;
      put(sentence, guarantee.secure === false
        ? h("strong", { class: "alarm" }, "Insecure: this model was made with a seed, for a test, so nothing is promised.")
        : guarantee.sentence);
      put(where, facts([
        ["Promised", `ε = ${exact(guarantee.epsilon)}, δ = ${exact(guarantee.delta)}`],
        ["To each", seen.units === "people" ? "person" : "round"],
        ["Protected", seen.protected],
        ["State", seen.standing ?? seen.state],
        ["Rounds", seen.planned_rounds ? `${whole(seen.rounds)} of ${whole(seen.planned_rounds)}` : whole(seen.rounds)],
        ["Labels", seen.labels.join(", ")],
        guide ? ["Noisy sums of the guide", whole(guide.released)] : null,
        ["The private monitor", monitored(seen, monitor)],
      ].filter(Boolean)));
      put(plan, typeof seen.plan === "string" ? seen.plan : JSON.stringify(seen.plan, null, 1));
    },
  };
}

// Of a person only the first rounds are counted, and which part of all rounds that is the monitor does not say: then the
// count is no rate, and none is made of it.
function monitored(seen, monitor) {
  if (!monitor) return "none yet, or none in the plan";
  return `${whole(monitor.mistakes)} wrong answers, give or take ${whole(monitor.error)}, ${among(seen, monitor)}`;
}

function among(seen, monitor) {
  const first = monitor.rounds_per_unit > 1 ? `first ${whole(monitor.rounds_per_unit)} answers` : "first answer";
  return seen.units === "people" ? `among the ${first} to each person` : `in ${whole(monitor.rounds)} rounds`;
}

function rates({ units, monitor }) {
  if (!monitor || units === "people") return null;
  const rounds = Math.max(1, monitor.rounds);
  return { rate: Math.min(1, Math.max(0, monitor.mistakes / rounds)), within: Math.min(1, monitor.error / rounds) };
}

export function learned() {
  const shares = h("div");
  const element = panel("What it has learned from", shares);
  return {
    element,
    update({ public: seen }) {
      const found = Object.entries(seen.guide?.importance ?? {});
      element.hidden = !seen.guide;
      put(shares, found.length ? h("table", { class: "shares" }, h("tbody", null, found.map(([name, part]) =>
        h("tr", null, h("th", { scope: "row" }, name), h("td", null, h("meter", { min: 0, max: 1, value: part, "aria-label": name })), h("td", null, share(part, 0)))))) : null,
      h("p", { class: "hint" }, found.length
        ? "Of what stands out of the noise in the guide's released sums, the part of each column. Columns that are not here do not stand out."
        : "No column stands out of the noise of the guide's released sums yet, or its columns have no names."));
    },
  };
}

// ------------------------------------------------------------------ for your eyes

const epochs = (seen) => seen.guide?.epochs ?? [];
const epochKey = (seen) => (epochs(seen).length ? [["a new epoch", "epoch"]] : []);

export function overTime() {
  const chart = figure("Since the service began", ["time", "rounds", "labels that came", "labels learned", "mistakes, by the private monitor"]);
  const KINDS = [["rounds", "rounds", "plan"], ["labels", "labels that came", "own"], ["learned", "labels learned", "learned"], ["mistakes", "mistakes, by the private monitor", "monitor"]];
  return {
    element: panel("Over time", chart.element),
    update({ service }) {
      const points = service.past ?? [];
      if (points.length < 2) return chart.empty("One moment is seen so far; a line needs a minute.");
      const used = KINDS.filter(([name]) => points.some((one) => one[name] !== null));
      const most = Math.max(1, ...points.map((one) => one.rounds));
      chart.show((width) => lines(width, {
        x: [points[0].time, points.at(-1).time], y: 1.1 * most, format: short, clock: true,
        lines: used.map(([name, , kind]) => ({ kind, points: points.filter((one) => one[name] !== null).map((one) => [one.time, Math.max(0, one[name])]) })),
      }), used.map(([, words, kind]) => [words, kind]),
      used.map(([name, words]) => `${words} ${whole(points.at(-1)[name])}`).join(", "),
      points.map((one) => [when(one.time), ...KINDS.map(([name]) => whole(one[name]))]));
    },
  };
}

export function deeds() {
  const list = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Who did what" });
  return {
    element: panel("Who did what at this door", list),
    update({ service }) {
      const done = service.deeds ?? [];
      put(list, done.length
        ? h("table", { class: "deeds" }, h("thead", null, h("tr", null, ["when", "operator", "did"].map((one) => h("th", { scope: "col" }, one)))),
            h("tbody", null, done.map((one) => h("tr", null, h("td", null, when(one.time)), h("td", null, one.operator.replace(/^tokens:/, "")), h("td", null, DEEDS[one.operation] ?? one.operation)))))
        : h("p", { class: "empty" }, "Nobody did anything since the service began."));
    },
  };
}

const DEEDS = {
  person: "looked a person up", forget: "forgot a person", drain: "began or ended draining", save: "wrote a snapshot",
  history: "taught history", audit: "began an audit", "audit/stop": "stopped an audit",
};

export function spending() {
  const big = h("div");
  const chart = figure("Unsure answers spent", ["by round", "spent", "even pace"]);
  return {
    element: panel("Budget spent", big, chart.element),
    update({ public: seen, private: held }) {
      const points = grouped(held.series, POINTS), planned = held.planned_unsure ?? 0, last = seen.planned_rounds ?? 0;
      if (!planned) {
        put(big, h("p", null, seen.protect === "labels"
          ? "Labels alone are protected: each is randomized once, when it comes, and answers cost nothing."
          : "This plan has no copies: answers cost nothing. The guide's noisy sums are paid for by the plan, whoever asks."));
        chart.element.hidden = true;
        return;
      }
      chart.element.hidden = false;
      put(big, h("p", { class: "big" }, share(held.spent), h("small", null, ` ${whole(held.unsure)} of ${whole(planned)} planned unsure answers`)),
        h("meter", { min: 0, max: 1, low: 0.75, high: 0.95, optimum: 0, value: Math.min(1, held.spent), "aria-label": "Share of the budget that is spent" }));
      if (!points.length) return chart.empty("No round was asked yet.");
      const pace = (round) => (last ? (planned * round) / last : 0);
      const end = points.at(-1).to, x = [points[0].from - 1, end];
      const most = Math.max(1, pace(end), ...points.map((one) => one.unsure));
      chart.show((width) => lines(width, {
        x, y: 1.1 * most, format: short, cuts: epochs(seen),
        lines: [{ kind: "plan", points: [[x[0], pace(x[0])], [end, pace(end)]] }, { kind: "own", points: points.map((one) => [one.to, one.unsure]) }],
      }), [["spent", "own"], ["even pace to the plan's end", "plan"]],
      `${whole(held.unsure)} of ${whole(planned)} by round ${whole(seen.rounds)}`,
      points.map((one) => [whole(one.to), whole(one.unsure), whole(pace(one.to))]));
    },
  };
}

export function sources() {
  const chart = figure("Who answered", ["rounds", "sure", "lean", "guide", "fallback", "refused"]);
  const now = h("div");
  return {
    element: panel("Sure, lean, guided, fallback", now, chart.element),
    update({ public: seen, private: held }) {
      const shares = held.shares ?? {};
      const parts = Object.keys(shares).filter((name) => !SOURCES.some(([known]) => known === name)); // of the plan's own
      const kinds = [...SOURCES, ...parts.map((name) => [name, name])];
      put(now, facts(kinds.filter(([name]) => name !== "refused").map(([name, words]) => [words, share(shares[name])]), "facts four"));
      const points = grouped(held.series, POINTS).map((one) => ({ ...one, all: kinds.reduce((sum, [name]) => sum + one[name], 0) })).filter((one) => one.all);
      if (!points.length) return chart.empty("No round was asked yet.");
      const used = kinds.filter(([name]) => points.some((one) => one[name]));
      chart.show((width) => stacks(width, {
        x: [points[0].from - 1, points.at(-1).to], format: (at) => share(at, 0), kinds: used.map(([name]) => shade(name)),
        bars: points.map((one) => ({ from: one.from - 1, to: one.to - 1, parts: used.map(([name]) => one[name] / one.all) })), cuts: epochs(seen),
      }), [...used.map(([name, words]) => [words, shade(name)]), ...epochKey(seen)],
      used.map(([name, words]) => `${words} ${share(points.at(-1)[name] / points.at(-1).all, 0)}`).join(", ") + " at the end",
      points.map((one) => [`${whole(one.from)} to ${whole(one.to)}`, ...SOURCES.map(([name]) => share(one[name] / one.all))]));
    },
  };
}

export function errors() {
  const chart = figure("Wrong answers among those whose label came", ["rounds", "labels", "wrong"]);
  const both = h("div", { class: "pair" });
  return {
    element: panel("Error", both, chart.element),
    update({ public: seen, private: held }) {
      put(both,
        h("div", null, h("span", { class: "mark eyes" }, "for your eyes"), h("p", { class: "big" }, share(held.error)),
          h("p", null, `of ${whole(held.labels)} labels that came since the model was opened`
            + (seen.protect === "labels" ? ": an estimate, from what came out for them" : ""))),
        seen.protect === "labels" ? null : h("div", null, h("span", { class: "mark shown" }, "may be shown"), h("p", { class: "big" }, rates(seen) ? share(rates(seen).rate) : seen.monitor ? `${whole(seen.monitor.mistakes)} ± ${whole(seen.monitor.error)}` : "–"),
          h("p", null, `the private monitor: ${rates(seen) || !seen.monitor ? monitored(seen, seen.monitor) : `wrong answers ${among(seen, seen.monitor)}`}`)));
      const points = grouped(held.series, POINTS).filter((one) => one.labels);
      if (!points.length) return chart.empty("No label has come yet.");
      const { truth, lie } = held.response ?? { truth: 1, lie: 0 };
      for (const one of points) { // an estimate may be beyond
        const found = ((one.differed ?? one.wrong) - (1 - truth) * one.labels) / (truth - lie);
        one.wrong = Math.min(one.labels, Math.max(0, found));
      }
      const rows = points.map((one) => [(one.from + one.to) / 2, one.wrong / one.labels]);
      const marks = [];
      if (rates(seen)) {
        const { rate, within } = rates(seen);
        marks.push({ kind: "monitor", at: rate, low: rate - within, high: rate + within });
      }
      const most = Math.min(1, 1.15 * Math.max(0.05, ...rows.map((one) => one[1]), ...marks.map((one) => one.at)));
      chart.show((width) => lines(width, {
        x: [points[0].from - 1, points.at(-1).to], y: most, format: (at) => share(at, most < 0.1 ? 1 : 0), lines: [{ kind: "own", points: rows }], marks, cuts: epochs(seen),
      }), [["from labels that came", "own"], ...(marks.length ? [["the private monitor, over all its rounds", "monitor"]] : []), ...epochKey(seen)],
      `${share(rows.at(-1)[1])} at the end`,
      points.map((one) => [`${whole(one.from)} to ${whole(one.to)}`, whole(one.labels), share(one.wrong / one.labels)]));
    },
  };
}

export function latency() {
  const table = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Latency, in numbers" });
  return {
    element: panel("Latency", h("p", { class: "hint" }, "From a request's end to its response, without pacing, since the service began."), table),
    update({ name }, rows) {
      const found = latencies(rows, name).filter((one) => one.quantiles[0] !== null && !OWN.includes(one.operation)).sort((a, b) => b.requests - a.requests);
      put(table, found.length
        ? h("table", null, h("thead", null, h("tr", null, ["what", "count", "half", "95 %", "99 %"].map((one) => h("th", { scope: "col" }, one)))),
            h("tbody", null, found.map((one) => h("tr", null, h("th", { scope: "row" }, one.operation, one.refused ? h("small", null, ` ${whole(one.refused)} refused`) : null), h("td", null, whole(one.requests)), one.quantiles.map((q) => h("td", null, seconds(q)))))))
        : h("p", { class: "empty" }, "No request came yet."));
    },
  };
}

export function queue() {
  const now = h("div");
  return {
    element: panel("The house", now),
    update({ private: held, service }) {
      const { waiting } = service;
      put(now, facts([
        ["Questions waiting", whole(waiting.ask)], ["Labels waiting", whole(waiting.label)],
        ["Open tickets", whole(held.open_tickets)], [held.labels_over == null ? "Lessons of the copies" : "Labels taught", whole(held.taught)],
        held.late_labels ? ["Labels that came too late to teach", `${whole(held.late_labels)} since the model was opened`] : null,
        held.guide_labels == null ? null : ["Labels that the guide learned", `${whole(held.guide_labels)} of ${whole(held.labels)} brought: of each person at most ${whole(held.most_guide_labels)}`],
        held.people_ended == null ? null : ["People who taught in all their periods, and teach no more", whole(held.people_ended)],
        held.labels_over == null ? null : ["Labels past a person's cap, not taken", whole(held.labels_over)],
        ["Memory of the copies", bytes(held.nbytes)],
        ["Late responses", service.release_every === null ? "not paced" : whole(service.late)],
      ].filter(Boolean)));
    },
  };
}

export function alarms() {
  const element = h("div", { class: "alarms", role: "alert" });
  return {
    element,
    update({ private: held, service }) {
      const all = [...(held.alarms ?? [])];
      if (service.failure) all.push(service.failure);
      if (service.late) all.push(`${whole(service.late)} responses missed their tick: take a longer release_every, or fewer requests.`);
      if (service.draining) all.push("This model takes no questions now.");
      put(element, all.map((one) => h("p", { class: "alarm" }, coded(one))));
    },
  };
}
