"use strict";
// Live updates and keys. Every page works without this script.
const status = document.getElementById("status");
const say = (text) => { status.textContent = text; status.hidden = !text; };

// Times relative to now.
const units = [["day", 86400], ["h", 3600], ["m", 60], ["s", 1]];
function distance(seconds) {
  const [unit, size] = units.find(([, n]) => seconds >= n * (n === 86400 ? 2 : 1)) || units[3];
  const n = Math.floor(seconds / size);
  return unit === "day" ? `${n} days` : `${n}${unit}`;
}
function updateTimes() {
  for (const time of document.querySelectorAll("time[datetime]")) {
    const seconds = (Date.parse(time.dateTime) - Date.now()) / 1000;
    const text = time.textContent.endsWith("ago") || time.textContent.startsWith("in ")
      ? (seconds > 0 ? `in ${distance(seconds)}` : `${distance(-seconds)} ago`) : distance(Math.abs(seconds));
    if (time.textContent !== text && text !== "") time.textContent = text;
  }
}
setInterval(updateTimes, 10000);

// A form with the focus, or with a text that somebody typed, must survive updates.
function isBusy(element) {
  if (element.contains(document.activeElement) && document.activeElement !== document.body &&
      document.activeElement.closest("form, [data-keep]")) return true;
  for (const field of element.querySelectorAll("input:not([type=hidden]), textarea, select")) {
    if (field.type === "radio" || field.type === "checkbox" ? field.checked !== field.defaultChecked
      : field.tagName === "SELECT" ? [...field.options].some((o) => o.selected !== o.defaultSelected) : field.value !== field.defaultValue) return true;
  }
  return false;
}
const withoutTimes = (element) => element.outerHTML.replace(/(<time [^>]*>)[^<]*/g, "$1").replace(/ open=""/g, "");

// A form that is no longer offered keeps what was typed, but cannot be sent.
function retire(form) {
  for (const button of form.querySelectorAll("button")) button.disabled = true;
}

// rememberFocus returns a function that focuses, in a new version of an element, what has the focus in it now.
function rememberFocus(element) {
  const focused = document.activeElement;
  if (!element.contains(focused)) return () => {};
  const like = (e) => e.querySelectorAll(focused.id ? `[id="${focused.id}"]` : focused.tagName);
  const same = (e) => e.textContent === focused.textContent && e.getAttribute("href") === focused.getAttribute("href");
  return (next) => [...like(next)].find((e) => focused.id || same(e))?.focus({ preventScroll: true });
}

// update changes the children of an element to those of next: those with an id one by one, unless they are busy.
function update(element, next) {
  const named = (e) => [...e.children].every((c) => c.id) && e.children.length > 0;
  if (named(element) && named(next)) {
    const have = new Map([...element.children].map((c) => [c.id, c]));
    let before = null;
    for (const child of [...next.children]) {
      let old = have.get(child.id);
      have.delete(child.id);
      if (old && withoutTimes(old) !== withoutTimes(child)) old = update(old, child);
      const place = old || child;
      if (!old) place.classList.add("new");
      if ((before ? before.nextElementSibling : element.firstElementChild) !== place) element.insertBefore(place, before ? before.nextSibling : element.firstChild);
      before = place;
    }
    for (const gone of have.values()) if (isBusy(gone)) retire(gone); else gone.remove();
    return element;
  }
  if (!isBusy(element)) {
    const open = [...element.querySelectorAll("details[open][id]")].map((d) => d.id);
    const refocus = rememberFocus(element);
    if (element.matches("[data-region]")) {
      element.replaceChildren(...next.childNodes);
    } else {
      element.replaceWith(next);
      element = next;
    }
    for (const id of open) document.getElementById(id)?.setAttribute("open", "");
    refocus(element);
    return element;
  }
  for (const form of element.querySelectorAll("form[id]")) if (!next.querySelector(`[id="${form.id}"]`)) retire(form);
  // The form stays; everything around it that has an id is still brought up to date.
  for (const child of next.querySelectorAll("[id]")) {
    const old = document.getElementById(child.id);
    if (old && element.contains(old) && !isBusy(old) && !old.closest("form") && withoutTimes(old) !== withoutTimes(child)) old.replaceWith(child.cloneNode(true));
  }
  return element;
}

