package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/cmd/gavel/internal/author"
	"github.com/gavel-mcp/gavel/internal/cli"
)

// agentPlay is a coding agent in a git repository for which gavel init has written a template. Like Claude Code, it
// asks the hook before and after each tool use, and does what is allowed.
type agentPlay struct {
	t        *testing.T
	folder   string
	environ  []string
	workflow string // the instance's id
	commit   string // the last one
	uses     int
	page     strings.Builder
}

func newAgentPlay(t *testing.T, template string, files map[string]string) *agentPlay {
	t.Helper()
	needsProgram(t)
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("no git")
	}
	home := t.TempDir()
	p := &agentPlay{t: t, folder: filepath.Join(home, "shop")}
	p.environ = append(cli.WithoutSettings(os.Environ()), "HOME="+home, "XDG_CONFIG_HOME="+home, "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=Ada", "GIT_AUTHOR_EMAIL=ada@example.org", "GIT_COMMITTER_NAME=Ada", "GIT_COMMITTER_EMAIL=ada@example.org",
		"PATH="+filepath.Join(home, "bin")+string(os.PathListSeparator)+os.Getenv("PATH"))
	for name, text := range files {
		put(t, filepath.Join(p.folder, name), text)
	}
	put(t, filepath.Join(home, "bin", "kubectl"), "#!/bin/sh\necho scaled\n")
	if err := os.Chmod(filepath.Join(home, "bin", "kubectl"), 0o700); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	p.run("", "git", "init", "-q", "-b", "main")
	p.run("", "git", "init", "-q", "--bare", "../shop.git")
	p.run("", "git", "remote", "add", "origin", "../shop.git")
	p.run("", "gavel", "init", "--template", template)
	settings := filepath.Join(p.folder, author.SettingsFile)
	text, err := os.ReadFile(settings)
	if err != nil {
		t.Fatal(err)
	}
	put(t, settings, strings.Replace(string(text), "[make, test]", "[sh, tests/run.sh]", 1))
	p.run("", "gavel", "config", "check", author.SettingsFile)
	p.run("", "git", "add", ".")
	p.run("", "git", "commit", "-q", "-m", "The shop")
	return p
}

// run runs a program that must succeed, and returns its output.
func (p *agentPlay) run(input, program string, args ...string) string {
	p.t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.Env, cmd.Stdin = p.folder, p.environ, strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		p.t.Fatalf("%s %s: %v\n%s", program, strings.Join(args, " "), err, out)
	}
	return string(out)
}

var (
	playedID   = regexp.MustCompile(`\b(wf|rev)-[0-9a-f]{8}-[0-9a-f-]{27}`)
	playedHash = regexp.MustCompile(`\b[0-9a-f]{40}\b`)
)

// show adds an action and its result to the page.
func (p *agentPlay) show(does, comes string) {
	comes = playedHash.ReplaceAllString(playedID.ReplaceAllString(strings.ReplaceAll(strings.TrimSpace(comes), p.folder, "/home/ada/shop"), "$1-..."), "COMMIT")
	if p.page.Len() > 0 {
		p.page.WriteString("\n")
	}
	p.page.WriteString(does + "\n")
	for line := range strings.Lines(comes) {
		written := " "
		for word := range strings.FieldsSeq(line) {
			if len(written)+len(word) > 150 {
				p.page.WriteString(written + "\n")
				written = " "
			}
			written += " " + word
		}
		p.page.WriteString(written + "\n")
	}
}

