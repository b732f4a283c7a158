// The asker's side: one token a visit, kept in memory; a question is a round, a thumb is its label.

const MODEL = "answers";
const TRIES = ["the courier lost my package", "i forgot my password", "there is a crack in the screen", "my accountant asks for the receipt"];
const $ = (id) => document.getElementById(id);

let token = null;
let answers = {};

function make(name, attributes, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes ?? {})) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value);
  }
  element.append(...children);
  return element;
}

async function send(path, content) {
  const response = await fetch(path, { method: "POST", body: JSON.stringify(content), headers: token ? { authorization: `Bearer ${token}` } : {} });
  const told = await response.json();
  if (!response.ok) throw new Error(told.error?.message ?? "this did not work: try again");
  return told;
}

// The same id again would get the same answer, and take no second round: so a lost connection costs nothing.
async function once(path, content) {
  try {
    return await send(path, content);
  } catch (error) {
    if (error instanceof TypeError) return send(path, content);
    throw error;
  }
}

async function ask(words) {
  const said = make("div", { class: "said" }, "…");
  $("talk").append(make("li", null, make("p", { class: "asked" }, words), said));
  try {
    const told = await once(`/models/${MODEL}/ask`, { x: { words }, id: crypto.randomUUID() });
    said.replaceChildren(...suggestion(told));
  } catch (error) {
    said.replaceChildren(make("p", { class: "wrong" }, error.message));
  }
  said.scrollIntoView({ block: "nearest" });
}

function suggestion({ label, ticket }) {
  const thanks = make("p", { class: "thanks", role: "status" });
  const up = make("button", { type: "button", "aria-label": "This helped", onclick: () => bring(label) }, "👍 This helped");
  const down = make("button", { type: "button", "aria-label": "This did not help", onclick: other }, "👎 It did not");
  const row = make("div", { class: "row" }, up, down);
  async function bring(right) {
    try {
      await once(`/models/${MODEL}/label`, { ticket, label: right });
      thanks.textContent = "Thank you: the bot has learned from it.";
      row.replaceChildren();
    } catch (error) {
      thanks.textContent = error.message;
    }
  }
  function other() {
    const choices = Object.entries(answers).filter(([name]) => name !== label);
    row.replaceChildren(make("fieldset", null, make("legend", null, "What would have helped?"),
      ...choices.map(([name, words]) => make("button", { type: "button", onclick: () => bring(name) }, words)),
      make("button", { type: "button", onclick: () => row.replaceChildren() }, "None of these")));
    row.querySelector("button").focus();
  }
  return [make("p", null, answers[label]), row, thanks];
}

$("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  const words = $("words").value.trim();
  $("words").value = "";
  if (words) ask(words);
});
for (const words of TRIES) $("tries").append(make("button", { type: "button", class: "try", onclick: () => ask(words) }, words));

answers = await (await fetch("/answers")).json();
token = (await send("/visit", {})).token;
$("promise").textContent = (await (await fetch(`/models/${MODEL}`)).json()).guarantee.sentence;
document.body.dataset.ready = "1";
