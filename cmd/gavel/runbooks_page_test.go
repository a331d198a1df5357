package main

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every command of gavel on a runbook parses: command, arguments and flags exist.
func TestRunbookCommands(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../docs/runbooks/*.md")
	if err != nil {
		t.Fatal(err)
	}
	fence, inline := regexp.MustCompile("(?s)```sh\n(.*?)```"), regexp.MustCompile("`(gavel [^`]+)`")
	var parsed int
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var lines []string
		for _, m := range fence.FindAllStringSubmatch(string(text), -1) {
			lines = append(lines, strings.Split(m[1], "\n")...)
		}
		for _, m := range inline.FindAllStringSubmatch(fence.ReplaceAllString(string(text), ""), -1) {
			lines = append(lines, strings.ReplaceAll(m[1], "\n", " "))
		}
		for _, line := range lines {
			for _, args := range gavelCalls(line) {
				parsed++
				if err := commandParses(args); err != nil {
					t.Errorf("%s: %s: %v", filepath.Base(file), line, err)
				}
			}
		}
	}
	if parsed < 60 {
		t.Errorf("%d commands found", parsed)
	}
	for _, wrong := range []string{"gavel webhook deaths", "gavel review approve", "gavel history search --since", "gavel verify --anchors FILE"} {
		if commandParses(strings.Fields(wrong)[1:]) == nil {
			t.Errorf("%s parses", wrong)
		}
	}
}

var shellWord = regexp.MustCompile(`'[^']*'|"[^"]*"|[^\s'"]+`)

// gavelCalls returns the arguments of every call of gavel in a line of a shell without $ and escapes, in a container too.
func gavelCalls(line string) [][]string {
	var out [][]string
	var call []string // nil outside of a call of gavel
	for i, word := range append(shellWord.FindAllString(line, -1), "|") {
		switch {
		case word == "|" || word == ";" || word == "&&" || word == "#":
			if call != nil {
				out = append(out, call)
			}
			if call = nil; word == "#" {
				return out
			}
		case word == "/gavel" || word == "gavel" && i == 0:
			call = []string{}
		case call != nil:
			call = append(call, strings.Trim(word, `'"`))
		}
	}
	return out
}

// commandParses returns why the program would refuse the arguments.
func commandParses(args []string) error {
	grammar, command := grammarFor(&commands{}, args[:1])
	parser, err := newParser(grammar, io.Discard, io.Discard, func(int) {}, command...)
	if err != nil {
		return err
	}
	_, err = parser.Parse(args)
	return err
}
