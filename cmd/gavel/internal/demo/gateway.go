package demo

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/gavel-mcp/gavel/cmd/gavel/internal/term"
)

//go:embed infra.yaml
var infraConfig []byte

var gatewayPlay = play{
	headline: "Another MCP server's tools, behind gavel.",
	acts: []act{
		{"First act: what no operator accepted is not there.", pinScenes},
		{"Second act: the server changes what a tool says.", driftScenes},
	},
}

var (
	login   = map[string]any{"user": "ada"}
	release = map[string]any{"version": "1.4.0"}
)

var pinScenes = []scene{
	list("The operator has declared the server infra in gavel.yaml. Nothing of it is pinned, so the agent sees nothing of it."),
	command("The operator looks at what the server has, and accepts it.", "upstream pin --all --config gavel.yaml", printed("authenticate", "deploy", "reset", "validate")),
	list("Now its tools are listed next to gavel's own.", "infra__authenticate", "infra__deploy", "infra__reset", "infra__validate").awaited(),
	use("A call reaches the server, and its answer the agent, byte for byte.", "infra__authenticate", login, answered("ada is logged in")),
}

var driftScenes = []scene{
	list("The description of one tool now tells the model to send keys away. The tool is no longer listed.",
		"infra__authenticate", "infra__reset", "infra__validate").in(Drifted).awaited(),
	use("An agent that knows its name cannot call it either.", "infra__deploy", release, failedWith("tool_drifted")),
	command("The operator sees what changed.", "upstream diff --config gavel.yaml", printed("changed", "description", "~/.ssh")),
	list("The server is mended.", "infra__authenticate", "infra__deploy", "infra__reset", "infra__validate").in(Sound).awaited(),
	use("The tool can be called again.", "infra__deploy", release, answered("1.4.0 is in production")),
}

// listTools is the tool of scenes that list tools, commandTool that of those that run gavel.
const (
	listTools   = "tools/list"
	commandTool = "gavel"
)

// list is a scene that lists what is there of other servers: these tools and no others.
func list(say string, want ...string) scene {
	return scene{say: say, tool: listTools, args: func(*memory) map[string]any { return map[string]any{} }, must: []check{passed, func(a answer) error {
		if got := a.list("tools"); a.at("tools") == nil || !slices.Equal(got, want) {
			return fmt.Errorf("listed are %q, and should be %q", got, want)
		}
		return nil
	}}}
}

// command is a scene in which the operator runs gavel.
func command(say, line string, must ...check) scene {
	args := func(*memory) map[string]any { return map[string]any{"line": line} }
	return scene{say: say, tool: commandTool, args: args, must: append([]check{passed}, must...)}
}

// use is a scene in which the agent calls another server's tool.
func use(say, tool string, arguments map[string]any, must ...check) scene {
	return scene{say: say, tool: tool, args: func(*memory) map[string]any { return arguments }, must: must}
}

// awaited is a scene that is asked again until its answer is as it must be: what it shows comes
// about in the background.
func (s scene) awaited() scene {
	s.await = true
	return s
}

// printed checks what a command printed.
func printed(words ...string) check {
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

// failedWith checks that a tool of another server was refused, with a code.
func failedWith(code string) check {
	return func(a answer) error {
		if !a.IsError {
			return fmt.Errorf("let through, and should not be: %s", a.Text)
		}
		return is("error.code", code)(a)
	}
}

// OpenInfra makes the folder of the gateway's demo.
func OpenInfra() (*Infra, error) {
	w := &Workshop{}
	var err error
	if w.Dir, err = os.MkdirTemp("", "gavel-demo-"); err != nil {
		return nil, term.UnknownErrorf("", "cannot make a folder for the demo: %w", err)
	}
	i := &Infra{w}
	if err = errors.Join(w.makeFolders("tools"), w.write("gavel.yaml", infraConfig), placeProgram(w.tool()), i.Become(Sound)); err != nil {
		return nil, term.UnknownErrorf("", "cannot prepare the demo: %w", errors.Join(err, w.Close()))
	}
	return i, nil
}

// Infra is what the demo of the gateway works with: a folder with the operator's file, and the
// server's mood beside it.
type Infra struct{ *Workshop }

// Become sets what the server is from now on.
func (i *Infra) Become(to Mood) error { return i.write(moodFile, []byte(to)) }

func (i *Infra) settings() (arguments, environment []string) {
	return []string{"--config", i.path("gavel.yaml")}, nil
}
