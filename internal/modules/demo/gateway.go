package demo

import (
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/gavel-mcp/gavel/internal/term"
)

var (
	//go:embed infra.yaml
	infraConfig []byte
	//go:embed release.yaml
	releaseFlow []byte
)

var gatewayPlay = play{
	headline: "Another MCP server's tools, callable only in the right state of the workflow.",
	needs:    []string{"evidence", "gateway"},
	acts: []act{
		{"First act: tools that no operator accepted are not listed.", pinScenes},
		{"Second act: no step is skipped, and an error blocks until it is reset.", stepScenes},
		{"Third act: the agent lies.", lieScenes},
		{"Fourth act: the server changes a tool's description.", driftScenes},
	},
}

var (
	login   = map[string]any{"user": "ada"}
	tooBig  = map[string]any{"version": "2.0.0"}
	version = map[string]any{"version": "1.4.0"}
	promise = map[string]any{"version": "1.4.0", "note": "All tests pass."}
)

var infraNames = []string{"infra__authenticate", "infra__deploy", "infra__deployed", "infra__reset", "infra__validate"}

var pinScenes = []scene{
	expectTools("The operator has declared the server infra, with gates for its tools. None of its tools are pinned, so the agent sees none."),
	runCommand("The operator reviews the server's tools, and accepts them.", "upstream pin --all --config gavel.yaml", hasPrinted("authenticate", "deploy", "reset", "validate")),
	expectTools("Now its tools are listed next to gavel's own.", infraNames...).withRetry(),
	callTool("Nothing was deployed yet.", "infra__deployed", map[string]any{}, answered("deployed so far: nothing")),
}

var stepScenes = []scene{
	start("The agent begins a release. Its calls name it.", "release", "idle"),
	callGated("It deploys first.", "infra__deploy", version, closed("idle", "call infra__authenticate")),
	callGated("It logs in. The call reaches the server, and the answer reaches the agent.", "infra__authenticate", login, answered("ada is logged in")),
	callGated("It validates a version, and the validation fails.", "infra__validate", tooBig, answeredError("there is no quota for 2.0.0")),
	callGated("It ignores the failure, and deploys.", "infra__deploy", tooBig, closed("error", "call infra__reset")),
	callGated("It resets.", "infra__reset", map[string]any{}, answered("it is as it was")),
	callGated("It logs in again.", "infra__authenticate", login, answered("ada is logged in")),
	callGated("It validates a version that fits the quota.", "infra__validate", version, answered("the resources of 1.4.0 are there")),
}

var lieScenes = []scene{
	callGated("It claims that all tests pass, and deploys. The gate runs the tests before it calls the server.", "infra__deploy", promise,
		isRefused("The tests fail", "total is 20, want 18")).in(Broken),
	callTool("The server was not called.", "infra__deployed", map[string]any{}, answered("deployed so far: nothing")),
	callGated("It fixes the code, and deploys.", "infra__deploy", promise, answered("1.4.0 is in production")).in(Fixed),
	callGated("Its client retries.", "infra__deploy", promise, closed("deployed", "another")),
	callGated("It retries again.", "infra__deploy", promise, closed("deployed", "another")),
	callGated("And again.", "infra__deploy", promise, closed("deployed", "another")),
	callTool("It was deployed once.", "infra__deployed", map[string]any{}, answered("deployed so far: 1.4.0")),
	history("Everything is on record.",
		recorded("start approve", "deploy reject", "authenticated approve", "failed approve", "deploy reject", "reset approve",
			"authenticated approve", "validated approve", "deploy reject", "deploy approve", "deployed approve",
			"deploy reject", "deploy reject", "deploy reject")),
}

var driftScenes = []scene{
	expectTools("The new description of one tool instructs the model to leak keys. The tool is no longer listed.",
		slices.DeleteFunc(slices.Clone(infraNames), func(name string) bool { return name == "infra__deploy" })...).in(Drifted).withRetry(),
	start("The next release.", "release", "idle"),
	callGated("An agent that knows the tool's name cannot call it either.", "infra__deploy", version, failed("tool_drifted")),
	runCommand("The operator sees what changed.", "upstream diff --config gavel.yaml", hasPrinted("changed", "description", "~/.ssh")),
}

