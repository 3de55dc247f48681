// Results that wait for a review, in the order of the service: verified and small ones first, each with the reason.

import { get } from "./api.js";

const MOST = 500;
const NO_CHILDREN = { count: 0, open: 0, unfinished: 0, time: 0, tokens: 0, cost: null };

/** The service's list with these filters, `[name, value]`; each delegation has its place in it, and the reason. */
export async function listForReview(filters) {
  const asked = new URLSearchParams([...filters, ["forReview", "true"], ["limit", MOST]]);
  const { items, reasons = [], nextCursor } = await get(`v1/delegations?${asked}`);
  return { items: items.map((item, place) => ({ ...item, place, reason: reasons[place] })), nextCursor };
}

export const isForReview = ({ place }) => place !== undefined;

/** Rows in the order of the list: what a child changed is reviewed by itself. */
export function reviewRows(items) {
  const ordered = items.toSorted((one, other) => one.place - other.place);
  return ordered.map((item) => ({ item, children: [], active: false, below: NO_CHILDREN }));
}
