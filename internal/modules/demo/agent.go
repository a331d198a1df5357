package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"

	"github.com/gavel-mcp/gavel/internal/term"
)

// agent is an MCP client with its own gavel server. It also runs commands as the operator.
type agent struct {
	client *client.Client
	server serverInfo
	log    *lockedBuffer // the server's stderr
	store  string        // the store for the operator's commands
	// run returns a command of this program, as the operator would run it.
	run func(ctx context.Context, args []string) *exec.Cmd
	// connect starts the server; process is the last one started.
	connect func(ctx context.Context) error
	process *exec.Cmd
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
	if a.store, err = filepath.Abs(o.Store); err != nil {
		return nil, term.UnknownErrorf("", "cannot resolve the path %s: %w", o.Store, err)
	}
	arguments, environment := set.settings()
	arguments = append([]string{"mcp", "--store", o.Store, "--tool-names", "dotted"}, arguments...)
	a.run = func(ctx context.Context, args []string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, program, args...) //nolint:gosec // this very program
		cmd.Args[0] = os.Args[0]
		cmd.Env, cmd.Dir = slices.Clone(o.Env), set.folder()
		return cmd
	}
	if line := plays[o.Part].before; line != "" {
		if out, err := a.run(ctx, splitWords(line)).CombinedOutput(); err != nil {
			return nil, term.UnknownErrorf("", "gavel %s: %w\n%s", line, err, out)
		}
	}
	a.connect = func(ctx context.Context) error { return a.startProcess(ctx, o, program, arguments, environment) }
	if err := a.connect(ctx); err != nil {
		return nil, err
	}
	return a, nil
}

// startProcess starts a server and initializes it.
func (a *agent) startProcess(ctx context.Context, o Options, program string, arguments, environment []string) error {
	stdio := transport.NewStdioWithOptions(program, nil, arguments,
		transport.WithCommandFunc(func(ctx context.Context, _ string, _, args []string) (*exec.Cmd, error) {
			cmd := a.run(ctx, args)
			cmd.Env, cmd.Dir, cmd.Stderr = append(cmd.Env, environment...), "", a.log
			a.process = cmd
			return cmd, nil
		}))
	a.client = client.NewClient(stdio)
	if err := a.client.Start(ctx); err != nil {
		return term.UnknownErrorf("", "cannot start the server: %w", err)
	}
	var hello mcp.InitializeRequest
	hello.Params.ClientInfo = mcp.Implementation{Name: "gavel-demo", Version: o.Version}
	hello.Params.ProtocolVersion = mcp.LATEST_PROTOCOL_VERSION
	result, err := a.client.Initialize(ctx, hello)
	if err != nil {
		err = errors.Join(err, a.close())
		return term.UnknownErrorf("", "the server does not answer: %w\n%s", err, a.log.String())
	}
	a.server = serverInfo{result.ServerInfo.Name, result.ServerInfo.Version, result.ProtocolVersion}
	return nil
}

// kill ends the server as kill -9 does, and starts it again.
func (a *agent) kill(ctx context.Context, e Exchange) (answer, error) {
	if err := a.process.Process.Kill(); err != nil {
		return answer{}, fmt.Errorf("kill the server: %w", err)
	}
	_ = a.close() // the error only reports the kill
	if err := a.connect(ctx); err != nil {
		return answer{}, err
	}
	return e.answerWith(map[string]any{"started": true})
}

// close ends the server by closing its stdin, and returns its result.
func (a *agent) close() error { return a.client.Close() }

type answer struct {
	Exchange
	fields map[string]any
}

// call calls a tool, lists the tools, or runs a command. A refusal is an answer, not an error.
func (a *agent) call(ctx context.Context, tool string, arguments map[string]any) (answer, error) {
	raw, err := json.Marshal(arguments)
	if err != nil {
		return answer{}, fmt.Errorf("encode the arguments: %w", err)
	}
	switch e := (Exchange{Tool: tool, Arguments: raw}); tool {
	case listTools:
		return a.list(ctx, e)
	case commandTool:
		return a.command(ctx, e, fmt.Sprint(arguments["line"]))
	case killTool:
		return a.kill(ctx, e)
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
	if !json.Valid(e.Answer) { // an answer of another server
		return e.answerWith(map[string]any{"text": e.Text})
	}
	return newAnswer(e)
}

// list lists the tools of other servers and counts gavel's own.
func (a *agent) list(ctx context.Context, e Exchange) (answer, error) {
	result, err := a.client.ListTools(ctx, mcp.ListToolsRequest{})
	if err != nil {
		return answer{}, fmt.Errorf("%s: %w", e.Tool, err)
	}
	others := []string{}
	for _, tool := range result.Tools {
		if isForeign(tool.Name) {
			others = append(others, tool.Name)
		}
	}
	return e.answerWith(map[string]any{"tools": others, "own": len(result.Tools) - len(others)})
}

// command runs this program. Exit code 1, which means that it found problems, is an answer.
func (a *agent) command(ctx context.Context, e Exchange, line string) (answer, error) {
	cmd := a.run(ctx, splitWords(line))
	cmd.Env = append(cmd.Env, "GAVEL_STORE="+a.store)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		return answer{}, fmt.Errorf("run gavel %s: %w", line, err)
	}
	e.IsError = cmd.ProcessState.ExitCode() > term.ExitBad
	return e.answerWith(map[string]any{"line": line, "output": string(out), "exit": cmd.ProcessState.ExitCode()})
}

// splitWords splits a line at its spaces, except inside single quotes.
func splitWords(line string) []string {
	var words []string
	for i, part := range strings.Split(line, "'") {
		if i%2 == 1 {
			words = append(words, part)
		} else {
			words = append(words, strings.Fields(part)...)
		}
	}
	return words
}

// answerWith returns the exchange with an answer made by the demo itself.
func (e Exchange) answerWith(fields map[string]any) (answer, error) {
	raw, err := json.Marshal(fields)
	if err != nil {
		return answer{}, fmt.Errorf("encode the answer: %w", err)
	}
	e.Answer = raw
	return newAnswer(e)
}

func newAnswer(e Exchange) (answer, error) {
	a := answer{Exchange: e}
	if len(e.Answer) > 0 {
		if err := json.Unmarshal(e.Answer, &a.fields); err != nil {
			return a, fmt.Errorf("%s: the answer is not a JSON object: %w", e.Tool, err)
		}
	}
	return a, nil
}

// at returns the value at a path of keys, or nil.
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

// objections returns the messages of the decision's findings.
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

// lockedBuffer is a buffer that a process writes and the demo reads.
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
