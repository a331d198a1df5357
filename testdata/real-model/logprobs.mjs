// Whether a model that is asked for one word per criterion, Yes or No, tells good cases from bad ones by the probability
// of Yes. gavel has no such form of an answer; this finds out whether it would be worth having.
//
//   node logprobs.mjs URL FOLDER CASES FILE      FOLDER has cases.jsonl; FILE gets a line per answer and is continued
import fs from "node:fs";
import path from "node:path";
import { parse } from "yaml";

const [url, folder, most, file] = process.argv.slice(2);
const cases = fs.readFileSync(path.join(folder, "cases.jsonl"), "utf8").trim().split("\n").slice(0, Number(most)).map((line) => JSON.parse(line));
const known = fs.existsSync(file) ? fs.readFileSync(file, "utf8").trim().split("\n").filter(Boolean).map((line) => JSON.parse(line)) : [];
const answers = new Map(known.map((answer) => [`${answer.case} ${answer.criterion}`, answer]));

async function ask(item, flow, criterion) {
  const documents = { context: item.context, data: item.data };
  const messages = [
    { role: "system", content: "You check one statement about a request. Answer with one word: Yes or No." },
    {
      role: "user",
      content: `${flow.description}\nThe request, written by an agent:\n${JSON.stringify(documents)}\n\nStatement: ${criterion}\nIs the statement true of this request? Yes or No.`,
    },
  ];
  const body = JSON.stringify({ messages, max_tokens: 1, logprobs: true, top_logprobs: 50, temperature: 0 });
  const response = await fetch(`${url}/v1/chat/completions`, { method: "POST", body });
  const reply = await response.json();
  if (!response.ok) throw new Error(`${item.id}: ${reply.error.message}`);
  const sums = { yes: 0, no: 0 };
  for (const { token, logprob } of reply.choices[0].logprobs.content[0].top_logprobs) {
    const word = token.trim().toLowerCase();
    if (word in sums) sums[word] += Math.exp(logprob);
  }
  if (sums.yes + sums.no === 0) throw new Error(`${item.id}: neither Yes nor No is among the likely tokens`);
  return sums.yes / (sums.yes + sums.no);
}

for (const item of cases) {
  const [ref] = item.workflow.ref.split("#");
  const flow = parse(fs.readFileSync(path.join(folder, ref), "utf8"));
  const step = flow.states[item.state].transitions[item.action];
  for (const [i, c] of (step.criteria ?? flow.judgeConfig.criteria).entries()) {
    const criterion = `c${i + 1}`;
    if (answers.has(`${item.id} ${criterion}`)) continue;
    const answer = { case: item.id, criterion, yes: await ask(item, flow, c.text ?? c) };
    answers.set(`${item.id} ${criterion}`, answer);
    fs.appendFileSync(file, JSON.stringify(answer) + "\n");
  }
}

// areaUnderROC is how often a good row got a higher probability than a bad one; ties count half.
function areaUnderROC(rows) {
  const good = rows.filter((row) => row.good);
  const bad = rows.filter((row) => !row.good);
  if (good.length === 0 || bad.length === 0) return undefined;
  let sum = 0;
  for (const g of good) for (const b of bad) sum += g.p > b.p ? 1 : g.p === b.p ? 0.5 : 0;
  return sum / good.length / bad.length;
}

function randomFrom(seed) {
  return () => (seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0) / 2 ** 32;
}

// The interval draws whole groups: a case and its twin are no independent cases.
function report(what, rows) {
  const groups = [...new Set(rows.map((row) => row.group))].map((group) => rows.filter((row) => row.group === group));
  const random = randomFrom(1);
  const areas = Array.from({ length: 2000 }, () => areaUnderROC(groups.flatMap(() => groups[Math.floor(random() * groups.length)])))
    .filter((area) => area !== undefined)
    .sort((a, b) => a - b);
  const at = (share) => areas[Math.min(areas.length - 1, Math.floor(share * areas.length))].toFixed(2);
  const yes = (good) => rows.filter((row) => row.good === good && row.p > 0.5).length + " of " + rows.filter((row) => row.good === good).length;
  console.log(`${what}: AUROC ${areaUnderROC(rows).toFixed(2)} (${at(0.025)} to ${at(0.975)}), ${rows.length} rows in ${groups.length} groups; Yes to ${yes(true)} good and ${yes(false)} bad ones`);
}

const perCriterion = [];
const perCase = [];
for (const item of cases) {
  const own = [...answers.values()].filter((answer) => answer.case === item.id);
  for (const { criterion, yes } of own) {
    const label = item.expect.criteria?.[criterion];
    if (label) perCriterion.push({ group: item.group, good: label === "met", p: yes });
  }
  perCase.push({ group: item.group, good: item.expect.outcome === "approve", p: Math.min(...own.map((answer) => answer.yes)) });
}
report("criteria", perCriterion);
report("cases, by their least likely criterion", perCase);
