package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// playSession is the program "play" of the scripts: an agent that plays a file against `gavel mcp`. Each line is a
// tool and its arguments. $ID is the instance of the last start. It prints one line per response: ok or error, and
// the structured content.
//
// The last line may be "kill", which ends the server like a power failure. "await FILE TEXT" continues once the
// file contains the text. If $FORM is set, the client supports forms and answers each with that value.
func playSession() {
	file, err := os.ReadFile(os.Args[1])
	if err != nil {
		fail(err)
	}
	s := beginSession(append([]string{"mcp", "--tool-names", "dotted"}, os.Args[2:]...))
	instance := os.Getenv("ID")
	for line := range strings.Lines(string(file)) {
		tool, arguments, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch tool {
		case "":
			continue
		case "kill":
			_ = s.cmd.Process.Kill()
			_ = s.cmd.Wait()
			return
		case "await":
			awaitText(strings.Fields(arguments))
			continue
		}
		body := s.call(tool, strings.ReplaceAll(arguments, "$ID", instance))
		if tool == "workflow.start" {
			instance, _ = body["id"].(string)
		}
	}
	_ = s.stdin.Close()
	if err := s.cmd.Wait(); err != nil {
		fail(err)
	}
}

// awaitText returns once a file contains a text.
func awaitText(words []string) {
	const patience = 30 * time.Second
	ended := time.After(patience)
	for {
		content, err := os.ReadFile(words[0])
		if err == nil && strings.Contains(string(content), words[1]) {
			return
		}
		select {
		case <-ended:
			fail(fmt.Errorf("%s has no %q after %s (%w)", words[0], words[1], patience, err))
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// session is a server and its pipes.
type session struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	lines *bufio.Scanner
	next  int
	form  string
}

func (s *session) write(line string) {
	if _, err := io.WriteString(s.stdin, line+"\n"); err != nil {
		fail(err)
	}
}

func beginSession(args []string) *session {
	s := &session{cmd: exec.Command("gavel", args...), form: os.Getenv("FORM")}
	s.cmd.Stderr = os.Stderr
	stdin, err := s.cmd.StdinPipe()
	if err != nil {
		fail(err)
	}
	stdout, err := s.cmd.StdoutPipe()
	if err != nil {
		fail(err)
	}
	if err := s.cmd.Start(); err != nil {
		fail(err)
	}
	s.stdin, s.lines = stdin, bufio.NewScanner(stdout)
	s.lines.Buffer(nil, 16<<20)
	capabilities := "{}"
	if s.form != "" {
		capabilities = `{"elicitation":{}}`
	}
	s.ask("initialize", fmt.Sprintf(`{"protocolVersion":"2025-11-25","capabilities":%s,"clientInfo":{"name":"play","version":"1"}}`, capabilities))
	s.write(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return s
}

// ask sends a request and returns its result.
func (s *session) ask(method, params string) json.RawMessage {
	s.next++
	s.write(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, s.next, method, params))
	for s.lines.Scan() {
		var r reply
		if err := json.Unmarshal(s.lines.Bytes(), &r); err != nil {
			fail(err)
		}
		if r.Method == "elicitation/create" {
			fmt.Printf("form %s\n", s.lines.Bytes())
			s.write(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, r.ID, s.form))
			continue
		}
		if string(r.ID) != fmt.Sprint(s.next) {
			continue // a notification
		}
		if r.Error != nil {
			fail(fmt.Errorf("%s: %s", method, r.Error.Message))
		}
		return r.Result
	}
	fail(fmt.Errorf("%s: the server has gone", method))
	return nil
}

func (s *session) call(tool, arguments string) map[string]any {
	var result struct {
		IsError bool `json:"isError"`
		Content []struct{ Text string }
	}
	raw := s.ask("tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s}`, tool, arguments))
	if err := json.Unmarshal(raw, &result); err != nil {
		fail(err)
	}
	outcome := "ok"
	if result.IsError {
		outcome = "error"
	}
	fmt.Printf("%s %s %s\n", outcome, tool, result.Content[0].Text)
	var body map[string]any
	if err := json.Unmarshal([]byte(result.Content[0].Text), &body); err != nil {
		fail(err)
	}
	return body
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "play:", err)
	os.Exit(1)
}
