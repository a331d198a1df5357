package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"sync"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"

	"github.com/gavel-mcp/gavel/cmd/gavel/internal/term"
)

// agent is an MCP client with a gavel server of its own behind it.
type agent struct {
	client *client.Client
	server serverInfo
	log    *lockedBuffer // what the server wrote to stderr
}

type serverInfo struct {
	Name     string `json:"name"`
	Version  string `json:"version"`
	Protocol string `json:"protocol"`
}

// startServer starts this very program as a server on a stage, and initializes it.
func startServer(ctx context.Context, o Options, set stage) (*agent, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, term.UnknownErrorf("", "cannot find this program's file: %w", err)
	}
	a := &agent{log: &lockedBuffer{}}
	arguments, environment := set.settings()
	arguments = append([]string{"mcp", "--store", o.Store, "--tool-names", "dotted", "--no-reviews"}, arguments...)
	stdio := transport.NewStdioWithOptions(program, nil, arguments,
		transport.WithCommandFunc(func(ctx context.Context, program string, _, args []string) (*exec.Cmd, error) {
			cmd := exec.CommandContext(ctx, program, args...) //nolint:gosec // this very program
			cmd.Args[0] = os.Args[0]
			cmd.Env = append(slices.Clone(o.Env), environment...)
			cmd.Stderr = a.log
			return cmd, nil
		}))
	a.client = client.NewClient(stdio)
	if err := a.client.Start(ctx); err != nil {
		return nil, term.UnknownErrorf("", "cannot start the server: %w", err)
	}
	var hello mcp.InitializeRequest
	hello.Params.ClientInfo = mcp.Implementation{Name: "gavel-demo", Version: o.Version}
	hello.Params.ProtocolVersion = mcp.LATEST_PROTOCOL_VERSION
	result, err := a.client.Initialize(ctx, hello)
	if err != nil {
		err = errors.Join(err, a.close())
		return nil, term.UnknownErrorf("", "the server does not answer: %w\n%s", err, a.log.String())
	}
	a.server = serverInfo{result.ServerInfo.Name, result.ServerInfo.Version, result.ProtocolVersion}
	return a, nil
}

// close ends the server by closing its stdin and reports how it ended.
func (a *agent) close() error { return a.client.Close() }

type answer struct {
	Exchange
	fields map[string]any
}

// call asks for a tool. The error is the protocol's; a refusal is an answer.
func (a *agent) call(ctx context.Context, tool string, arguments any) (answer, error) {
	raw, err := json.Marshal(arguments)
	if err != nil {
		return answer{}, fmt.Errorf("encode the arguments: %w", err)
	}
	var req mcp.CallToolRequest
	req.Params.Name, req.Params.Arguments = tool, json.RawMessage(raw)
	result, err := a.client.CallTool(ctx, req)
	if err != nil {
		return answer{}, fmt.Errorf("%s: %w", tool, err)
	}
	e := Exchange{Tool: tool, Arguments: raw, IsError: result.IsError, Answer: result.RawStructuredContent}
	for _, content := range result.Content {
		if text, ok := content.(mcp.TextContent); ok {
			e.Text += text.Text
		}
	}
	if len(e.Answer) == 0 { // the text is the answer
		e.Answer = json.RawMessage(e.Text)
	}
	return newAnswer(e)
}

func newAnswer(e Exchange) (answer, error) {
	a := answer{Exchange: e}
	if len(e.Answer) > 0 {
		if err := json.Unmarshal(e.Answer, &a.fields); err != nil {
			return a, fmt.Errorf("%s: an answer that is no object: %w", e.Tool, err)
		}
	}
	return a, nil
}

// at returns the value at a path of keys, nil when there is none.
func (a answer) at(path ...string) any {
	var v any = a.fields
	for _, key := range path {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[key]
	}
	return v
}

func (a answer) text(path ...string) string {
	s, _ := a.at(path...).(string)
	return s
}

// objections are the messages of the decision's findings.
func (a answer) objections() []string {
	findings, _ := a.at("decision", "findings").([]any)
	var out []string
	for _, f := range findings {
		if finding, ok := f.(map[string]any); ok {
			out = append(out, fmt.Sprint(finding["message"]))
		}
	}
	return out
}

func (a answer) list(path ...string) []string {
	items, _ := a.at(path...).([]any)
	out := make([]string, 0, len(items))
	for _, item := range items {
		out = append(out, fmt.Sprint(item))
	}
	return out
}

// lockedBuffer is a buffer that a process writes and we read.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
