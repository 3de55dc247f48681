// Puts the page together: signing in, refreshing, and which delegation is shown.

import { get, hasToken, setToken, takeTokenFromAddress } from "./api.js";
import { DelegationList } from "./delegations.js";
import { byId, setText } from "./dom.js";
import { Requests } from "./requests.js";
import { Run } from "./run.js";
import { EventStream } from "./stream.js";
import { visible } from "./text.js";

const POLL_MS = 2000;
const CHECK_MS = 30_000; // the stream is open, but a message may have been lost
const LIST_MS = 1000;

const requests = new Requests(() => refreshRequests());
const list = new DelegationList();
const run = new Run();
let stream = null;
let live = false;
let signedIn = false;
let lastCheck = 0;

/** One call at a time; those that come meanwhile are one more, at the earliest `spacing` ms after the last. */
function coalesced(work, spacing) {
  let running = false;
  let again = false;
  return async function request() {
    if (running) {
      again = true;
      return;
    }
    running = true;
    try {
      if (signedIn) await work();
    } catch (error) {
      failed(error);
    }
    await new Promise((resolve) => setTimeout(resolve, spacing));
    running = false;
    if (again) {
      again = false;
      request();
    }
  };
}

const refreshRequests = coalesced(async () => {
  await requests.refresh();
  connected(true);
}, 100);
const refreshList = coalesced(() => list.refresh(), LIST_MS);

function refresh() {
  lastCheck = Date.now();
  refreshRequests();
  refreshList();
}

function failed(error) {
  if (error.status === 401 || error.status === 403) askForToken(error.message);
  else if (error.status === undefined) throw error; // a mistake of this page
  else connected(false, error.status ? visible(error.message) : "");
}

function connected(yes, why = "") {
  const text = yes ? (live ? "Live" : "Connected") : `Not connected, trying again${why ? `: ${why}` : ""}`;
  setText(byId("connection"), text);
  byId("connection").classList.toggle("away", !yes);
}

function listen() {
  stream ??= new EventStream("v1/events", {
    onState: (isOpen) => {
      if (live === isOpen) return; // one more try that failed
      live = isOpen;
      refresh(); // what happened before it was open; or whether the service answers at all
    },
    onEvent: (event) => {
      if (requests.hear(event)) refreshRequests();
      refreshList();
    },
    onRefused: failed,
  });
}

function stopListening() {
  stream?.close();
  stream = null;
  live = false;
  run.pause();
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
  refresh();
  showAddressed();
}

function showAddressed() {
  const id = location.hash.slice(1);
  const wanted = /^dlg_[0-9a-z]{26}$/u.test(id) ? id : null;
  if (!signedIn || (wanted === null && location.hash.length > 1) || wanted === run.id) return;
  run.show(wanted);
  list.select(wanted);
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
    run.resume();
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
window.addEventListener("hashchange", () => {
  if (new URLSearchParams(location.hash.slice(1)).has("token")) {
    takeTokenFromAddress();
    location.reload();
  } else showAddressed();
});
document.addEventListener("visibilitychange", visibilityChanged);
setInterval(tick, 1000);
takeTokenFromAddress();
signIn();
