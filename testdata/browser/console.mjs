// Checks the console in a browser, against real servers: node console.mjs GAVEL FOLDER SHOTS
import { mkdirSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";
import { HtmlValidate, StaticConfigLoader } from "html-validate";
import { launch, open, serious } from "./browser.mjs";
import { begin, stop } from "./world.mjs";

const [gavel, folder, shots] = process.argv.slice(2);
rmSync(folder, { recursive: true, force: true });
rmSync(shots, { recursive: true, force: true });
mkdirSync(shots, { recursive: true });

const began = Date.now(), problems = new Set();
const report = (text) => problems.has(text) || (problems.add(text), console.log(`PROBLEM ${text}`));
const must = (holds, text) => { if (!holds) report(text); };
const wide = { width: 1600, height: 1000 }, narrow = { width: 360, height: 740 };
const validator = new HtmlValidate(new StaticConfigLoader({ extends: ["html-validate:standard"] })); // what the standard says, no style

const world = await begin(gavel, folder);
const browser = await launch();

/** Opens a tab that reaches this server only. Errors of its console that match expected are no problem. */
const tab = ({ root = world.serve, expected, ...options } = {}) => open(browser, {
  allowed: [root], viewport: wide, colorScheme: "light", ...options,
  report: (text) => expected?.test(text) || report(text),
});

/** Signs in with the form, and returns the tab. */
async function signIn(who, options) {
  const page = await tab(options);
  await page.goto(`${world.serve}/console/sign-in`);
  await page.locator("#token").fill(world.tokens[who]);
  await page.locator("button.primary").click();
  await page.waitForURL(/\/console\/$/);
  return page;
}

const go = (page, path) => page.goto(new URL(path, page.url()).href, { waitUntil: "load" });
const shot = (page, name, options) => page.screenshot({ path: join(shots, `${name}.png`), ...options });
const sees = (page, text, limit = 30_000) => page.getByText(text).first().waitFor({ timeout: limit }).then(() => true, () => false);
const openReviews = async (workflow) => (await world.rest("rita", "GET", "/v1/reviews")).reviews.filter((r) => r.workflow === workflow);
const reviewed = (id) => world.rest("rita", "GET", `/v1/reviews/${id}`);

// --- who comes in, and what a form needs -------------------------------------------

async function login() {
  const page = await tab({ expected: /status of 40[13]/ });
  await page.goto(`${world.serve}/console/instances?status=running`);
  must(page.url().includes("/console/sign-in"), `a visitor without a session is at ${page.url()}`);
  await shot(page, "sign-in-light");
  for (const [token, says] of [["gvl_wrong", "not valid"], [world.tokens.agent, "agent's"]]) {
    await page.locator("#token").fill(token);
    await page.keyboard.press("Enter");
    must(await sees(page, new RegExp(says)), `a token that may not sign in is not refused with "${says}"`);
  }
  await page.locator("#token").fill(world.tokens.rita);
  await page.keyboard.press("Enter");
  await page.waitForURL(/instances\?status=running$/).catch(() => report(`after signing in, the visitor is at ${page.url()}`));
  const [cookie, ...more] = await page.context().cookies();
  must(more.length === 0 && /^gavel_console(_\d+)?$/.test(cookie.name) && cookie.httpOnly && cookie.sameSite === "Strict" && cookie.path === "/console/" && cookie.expires === -1,
    `the session's cookie is ${JSON.stringify({ ...cookie, value: "…" })}`);
  const stored = await page.evaluate(() => localStorage.length + sessionStorage.length + document.cookie.length);
  must(stored === 0, "the page keeps something that its script can read");

  const csrf = await page.locator("input[name=csrf]").first().inputValue();
  const [review] = await openReviews("document-review");
  const other = await signIn("otto");
  const foreign = await other.locator("input[name=csrf]").first().inputValue();
  for (const [name, token] of [["no", undefined], ["a wrong", `${csrf}x`], ["another session's", foreign]]) {
    for (const path of ["-/sign-out", `reviews/${review.reviewId}/-/resolve`]) {
      const answer = await page.request.post(`${world.serve}/console/${path}`, { form: { decision: "approve", reason: "x", ...(token && { csrf: token }) } });
      must(answer.status() === 403, `a form with ${name} CSRF token gets ${answer.status()} from ${path}`);
    }
  }
  const crossed = await page.request.post(`${world.serve}/console/-/sign-out`, { form: { csrf }, headers: { origin: "https://elsewhere.example" } });
  must(crossed.status() === 403, `a form of another site gets ${crossed.status()}`);
  must((await reviewed(review.reviewId)).status === "open", "a form without a CSRF token was obeyed");
  must((await page.request.get(`${world.serve}/console/`)).url().endsWith("/console/"), "a refused form ended the session");
  await signOut(page);
}

async function signOut(page) {
  await go(page, "/console/");
  await page.locator("details.who summary").click();
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.waitForURL(/sign-in/);
  must((await page.context().cookies()).length === 0, "the cookie outlives the session");
  await page.goto(`${world.serve}/console/`);
  must(page.url().includes("/console/sign-in"), "a page is shown after signing out");
}

async function frame() {
  const server = createServer((_, answer) => answer.setHeader("content-type", "text/html").end(`<iframe src="${world.serve}/console/sign-in"></iframe>`));
  await new Promise((resolve) => { server.listen(0, "127.0.0.1", resolve); });
  const root = `http://127.0.0.1:${server.address().port}`;
  const page = await open(browser, { allowed: [root, world.serve], report: () => {} });
  const refused = page.waitForEvent("console", { predicate: (m) => /frame-ancestors|X-Frame-Options/.test(m.text()), timeout: 30_000 }).then(() => true, () => false);
  await page.goto(root);
  must(await refused, "the page can be put into a frame");
  server.close();
}

async function link() { // gavel ui: the link works once
  const page = await tab({ root: new URL(world.ui).origin, expected: /status of 401/ });
  await page.goto(world.ui);
  must(await sees(page, "Waiting for a person"), "the link of gavel ui does not open the console");
  await shot(page, "ui-now-light");
  const second = await tab({ root: new URL(world.ui).origin, expected: /status of 401/ });
  await second.goto(world.ui);
  must(await sees(second, "was used before"), "the link of gavel ui works twice");
}

// --- every page ---------------------------------------------------------------------

/** Follows the links of the console, and returns one page of each kind, or two. */
async function crawl(page) {
  const seen = new Map(), todo = ["/console/"], found = [];
  const kind = (path) => path.replace(/\?.*/, (q) => `?${[...new URLSearchParams(q).keys()].sort()}`).replace(/(?<=\/(instances|reviews|definitions|runs|checkpoints|revisions|decisions)\/)[^/?]+/g, "*");
  while (todo.length > 0) {
    const path = todo.shift(), of = kind(path);
    if ((seen.get(of) ?? 0) >= (/^\/console\/(instances|reviews|definitions)\/\*$/.test(of) ? 2 : 1)) continue;
    seen.set(of, (seen.get(of) ?? 0) + 1);
    const answer = await page.request.get(world.serve + path);
    if (!answer.ok()) {
      report(`${path} is linked, and gets ${answer.status()}`);
      continue;
    }
    if (!answer.headers()["content-type"].startsWith("text/html")) continue;
    const html = await answer.text();
    found.push({ path, html });
    for (const [, href] of html.matchAll(/ href="([^"#]*)/g)) {
      if (href.startsWith("/console/") && !href.includes("/-/")) todo.push(href.replaceAll("&amp;", "&"));
    }
  }
  return found;
}

async function pages() {
  for (const version of ["1.4.0", "2.0.0"]) await world.rest("agent", "POST", "/v1/runs", { chain: "check-version", input: { version } }); // the second fails
  const light = await signIn("olga"), found = await crawl(light);
  const kinds = found.map(({ path }) => path);
  for (const path of ["/console/reviews", "/console/instances", "/console/definitions", "/console/servers", "/console/runs", "/console/judge"]) {
    must(kinds.some((p) => p.startsWith(path)), `no link leads to ${path}`);
  }
  const more = [["/console/nowhere", 404], ["/console/sign-in", 200]];
  for (const [path, status] of more) {
    const answer = await light.request.get(world.serve + path);
    must(answer.status() === status, `${path} gets ${answer.status()}`);
    found.push({ path, html: await answer.text() });
  }
  for (const { path, html } of found) {
    must(html.length <= 100_000, `${path} has ${html.length} bytes`);
    for (const { messages } of (await validator.validateString(html)).results) {
      messages.forEach(({ ruleId, message, line }) => report(`${path}, line ${line}: ${message} (${ruleId})`));
    }
  }
  const cookies = await light.context().cookies();
  const as = async (options) => {
    const page = await tab({ expected: /nowhere: .*404/, ...options });
    await page.context().addCookies(cookies);
    return page;
  };
  const look = async (page, how) => {
    for (const { path } of found) {
      await page.goto(world.serve + path, { waitUntil: "load" });
      (await serious(page)).forEach((text) => report(`${path}, ${how}: ${text}`));
      const { wide: width, room } = await page.evaluate(() => ({ wide: document.documentElement.scrollWidth, room: innerWidth }));
      must(width <= room, `${path}, ${how}, is ${width} px wide on ${room}`);
      await shot(page, `${path.slice(9).replace(/[^\w-]+/g, "-").replace(/(wf|rev|run)-[\w-]{36}/g, "$1").slice(0, 60) || "now"}-${how}`, { fullPage: true });
    }
  };
  await Promise.all([
    look(await as({}), "light"),
    look(await as({ colorScheme: "dark" }), "dark"),
    look(await as({ viewport: narrow }), "360"),
  ]);
  return `${found.length} pages: ${kinds.join(" ")}`;
}

// --- what changes -------------------------------------------------------------------

async function live() { // a change within a second of an advance over MCP
  const page = await signIn("rita");
  const call = await world.mcp("agent");
  const { id } = await call("workflow.start", { type: "refund", context: { order: { id: "R-9", item: "chair", total: 80 }, customer: { name: "Kim" } } });
  await page.locator(`[id="${id}"]`).waitFor({ timeout: 30_000 }).catch(() => report("a started instance does not appear"));
  const took = [];
  for (const amount of [90, 95, 99]) {
    const before = await page.locator("#refused li").count(), start = Date.now();
    await call("workflow.advance", { id, action: "assess", data: { amount, reason: "The chair has only three legs." } });
    await page.waitForFunction((n) => document.querySelectorAll("#refused li").length > n, before, { timeout: 30_000, polling: 20 })
      .catch(() => report("a refusal does not appear"));
    took.push(Date.now() - start);
    await page.waitForTimeout(300);
  }
  must(Math.min(...took) < 2000, `an advance over MCP is shown after ${took} ms`); // a busy machine may be late twice
  return `${took} ms`;
}

async function filter() { // and back and forward
  for (let i = 0; i < 120; i++) {
    await world.rest("agent", "POST", "/v1/instances", { type: "document-review", context: { author: `author ${i}`, note: "<img src=x onerror=alert(1)><script>alert(2)</script>" } });
  }
  const page = await signIn("rita");
  await go(page, "/console/instances");
  const rows = () => page.locator("main [data-rows] > li, main tbody > tr").count();
  const all = await rows(), start = page.url();
  await page.getByLabel("Workflow").fill("refund");
  await page.keyboard.press("Enter");
  await page.waitForURL(/workflow=refund/);
  const some = await rows();
  must(some > 0 && some < all, `the filter shows ${some} rows of ${all}`);
  must(!(await page.locator("main").innerText()).includes("document-review"), "the filter shows another workflow");
  await page.goBack();
  must(page.url() === start && await rows() === all, `back leads to ${page.url()} with ${await rows()} rows of ${all}`);
  await page.goForward();
  must(/workflow=refund/.test(page.url()) && await rows() === some, `forward leads to ${page.url()}`);
  return `${some} of ${all} rows`;
}

async function keyboard() { // one review, without a mouse
  const page = await signIn("rita");
  const asked = [];
  page.on("request", (r) => { if (r.method() === "POST") asked.push(r.url()); });
  const before = (await world.rest("rita", "GET", "/v1/reviews")).reviews.length;
  await page.keyboard.press("r");
  await page.waitForURL(/\/console\/reviews\/rev-/);
  await page.keyboard.press("Enter");
  const first = page.url();
  await page.keyboard.press("j");
  await page.waitForFunction((url) => location.href !== url, first, { timeout: 30_000 }).catch(() => report("j does not lead to the next review"));
  await page.waitForLoadState();
  await page.keyboard.press("k");
  await page.waitForURL((url) => url.href === first || url.pathname === new URL(first).pathname, { timeout: 30_000 }).catch(() => report(`k leads from the second review to ${page.url()}, not ${first}`));
  // to a refund: its approval needs no evidence
  const refunds = (await openReviews("refund")).map((r) => r.reviewId);
  for (let i = 0; i < before && !refunds.some((id) => page.url().includes(id)); i++) {
    const here = page.url();
    await page.keyboard.press("j");
    await page.waitForFunction((url) => location.href !== url, here, { timeout: 3000 }).catch(() => {});
    await page.waitForLoadState();
  }
  const id = refunds.find((r) => page.url().includes(r)) ?? report("no refund can be reached by keys") ?? refunds[0];
  await page.keyboard.press("a");
  await page.keyboard.press("Enter");
  must(asked.length === 0, "Enter alone sends a decision");
  must((await reviewed(id)).status === "open", "keys alone decided");
  const reason = page.locator("[name=reason]").first();
  for (let i = 0; i < 30 && !(await reason.evaluate((e) => e === document.activeElement)); i++) await page.keyboard.press("Tab");
  must(await reason.evaluate((e) => e === document.activeElement), "the reason cannot be reached by keys");
  await page.keyboard.type("The photo shows the tear; the amount is fair.");
  await shot(page, "review-by-keyboard", { fullPage: true });
  const approve = page.getByRole("button", { name: /^(Approve|Send|Decide|Record)/ }).first();
  for (let i = 0; i < 10 && !(await approve.evaluate((e) => e === document.activeElement)); i++) await page.keyboard.press("Tab");
  must(await approve.evaluate((e) => e === document.activeElement), "the button that sends cannot be reached by keys");
  await page.keyboard.press("Enter");
  await page.waitForLoadState();
  await sees(page, /Approved|was performed|decided/i);
  const { status, resolution } = await reviewed(id);
  must(status === "resolved", `after a decision by keys the review is ${status} (${JSON.stringify(resolution)})`);
}

async function twoBrowsers() { // one wins, the other sees who resolved it
  const one = await signIn("rita"), two = await signIn("otto", { expected: /status of 409/ });
  const [review] = await openReviews("refund");
  for (const page of [one, two]) await go(page, `/console/reviews/${review.reviewId}`);
  const type = async (page, decision, reason) => {
    const choice = page.locator(`input[name=decision][value=${decision}]`);
    if (await choice.count() > 0) await choice.check();
    await page.locator("[name=reason]").first().fill(reason);
  };
  const send = (page, decision) => page.locator(`form:has([name=reason]) button[value=${decision}], form:has([name=reason]) button:not([value])`).first().click();
  await type(two, "approve", "A typed reason that must not be lost.");
  await type(one, "reject", "The repair comes first.");
  await send(one, "reject");
  await one.waitForLoadState();
  must(await sees(two, /rita/), "the other browser does not see who resolved the review");
  must(await two.locator("#reason").inputValue().catch(() => "") === "A typed reason that must not be lost.", "the typed reason is lost when the review is resolved elsewhere");
  await shot(two, "review-resolved-elsewhere", { fullPage: true });
  must(await two.getByRole("button", { name: "Send the decision" }).isDisabled().catch(() => false), "a review that was resolved elsewhere can still be sent");
  const csrf = await two.locator("input[name=csrf]").first().inputValue();
  const late = await two.request.post(`${world.serve}/console/reviews/${review.reviewId}/-/resolve`, { form: { csrf, decision: "approve", reason: "too late" } });
  must(late.status() === 409 && (await late.text()).includes("rita"), `the second decision gets ${late.status()}, and does not name who decided`);
  const decided = await reviewed(review.reviewId);
  must(decided.status === "resolved" && JSON.stringify(decided).includes('"rita"'), `two decisions gave ${JSON.stringify(decided).slice(0, 300)}`);
}

async function typed() { // a change after an advance must not remove a typed reason
  const call = await world.mcp("agent");
  const { id } = await call("workflow.start", { type: "document-review", context: { author: "kim" } });
  await call("workflow.advance", { id, action: "submit", data: { documentId: "DOC-77", title: "Opening hours" } });
  const { review } = await call("workflow.advance", { id, action: "accept", data: { comments: "Read both lines of it. They were compared with the sign at the door." } });
  const page = await signIn("rita");
  await go(page, `/console/reviews/${review.reviewId}`);
  await page.locator("[name=reason]").first().fill("I called the shop");
  await page.locator("h1").first().click();
  await call("workflow.advance", { id, action: "accept", data: {} });
  await call("workflow.advance", { id, action: "return", data: { comments: "Sunday is missing." } });
  must(await sees(page, /stale|no longer|changed/i), "a stale review does not show it in place");
  must(await page.locator("#reason").inputValue().catch(() => "") === "I called the shop", "an update removed a typed reason");
  await shot(page, "review-stale", { fullPage: true });
}

async function playground() {
  const page = await signIn("olga");
  await play(page);
  await shot(page, "playground-light", { fullPage: true });
}

async function judge() { // what would flip, and a decision as a golden case
  const page = await signIn("olga");
  await go(page, "/console/definitions/refund?version=1");
  await page.getByRole("button", { name: "Compare" }).last().click();
  await page.waitForURL(/flip=/);
  must(await sees(page, /would come out differently/), "the first version decides no recorded decision differently");
  await shot(page, "flips-light", { fullPage: true });
  await page.locator("li[id^=flip-] strong a").first().click();
  await page.waitForURL(/decisions/);
  const [download] = await Promise.all([page.waitForEvent("download"), page.getByText("golden case").last().click()]);
  const [line] = readFileSync(await download.path(), "utf8").split("\n");
  must(JSON.parse(line).workflow !== undefined, `the golden case is ${line.slice(0, 200)}`);
}

async function play(page) {
  const count = async () => (await world.rest("olga", "GET", "/v1/decisions?limit=500")).decisions.length;
  const before = await count();
  await go(page, "/console/definitions/refund");
  const form = page.locator("form:has([name=data])").last();
  await form.locator("[name=state]").selectOption("requested").catch(() => form.locator("[name=state]").fill("requested"));
  await form.locator("[name=action]").selectOption("assess").catch(() => form.locator("[name=action]").fill("assess"));
  await form.locator("[name=data]").fill('{"amount": -5, "reason": "The lamp is broken."}');
  await form.locator("button").last().click();
  await page.waitForLoadState();
  must(await sees(page, /exclusiveMinimum|greater than|must be|more than/), "the playground shows no verdict of the schema");
  must(await count() === before, "the playground recorded a decision");
}

async function drift() { // another server's tool changes, and an operator accepts it
  const page = await signIn("olga");
  world.drift();
  await go(page, "/console/servers");
  await page.getByRole("button", { name: "Ask all servers" }).click();
  must(await sees(page, "Not as pinned", 20_000) && await sees(page, /\.ssh/), "a changed tool is not shown with its difference");
  (await serious(page)).forEach((text) => report(`drift: ${text}`));
  await shot(page, "drift", { fullPage: true });
  await page.getByRole("button", { name: "Accept this definition" }).first().click();
  must(await sees(page, /accepted|pinned now|is pinned/i), "accepting a definition says nothing");
  must(await page.getByText("Not as pinned").count() === 0, "an accepted definition is still not as pinned");
  must(/\.ssh/.test(world.pins()), "an accepted definition is not in the file of pins");
  await shot(page, "drift-accepted", { fullPage: true });
  const auditor = await signIn("audrey");
  await go(auditor, "/console/servers");
  must(await auditor.getByRole("button", { name: /Ask all|Accept/ }).count() === 0, "an auditor is offered to accept");
}

async function withoutScript() {
  const page = await tab({ javaScriptEnabled: false });
  await page.goto(`${world.serve}/console/sign-in`);
  await page.locator("#token").fill(world.tokens.olga);
  await page.locator("button.primary").click();
  must(page.url().endsWith("/console/"), `without JavaScript, signing in leads to ${page.url()}`);
  await shot(page, "without-script-now");
  const [review] = await openReviews("document-review");
  await page.goto(`${world.serve}/console/reviews/${review.reviewId}`);
  await shot(page, "without-script-review", { fullPage: true });
  const choice = page.locator("input[name=decision][value=reject]");
  if (await choice.count() > 0) await choice.check();
  await page.locator("[name=reason]").first().fill("The spring list is not final.");
  await page.locator("form:has([name=reason]) button[value=reject], form:has([name=reason]) button:not([value])").first().click();
  const { status } = await reviewed(review.reviewId);
  must(status === "resolved", `without JavaScript, the review is ${status}`);
  await play(page);
  await shot(page, "without-script-playground", { fullPage: true });
}

// --- all of it ----------------------------------------------------------------------

const checks = { login, frame, link, live, pages, filter, typed, keyboard, twoBrowsers, playground, judge, drift, withoutScript };
const wanted = process.env.CHECKS ? process.env.CHECKS.split(",") : Object.keys(checks);
for (const name of wanted) {
  const start = Date.now(), before = problems.size;
  let says = "";
  try {
    says = await checks[name]() ?? "";
  } catch (error) {
    report(`${name}: ${error.message.split("\n").slice(0, 4).join(" ")}`);
  }
  for (const context of browser.contexts()) await context.close();
  console.log(`${problems.size === before ? "ok" : "FAIL"} ${name}, ${((Date.now() - start) / 1000).toFixed(1)} s ${says}`);
}
await browser.close();
await stop();
world.said().filter((line) => /panic|defect|level=ERROR/.test(line)).forEach((line) => report(`a server said: ${line}`));
console.log(`${problems.size} problems, ${((Date.now() - began) / 1000).toFixed(0)} s`);
process.exit(problems.size > 0 ? 1 : 0);
