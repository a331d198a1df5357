// A REST client whose types openapi-typescript made of openapi.json. That it compiles is half of
// the check: it sends what callers send, and reads what they read. The other half is a walk.
//
//   node rest-client.js http://127.0.0.1:4285
import assert from "node:assert/strict";
import { argv } from "node:process";
import createClient from "openapi-fetch";
import type { components, paths } from "./gavel.js";

const client = createClient<paths>({ baseUrl: new URL(argv[2] ?? "").origin });

function need<T>(what: string, { data, error }: { data?: T; error?: components["schemas"]["Problem"] }): T {
  assert.equal(error, undefined, `${what}: ${error?.code}: ${error?.detail}`);
  assert.ok(data !== undefined, what);
  return data;
}

need("define", await client.POST("/v1/definitions", {
  body: {
    name: "order", initialState: "cart",
    states: {
      cart: { transitions: { submit: { target: "done", requiredFields: ["total", "address"] } } },
      done: { final: true },
    },
  },
}));

const started = need("start", await client.POST("/v1/instances", { body: { type: "order", context: { customer: { id: 7 } } } }));
assert(started.id !== undefined, "only a refused start has no id");
const path = { id: started.id };

const refused = need("advance too early", await client.POST("/v1/instances/{id}/advance", {
  params: { path }, body: { action: "submit", data: { total: 12.5 } },
}));
assert.equal(refused.decision.outcome, "reject");
assert.equal(refused.state, "cart");

const moved = need("advance", await client.POST("/v1/instances/{id}/advance", {
  params: { path }, body: { action: "submit", data: { total: 12.5, address: { city: "Bonn", lines: ["Am Markt 1"] } } },
}));
assert.equal(moved.decision.outcome, "approve");
assert.equal(moved.complete, true);

const status = need("status", await client.GET("/v1/instances/{id}", { params: { path } }));
assert.deepEqual(status.context["address"], { city: "Bonn", lines: ["Am Markt 1"] });

const { error, response } = await client.GET("/v1/instances/{id}", { params: { path: { id: "nobody" } } });
assert.equal(response.status, 404);
assert.equal(error?.code, "unknown_instance");

console.log("rest-client: compiled, and every answer as it should be");
