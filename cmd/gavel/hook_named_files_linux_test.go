package main

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/gavel-mcp/gavel/cmd/gavel/internal/serve"
	"github.com/gavel-mcp/gavel/internal/modules/hook/agent"
	"github.com/gavel-mcp/gavel/internal/operation"
)

// canaryGates has a gate on every builtin tool, so that every answer that could reveal a file is exercised.
const canaryGates = `
gates:
  - { tool: "builtin:shell", name: push, workflow: w, states: [s], when: [{ program: git, args: [push] }] }
  - { tool: "builtin:edit", workflow: w, states: [s], when: [{ path: "src/**" }] }
  - { tool: "builtin:read", workflow: w, states: [s], when: [{ path: ".env*" }] }
`

// fileLines are lines of shell that a reader could follow to the file F, its folder D, or to a file named there.
var fileLines = []string{
	`git "$(cat F)"`, `git "$(<F)"`, "git `cat F`", `git "x$(cat F)"`, `git "$(head -c 100 F)"`, `git $(git -C D config alias.x)`,
	`x=$(cat F); git "$x"`, `x=$(cat F); git "${x:0:3}"`, `while read -r l; do git "$l"; done < F`, `mapfile -t a < F; git "${a[0]}"`,
	`source F`, `. F`, `. F && git push`, `bash F`, `sh < F`, `bash <<< "$(cat F)"`, `cat F | sh`, `xargs -a F git`, `xargs git < F`,
	`git < F`, `cat < F > src/a`, `exec 3< F; source /dev/fd/3`, `. /dev/fd/0 < F`, `. /dev/stdin < F`, `. <(cat F)`, `. /proc/self/fd/0 < F`,
	`git "$(cat /proc/self/environ)"`, `git "$(cat /proc/self/cwd/canary)"`, `. /proc/self/environ`, `git "$(cat /proc/self/cmdline)"`,
	`git -C D push`, `git --git-dir D/.git push`, `GIT_DIR=D/.git git push`, `cd D && git push`, `cd D && . ./canary`, `env -C D git push`, `make -C D push`,
	`git -c include.path=F push`, `GIT_CONFIG_GLOBAL=F git st`, `HOME=D git st`, `alias g=F; g push`, `BASH_ENV=F bash -c 'git push'`,
	`cat F`, `cat D/*`, `cat D/link`, `rm F`, `rm D/link`, `echo x > F`, `echo x > D/link`, `cp F src/a`, `mv D/link src/`, `tar cf - D | git push`,
	`tee F < D/pipe`, `cat D/pipe`, `. D/pipe`, `git "$(cat D/pipe)"`, `cat ~/canary`, `. ~/canary`, `git "$(cat ~/canary)"`, `ls D`, `F push`, `D/run push`,
}

var placeName = regexp.MustCompile(`\b[FD]\b`)

// newCanary returns a text that occurs only in files.
func newCanary(t *testing.T) string {
	t.Helper()
	raw := make([]byte, 64)
	if _, err := rand.Read(raw); err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(raw)
}

// showsPart reports whether a text contains eight bytes of a canary.
func showsPart(text, canary string) bool {
	for i := 0; i+8 <= len(canary); i++ {
		if strings.Contains(text, canary[i:i+8]) {
			return true
		}
	}
	return false
}

// plantCanaries fills a folder with everything that a line can name: a file, links to a file and to one with a gate,
// a program, a repository with aliases, and a pipe that blocks its reader.
func plantCanaries(t *testing.T, dir, canary string) {
	t.Helper()
	config := fmt.Sprintf("[alias]\n\tx = push\n\tst = push %s\n", canary)
	for name, text := range map[string]string{
		"canary": canary + "\npush\n", "run": "#!/bin/sh\ngit push " + canary + "\n", ".env": canary, "src/a": canary, ".gitconfig": config, ".git/config": config, ".git/HEAD": "ref: refs/heads/" + canary,
	} {
		path := filepath.Join(dir, name)
		err := os.MkdirAll(filepath.Dir(path), 0o700)
		if err == nil {
			err = os.WriteFile(path, []byte(text), 0o700) //nolint:gosec // one is a program
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Symlink("src/a", filepath.Join(dir, "link")), unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600)); err != nil {
		t.Fatal(err)
	}
}

