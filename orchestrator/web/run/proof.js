// The proof of a verified result: its file, for `deputize prove` on another machine.

import { open } from "../api.js";
import { h } from "../dom.js";
import { visible } from "../text.js";
import { button, download } from "./elements.js";

/** Buttons that copy the proof and download it; where there is none, the service's reason is shown. */
export function proofButtons(id) {
  const path = `v1/delegations/${id}/proof`;
  const note = h("span", { class: "faint", role: "status" });
  const copy = async () => {
    note.textContent = "";
    try {
      const text = await (await open(path)).text();
      if (!navigator.clipboard) throw new Error("A page without TLS may not copy: download it.");
      await navigator.clipboard.writeText(text);
      note.textContent = "copied";
    } catch (error) {
      note.textContent = visible(error.message);
    }
  };
  return [button("Copy the proof", copy), download(path, `${id}.proof.json`, "Download the proof"), note];
}
