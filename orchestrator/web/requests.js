// The permission requests of all delegations that wait for an answer: compact cards that open.

import { answer, get, scopes, serviceNow } from "./api.js";
import { Answers } from "./answers.js";
import { isId, titleOf } from "./delegations.js";
import { detailsView } from "./details.js";
import { announce, byId, h, setText, syncList } from "./dom.js";
import { answerWords, countdown, count, cut, shortId, visible } from "./text.js";

const NO_SCOPE = "This token lacks the scope approve, so it cannot answer.";
const SETTLE_MS = 500;
const GIST = 200;
const NOTICE_MS = 60_000;
const MOST_NOTICES = 5;
/** Cards that are shown at first: what is below them stays in sight. */
const MOST_CARDS = 5;

/** An element that refers to a delegation; it is a link only if it is an id. */
function delegationLink(id) {
  const known = isId(id);
  return h(known ? "a" : "span", { ...(known && { href: `#${id}` }), class: "id", title: visible(id) }, shortId(id));
}

/** Whether a request is of the run that is shown, or of one below it. */
const isOwn = ({ path }) => !byId("run").hidden && path.some((id) => location.hash.startsWith(`#${id}`));

/** What a call would do, in one line beside its title. */
function gist({ details, step, reason }) {
  if (details.type === "edit" && details.diff) {
    const rows = details.diff.split("\n");
    const amount = (sign) => rows.filter((row) => row[0] === sign && !row.startsWith(sign.repeat(3))).length;
    return `${details.paths.join(", ")} +${amount("+")} −${amount("-")}`;
  }
  if (details.type === "execute") {
    const command = step.title.includes(details.command) ? [] : [details.command];
    return [...command, ...details.effects.map((effect) => `it ${effect}`)].join("; ") || reason;
  }
  if (details.type === "mcp") return `${details.tool} of ${details.server}`;
  return details.urls?.find((url) => !step.title.includes(url)) ?? reason;
}

export class Requests {
  #cards = new Map();
  #reported = new Set();
  /** Those whose answer is on its way: its outcome is known when it has arrived. */
  #sent = new Set();
  #loaded = false;
  #items = [];
  #showsAll = false;
  #onChange;
  #known;
  #bulk;

