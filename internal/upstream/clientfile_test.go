package upstream_test

import (
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/internal/upstream"
)

// Client files, as in the clients' documentation, convert to valid sections. Settings that cannot be converted are
// noted.
func TestConvertClientFile(t *testing.T) {
	for client, c := range map[string]struct {
		file  string
		want  string // lines of the section
		notes string // one per line
	}{
		"Claude Desktop": {
			`{"globalShortcut": "", "mcpServers": {
				"files": {"command": "npx", "args": ["-y", "server-filesystem", "/home/me/a \"b\""]},
				"github": {"command": "docker", "args": ["run", "-e", "TOKEN"], "env": {"TOKEN": "hunter22"}},
				"gavel": {"command": "C:/gavel.exe", "args": ["mcp"]}}}`,
			`command: ["npx", "-y", "server-filesystem", "/home/me/a \"b\""]
			environment: ["PATH", "HOME", "TMPDIR", "LANG", "TOKEN"]`,
			`github needs the variable TOKEN in gavel's environment
			gavel is gavel itself`,
		},
		"Claude Code": {
			`{"numStartups": 3, "mcpServers": {
				"api": {"type": "http", "url": "https://api.example/mcp", "headers": {"Authorization": "Bearer hunter22"}},
				"old": {"type": "sse", "url": "https://old.example/mcp"},
				"db": {"command": "db", "args": ["--config", "${HOME}/db.json"]},
				"g": {"command": "npx", "args": ["-y", "gavel-mcp@1.0.0", "mcp"]}},
				"projects": {"/home/me/x": {"history": [], "mcpServers": {"api": {"command": "local"}}}}}`,
			`  api:
			"Authorization": "${API_AUTHORIZATION}"
			  api2:
			command: ["local"]`,
			`api needs the value of its header Authorization in gavel's environment, as API_AUTHORIZATION
			old uses the HTTP+SSE transport of 2024
			db has ${HOME}, which gavel does not expand
			g is gavel itself
			api is named api2 here`,
		},
		"Cursor": {
			`{"mcpServers": {"my server": {"command": "python", "args": ["${workspaceFolder}/s.py"], "envFile": ".env"},
				"remote": {"url": "http://localhost:3000/mcp"}}}`,
			`  my-server:
			privateNetwork: true`,
			`my server is named my-server here
			my-server has ${workspaceFolder}
			my-server needs the variables of the file .env`,
		},
		"VS Code": {
			"{\n// of \"all\"\n\"inputs\": [{\"id\": \"key\"},],\n\"servers\": { /* two */\n\"ask\": {\"type\": \"stdio\", \"command\": \"npx\", \"args\": [\"https://x//y\", \",]\", \"/*\"], \"env\": {\"KEY\": \"${input:key}\"},}, // end\n}\n}",
			`command: ["npx", "https://x//y", ",]", "/*"]`,
			`ask needs the variable KEY`,
		},
		"VS Code's settings": {`{"mcp": {"servers": {"fetch": {"command": "uvx", "args": ["mcp-server-fetch"]}}}}`, `command: ["uvx", "mcp-server-fetch"]`, ``},
		"Gemini CLI": {
			`{"theme": "x", "mcpServers": {"a": {"command": "p", "cwd": "./s", "includeTools": ["x", "y"], "trust": true, "timeout": 15000},
				"b": {"httpUrl": "https://10.1.2.3/mcp"}, "c": {"url": "http://localhost/sse"}}}`,
			`directory: "./s"
			{ tools: ["x", "y"], resources
			url: "https://10.1.2.3/mcp"
			privateNetwork: true`,
			`c uses the HTTP+SSE transport of 2024`,
		},
		"Windsurf": {
			`{"mcpServers": {"a": {"serverUrl": "https://a.example/mcp?api_key=k", "headers": {"API_KEY": "${env:K}"}}, "b": {"command": "b", "disabled": true},
				"c": {"command": "c", "args": ["--api-key", "k"], "disabledTools": ["x"]}}}`,
			`url: "https://a.example/mcp?api_key=k"
			"API_KEY": "${A_API_KEY}"`,
			`a has a url that may hold a secret
			b is disabled
			c has an argument that may be a secret
			c hides tools from the client ("x")`,
		},
	} {
		section, notes, err := upstream.ConvertClientFile([]byte(c.file))
		if err != nil {
			t.Errorf("%s: %v", client, err)
			continue
		}
		if _, err := parse(t, strings.TrimPrefix(string(section), "upstreams:\n")); err != nil {
			t.Errorf("%s: %v\n%s", client, err, section)
		}
		for text, wanted := range map[string]string{string(section): c.want, strings.Join(notes, "\n"): c.notes} {
			for line := range strings.Lines(wanted) {
				if line = strings.Trim(line, "\t\n"); !strings.Contains(text, line) {
					t.Errorf("%s lacks %s:\n%s", client, line, text)
				}
			}
		}
		if strings.Contains(string(section), "hunter22") {
			t.Errorf("%s: a secret was copied:\n%s", client, section)
		}
	}
	for file, want := range map[string]string{
		`{"mcpServers": {}}`:                         "has no servers",
		`{"mcpServers": {"x": {"type": "stdio"}}}`:   "no server that gavel can use as an upstream",
		"{\n\"mcpServers\": {} /* never ends":        "not JSON",
		"{ // comment\n\"mcpServers\": {\"a\" 1}}\n": "line 2",
	} {
		if _, _, err := upstream.ConvertClientFile([]byte(file)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", file, err)
		}
	}
}
