// What an operator does: look somebody up, forget them, drain, save, audit. Each asks before it cannot be undone.

import * as api from "./api.js";
import { h, put, share, whole } from "./dom.js";
import { panel } from "./panels.js";

let count = 0;

// A dialog of the browser's own: the keyboard stays inside, Escape leaves, and the focus goes back.
function confirmed(title, words, doing) {
  return new Promise((resolve) => {
    const id = `ask-${++count}`;
    const dialog = h("dialog", { "aria-labelledby": id },
      h("h2", { id }, title), h("p", null, words),
      h("div", { class: "row" },
        h("button", { type: "button", class: "danger", onclick: () => dialog.close("yes") }, doing),
        h("button", { type: "button", autofocus: true, onclick: () => dialog.close("no") }, "Leave it")));
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue === "yes");
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

// Runs work with its button off; what goes wrong is told where notices are.
async function run(button, notice, work) {
  button.setAttribute("aria-disabled", "true");
  try {
    await work();
  } catch (error) {
    notice(error.message, true);
  } finally {
    button.removeAttribute("aria-disabled");
  }
}

const WORDS = {
  rounds: "rounds that are remembered", labels: "of them with a label", open_tickets: "open tickets",
  unsure: "unsure answers counted for them", guide_labels: "labels of theirs that were learned", monitored: "rounds in the monitor",
  periods: "periods in which they taught",
};
const MOST = { unsure: "most_unsure", guide_labels: "most_guide_labels", periods: "most_periods" };

export function person(model, notice) {
  const input = h("input", { id: "subject", name: "subject", required: true, maxlength: 256, autocomplete: "off", spellcheck: "false" });
  const found = h("div", { role: "status" });
  const look = h("button", null, "Look up");
  const forget = h("button", { type: "button", class: "danger" }, "Forget this person");
  const form = h("form", { autocomplete: "off" },
    h("label", { for: "subject" }, "The subject in their token"), h("div", { class: "row" }, input, look));
  const asked = () => input.reportValidity();
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    run(look, notice, async () => {
      const { person: held } = await api.post(model, "person", { subject: input.value });
      const rows = Object.entries(WORDS).filter(([key]) => key in held).map(([key, words]) => {
        const most = held[MOST[key]];
        return h("div", null, h("dt", null, words), h("dd", null, whole(held[key]) + (most ? ` of at most ${whole(most)}` : "")));
      });
      for (const [source, rounds] of Object.entries(held.sources ?? {})) rows.push(h("div", null, h("dt", null, `answered by ${source}`), h("dd", null, whole(rounds))));
      found.replaceChildren(h("dl", { class: "facts" }, rows));
    });
  });
  forget.addEventListener("click", () => run(forget, notice, async () => {
    if (!asked()) return;
    const subject = input.value;
    const words = `${subject}: the copy that learned from them is reset, if there are copies, and their stored questions and answers are deleted. What was spent, and what was randomized, stays.`;
    if (!(await confirmed("Forget this person?", words, "Forget"))) return;
    const { forgotten } = await api.post(model, "forget", { subject });
    found.replaceChildren();
    if (forgotten) input.value = "";
    notice(forgotten ? "Forgotten." : "Nothing is known under this name: is it spelled as in their token?");
  }));
  return { element: panel("A person", form, found, h("div", { class: "row" }, forget)), update() {} };
}

export function doing(model, notice, refresh) {
  let draining = false;
  const drain = h("button", { type: "button" }, "Take no further questions");
  const save = h("button", { type: "button" }, "Write a snapshot");
  drain.addEventListener("click", () => run(drain, notice, async () => {
    const words = "Questions are refused until you take them again; those that wait are answered, and labels are still taken.";
    if (!draining && !(await confirmed("Take no further questions?", words, "Drain"))) return;
    await api.post(model, "drain", { on: !draining });
    notice(draining ? "Questions are taken again." : "No further questions are taken.");
    await refresh();
  }));
  save.addEventListener("click", () => run(save, notice, async () => {
    await api.post(model, "save");
    notice("A snapshot was written.");
  }));
  return {
    element: panel("Do", h("div", { class: "row" }, drain, save)),
    update({ service }) {
      draining = service.draining;
      drain.textContent = draining ? "Take questions again" : "Take no further questions";
    },
  };
}

export function audit(model, notice) {
  const games = h("input", { id: "games", type: "number", min: 20, max: 100000, step: 1, value: 500, required: true });
  const start = h("button", null, "Begin");
  const stop = h("button", { type: "button", hidden: true }, "Stop");
  const bar = h("progress", { hidden: true, "aria-label": "Games played", max: 1, value: 0 });
  const state = h("p", { role: "status" });
  const found = h("div");
  const form = h("form", null, h("label", { for: "games" }, "Games at each bit"), h("div", { class: "row" }, games, start, stop));
  const show = (seen) => {
    const running = seen?.state === "running";
    bar.hidden = stop.hidden = !running;
    start.hidden = running;
    if (!seen) return;
    bar.max = 2 * seen.games;
    bar.value = seen.played;
    put(state, { running: `${whole(seen.played)} of ${whole(2 * seen.games)} games`, done: "Done.", stopped: "Stopped.", failed: ["It failed: try ", h("code", null, "confide audit"), " on the command line."] }[seen.state]);
    put(found, ...(seen.report ? reported(seen.report) : []));
  };
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    run(start, notice, async () => show((await api.post(model, "audit", { games: Number(games.value) })).audit));
  });
  stop.addEventListener("click", () => run(stop, notice, async () => show((await api.post(model, "audit/stop")).audit)));
  return {
    element: panel("Audit a fresh POP",
      h("p", { class: "hint" }, "Plays the adversary against new POPs with this model's plan, on rows that are made up. The model that people use, and what it knows, has no part in it. More games find more; with many copies a game takes seconds."),
      form, bar, state, found),
    async update() {
      show(await api.audit(model));
    },
  };
}

function reported(report) {
  const wrong = report.alarm ? "ALARM: more was measured than is certified. Do not use this plan." : report.misfit ? `MISFIT: ${report.misfit}` : null;
  const pairs = [
    ["leaks at least", `ε ≥ ${report.epsilon.toFixed(3)}`],
    ["certified", report.certified ? `ε = ${report.certified[0].toPrecision(3)}` : "–"],
    ["advantage at least", share(report.advantage)],
    ["games at each bit", whole(report.games)],
    ["confidence", share(report.confidence, 0)],
  ];
  return [
    wrong ? h("p", { class: "alarm" }, wrong) : h("p", { class: "fine" }, "No measured point lies above the certificate."),
    h("dl", { class: "facts" }, pairs.map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value)))),
    h("details", null, h("summary", null, "The report"), h("pre", { class: "scroll", tabindex: "0", "aria-label": "The report" }, report.text)),
  ];
}