  /** `onChange` is called after an answer; `known` are the Delegations, whose titles need not be asked for. */
  constructor(onChange, known) {
    this.#onChange = onChange;
    this.#known = known;
    this.#bulk = this.#makeBulk();
    byId("requests-bulk").append(...this.#bulk.nodes);
    byId("requests-more").addEventListener("click", () => {
      this.#fold(!this.#showsAll);
    });
  }

  async refresh() {
    this.#show((await get("v1/permissions")).items);
  }

  /** Takes an event of any delegation. Returns whether the service is to be asked for what waits now. */
  hear({ type, permissionId, delegationId, outcome, by, reason }) {
    const card = this.#cards.get(permissionId);
    const own = this.#sent.has(permissionId); // its event may come before the service's response
    if (type === "permission_answered" && card && !own) this.#report(card.request, answerWords(outcome, by), reason);
    // An event of a child comes once more from each run above it.
    return type === "permission_requested" ? !card : type === "permission_answered" ? Boolean(card) :
      type === "run_finished" && [...this.#cards.values()].some(({ request }) => request.path.includes(delegationId));
  }

  /** Updates the countdowns. Returns whether a request has expired. */
  tick() {
    let expired = false;
    for (const { request, clock } of this.#cards.values()) {
      const left = (Date.parse(request.expiresAt) - serviceNow()) / 1000;
      setText(clock, left > 0 ? `Expires in ${countdown(left)}` : "Expired");
      clock.classList.toggle("soon", left < 60);
      expired ||= left <= 0;
    }
    return expired;
  }

  /** Orders the cards for the view that is shown: those of its own run come first. */
  arrange() {
    this.#showsAll = false;
    this.#show(this.#items);
  }

  /** What is not shown is not chosen either. */
  #fold(showsAll = this.#showsAll) {
    this.#showsAll = showsAll;
    const [cards, more] = [[...byId("requests").children], byId("requests-more")];
    for (const [at, node] of cards.entries()) {
      node.hidden = !this.#showsAll && at >= MOST_CARDS;
      if (node.hidden) this.#cards.get(node.dataset.key).select.checked = false;
    }
    more.hidden = cards.length <= MOST_CARDS;
    setText(more, this.#showsAll ? `Show the first ${MOST_CARDS}` : `Show all ${cards.length}`);
    this.#updateBulk();
  }

  #show(given) {
    const items = [...given].sort((one, other) => isOwn(other) - isOwn(one));
    this.#items = given;
    const list = byId("requests");
    const before = [...list.children].map((node) => node.dataset.key);
    const fresh = items.filter((item) => !this.#cards.has(item.permissionId));
    const wanted = new Set(items.map((item) => item.permissionId));
    for (const [id, { request }] of this.#cards) {
      if (wanted.has(id)) continue;
      if (!this.#sent.has(id)) this.#report(request, null);
      this.#cards.delete(id);
    }
    syncList(list, items, {
      key: (item) => item.permissionId,
      create: (item) => this.#create(item),
      // Never a button: who presses Enter once more must not answer the next request.
      lostFocus: (heir) => (heir?.querySelector("article") ?? byId("requests-title")).focus(),
    });
    const isSeen = items.length === 1 && fresh.length === 1 && (!byId("fleet").hidden || isOwn(fresh[0]));
    if (isSeen) this.#open(fresh[0].permissionId, true);
    this.#refuseWithoutScope();
    this.tick();
    const after = [...list.children].map((node) => node.dataset.key);
    if (before.some((id, at) => after[at] !== id)) this.#settle(list);
    byId("waiting").hidden = items.length === 0;
    setText(byId("requests-count"), String(items.length));
    list.classList.toggle("several", items.length > 1);
    byId("requests-bulk").hidden = items.length < 2;
    this.#fold();
    document.title = items.length ? `(${items.length}) deputize` : "deputize";
    this.#announce(fresh);
    this.#loaded = true;
  }

  #announce(fresh) {
    if (!fresh.length) return;
    if (this.#loaded && fresh.length === 1) announce(`New permission request: ${visible(fresh[0].step.title)}`);
    else announce(`${count(fresh.length, "call")} ${this.#loaded ? "more wait" : "waiting"} for permission`);
  }

  /** Cards have moved: for a moment no click counts, which may have been meant for another card. */
  #settle(list) {
    list.classList.add("settling");
    setTimeout(() => list.classList.remove("settling"), SETTLE_MS);
  }

  #refuseWithoutScope() {
    const refused = scopes !== null && !scopes.includes("approve");
    const notice = byId("scopes");
    notice.hidden = !refused;
    setText(notice, refused ? `${NO_SCOPE} Requests can be read here; to answer, use a token with that scope.` : "");
    for (const { answers, select } of this.#cards.values()) {
      answers.refuse(refused ? NO_SCOPE : "");
      select.disabled = refused;
    }
    for (const each of this.#bulk.nodes) each.hidden = refused;
  }

  #create(request) {
    const id = request.permissionId;
    const { step } = request;
    const clock = h("strong", { class: "clock" });
    const answers = new Answers(request, (outcome, fields) => this.#send(request, outcome, fields));
    const select = h("input", {
      type: "checkbox", class: "select", "aria-labelledby": `${id}-title`, onchange: () => this.#updateBulk(),
    });
    const body = h("div", { class: "request-body", id: `${id}-body` });
    const title = h("button", {
      type: "button", class: "disclosure", "aria-controls": body.id, onclick: () => this.#open(id, body.hidden),
    }, visible(step.title || step.toolName));
    const task = delegationLink(request.delegationId);
    task.classList.add("task");
    this.#name(task, request.delegationId);
    const path = request.path.slice(0, -1).map(delegationLink).flatMap((link) => [link, " › "]);
    body.append(
      h("p", { class: "faint meta" },
        h("span", {}, "Tool ", h("code", {}, visible(step.toolName))),
        h("span", {}, "Delegation ", path, delegationLink(request.delegationId)),
        h("span", {}, "Turn ", String(step.turnIndex))),
      h("p", { class: "why" }, request.reason ? `Asked because ${visible(request.reason)}` : "Asked by the policy",
        request.rule && h("span", { class: "faint" }, ` (rule ${visible(request.rule)})`)),
      step.thinking ? h("p", { class: "faint thinking" }, `The model: ${cut(step.thinking, 400)}`) : "",
      detailsView(request));
    body.append(answers.node);
    this.#cards.set(id, { request, clock, answers, select, body, title });
    this.#open(id, false);
    return h("li", {},
      h("article", { class: "request", tabindex: "-1", "aria-labelledby": `${id}-title` },
        h("header", {}, select, h("h3", { id: `${id}-title` }, title),
          h("p", { class: "faint gist" }, task, h("span", {}, cut(gist(request), GIST))), clock),
        body));
  }

  /** Closes all of them, so that another view is seen. */
  close() {
    for (const id of this.#cards.keys()) this.#open(id, false);
  }

  #open(id, opens) {
    const { body, title } = this.#cards.get(id);
    body.hidden = !opens;
    title.setAttribute("aria-expanded", String(opens));
  }

  /** Puts the task's title for the id. */
  async #name(link, id) {
    try {
      setText(link, titleOf(this.#known.get(id) ?? (await get(`v1/delegations/${id}`))));
    } catch {
      // its id stays there
    }
  }

  #makeBulk() {
    const all = h("input", { type: "checkbox", id: "select-all", onchange: () => {
      for (const { select } of this.#shown()) select.checked = all.checked;
      this.#updateBulk();
    } });
    const button = (text, style, outcome) => h("button", { type: "button", class: style, onclick: () => {
      const chosen = this.#chosen();
      for (const { answers, request } of chosen) {
        const isCut = outcome !== "cancel" && gist(request)?.length > GIST;
        if (isCut) this.#open(request.permissionId, true); // what is not shown whole is not approved unread
        else answers.give(outcome);
      }
      announce(`${text}: ${count(chosen.length, "call")}`);
    } }, text);
    const [approve, deny] = [button("Approve", "primary", "proceed_once"), button("Deny", "danger", "cancel")];
    return { all, approve, deny, nodes: [h("label", {}, all, " Select all"), approve, deny] };
  }

  #chosen() {
    return [...this.#cards.values()].filter(({ select }) => select.checked);
  }

  #shown = () => [...this.#cards.values()].filter(({ select }) => !select.closest("li").hidden);

  #updateBulk() {
    const { all, approve, deny } = this.#bulk;
    const amount = this.#chosen().length;
    const shown = this.#shown().length;
    all.checked = amount > 0 && amount === shown;
    all.indeterminate = amount > 0 && amount < shown;
    for (const [each, word] of [[approve, "Approve"], [deny, "Deny"]]) {
      each.disabled = amount === 0;
      setText(each, amount ? `${word} ${amount}` : word);
    }
  }

  /** Returns null, or the error for the card. */
  async #send(request, outcome, fields) {
    this.#sent.add(request.permissionId);
    try {
      await answer(request.permissionId, outcome, fields);
      this.#report(request, `${answerWords(outcome)} by you`, fields.reason);
    } catch (error) {
      this.#sent.delete(request.permissionId);
      if (error.status !== 409 && error.status !== 404) {
        this.#refuseWithoutScope();
        if (error.status === 401) this.#onChange(); // which asks for another token
        this.#open(request.permissionId, true);
        return error;
      }
      this.#reported.add(request.permissionId);
      this.#notice(`Not sent, it was answered meanwhile: ${visible(request.step.title)}`, visible(error.message));
    }
    this.#onChange();
    return null;
  }

  /** Shows once how a request ended. Without words it was answered elsewhere, or expired. */
  #report(request, words, reason) {
    if (this.#reported.has(request.permissionId)) return;
    this.#reported.add(request.permissionId);
    const title = visible(request.step.title);
    if (words === null) {
      this.#notice(`Waits no more: ${title}`, "It was answered elsewhere, has expired, or its delegation ended.");
      return;
    }
    this.#notice(`${words[0].toUpperCase()}${words.slice(1)}: ${title}`, reason ? visible(reason) : "");
  }

  #notice(text, more) {
    const list = byId("notices");
    const item = h("li", { class: "notice" }, h("span", {}, text), more && h("span", { class: "faint" }, ` ${more}`));
    list.append(item);
    while (list.children.length > MOST_NOTICES) list.firstElementChild.remove();
    setTimeout(() => item.remove(), NOTICE_MS);
  }
}