// listTools is the tool of scenes that list tools, commandTool that of scenes that run gavel.
const (
	listTools   = "tools/list"
	commandTool = "gavel"
)

// expectTools returns a scene that expects exactly these tools of other servers.
func expectTools(say string, want ...string) scene {
	return scene{say: say, tool: listTools, args: func(*memory) map[string]any { return map[string]any{} }, must: []check{passed, func(a answer) error {
		if got := a.list("tools"); a.at("tools") == nil || !slices.Equal(got, want) {
			return fmt.Errorf("listed tools are %q, want %q", got, want)
		}
		return nil
	}}}
}

// runCommand returns a scene in which the operator runs gavel.
func runCommand(say, line string, must ...check) scene {
	args := func(*memory) map[string]any { return map[string]any{"line": line} }
	return scene{say: say, tool: commandTool, args: args, must: append([]check{passed}, must...)}
}

// callTool returns a scene in which the agent calls another server's tool that has no gate.
func callTool(say, tool string, arguments map[string]any, must ...check) scene {
	return scene{say: say, tool: tool, args: func(*memory) map[string]any { return arguments }, must: must}
}

// callGated returns a scene in which the agent calls a gated tool for its workflow.
func callGated(say, tool string, arguments map[string]any, must ...check) scene {
	args := func(m *memory) map[string]any {
		all := maps.Clone(arguments)
		all["workflowId"] = m.instance
		return all
	}
	return scene{say: say, tool: tool, args: args, must: must}
}

// withRetry returns a scene that is repeated until its answer is as expected, because its effect happens in the
// background.
func (s scene) withRetry() scene {
	s.await = true
	return s
}

// hasPrinted checks the output of a command.
func hasPrinted(words ...string) check {
	return func(a answer) error {
		for _, word := range words {
			if !strings.Contains(a.text("output"), word) {
				return fmt.Errorf("the output lacks %q: %s", word, a.text("output"))
			}
		}
		return nil
	}
}

// answered checks the text of another server's answer.
func answered(text string) check {
	return all(passed, is("text", text))
}

// answeredError checks the text of another server's error.
func answeredError(text string) check {
	return func(a answer) error {
		if !a.IsError {
			return fmt.Errorf("not failed, and should be: %s", a.Text)
		}
		return is("text", text)(a)
	}
}

// closed checks that a gate is closed in a state, and that the hint contains these words.
func closed(state, hint string) check {
	return all(failed("gate_closed"), is("error.workflow.state", state), hasMember("hint", hint))
}

// isRefused checks that the judge refused a call, and the words of its message.
func isRefused(words ...string) check {
	checks := []check{failed("call_refused")}
	for _, word := range words {
		checks = append(checks, hasMember("message", word))
	}
	return all(checks...)
}

// hasMember checks that a member of an error contains these words.
func hasMember(member, words string) check {
	return func(a answer) error {
		if got := a.text("error", member); !strings.Contains(got, words) {
			return fmt.Errorf("the %s lacks %q: %s", member, words, got)
		}
		return nil
	}
}

// OpenInfra creates the folder for the gateway demo.
func OpenInfra() (*Infra, error) {
	w := &Workshop{}
	var err error
	if w.Dir, err = os.MkdirTemp("", "gavel-demo-"); err != nil {
		return nil, term.UnknownErrorf("", "cannot make a folder for the demo: %w", err)
	}
	i := &Infra{w}
	err = errors.Join(w.makeFolders("tools", "project", "flows"), w.write("gavel.yaml", infraConfig), w.write("flows/release.yaml", releaseFlow), i.Become(Sound), i.Become(Broken))
	if err != nil {
		return nil, term.UnknownErrorf("", "cannot prepare the demo: %w", errors.Join(err, w.Close()))
	}
	return i, nil
}

// Infra is the environment of the gateway demo: a project's workshop and the server's mood.
type Infra struct{ *Workshop }

// Become sets the mood of the server or of the project.
func (i *Infra) Become(to Mood) error {
	if shops[to] != "" {
		return i.Workshop.Become(to)
	}
	return i.write(moodFile, []byte(to))
}

func (i *Infra) settings() (arguments, environment []string) {
	return []string{"--no-reviews", "--config", i.path("gavel.yaml")}, nil
}
