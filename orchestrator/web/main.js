// Puts the page together: signing in, refreshing, the keyboard, and which view the address names.

import { coalesced, get, hasToken, setToken, takeTokenFromAddress } from "./api.js";
import { Delegations, isId } from "./delegations.js";
import { announce, byId, replaceWaiting, setText } from "./dom.js";
import { fleetAddress } from "./filters.js";
import { Fleet } from "./fleet.js";
import { handleKeys } from "./keyboard.js";
import { Load } from "./load.js";
import { Requests } from "./requests.js";
import { RunView } from "./run.js";
import { EventStream } from "./stream.js";
import { TaskForm } from "./task.js";
import { visible } from "./text.js";

const POLL_MS = 2000;
const CHECK_MS = 30_000; // the stream is open, but a message may have been lost
const LIST_MS = 1000;
const LOAD_MS = 5000;

const known = new Delegations();
const requests = new Requests(() => refreshRequests(), known);
const fleet = new Fleet(known, (filters) => {
  history.replaceState(null, "", fleetAddress(filters));
  showFleet();
});
const load = new Load((...found) => fleet.setCounts(...found));
let form = null;
/** The view of one delegation, and the id it shows. */
let run = null;
let shownRun = null;
let fleetScroll = 0;
let stream = null;
let live = false;
let signedIn = false;
let lastCheck = 0;

const whileSignedIn = (work) => async () => {
  if (!signedIn) return;
  try {
    await work();
  } catch (error) {
    failed(error);
  }
};
const refreshRequests = coalesced(whileSignedIn(async () => {
  await requests.refresh();
  connected(true);
}), 100);
const refreshFleet = coalesced(whileSignedIn(() => fleet.refresh()), LIST_MS);
const refreshLoad = coalesced(whileSignedIn(() => load.refresh()), LOAD_MS);
/** An event reaches all pages at once: their questions about it come one after the other. */
const refreshLoadLater = coalesced(async () => {
  await new Promise((resolve) => setTimeout(resolve, Math.random() * LOAD_MS));
  if (byId("fleet").hidden) return;
  refreshLoad();
  if (fleet.isReview) refreshFleet();
}, 0);

function refresh() {
  lastCheck = Date.now();
  refreshRequests();
  refreshFleet();
  refreshLoad();
}

function failed(error) {
  if (error.status === 401 || error.status === 403) {
    if (signedIn) askForToken(error.message); // of several requests that are refused the first has the reason
  } else if (error.status === undefined) throw error; // a mistake of this page
  else connected(false, error.status ? visible(error.message) : "");
}

function connected(yes, why = "") {
  const text = yes ? (live ? "Live" : "Connected") : `Not connected, trying again${why ? `: ${why}` : ""}`;
  setText(byId("connection"), text);
  byId("connection").classList.toggle("away", !yes);
  byId("connection").classList.toggle("live", yes && live);
}

function listen() {
  stream ??= new EventStream("v1/events?lines=true", {
    onState: (isOpen) => {
      if (live === isOpen) return; // one more try that failed
      live = isOpen;
      refresh(); // what happened before it was open; or whether the service answers at all
    },
    onEvent: (event) => {
      if (requests.hear(event)) refreshRequests();
      fleet.hear(event);
      if (/^run_(queued|started|finished)$/u.test(event.type)) refreshLoadLater();
    },
    onRefused: failed,
  });
}

function stopListening() {
  stream?.close();
  stream = null;
  live = false;
  run?.pause();
}

function askForToken(problem) {
  signedIn = false;
  stopListening();
  const hadToken = hasToken();
  setToken("");
  byId("content").hidden = true;
  byId("sign-in").hidden = false;
  byId("sign-out").hidden = true;
  setText(byId("connection"), "");
  byId("token-problem").textContent = hadToken ? visible(problem) : "";
  byId("token").focus();
}

/** Tries the token there is, or none: a service on this machine may ask for none. */
async function signIn() {
  try {
    await get("v1/permissions");
  } catch (error) {
    if (error.status === 401 || error.status === 403) {
      askForToken(error.message);
      return;
    }
    connected(false, error.status ? visible(error.message) : "");
    setTimeout(signIn, POLL_MS);
    return;
  }
  signedIn = true;
  byId("sign-in").hidden = true;
  byId("content").hidden = false;
  byId("sign-out").hidden = !hasToken();
  listen();
  route();
  refresh();
}

