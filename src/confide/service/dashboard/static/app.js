// The page: sign in, a list of models, one model; brought up to date every few seconds while it is looked at.

import * as actions from "./actions.js";
import * as api from "./api.js";
import { exact, h, put, share, whole } from "./dom.js";
import * as panels from "./panels.js";
import { read } from "./prometheus.js";

const EVERY = 4000;
const $ = (id) => document.getElementById(id);
const page = { shown: null, update: null, live: true, timer: 0 };

let gone = 0;
function notice(words, wrong = false) {
  $("notice").className = wrong ? "notice wrong" : "notice";
  $("notice").textContent = words;
  clearTimeout(gone);
  gone = setTimeout(() => ($("notice").textContent = ""), wrong ? 12000 : 5000);
}

function signIn(why = "") {
  page.shown = page.update = null;
  $("tools").hidden = true;
  put($("nav"));
  document.title = "Confide: sign in";
  const input = h("input", { id: "token", type: "password", required: true, autocomplete: "off", spellcheck: "false", "aria-describedby": "how" });
  const form = h("form", null, h("label", { for: "token" }, "Operator's token"), h("div", { class: "row" }, input, h("button", null, "Sign in")));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    api.keepToken(input.value.trim());
    input.value = "";
    show();
  });
  $("main").replaceChildren(h("section", { class: "panel door" },
    h("h1", null, "The operator's dashboard"), why && h("p", { class: "alarm", role: "alert" }, why), form,
    h("p", { id: "how", class: "hint" }, "Make one with ", h("code", null, "confide token confide.toml --operator --subject you"), ". It stays in this tab, until it is closed or you sign out.")));
  input.focus();
}

const wanted = () => decodeURIComponent(location.hash.replace(/^#\/?/, ""));

const badge = (words, kind) => h("span", { class: `badge ${kind}` }, words);
function badges({ public: seen, service }) {
  return [badge(seen.state, seen.state), service.draining && badge("draining", "halted"), service.failure && badge("failed", "failed")];
}

function overview() {
  const list = h("ul", { class: "cards" });
  $("main").replaceChildren(h("h1", null, "Models"), list);
  document.title = "Confide: models";
  return (models) => put(list, models.map((one) => h("li", { class: "panel" },
    h("h2", null, h("a", { href: `#/${encodeURIComponent(one.name)}` }, one.name)), h("p", null, badges(one)),
    h("p", null, `${whole(one.public.rounds)}${one.public.planned_rounds ? ` of ${whole(one.public.planned_rounds)}` : ""} rounds`),
    h("p", { class: "hint" }, `ε = ${exact(one.public.guarantee.epsilon)}, δ = ${exact(one.public.guarantee.delta)}`),
    one.private.planned_unsure ? h("p", null, `${share(one.private.spent)} of the budget spent`) : null,
    ...(one.private.alarms ?? []).map((words) => h("p", { class: "alarm" }, words)))));
}

function detail(name) {
  document.title = `Confide: ${name}`;
  const top = h("p", { class: "row" });
  const shown = [panels.promise(), panels.learned(), actions.audit(name, notice)];
  const eyes = [
    panels.overTime(), panels.errors(), panels.sources(), panels.spending(), panels.queue(), panels.latency(),
    actions.person(name, notice), actions.doing(name, notice, refresh), panels.deeds(),
  ];
  const columns = (all) => h("div", { class: "columns" }, all.map((one) => one.element));
  const warned = panels.alarms();
  $("main").replaceChildren(h("h1", null, name), top, warned.element,
    h("section", { class: "part eyes", "aria-labelledby": "eyes" },
      h("h2", { id: "eyes" }, "For your eyes"),
      h("p", { class: "hint" }, "Exact numbers, outside every guarantee. Whoever sees them may learn what one person said: do not show, send or store them elsewhere."),
      columns(eyes)),
    h("section", { class: "part shown", "aria-labelledby": "shown" },
      h("h2", { id: "shown" }, "May be shown"),
      h("p", { class: "hint" }, "Covered by the promise, or made without anybody's data: publish it as you like."),
      columns(shown)));
  return async (models, rows) => {
    const model = models.find((one) => one.name === name);
    if (!model) return put(top, h("span", { class: "alarm" }, "There is no such model."));
    put(top, badges(model));
    await Promise.all([warned, ...eyes, ...shown].map((one) => one.update(model, rows)));
  };
}

function navigation(models) {
  const here = wanted();
  put($("nav"), models.map((one) => h("a", { href: `#/${encodeURIComponent(one.name)}`, "aria-current": one.name === here ? "page" : null }, one.name)));
}

async function refresh() {
  const update = page.update;
  try {
    const [models, text] = await Promise.all([api.models(), api.metrics()]);
    if (update === page.update && update !== null) {
      navigation(models);
      await update(models, read(text));
    }
  } catch (error) {
    if (error.outside) {
      api.dropToken();
      signIn(`${error.message[0].toUpperCase()}${error.message.slice(1)}.`);
    } else notice(error.message, true);
  }
}

async function show() {
  clearTimeout(page.timer);
  if (!api.hasToken()) return signIn();
  const name = wanted();
  if (page.update === null || page.shown !== name) {
    const moved = page.shown !== null;
    page.shown = name;
    page.update = name ? detail(name) : overview();
    $("tools").hidden = false;
    if (moved) {
      window.scrollTo(0, 0);
      $("main").focus({ preventScroll: true });
    }
  }
  await refresh();
  document.body.dataset.ready = String(Number(document.body.dataset.ready ?? 0) + 1);
  again();
}

function again() {
  clearTimeout(page.timer);
  if (page.live && !document.hidden && page.update !== null) page.timer = setTimeout(show, EVERY);
}

$("live").addEventListener("click", () => {
  page.live = !page.live;
  $("live").setAttribute("aria-pressed", String(page.live));
  if (page.live) show();
});
$("leave").addEventListener("click", () => {
  api.dropToken();
  signIn();
});
window.addEventListener("hashchange", () => (location.hash === "#main" ? $("main").focus() : show()));
document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(page.timer) : again()));
show();
