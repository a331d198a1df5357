package main

import "strings"

const unsigned = "eyJhbGciOiJub25lIiwidHlwIjoiSldUIn0.eyJzdWIiOiJsb2NhbDpvcGVyYXRvciIsInJvbGUiOiJvcGVyYXRvciIsImV4cCI6NDg1NTU1NTU1NX0."

// hostiles returns all cases of TestHostileHTTP. It is a function, because package variables would create megabytes
// in every process of these tests. Each case closes its connection; if the rejection does not close it, the request
// asks for that.
func hostiles() []hostile {
	return []hostile{
		// Host and origin.
		{name: "forged host", request: "GET /healthz HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n", want: []int{403}, code: "host_not_allowed"},
		{name: "no host", request: "GET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n", want: []int{400}},
		{name: "two hosts", request: "GET /healthz HTTP/1.1\r\nHost: {HOST}\r\nHost: evil.example\r\n\r\n", want: []int{400}},
		{name: "HTTP/1.0 without a host", request: "GET /healthz HTTP/1.0\r\n\r\n", want: []int{403}, code: "host_not_allowed"},
		{name: "HTTP/1.0 for another host", request: "GET /healthz HTTP/1.0\r\nHost: evil.example\r\n\r\n", want: []int{403}, code: "host_not_allowed"},
		{name: "loopback address as a label", request: "GET /healthz HTTP/1.1\r\nHost: 127.0.0.1.nip.io\r\nConnection: close\r\n\r\n", want: []int{403}, code: "host_not_allowed"},
		{name: "user before the host", request: "GET /healthz HTTP/1.1\r\nHost: 127.0.0.1@evil.example\r\nConnection: close\r\n\r\n", want: []int{400, 403}},
		{name: "absolute address of another host", request: "GET http://evil.example/healthz HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n", want: []int{403}, code: "host_not_allowed"},
		{name: "absolute address of another scheme", request: "GET ftp://evil.example/healthz HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n", want: []int{403}, code: "host_not_allowed"},
		{name: "forged origin", request: read("/v1/whoami", "{AGENT}", "Origin: http://evil.example", "Connection: close"), want: []int{403}, code: "origin_not_allowed"},
		{name: "forged origin at MCP", request: post("/mcp", "{AGENT}", `{}`, "Origin: http://evil.example", "Connection: close"), want: []int{403}, code: "origin_not_allowed"},
		{name: "null origin", request: read("/v1/whoami", "{AGENT}", "Origin: null", "Connection: close"), want: []int{403}, code: "origin_not_allowed"},
		{name: "origin that begins well", request: read("/v1/whoami", "{AGENT}", "Origin: http://localhost.evil.example", "Connection: close"), want: []int{403}, code: "origin_not_allowed"},
		{name: "two origins", request: read("/v1/whoami", "{AGENT}", "Origin: http://localhost", "Origin: http://evil.example", "Connection: close"), want: []int{403}, code: "origin_not_allowed"},
		{name: "preflight", request: "OPTIONS /mcp HTTP/1.1\r\nHost: {HOST}\r\nOrigin: http://evil.example\r\nAccess-Control-Request-Method: POST\r\nConnection: close\r\n\r\n", want: []int{403}, code: "origin_not_allowed"},
		{name: "preflight without origin", request: "OPTIONS /v1/instances HTTP/1.1\r\nHost: {HOST}\r\nAccess-Control-Request-Method: POST\r\nConnection: close\r\n\r\n", want: []int{401}, code: "unauthenticated"},

		// Other protocols and methods.
		{name: "CONNECT", request: "CONNECT {HOST} HTTP/1.1\r\nHost: {HOST}\r\n\r\n", want: []int{405}, code: "method_not_allowed"},
		{name: "TRACE", request: "TRACE /mcp HTTP/1.1\r\nHost: {HOST}\r\nAuthorization: Bearer {AGENT}\r\n\r\n", want: []int{405}, code: "method_not_allowed"},
		{name: "unknown method", request: "BREW /mcp HTTP/1.1\r\nHost: {HOST}\r\n\r\n", want: []int{405}, code: "method_not_allowed"},
		{name: "method override", request: "GET /v1/instances/{MINE} HTTP/1.1\r\nHost: {HOST}\r\nX-HTTP-Method-Override: DELETE\r\nConnection: close\r\n\r\n", want: []int{401}, code: "unauthenticated"},
		{name: "h2c upgrade", request: read("/v1/whoami", "", "Connection: Upgrade, HTTP2-Settings, close", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__"), want: []int{401}, code: "unauthenticated"},
		{name: "websocket upgrade", request: read("/mcp", "", "Connection: Upgrade, close", "Upgrade: websocket", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version: 13"), want: []int{401}, code: "unauthenticated"},
		{name: "HTTP/2 unasked", request: "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", want: []int{405, 505}},
		{name: "HTTP/3.7", request: "GET /healthz HTTP/3.7\r\nHost: {HOST}\r\n\r\n", want: []int{505}},
		{name: "TLS to a plain port", request: "\x16\x03\x01\x00\x05hello\r\n\r\n", want: []int{0, 400}},
		{name: "noise", request: "\x00\xff\xfe nonsense\r\n\r\n", want: []int{0, 400}},
		{name: "Expect", request: post("/mcp", "{AGENT}", "{}", "Expect: the-unexpected", "Connection: close"), want: []int{417}},

		// Sizes.
		{name: "large header", request: read("/healthz", "", "X-Bomb: {LONG}", "Connection: close"), want: []int{431}, code: "header_too_large"},
		{name: "huge header", request: read("/healthz", "", "X-Bomb: {HUGE}"), want: []int{431}},
		{name: "many headers", request: read("/healthz", "", strings.TrimSuffix(strings.Repeat("X: y\r\n", 500), "\r\n"), "Connection: close"), want: []int{431}, code: "header_too_large"},
		{name: "long address", request: "GET /healthz?" + strings.Repeat("a", 20<<10) + " HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n", want: []int{414}, code: "address_too_long"},
		{name: "huge body announced", request: strings.Replace(post("/mcp", "{AGENT}", ""), "Content-Length: 0", "Content-Length: 99999999999", 1), want: []int{413}, code: "body_too_large"},
		{name: "large body in pieces at MCP", request: "POST /mcp HTTP/1.1\r\nHost: {HOST}\r\nAuthorization: Bearer {AGENT}\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n10001\r\n{FLOOD}\r\n0\r\n\r\n", want: []int{413}, code: "body_too_large"},
		{name: "large body in pieces at REST", request: "POST /v1/definitions HTTP/1.1\r\nHost: {HOST}\r\nAuthorization: Bearer {AGENT}\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n10001\r\n{FLOOD}\r\n0\r\n\r\n", want: []int{413}, code: "body_too_large"},
		{name: "packed body", request: post("/mcp", "{AGENT}", "\x1f\x8b", "Content-Encoding: gzip"), want: []int{415}, code: "encoding_not_supported"},

		// The end of one request and the beginning of the next.
		{name: "two ways to say how long", request: "POST /v1/instances HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /healthz HTTP/1.1\r\nHost: {HOST}\r\n\r\n", want: []int{401}, code: "unauthenticated"},
		{name: "two lengths", request: "POST /v1/instances HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nabcde", want: []int{400}},
		{name: "negative length", request: "POST /v1/instances HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: -1\r\n\r\n", want: []int{400}},
		{name: "signed length", request: "POST /v1/instances HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: +4\r\n\r\nabcd", want: []int{400}},
		{name: "unknown transfer encoding", request: "POST /v1/instances HTTP/1.1\r\nHost: {HOST}\r\nTransfer-Encoding: xchunked\r\n\r\n", want: []int{501}},
		{name: "two transfer encodings", request: "POST /v1/instances HTTP/1.1\r\nHost: {HOST}\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n", want: []int{400, 501}},
		{name: "bad chunk", request: "POST /v1/definitions HTTP/1.1\r\nHost: {HOST}\r\nAuthorization: Bearer {AGENT}\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n", want: []int{400}, code: "body_broken"},
		{name: "space before the colon", request: "GET /healthz HTTP/1.1\r\nHost: {HOST}\r\nTransfer-Encoding : chunked\r\n\r\n", want: []int{400}},
		{name: "NUL in a header", request: "GET /healthz HTTP/1.1\r\nHost: {HOST}\r\nX: a\x00b\r\n\r\n", want: []int{400}},
		{name: "pipelined behind a refusal", request: "POST /mcp HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: 99999999\r\n\r\nGET /healthz HTTP/1.1\r\nHost: {HOST}\r\n\r\n", want: []int{413}, code: "body_too_large"},
		{name: "pipelined", request: read("/v1/whoami", "") + read("/v1/whoami", "", "Connection: close"), want: []int{401}, answers: 2},

		// Paths.
		{name: "up, encoded with its slash", request: read("/v1/..%2f..%2fetc/passwd", "{AGENT}", "Connection: close"), want: []int{400}, code: "bad_path"},
		{name: "up", request: read("/v1/../mcp", "{AGENT}", "Connection: close"), want: []int{400}, code: "bad_path"},
		{name: "up, encoded", request: read("/v1/instances/%2e%2e/definitions", "{AGENT}", "Connection: close"), want: []int{400}, code: "bad_path"},
		{name: "two slashes", request: read("//v1/whoami", "{AGENT}", "Connection: close"), want: []int{400}, code: "bad_path"},
		{name: "backslash", request: read(`/v1\whoami`, "{AGENT}", "Connection: close"), want: []int{400}, code: "bad_path"},
		{name: "NUL in the path", request: read("/v1/definitions/a%00b", "{AGENT}", "Connection: close"), want: []int{400}, code: "bad_path"},
		{name: "parameters", request: read("/v1/instances;x=y", "{AGENT}", "Connection: close"), want: []int{400}, code: "bad_path"},
		{name: "rewritten by a header", request: read("/v1/whoami", "", "X-Original-URL: /healthz", "X-Forwarded-Host: localhost", "Connection: close"), want: []int{401}, code: "unauthenticated"},

		// Credentials.
		{name: "no token", request: read("/v1/whoami", "", "Connection: close"), want: []int{401}, code: "unauthenticated"},
		{name: "unknown token", request: read("/v1/whoami", "gvl_0123456789abcdef_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", "Connection: close"), want: []int{401, 429}},
		{name: "another's secret", request: read("/v1/whoami", "{WRONG}", "Connection: close"), want: []int{401, 429}},
		{name: "revoked token", request: read("/v1/whoami", "{REVOKED}", "Connection: close"), want: []int{401, 429}},
		{name: "expired token", request: read("/v1/whoami", "{EXPIRED}", "Connection: close"), want: []int{401, 429}},
		{name: "expired token at MCP", request: post("/mcp", "{EXPIRED}", "{}", "Connection: close"), want: []int{401, 429}},
		{name: "JWT with alg none", request: read("/v1/whoami", unsigned, "Connection: close"), want: []int{401, 429}},
		{name: "token in the address", request: read("/v1/whoami?access_token={AGENT}", "", "Connection: close"), want: []int{401}, code: "unauthenticated"},
		{name: "token in a cookie", request: read("/v1/whoami", "", "Cookie: Authorization=Bearer {AGENT}", "Connection: close"), want: []int{401}, code: "unauthenticated"},
		{name: "password", request: read("/v1/whoami", "", "Authorization: Basic bG9jYWw6b3BlcmF0b3I=", "Connection: close"), want: []int{400}, code: "invalid_request"},
		{name: "two credentials", request: read("/v1/whoami", "{AGENT}", "Authorization: Bearer {OPERATOR}", "Connection: close"), want: []int{400}, code: "invalid_request"},
		{name: "role in a header", request: post("/v1/definitions", "{AGENT}", spinning, "X-Gavel-Role: operator", "Role: operator", "Connection: close"), want: []int{403}, code: "forbidden"},

		// Documents.
		{name: "no JSON at MCP", request: post("/mcp", "{AGENT}", `{"jsonrpc":`, "Connection: close"), want: []int{400}},
		{name: "no JSON at REST", request: post("/v1/instances", "{AGENT}", `{"type":`, "Connection: close"), want: []int{400}},
		{name: "batch", request: post("/mcp", "{AGENT}", `[{"jsonrpc":"2.0","id":1,"method":"ping"}]`, "Connection: close"), want: []int{400}},
		{name: "key twice", request: post("/v1/instances", "{AGENT}", `{"type":"gate","type":"ping-pong"}`, "Connection: close"), want: []int{400}},
		{name: "deep nesting", request: post("/v1/instances", "{AGENT}", `{"type":"gate","context":`+strings.Repeat("[", 20_000)+strings.Repeat("]", 20_000)+`}`, "Connection: close"), want: []int{400}},
		{name: "deep nesting at MCP", request: post("/mcp", "{AGENT}", strings.Repeat("[", 20_000), "Connection: close"), want: []int{400}},
		{name: "broken UTF-8", request: post("/v1/instances", "{AGENT}", "{\"type\":\"ga\xffte\"}", "Connection: close"), want: []int{400}},
		{name: "unknown field", request: post("/v1/instances", "{AGENT}", `{"type":"gate","owner":"local:operator"}`, "Connection: close"), want: []int{400}},
		{name: "text for JSON at MCP", request: strings.Replace(post("/mcp", "{AGENT}", "{}", "Connection: close"), "application/json\r", "text/plain\r", 1), want: []int{400, 415}},
		{name: "form for JSON at REST", request: strings.Replace(post("/v1/instances", "{AGENT}", "type=gate", "Connection: close"), "application/json\r", "application/x-www-form-urlencoded\r", 1), want: []int{415}},
		{name: "no type at REST", request: strings.Replace(post("/v1/instances", "{AGENT}", `{"type":"gate"}`, "Connection: close"), "Content-Type: application/json\r\n", "", 1), want: []int{415}},

		// Other principals' objects, which appear as missing.
		{name: "forged session", request: post("/mcp", "{AGENT}", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, "Mcp-Session-Id: mcp-session-00000000-0000-4000-8000-000000000000", "Connection: close"), want: []int{404}},
		{name: "another's session", request: post("/mcp", "{OTHER}", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, "Mcp-Session-Id: {SESSION}", "Connection: close"), want: []int{404}},
		{name: "end of another's session", request: "DELETE /mcp HTTP/1.1\r\nHost: {HOST}\r\nAuthorization: Bearer {OTHER}\r\nMcp-Session-Id: {SESSION}\r\nConnection: close\r\n\r\n", want: []int{404}},
		{name: "stream of another's session", request: read("/mcp", "{OTHER}", "Accept: text/event-stream", "Mcp-Session-Id: {SESSION}", "Connection: close"), want: []int{404}},
		{name: "another's instance", request: read("/v1/instances/{MINE}", "{OTHER}", "Connection: close"), want: []int{404}, code: "unknown_instance"},
		{name: "another's history", request: read("/v1/instances/{MINE}/history", "{OTHER}", "Connection: close"), want: []int{404}, code: "unknown_instance"},
		{name: "another's events", request: read("/v1/instances/{MINE}/events", "{OTHER}", "Connection: close"), want: []int{404}, code: "unknown_instance"},
		{name: "move of another's instance", request: post("/v1/instances/{MINE}/advance", "{OTHER}", `{"action":"close"}`, "Connection: close"), want: []int{404}, code: "unknown_instance"},
		{name: "end of another's instance", request: post("/v1/instances/{MINE}/cancel", "{OTHER}", `{}`, "Connection: close"), want: []int{404}, code: "unknown_instance"},
		{name: "out of scope", request: read("/v1/definitions/gate", "{SCOPED}", "Connection: close"), want: []int{404}, code: "unknown_workflow"},
		{name: "start out of scope", request: post("/v1/instances", "{SCOPED}", `{"type":"gate"}`, "Connection: close"), want: []int{404}, code: "unknown_workflow"},
		{name: "redefinition of the operator's", request: post("/v1/definitions", "{OTHER}", pingPong, "Connection: close"), want: []int{403}, code: "forbidden"},
		{name: "another's instance over MCP", request: calling("{OTHER}", "workflow.status", `{"id":"{MINE}"}`, "Mcp-Session-Id: {OTHERS}", "Connection: close"), want: []int{200}, code: "unknown_instance"},
		{name: "move of another's instance over MCP", request: calling("{OTHER}", "workflow.advance", `{"id":"{MINE}","action":"close"}`, "Mcp-Session-Id: {OTHERS}", "Connection: close"), want: []int{200}, code: "unknown_instance"},
	}
}
