package main

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/gavel-mcp/gavel/internal/modules/chain"
)

// The chains reference matches gavel schema chain.
func TestChainPage(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	b.WriteString(`# Chains

A chain is a list of steps across MCP servers, in JSON or YAML. Each object below lists all the keys that it may have; unknown and duplicate keys
and values of another kind are rejected, with their line. ` + "`gavel chain lint`" + ` checks chains, and ` + "`gavel schema chain`" + ` prints the same as
JSON Schema, for editors. [Chains](../chains.md) says how they run, [schedules](../chains.md#schedules) when, and what references, conditions and
handlers of failures do is under [references](../chains.md#references) and [when a step fails](../chains.md#when-a-step-fails).

`)
	fmt.Fprintf(&b, "A chain has at most %d KiB and %d steps, nested %d deep; a `parallel` step %d tasks, a loop %d iterations, a step %d attempts. Of an output at most %d KiB are kept.\n\n",
		chain.MaxDefinition>>10, chain.MaxSteps, chain.MaxNesting, chain.MaxTasks, chain.MaxIterations, chain.MaxAttempts, chain.MaxOutput>>10)
	writeFormat(t, &b, chain.FormatSchema())
	generated(t, "chain.md", &b)
}
