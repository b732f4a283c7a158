// The operator's door: every request carries the token, which lives in this tab alone and never in an address.

const KEY = "confide-operator";

export const hasToken = () => sessionStorage.getItem(KEY) !== null;
export const keepToken = (token) => sessionStorage.setItem(KEY, token);
export const dropToken = () => sessionStorage.removeItem(KEY);

export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
  get outside() {
    return this.status === 401 || this.status === 403;
  }
}

async function send(path, options = {}) {
  const headers = { authorization: `Bearer ${sessionStorage.getItem(KEY) ?? ""}` };
  let response;
  try {
    response = await fetch(path, { ...options, headers, cache: "no-store", credentials: "omit" });
  } catch {
    throw new Refused(0, "the service cannot be reached: is it running?");
  }
  if (response.ok) return response;
  let message = `the service answered with status ${response.status}`;
  try {
    message = (await response.json()).error.message;
  } catch { /* it had nothing to say */ }
  throw new Refused(response.status, message);
}

const at = (model, operation = "") => `models/${encodeURIComponent(model)}${operation && "/" + operation}`;

export const models = async () => (await (await send("models")).json()).models;
export const metrics = async () => (await send("metrics")).text();
export const audit = async (model) => (await (await send(at(model, "audit"))).json()).audit;
export const post = async (model, operation, content = {}) =>
  (await send(at(model, operation), { method: "POST", body: JSON.stringify(content) })).json();