// ask asks the hook, and returns its answer as text.
func (p *agentPlay) ask(event string, more map[string]any) string {
	p.t.Helper()
	input := map[string]any{"session_id": "s-1", "transcript_path": "/tmp/s-1.jsonl", "cwd": p.folder, "permission_mode": "default", "hook_event_name": event}
	for key, value := range more {
		input[key] = value
	}
	raw, err := json.Marshal(input)
	if err != nil {
		p.t.Fatal(err)
	}
	printed := p.run(string(raw), "gavel", "hook", "claude-code", "--config", author.SettingsFile)
	if strings.TrimSpace(printed) == "" {
		return ""
	}
	var answer struct {
		Reason   string
		Specific struct{ PermissionDecision, PermissionDecisionReason, AdditionalContext string } `json:"hookSpecificOutput"`
	}
	if err := json.Unmarshal([]byte(printed), &answer); err != nil {
		p.t.Fatalf("%s: %v\n%s", event, err, printed)
	}
	switch s := answer.Specific; {
	case s.PermissionDecision != "":
		return s.PermissionDecision + ": " + s.PermissionDecisionReason
	case answer.Reason != "":
		return "go on: " + answer.Reason
	default:
		return "gavel: " + s.AdditionalContext
	}
}

// beginSession begins the session.
func (p *agentPlay) beginSession() {
	p.t.Helper()
	answer := p.ask("SessionStart", map[string]any{"source": "startup"})
	p.workflow = playedID.FindString(answer)
	p.show("The session begins.", answer)
}

// tryStop asks whether the agent may end.
func (p *agentPlay) tryStop() {
	p.t.Helper()
	answer := p.ask("Stop", map[string]any{"stop_hook_active": false})
	if answer == "" {
		answer = "It ends."
	}
	p.show("The agent wants to stop.", answer)
}

// use uses a tool unless the hook denies it. do returns the result.
func (p *agentPlay) use(tool string, input map[string]any, does string, do func() string) {
	p.t.Helper()
	p.uses++
	more := map[string]any{"tool_name": tool, "tool_input": input, "tool_use_id": fmt.Sprint("toolu_", p.uses)}
	if denied := p.ask("PreToolUse", more); denied != "" {
		p.show(does, denied)
		return
	}
	comes := do()
	more["tool_response"] = map[string]any{"stdout": comes}
	if told := p.ask("PostToolUse", more); told != "" {
		comes = strings.TrimSpace(comes) + "\n" + told
	}
	p.show(does, comes)
}

// runLine runs a line of shell.
func (p *agentPlay) runLine(line string) {
	p.t.Helper()
	p.use("Bash", map[string]any{"command": line}, "> "+line, func() string {
		out := p.run("", "sh", "-c", line)
		p.commit = strings.TrimSpace(p.run("", "git", "rev-parse", "HEAD"))
		if out == "" {
			return "(runs)"
		}
		return out
	})
}

// writeFile writes a file.
func (p *agentPlay) writeFile(name, text string) {
	p.t.Helper()
	at := filepath.Join(p.folder, name)
	p.use("Write", map[string]any{"file_path": at, "content": text}, "> write "+name, func() string {
		put(p.t, at, text)
		return "(written)"
	})
}

// advance requests a move over MCP; COMMIT in its data is the last commit.
func (p *agentPlay) advance(action, data string) {
	p.t.Helper()
	call := fmt.Sprintf(`{"id":%q,"action":%q,"data":%s}`, p.workflow, action, strings.ReplaceAll(data, "COMMIT", p.commit))
	calls := filepath.Join(p.t.TempDir(), "calls")
	put(p.t, calls, "workflow.advance "+call+"\n")
	printed := p.run("", "play", calls, "--config", author.SettingsFile)
	var answer struct {
		State    string
		Decision struct {
			Outcome, Reasoning string
			Findings           []struct{ Message string }
		}
	}
	if err := json.Unmarshal([]byte(printed[strings.Index(printed, "{"):]), &answer); err != nil {
		p.t.Fatalf("%v\n%s", err, printed)
	}
	comes := answer.Decision.Outcome + ": in " + answer.State
	if answer.Decision.Outcome != "approve" {
		comes = answer.Decision.Outcome + ": " + answer.Decision.Findings[0].Message
	}
	p.show(fmt.Sprintf("> workflow.advance %s %s", action, data), comes)
}

