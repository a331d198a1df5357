package main

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel"
)

var (
	codeBlock = regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```$")
	argList   = regexp.MustCompile(`command['"]?: ['"]gavel['"], ['"]?args['"]?: (\[[^\]]*\])`)
	gavelLine = regexp.MustCompile(`(?m)(?:^|-- |^npx )(gavel(?:-mcp)? (?:[a-z].*|--help))$`)
)

// blocks returns a page's code blocks in one language.
func blocks(t *testing.T, file, language string) []string {
	t.Helper()
	text, ok := pages(t)[file]
	if !ok {
		t.Fatalf("no page %s", file)
	}
	var out []string
	for _, m := range codeBlock.FindAllStringSubmatch(text, -1) {
		if m[1] == language {
			out = append(out, m[2])
		}
	}
	return out
}

// parses fails the test if gavel rejects a command line. It runs nothing.
func parses(t *testing.T, args []string) bool {
	t.Helper()
	return lineParser(t)(args)
}

// lineParser is parses for many command lines.
func lineParser(t *testing.T) func(args []string) bool {
	t.Helper()
	parser, err := newParser(&commands{}, io.Discard, io.Discard, func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	return func(args []string) bool {
		if _, err := parser.Parse(args); err != nil {
			t.Errorf("gavel %s: %v", strings.Join(args, " "), err)
			return false
		}
		return true
	}
}

// words splits a line as a shell does, for lines of only words, quotes and a comment.
func words(line string) []string {
	line, _, _ = strings.Cut(line, " #")
	line, _, _ = strings.Cut(line, " > ")
	line, _, _ = strings.Cut(line, " | ")
	line = strings.TrimSuffix(strings.TrimSpace(line), " &")
	var out []string
	for _, m := range regexp.MustCompile(`'[^']*'|"[^"]*"|\S+`).FindAllString(line, -1) {
		out = append(out, strings.Trim(m, `'"`))
	}
	return out
}

// clientConfig is the servers section of a client's configuration.
type clientConfig struct {
	Servers, MCPServers map[string]struct {
		Type, Command, URL string
		Args               []string
		Env, Headers       map[string]string
	}
	Inputs []struct{ Type, ID string }
}

// The examples in the clients page are valid JSON, use existing flags and the default address of serve. The
// commands that a client would start run and respond.
func TestClientsPage(t *testing.T) {
	t.Parallel()
	const page = "../../docs/clients.md"
	var stdio, http int
	for _, block := range blocks(t, page, "json") {
		var c clientConfig
		if err := json.Unmarshal([]byte(block), &c); err != nil {
			t.Errorf("%v in\n%s", err, block)
			continue
		}
		servers := c.Servers
		if servers == nil {
			servers = c.MCPServers
		}
		s, ok := servers["gavel"]
		switch {
		case !ok:
			t.Errorf("no server gavel in\n%s", block)
		case s.Command == "gavel":
			stdio++
			parses(t, s.Args)
			clientStarts(t, s.Args)
		default:
			http++
			if url := "http://127.0.0.1:4285" + gavel.MCPPath; s.URL != url && !strings.Contains(strings.Join(s.Args, " "), " "+url+" ") {
				t.Errorf("%s is not called in\n%s", url, block)
			}
			if !strings.Contains(block, "Bearer $") && !strings.Contains(block, "Bearer gvl_...") {
				t.Errorf("no token in\n%s", block)
			}
			if len(c.Inputs) > 0 && s.Headers["Authorization"] != "Bearer ${input:"+c.Inputs[0].ID+"}" {
				t.Errorf("the input is not used in\n%s", block)
			}
		}
	}
	if stdio != 5 || http != 5 {
		t.Errorf("%d configurations for stdio and %d for HTTP", stdio, http)
	}
	for _, language := range []string{"ts", "python"} {
		lists := argList.FindAllStringSubmatch(strings.Join(blocks(t, page, language), "\n"), -1)
		if len(lists) != 1 {
			t.Errorf("%d command lines in %s", len(lists), language)
		}
		for _, m := range lists {
			var args []string
			if err := json.Unmarshal([]byte(strings.ReplaceAll(m[1], "'", `"`)), &args); err != nil {
				t.Errorf("%s: %v", m[1], err)
			}
			parses(t, args)
			clientStarts(t, args)
		}
	}
}

// clientStarts starts a client's command with existing definitions and store, and initialises a session.
func clientStarts(t *testing.T, args []string) {
	t.Helper()
	args = slices.Clone(args)
	workflows, err := filepath.Abs(filepath.Join("..", "..", "testdata", "workflows"))
	if err != nil {
		t.Fatal(err)
	}
	for i, arg := range args {
		switch arg {
		case "/home/me/flows":
			args[i] = workflows
		case "/home/me/gavel.yaml":
			args[i] = filepath.Join(t.TempDir(), "gavel.yaml")
			if err := os.WriteFile(args[i], []byte("definitions: ["+workflows+"]\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		case "--store":
			args[i+1] = filepath.Join(t.TempDir(), "gavel.db")
		}
	}
	if !slices.Contains(args, "--store") {
		args = append(args, "--store", gavel.Memory)
	}
	s := launch(t, args[1:]...)
	if got := s.must("workflow.list", object{}).text(); !strings.Contains(got, "document-review") {
		t.Errorf("gavel %s lists %s", strings.Join(args, " "), got)
	}
}

// gavel can parse every command line in every page.
func TestPagesNameCommandsThatAreThere(t *testing.T) {
	t.Parallel()
	var lines int
	parses := lineParser(t)
	for file := range pages(t) {
		text := strings.Join(slices.Concat(blocks(t, file, "sh"), blocks(t, file, "console")), "\n")
		text = strings.NewReplacer("\\\n", " ", "\n$ ", "\n", "run --rm gavel", "run --rm -- gavel").Replace(text)
		for _, m := range gavelLine.FindAllStringSubmatch(text, -1) {
			lines++
			if !parses(words(m[1])[1:]) {
				t.Errorf("that is in %s", file)
			}
		}
	}
	if lines < 50 {
		t.Errorf("%d command lines found", lines)
	}
}
