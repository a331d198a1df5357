package cli

import (
	"encoding/json"
	"io"
	"os"

	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/internal/term"
)

// ReadSource reads a source file, or stdin for "-". It reads at most 1 MiB, the limit of the sandbox.
func ReadSource(con *Console, name string) ([]byte, error) {
	source, err := readInput(con.In, name, 1<<20)
	if err != nil {
		return nil, term.UsageErrorf("", "cannot read %s: %w", name, err)
	}
	return source, nil
}

// readInput reads at most limit bytes of a file, or of stdin for "-".
func readInput(stdin io.Reader, name string, limit int64) ([]byte, error) {
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer func() { _ = f.Close() }() // read only
		stdin = f
	}
	return io.ReadAll(io.LimitReader(stdin, limit))
}

// ReadJSONArgument reads the JSON object of a flag, from a file after "@".
func ReadJSONArgument(flag, value string) (json.RawMessage, error) {
	raw := []byte(value)
	if len(value) > 0 && value[0] == '@' {
		var err error
		if raw, err = os.ReadFile(value[1:]); err != nil {
			return nil, term.UsageErrorf("", "%s: %w", flag, err)
		}
	}
	doc, err := workflow.CheckDocument(raw)
	if err != nil {
		return nil, term.UsageErrorf("give a JSON object, or @FILE with one in it", "%s: %w", flag, err)
	}
	return doc, nil
}