function showRegion({ id, html }) {
  const region = document.getElementById(id);
  if (!region) return;
  const next = document.createElement("section");
  next.innerHTML = html; // rendered by the server, which escapes every text from outside; the policy allows no other script
  // If only rows of its lists differ, the rows are updated one by one.
  const lists = (e) => [...e.querySelectorAll("[data-rows]")];
  const rest = (e) => {
    const copy = e.cloneNode(true);
    for (const list of lists(copy)) list.replaceChildren();
    return withoutTimes(copy).replace(/^<[^>]*>/, "");
  };
  if (!isBusy(region) && rest(region) === rest(next)) {
    const nextLists = lists(next);
    lists(region).forEach((list, i) => update(list, nextLists[i]));
  } else {
    update(region, next);
  }
  region.hidden = region.childElementCount === 0;
  updateTimes();
}

// The stream of updates is open while the page is visible, and continues from its position.
let stream = null, after = document.body.dataset.after;
function follow() {
  const address = document.body.dataset.live;
  if (!address || stream || document.hidden) return;
  const url = new URL(address, location.href);
  url.searchParams.set("after", after);
  stream = new EventSource(url);
  let opened = false;
  stream.onopen = () => { opened = true; if (status.dataset.lost) { delete status.dataset.lost; say(""); } };
  stream.addEventListener("region", (e) => showRegion(JSON.parse(e.data)));
  stream.addEventListener("position", (e) => { after = e.lastEventId; });
  stream.addEventListener("gone", () => { unfollow(); say("This page can no longer be shown. Load it again."); });
  stream.addEventListener("ended", () => { unfollow(); say("Your session has ended. What you typed is still here: copy it, then load the page again to sign in."); });
  stream.onerror = () => {
    status.dataset.lost = "1";
    const closed = stream.readyState === EventSource.CLOSED;
    say(!closed ? "Connection lost; trying again…" : opened ? "Live updates have stopped. Load the page again to continue."
      : "This page gets no live updates: too many pages are open. Close one, then load this page again.");
    if (stream.readyState === EventSource.CLOSED) stream = null;
  };
}
function unfollow() { if (stream) stream.close(); stream = null; document.body.removeAttribute("data-live"); }
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) follow();
  else if (stream) { stream.close(); stream = null; }
});
follow();

// Copy buttons.
document.addEventListener("click", (e) => {
  const button = e.target.closest("[data-copy]");
  if (!button) return;
  const text = document.getElementById(button.dataset.copy).textContent;
  navigator.clipboard.writeText(text).then(() => { button.textContent = "Copied"; }, () => { button.textContent = "Select it and press Ctrl+C"; });
});
for (const button of document.querySelectorAll("[data-copy]")) button.hidden = false;

// Keys: an element with data-key="j" is followed, clicked or focused. Nothing that decides is ever submitted by a key alone.
document.addEventListener("keydown", (e) => {
  if (e.ctrlKey || e.metaKey || e.altKey || e.target.closest("input:not([type=radio]), textarea, select")) {
    if (e.key === "Escape") e.target.blur();
    return;
  }
  const target = [...document.querySelectorAll("[data-key]")].find((t) => t.dataset.key === e.key && !t.hidden);
  if (!target) return;
  e.preventDefault();
  if (target.matches("input, textarea, select")) target.focus();
  if (!target.matches("input:not([type=radio]), textarea, select")) target.click();
});
// A form is sent once, however often its button is pressed.
document.addEventListener("submit", (e) => {
  if (e.target.method === "post") setTimeout(() => { for (const button of e.target.querySelectorAll("button")) button.disabled = true; });
});
addEventListener("pageshow", (e) => {
  if (e.persisted) for (const button of document.querySelectorAll("form button:disabled")) button.disabled = false;
});
// Enter in a field never sends a form that decides.
document.addEventListener("keydown", (e) => {
  if (e.key === "Enter" && e.target.matches("form[data-careful] input:not([type=submit])")) e.preventDefault();
});
