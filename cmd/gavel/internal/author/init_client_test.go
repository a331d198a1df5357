package author

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/tailscale/hujson"
)

var serverArgs = []string{"mcp", "--config", "/home/me/gavel.yaml"}

// A client's file keeps its text, and has gavel as one more server.
func TestAddServer(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"plain":               "{\n  \"mcpServers\": {\n    \"git\": {\"command\": \"git-server\"}\n  }\n}\n",
		"tabs":                "{\n\t\"mcpServers\": {\n\t\t\"git\": {\"command\": \"git-server\"}\n\t}\n}\n",
		"one line":            `{"mcpServers":{"git":{"command":"git-server"}},"other":[1,2]}`,
		"comments":            "// mine\n{\n  // all\n  \"mcpServers\": {\n    \"git\": {\"command\": \"git-server\"}, // read only\n    // no more\n  }, /* end */\n  \"other\": 1,\n}\n// last\n",
		"CRLF":                "{\r\n  \"mcpServers\": {\r\n    \"git\": {}\r\n  }\r\n}\r\n",
		"no servers":          "{\n  \"other\": true\n}\n",
		"no members":          "{}",
		"servers, but no one": "{\n  \"mcpServers\": {}\n}\n",
	} {
		client := MCPClients()["claude-code"]
		out, err := client.add([]byte(text), "/bin/gavel", serverArgs)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		parse := func(text []byte) (all map[string]any) {
			t.Helper()
			plain, err := hujson.Standardize([]byte(string(text)))
			if err == nil {
				err = json.Unmarshal(plain, &all)
			}
			if err != nil {
				t.Errorf("%s: %v\n%s", name, err, text)
			}
			return all
		}
		got, want := parse(out), parse([]byte(text))
		servers, _ := got["mcpServers"].(map[string]any)
		gavel, _ := servers["gavel"].(map[string]any)
		if gavel["command"] != "/bin/gavel" || gavel["alwaysLoad"] != true {
			t.Errorf("%s: no server gavel in\n%s", name, out)
		}
		if delete(servers, "gavel"); want["mcpServers"] == nil {
			want["mcpServers"] = map[string]any{}
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: other members have changed:\n%s", name, out)
		}
		for line := range strings.Lines(text) {
			if _, comment, ok := strings.Cut(line, "//"); ok && !strings.Contains(string(out), strings.TrimSpace(comment)) {
				t.Errorf("%s: the comment %q is gone from\n%s", name, comment, out)
			}
		}
		again, err := client.add(out, "/bin/other", nil)
		if err != nil || string(again) != string(out) {
			t.Errorf("%s: a second time: %v\n%s", name, err, again)
		}
	}
	for name, text := range map[string]string{
		"broken": `{"mcpServers": {`, "a list": `[]`, "servers are a list": `{"mcpServers": []}`, "servers are null": `{"mcpServers": null}`, "words": "hello",
	} {
		if out, err := MCPClients()["claude-code"].add([]byte(text), "/bin/gavel", serverArgs); err == nil {
			t.Errorf("%s: no error, but\n%s", name, out)
		}
	}
}

// If one of several files cannot be replaced, none is.
func TestReplaceAllOrNone(t *testing.T) {
	t.Parallel()
	one, two := filepath.Join(t.TempDir(), "one.json"), filepath.Join(t.TempDir(), "two.json")
	for _, path := range []string{one, two} {
		if err := os.WriteFile(path, []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	edits := []clientEdit{{path: one, before: []byte("{}"), after: []byte("[1]")}, {path: two, before: []byte("{ }"), after: []byte("[2]")}}
	if err := replaceAll(edits); err == nil || !strings.Contains(err.Error(), "has changed in the meantime") {
		t.Errorf("no error for a file that has changed: %v", err)
	}
	for _, path := range []string{one, two} {
		if text, err := os.ReadFile(path); err != nil || string(text) != "{}" {
			t.Errorf("%s: %s, %v", path, text, err)
		}
	}
}