// runAsPerson runs a command as a person at another terminal.
func (p *agentPlay) runAsPerson(args ...string) {
	p.t.Helper()
	args = append(args, "--config", author.SettingsFile)
	p.show("A person: $ gavel "+strings.Join(args, " "), p.run("", "gavel", args...))
}

var scriptShop = map[string]string{
	"total.sh":            "# total.sh PRICE DISCOUNT\necho $1\n",
	"tests/run.sh":        "for test in tests/*_test.sh; do sh \"$test\" || exit 1; done\n",
	"tests/total_test.sh": "test \"$(sh total.sh 20 0)\" = 20\n",
	"CHANGELOG.md":        "# Changes\n\n## 1.4.0\n\n- Discounts.\n",
	".gitignore":          ".mcp.json\n",
}

// The page on workflows shows what actually happens.
func TestWorkflowsPage(t *testing.T) {
	t.Parallel()
	const page = "../../docs/workflows.md"
	t.Run("bugfix", func(t *testing.T) {
		t.Parallel()
		p := newAgentPlay(t, "bugfix", scriptShop)
		const data = `{"bug":"The discount is ignored.","test":"discount_test","commit":"COMMIT"}`
		p.beginSession()
		p.tryStop()
		p.writeFile("tests/discount_test.sh", "test \"$(sh total.sh 20 10)\" = 18 || { echo 'discount_test: want 18'; exit 1; }\n")
		p.runLine("git add . && git commit -q -m 'Show that the discount is ignored'")
		p.advance("reproduce", data)
		p.writeFile("tests/discount_test.sh", "exit 0\n")
		p.runLine("echo 'exit 0' > tests/discount_test.sh")
		p.advance("finish", `{"summary":"The discount counts, and all tests pass."}`)
		p.tryStop()
		p.writeFile("total.sh", "# total.sh PRICE DISCOUNT\necho $(($1 * (100 - $2) / 100))\n")
		p.advance("finish", `{"summary":"The discount counts, and all tests pass."}`)
		p.tryStop()
		showsAt(t, page, "bugfix", p.page.String())
		_, end, _ := strings.Cut(p.page.String(), "> workflow.advance finish")
		showsAt(t, "../../README.md", "bugfix", "> workflow.advance finish"+end)
	})
	t.Run("release", func(t *testing.T) {
		t.Parallel()
		p := newAgentPlay(t, "release", scriptShop)
		p.beginSession()
		p.runLine("git push origin main")
		p.advance("begin", `{"version":"1.4.0"}`)
		p.runLine("git commit -q --allow-empty -m 'Release 1.4.0'")
		p.advance("check", `{"commit":"COMMIT"}`)
		p.tryStop()
		p.runLine("git tag v1.4.0 HEAD~1")
		p.runLine("git tag v1.4.0")
		p.runLine("git push --force origin main v1.4.0")
		p.runLine("git push origin main v1.4.0")
		p.tryStop()
		showsAt(t, page, "release", p.page.String())
	})
	t.Run("careful-ops", func(t *testing.T) {
		t.Parallel()
		p := newAgentPlay(t, "careful-ops", scriptShop)
		p.beginSession()
		p.runLine("kubectl scale deployment/web --replicas=3")
		p.advance("plan", `{"goal":"Three copies.","command":"kubectl scale deployment/web --replicas=3","undo":"The same with 2."}`)
		p.advance("approve", `{}`)
		p.runLine("gavel review approve rev- --reason 'I looked.'")
		p.tryStop()
		p.runAsPerson("review", "approve", "rev-", "--reason", "Looked at it.")
		p.runLine("kubectl scale deployment/web --replicas=30")
		p.runLine("kubectl scale deployment/web --replicas=3")
		p.runLine("kubectl scale deployment/web --replicas=3")
		p.tryStop()
		showsAt(t, page, "careful-ops", p.page.String())
	})
}