// watchReads watches folders; seen returns what was opened, listed or read in them.
func watchReads(t *testing.T, folders ...string) (seen func() []string) {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	watched := map[int32]string{}
	for _, folder := range folders {
		wd, err := unix.InotifyAddWatch(fd, folder, unix.IN_OPEN|unix.IN_ACCESS)
		if err != nil {
			t.Fatal(err)
		}
		watched[int32(wd)] = folder //nolint:gosec // a watch descriptor
	}
	return func() (all []string) {
		buffer := make([]byte, 64<<10)
		for {
			n, err := unix.Read(fd, buffer)
			if errors.Is(err, unix.EAGAIN) {
				return all
			}
			if err != nil {
				t.Fatal(err)
			}
			for at := 0; at < n; {
				e := (*unix.InotifyEvent)(unsafe.Pointer(&buffer[at])) //nolint:gosec // as the kernel writes it
				name := buffer[at+unix.SizeofInotifyEvent : at+unix.SizeofInotifyEvent+int(e.Len)]
				all = append(all, filepath.Join(watched[e.Wd], string(bytes.TrimRight(name, "\x00"))))
				at += unix.SizeofInotifyEvent + int(e.Len)
			}
		}
	}
}

// A server answers events without opening, listing or resolving the files that they name. No answer contains a byte
// of such a file, and nothing in their folders is opened. The answers about an existing and a missing folder are the
// same.
func TestHooksReadNoFile(t *testing.T) {
	t.Parallel()
	canary := newCanary(t)
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	temporary, err := os.MkdirTemp("/tmp", "canary-") //nolint:usetesting // the folder that every process can read
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(temporary) })
	place := func(name string) string { return filepath.Join(top, name) }
	home, working, store, project := place("home"), place("working"), place("store"), place("project")
	for _, dir := range []string{home, working, store, project, temporary} {
		plantCanaries(t, dir, canary)
	}
	for name, text := range map[string]string{
		"w.yaml":     "name: w\ninitialState: i\nstates: {i: {transitions: {go: s}}, s: {transitions: {end: e}}, e: {final: true}}\n",
		"gavel.yaml": "definitions: w.yaml\n" + canaryGates,
	} {
		if err := os.WriteFile(filepath.Join(working, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := serveAs(t, filepath.Join(store, "gavel.db"), func(cmd *exec.Cmd) {
		cmd.Dir = working
		cmd.Env = append(slices.DeleteFunc(cmd.Env, func(v string) bool { return strings.HasPrefix(v, "HOME=") }), "HOME="+home, "LLM_API_KEY="+canary)
	}, "--config", filepath.Join(working, "gavel.yaml"))
	token := s.token("h", "--hooks", "/")
	secrets := []string{canary}
	for _, name := range []string{serve.OperatorTokenFile, serve.AgentTokenFile, "gavel.key", "gavel.tokens"} {
		text, err := os.ReadFile(filepath.Join(store, name))
		if err != nil {
			t.Fatal(err)
		}
		secrets = append(secrets, strings.TrimSpace(string(text)))
	}
	if _, text := s.postHook(token, "/v1/hooks/claude-code", encode(t, toolEvents["claude-code"].shell(project, "git push"))); !strings.Contains(text, "push") { // it is running, and has read its own files
		t.Fatal(text)
	}
	seen := watchReads(t, home, home+"/src", home+"/.git", working+"/src", working+"/.git", project, project+"/src", project+"/.git", temporary, temporary+"/src", temporary+"/.git")

	ask := func(client, dir, line string, edit bool) []string {
		event := toolEvents[client].shell
		if edit {
			event = toolEvents[client].edit
		}
		if event == nil {
			return nil
		}
		raw := encode(t, event(dir, line))
		_, plain := s.postHook(token, "/v1/hooks/"+client, raw)
		_, relayed := s.postHook(token, "/v1/hooks/"+client+"?form=answer", []byte(`{"event":`+string(raw)+`}`))
		return []string{plain, relayed}
	}
	check := func(t interface{ Errorf(string, ...any) }, client, dir, line string, edit bool) {
		absent := strings.Repeat("x", len(filepath.Base(dir)))
		absent = filepath.Join(filepath.Dir(dir), absent)
		fill := func(dir string) string {
			return placeName.ReplaceAllStringFunc(line, func(name string) string { return map[string]string{"F": dir + "/canary", "D": dir}[name] })
		}
		here, there := ask(client, dir, fill(dir), edit), ask(client, absent, fill(absent), edit)
		for i := range here {
			for _, secret := range secrets {
				if showsPart(here[i], secret) {
					t.Errorf("%s: %s shows a file: %s", client, fill(dir), here[i])
				}
			}
			if told := strings.ReplaceAll(here[i], dir, absent); told != there[i] {
				t.Errorf("%s: %s\n%s\nand where the folder is not there\n%s", client, fill(dir), told, there[i])
			}
		}
	}
	for client := range toolEvents {
		for _, dir := range []string{home, working, store, project, temporary} {
			for _, file := range []string{"F", "D/link", "D/src/a", "D/.env", "D/pipe", "D/../../../../../../etc/passwd", "~/canary", "canary", ".env"} {
				check(t, client, dir, file, true)
			}
		}
	}
	for i, line := range fileLines { // each in at least one folder, for one client
		clients := agent.Clients()
		check(t, clients[i%len(clients)], []string{project, home, temporary}[i%3], line, false)
		check(t, "claude-code", project, line, false)
	}
	rapid.Check(t, func(t *rapid.T) {
		before := rapid.SampledFrom([]string{"", "cd D && ", "set -o pipefail; ", "x=$(cat F) ", "sudo ", "env -C D ", "time ", "bash -c ", "eval "}).Draw(t, "before")
		line := before + rapid.SampledFrom(fileLines).Draw(t, "line") + rapid.SampledFrom([]string{"", " | tail", " < F", " && . F", "; git push", " > D/link"}).Draw(t, "after")
		check(t, rapid.SampledFrom(agent.Clients()).Draw(t, "client"), rapid.SampledFrom([]string{home, working, store, project, temporary}).Draw(t, "folder"), line, false)
	})

	if read := seen(); len(read) > 0 {
		t.Errorf("the server opened or read %q", slices.Compact(read))
	}
	for _, dir := range []string{home, working, store, project, temporary} {
		if fd, err := unix.Open(filepath.Join(dir, "pipe"), unix.O_WRONLY|unix.O_NONBLOCK, 0); !errors.Is(err, unix.ENXIO) {
			_ = unix.Close(fd)
			t.Errorf("somebody reads the pipe in %s: %v", dir, err)
		}
	}
}

// No operation reads a file that a caller names, over REST or MCP, in any field.
func TestOperationsReadNoFile(t *testing.T) {
	t.Parallel()
	canary := newCanary(t)
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	plantCanaries(t, dir, canary)
	definition := filepath.Join(t.TempDir(), "plain.json")
	if err := os.WriteFile(definition, []byte(`{"name":"plain","initialState":"a","states":{"a":{"transitions":{"go":"b"}},"b":{"final":true}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	s := serveAs(t, storeIn(t), func(cmd *exec.Cmd) { cmd.Dir = dir }, "--definitions", definition)
	instance := s.begin(s.owner, "plain")
	if _, answer := s.ask(s.owner, "POST", "/v1/definitions", `{}`); answer == nil { // it is running
		t.Fatal("no answer")
	}
	seen := watchReads(t, dir, dir+"/src", dir+"/.git")
	file := filepath.Join(dir, "canary")
	values := []string{
		encodeText(file), encodeText("canary"), encodeText("file://" + file), encodeText("@" + file), encodeText("$(cat " + file + ")"), encodeText("{{" + file + "}}"),
		`{"file":"canary"}`, `{"file":` + encodeText(file) + `}`, `{"$ref":` + encodeText("file://"+file) + `}`, `[` + encodeText(file) + `]`,
	}
	asked, called := 0, 0
	check := func(name string, status int, answer any) {
		asked++
		if shown := fmt.Sprint(answer); showsPart(shown, canary) || status >= 500 {
			t.Errorf("%s: %d %s", name, status, shown)
		}
	}
	for _, op := range operation.All() {
		for _, value := range values {
			if op.Tool.Name != "" {
				arguments := []string{}
				for _, f := range op.Fields {
					arguments = append(arguments, encodeText(f.Name)+":"+value)
				}
				status, answer := s.stateless(s.owner, op.Tool.Name, "{"+strings.Join(arguments, ",")+"}")
				check(op.Tool.Name, status, answer)
				if status == 200 {
					called++
				}
			}
			for _, route := range op.Routes {
				if route.Events { // the same, but endless
					continue
				}
				path, members, query := route.Path, []string{}, url.Values{}
				for _, f := range op.Fields {
					name := cmp.Or(f.HTTPName, f.Name)
					text := strings.Trim(value, `"`)
					switch {
					case strings.Contains(path, "{"+name+"}") && name == "id":
						path = strings.ReplaceAll(path, "{id}", instance)
					case strings.Contains(path, "{"+name+"}"):
						path = strings.ReplaceAll(path, "{"+name+"}", url.PathEscape(text))
					case f.Header != "":
					case route.Method == "GET":
						query.Set(name, text)
					default:
						members = append(members, encodeText(name)+":"+value)
					}
				}
				body := ""
				if route.Method != "GET" {
					body = "{" + strings.Join(members, ",") + "}"
				} else {
					path += "?" + query.Encode()
				}
				status, answer := s.ask(s.owner, route.Method, path, body)
				check(route.At, status, answer)
			}
		}
	}
	for i, inside := range []string{
		`"states":{"a":{"transitions":{"go":{"target":"b","validator":V}}},"b":{"final":true}}`,
		`"states":{"a":{"transitions":{"go":{"target":"b","useLLM":true,"criteria":[V]}}},"b":{"final":true}}`,
		`"states":{"a":{"transitions":{"go":{"target":"b","requiredSchema":V}}},"b":{"final":true}}`,
		`"states":{"a":{"transitions":{"go":{"target":"b","evidence":[{"name":"e","source":V,"arguments":{"path":V}}]}}},"b":{"final":true}}`,
		`"states":{"a":{"transitions":{"go":"b"}},"b":{"final":true}},"inputSchema":V`,
		`"states":{"a":{"transitions":{"go":"b"}},"b":{"final":true}},"judgeConfig":{"enabled":true,"exemplars":V,"reference":V}`,
		`"states":{"a":{"transitions":{"go":"b"}},"b":{"final":true}},"transitionValidators":{"go":V},"stateValidators":{"a":V}`,
	} {
		for j, value := range values {
			body := fmt.Sprintf(`{"name":"d-%d-%d","initialState":"a",`, i, j) + strings.ReplaceAll(inside, ":V", ":"+value) + "}"
			status, answer := s.ask(s.owner, "POST", "/v1/definitions", strings.ReplaceAll(body, "[V]", "["+value+"]"))
			check("POST /v1/definitions "+inside, status, answer)
		}
	}
	if read := seen(); len(read) > 0 || asked < 500 || called < 100 {
		t.Errorf("the server opened or read %q, asked %d times, %d of them by tools", slices.Compact(read), asked, called)
	}
}

func encodeText(text string) string {
	raw, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return string(raw)
}
