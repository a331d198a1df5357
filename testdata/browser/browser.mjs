// What checks of pages in a browser share: a fresh Chromium that reaches no other host, and axe.
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import { chromium } from "playwright-core";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/** Starts the Chromium of CHROMIUM with a profile of its own. */
export const launch = () => chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: process.getuid?.() === 0 ? ["--no-sandbox"] : [],
});

/**
 * Opens a tab. Each message of the console that is an error, each uncaught exception and each request that no
 * allowed prefix covers is reported, and such requests are not sent.
 */
export async function open(browser, { allowed, report, ...options }) {
  const context = await browser.newContext(options);
  const covered = (url) => [...allowed, "data:", "blob:", "about:"].some((prefix) => url.startsWith(prefix));
  await context.route((url) => !covered(url.href), (route) => {
    report(`${route.request().frame().url()} asks for ${route.request().url()}`);
    return route.abort();
  });
  const page = await context.newPage();
  page.on("console", (message) => {
    if (message.type() === "error") report(`${page.url()}: ${message.text()}`);
  });
  page.on("pageerror", (error) => report(`${page.url()}: ${error.message}`));
  return page;
}

/** Returns what axe finds serious or critical on the page as it is shown now. */
export async function serious(page) {
  await page.evaluate(axe);
  const { violations, passes } = await page.evaluate(() => globalThis.axe.run(document, { preload: false, resultTypes: ["violations"] }));
  if (passes.length < 10) return [`axe looked at nothing: ${passes.length} rules passed`];
  return violations.filter(({ impact }) => impact === "serious" || impact === "critical")
    .flatMap(({ id, nodes }) => nodes.map(({ target, failureSummary }) => `${id} at ${target.join(" ")}: ${failureSummary.split("\n")[1]?.trim()}`));
}
