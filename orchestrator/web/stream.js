// Server-sent events by fetch: EventSource cannot send the token. Reconnects, with Last-Event-ID where events have ids.

import { ApiError, open, parseJson } from "./api.js";

const FIRST_WAIT = 300;
const LONGEST_WAIT = 5000;
const SILENCE = 45_000; // the service sends a comment every 15 s
const PAUSE = 200; // so that the browser is not woken by each of many events
const LARGE = 16_384;
const FINAL = [401, 403, 404, 422];

/** Yields the frames of a stream: `{id, data}`. */
async function* frames(body, heard) {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  let frame = { id: "", data: [] };
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return; // a frame without its empty line is not complete
    heard();
    const lines = (rest + decoder.decode(value, { stream: true })).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (line === "") {
        if (frame.data.length) yield { id: frame.id, data: frame.data.join("\n") };
        frame = { id: "", data: [] };
      } else if (line.startsWith("id: ")) frame.id = line.slice(4);
      else if (line.startsWith("data: ")) frame.data.push(line.slice(6));
    }
    if (value.length < LARGE) await new Promise((resolve) => setTimeout(resolve, PAUSE));
  }
}

/**
 * Follows a stream until `close`. `onEvent` returns true for the last event; `onState` gets true as soon as it is open
 * and false when it breaks; `onRefused` gets the error that ends it.
 */
export class EventStream {
  #path;
  #handlers;
  #abort = new AbortController();
  #closed = false;
  #lastId = "";

  constructor(path, handlers) {
    this.#path = path;
    this.#handlers = handlers;
    this.#run();
  }

  close() {
    this.#closed = true;
    this.#abort.abort();
  }

  async #run() {
    let wait = FIRST_WAIT;
    while (!this.#closed) {
      try {
        const opened = () => {
          wait = FIRST_WAIT;
          this.#handlers.onState?.(true);
        };
        if (await this.#once(opened)) return;
      } catch (error) {
        if (!this.#closed && error instanceof ApiError && FINAL.includes(error.status)) {
          this.#handlers.onRefused?.(error);
          return;
        }
      }
      if (this.#closed) return;
      this.#handlers.onState?.(false);
      await new Promise((resolve) => setTimeout(resolve, wait * (0.75 + Math.random() / 2)));
      wait = Math.min(wait * 2, LONGEST_WAIT);
    }
  }

  /** One connection; returns whether the last event came. */
  async #once(opened) {
    this.#abort = new AbortController();
    let timer = 0;
    const heard = () => {
      clearTimeout(timer);
      timer = setTimeout(() => this.#abort.abort(), SILENCE);
    };
    const headers = { Accept: "text/event-stream", ...(this.#lastId && { "Last-Event-ID": this.#lastId }) };
    try {
      heard();
      const response = await open(this.#path, { headers, signal: this.#abort.signal });
      opened();
      for await (const { id, data } of frames(response.body, heard)) {
        if (this.#closed) return true;
        this.#lastId = id || this.#lastId;
        if (this.#handlers.onEvent(parseJson(data))) return true;
      }
      return false;
    } finally {
      clearTimeout(timer);
      this.#abort.abort();
    }
  }
}