/** What the views may do with the page; the view of one delegation also has the `params` behind its id. */
const context = {
  known,
  navigate: (hash) => {
    location.hash = hash;
  },
  changed: (delegation) => {
    known.set(delegation);
    fleet.changed(delegation.id);
  },
};

/** The address without `#`, as a name and its parameters: `dlg_…?step=x`, `new`, `?status=running`, or nothing. */
function addressed() {
  const [name, query = ""] = location.hash.slice(1).split("?", 2);
  return { name, params: new URLSearchParams(query) };
}

function route() {
  if (!signedIn) return;
  const { name, params } = addressed();
  if (name && name !== "new" && !isId(name)) return; // of a part of this page, such as what is skipped to
  if (!byId("fleet").hidden) fleetScroll = window.scrollY;
  const view = name === "" ? "fleet" : name === "new" ? "task" : "run";
  const before = ["fleet", "task", "run"].find((each) => !byId(each).hidden);
  for (const each of ["fleet", "task", "run"]) byId(each).hidden = each !== view;
  if (before && before !== view) requests.close();
  for (const link of document.querySelectorAll(".top nav a")) {
    if (link.dataset.view === view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  showRun(view === "run" ? name : null, params);
  requests.arrange();
  if (view === "fleet") showFleet(before);
  else if (view === "task") showForm();
}

function showFleet(before = undefined) {
  if (fleet.filter(addressed().params)) refreshFleet();
  if (before === undefined || before === "fleet") return;
  window.scrollTo(0, fleetScroll);
  const row = document.querySelector(`.row-link[href="#${before === "run" ? shownRun : ""}"]`);
  (row ?? byId("fleet-title")).focus({ preventScroll: true }); // what waits on top stays in sight
}

function showForm() {
  form ??= new TaskForm(context);
  if (!byId("task").contains(form.node)) byId("task").replaceChildren(form.node);
  form.offer().catch(() => {}); // its fields take any text without that
  window.scrollTo(0, 0);
  byId("field-task").focus();
}

function showRun(id, params) {
  if (id === null || id !== shownRun) {
    run?.close();
    run = null;
  }
  if (id === null || run) return;
  shownRun = id;
  const setParams = (changes) => {
    const now = addressed().params;
    for (const [key, value] of Object.entries(changes)) {
      if (value === null) now.delete(key);
      else now.set(key, value);
    }
    history.replaceState(null, "", `#${id}${now.size ? `?${now}` : ""}`);
  };
  window.scrollTo(0, 0);
  run = new RunView(byId("run"), id, { ...context, params, setParams });
}

function tick() {
  if (!signedIn) return;
  const expired = requests.tick();
  const hidden = document.visibilityState === "hidden";
  if (expired || Date.now() - lastCheck >= (live || hidden ? CHECK_MS : POLL_MS)) refresh();
}

/** A browser opens six connections to a service in all its tabs: one that is not visible uses none for long. */
function visibilityChanged() {
  if (!signedIn) return;
  if (document.visibilityState === "hidden") {
    stopListening();
  } else {
    listen();
    run?.resume();
    refresh();
  }
}

byId("sign-in").addEventListener("submit", (event) => {
  event.preventDefault();
  setToken(byId("token").value.trim());
  byId("token").value = "";
  signIn();
});
byId("sign-out").addEventListener("click", () => {
  setToken("");
  location.replace(location.pathname);
});
byId("skip").addEventListener("click", (event) => {
  event.preventDefault();
  const none = byId("waiting").hidden;
  (none ? document.querySelector("#content > section:not([hidden]) h2") : byId("requests"))?.focus();
  if (none) announce("No call waits for permission.");
});
window.addEventListener("hashchange", () => {
  if (new URLSearchParams(location.hash.slice(1)).has("token")) {
    takeTokenFromAddress();
    location.reload();
  } else route();
});
document.addEventListener("visibilitychange", visibilityChanged);
document.addEventListener("selectionchange", replaceWaiting);
handleKeys(context.navigate);
setInterval(tick, 1000);
takeTokenFromAddress();
signIn();
