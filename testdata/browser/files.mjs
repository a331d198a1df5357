// Checks the built pages as files, without a browser: node files.mjs FOLDER
import { readFileSync, readdirSync, statSync } from "node:fs";
import { dirname, join } from "node:path";

const maxPage = 100_000;

/** Returns the names of the pages of a site. */
export const pagesOf = (folder) => readdirSync(folder, { recursive: true }).filter((name) => name.endsWith(".html") && name !== "404.html").sort();

/** Returns what is wrong: large pages, links that lead nowhere, and anything that another host would have to send. */
export function checkFiles(folder) {
  const pages = pagesOf(folder), problems = [], ids = new Map(), links = [];
  for (const name of pages) {
    const { size } = statSync(join(folder, name));
    if (size > maxPage) problems.push(`${name} has ${size} bytes, more than ${maxPage}`);
    const html = readFileSync(join(folder, name), "utf8").replace(/<pre\b.*?<\/pre>|<!--.*?-->/gs, (code) => code.match(/ id="[^"]*"/g)?.join("") ?? "");
    ids.set(name, new Set(html.match(/(?<= id=")[^"]*/g)));
    for (const [, tag, attributes] of html.matchAll(/<(\w+)\b([^>]*)/g)) {
      for (const [, url] of attributes.matchAll(/ (?:href|src|srcset|data|poster)="?([^"\s>]*)/g)) {
        if (!/^([a-z]+:|\/\/)/.test(url)) links.push([name, url.replaceAll("&amp;", "&")]);
        else if (tag !== "a") problems.push(`${name} has a ${tag} of ${url}`);
      }
    }
  }
  for (const [name, url] of links) {
    const [path, anchor] = url.split("#");
    const target = path ? join(dirname(name), decodeURIComponent(path)) : name;
    if (!statSync(join(folder, target), { throwIfNoEntry: false })?.isFile()) problems.push(`${name} links to ${url}, which is no file`);
    else if (anchor && ids.has(target) && !ids.get(target).has(decodeURIComponent(anchor))) problems.push(`${name} links to ${url}, which is not there`);
  }
  console.log(`${pages.length} pages with ${links.length} links`);
  if (pages.length < 100 || links.length < 10 * pages.length) problems.push("there should be more of them");
  return problems;
}

if (process.argv[1] === import.meta.filename) {
  const problems = checkFiles(process.argv[2]);
  for (const problem of problems) console.log(problem);
  process.exit(problems.length ? 1 : 0);
}
