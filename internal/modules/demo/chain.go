package demo

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/gavel-mcp/gavel/internal/term"
)

var (
	//go:embed shop.yaml
	shopConfig []byte
	//go:embed order.yaml
	orderFlow []byte
	//go:embed send-order.yaml
	sendOrder []byte
)

// killTool is the tool of scenes in which the server is killed and restarted.
const killTool = "kill -9"

var chainPlay = play{
	headline: "Steps across three MCP servers, each through the gate; gavel is killed in the middle, and nothing is paid twice.",
	before:   "upstream pin --all --config gavel.yaml",
	needs:    []string{"chain", "evidence", "gateway"},
	acts: []act{
		{"First act: an agent starts the chain.", chainScenes},
		{"Second act: gavel is killed during the payment.", killScenes},
		{"Third act: a person reports the outcome of the payment.", doubtScenes},
	},
}

const bookedOnce = "payments: R-1 A-1 120"

var chainScenes = []scene{
	{
		say: "The operator has declared the servers shop, bank and post, pinned their tools (gavel upstream pin --all), and written a chain over them.", tool: "chain.list",
		args: func(*memory) map[string]any { return map[string]any{} }, must: []check{passed, is("count", "1")},
	},
	start("The agent wants to send a parcel without paying. It opens an order.", "order", "open"),
	callGated("The gate of the post's tool is closed before an order is paid.", "post__send", map[string]any{"to": "12 Main Street"}, closed("open", "paid")),
	advance("It claims that it has paid. The gate asks the bank.", "paid", map[string]any{"receipt": "R-9"}, rejected("open", "script", "no such receipt")),
	{
		say: "Then it starts the chain.", tool: "chain.start",
		args: func(*memory) map[string]any {
			return map[string]any{"chain": "send-order", "input": map[string]any{"order": "A-1"}}
		},
		must: []check{passed, is("status", "running"), is("chain", "send-order")}, mood: Slow,
	},
	callTool("The bank has booked the payment, and does not answer.", "bank__receipts", map[string]any{}, answered(bookedOnce)).withRetry(),
	askRun("Price and address were asked for at the same time; the address book was busy, and was asked again.", "chain.status",
		is("status", "running"), hasSteps("look/address failed", "look/address~2 done", "look/price done", "open done")).withRetry(),
}

var killScenes = []scene{
	{
		say: "gavel is killed, and started again.", tool: killTool,
		args: func(*memory) map[string]any { return map[string]any{} }, must: []check{passed, is("started", "true")}, mood: Sound,
	},
	askRun("The run continues in the interrupted step. Completed steps are not repeated. It is unknown whether the payment was made, and it may not be made twice.",
		"chain.status", is("status", "running"), waitsFor("step", "bank", "pay"), hasSteps("look/address failed", "look/address~2 done", "look/price done", "open done")).withRetry(),
	callTool("The bank was not asked again.", "bank__receipts", map[string]any{}, answered(bookedOnce)),
}

var doubtScenes = []scene{
	runCommand("The operator sees the question.", "review list", hasPrinted("chain.send-order", "pay", "waiting")),
	operate("The payment is in the bank's books. The operator reports this, with the output that was lost.", "review approve ", func(m *memory) string {
		return m.review + ` --output '{"receipt": "R-1"}' --reason 'It is in the books of the bank.'`
	}, hasPrinted("happened")),
	askRun("The chain continues with that output. The bank confirms the receipt, the gate opens, and the parcel is sent.", "chain.result",
		is("status", "done"), is("output.parcel.parcel", "P-1")),
	callTool("It was paid once.", "bank__receipts", map[string]any{}, answered(bookedOnce)),
	askRun("Each attempt of each step is on record, with the operator's answer about the payment.", "chain.status",
		is("status", "done"), hasSteps("look/address failed", "look/address~2 done", "look/price done", "open done", "pay failed", "pay! done", "prove done", "send done")),
	runCommand("The record is whole.", "verify", hasPrinted("all as it was written")),
}

// operate returns a scene in which the operator runs gavel with an id that the agent received.
func operate(say, line string, about func(*memory) string, must ...check) scene {
	args := func(m *memory) map[string]any { return map[string]any{"line": line + about(m)} }
	return scene{say: say, tool: commandTool, args: args, must: append([]check{passed, is("exit", "0")}, must...)}
}

// askRun returns a scene that asks for the state of the run.
func askRun(say, tool string, must ...check) scene {
	return scene{say: say, tool: tool, args: func(m *memory) map[string]any { return map[string]any{"run": m.run} }, must: append([]check{passed}, must...)}
}

// runSteps returns the ended steps of a run with their results, sorted by key.
func (a answer) runSteps() []string {
	steps, _ := a.at("steps").([]any)
	var out []string
	for _, s := range steps {
		fields, _ := s.(map[string]any)
		step := answer{fields: fields}
		line := step.text("key") + " " + step.text("status")
		if message := step.text("failure", "message"); message != "" {
			line += ": " + message
		}
		out = append(out, line)
	}
	slices.Sort(out)
	return out
}

// hasSteps checks that these steps of a run have ended with these results, each once.
func hasSteps(want ...string) check {
	return func(a answer) error {
		got := a.runSteps()
		for _, step := range want {
			found := 0
			for _, line := range got {
				if line == step || strings.HasPrefix(line, step+":") {
					found++
				}
			}
			if found != 1 {
				return fmt.Errorf("%q appears %d times among the steps: %q", step, found, got)
			}
		}
		return nil
	}
}

// question returns the first entry that a run waits for, or nil.
func (a answer) question() *answer {
	waiting, _ := a.at("waiting").([]any)
	if len(waiting) == 0 {
		return nil
	}
	fields, _ := waiting[0].(map[string]any)
	return &answer{fields: fields}
}

// waitsFor checks that a run asks for the outcome of a call.
func waitsFor(kind, server, tool string) check {
	return func(a answer) error {
		q := a.question()
		if q == nil {
			return errors.New("the run waits for no answer")
		}
		return all(is("kind", kind), is("server", server), is("name", tool), begins("reviewId", "rev-"))(*q)
	}
}

// printRun prints the state of a run.
func (t *transcript) printRun(a answer) {
	out, status := t.show, a.text("status")
	switch a.Tool {
	case "chain.list":
		chains, _ := a.at("chains").([]any)
		for _, c := range chains {
			fields, _ := c.(map[string]any)
			one := answer{fields: fields}
			status = one.text("name") + ": " + one.text("description")
		}
	case "chain.start":
		status = a.text("run") + " is " + status
	}
	if q := a.question(); q != nil {
		status += fmt.Sprintf("; waits for a person: was %s/%s called? (%s)", q.text("server"), q.text("name"), q.text("reviewId"))
	}
	if output, ok := a.at("output").(map[string]any); ok && status == "done" {
		status += fmt.Sprintf("; the parcel is %v", answer{fields: output}.at("parcel", "parcel"))
	}
	out.Printf("    %s %s %s\n", out.Dim("<"), out.Green("ok"), status)
	for _, step := range a.runSteps() {
		out.Printf("        - %s\n", step)
	}
}

// OpenShop creates the folder for the chain demo.
func OpenShop() (*Shop, error) {
	w := &Workshop{}
	var err error
	if w.Dir, err = os.MkdirTemp("", "gavel-demo-"); err != nil {
		return nil, term.UnknownErrorf("", "cannot make a folder for the demo: %w", err)
	}
	s := &Shop{w}
	err = errors.Join(w.makeFolders("tools", "flows", "chains"), placeProgram(w.tool()), w.write("gavel.yaml", shopConfig),
		w.write("flows/order.yaml", orderFlow), w.write("chains/send-order.yaml", sendOrder), s.Become(Sound))
	if err != nil {
		return nil, term.UnknownErrorf("", "cannot prepare the demo: %w", errors.Join(err, w.Close()))
	}
	return s, nil
}

// Shop is the environment of the chain demo: the operator's files, the bank's books and its mood.
type Shop struct{ *Workshop }

// Become sets the bank's mood.
func (s *Shop) Become(to Mood) error { return s.write(moodFile, []byte(to)) }

func (s *Shop) settings() (arguments, environment []string) {
	return []string{"--config", s.path("gavel.yaml")}, nil
}
