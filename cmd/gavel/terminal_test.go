package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestTerminalCleansWhatComesFromOutside(t *testing.T) {
	t.Parallel()
	type state string
	hostile := "a\x1b[31mred\x07\x00\u009b2J\u202eevil\u2066\r\nnext\xff"
	for name, print := range map[string]func(*terminal){
		"string":  func(t *terminal) { t.printf("%s", hostile) },
		"error":   func(t *terminal) { t.printf("%v", errors.New(hostile)) },
		"named":   func(t *terminal) { t.printf("%s", state(hostile)) },
		"quoted":  func(t *terminal) { t.printf("%q", hostile) },
		"slice":   func(t *terminal) { t.printf("%v", []string{hostile}) },
		"styled":  func(t *terminal) { t.printf("%s", t.red(hostile)) },
		"table":   func(t *terminal) { t.table([][]string{{"head", "x"}, {hostile, hostile}}) },
		"text":    func(t *terminal) { t.text(hostile) },
		"library": func(t *terminal) { _, _ = t.Write([]byte(hostile)) },
		"json":    func(t *terminal) { _ = t.json(map[string]string{hostile: hostile}) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var b bytes.Buffer
			print(newTerminal(&b))
			out := b.String()
			if !utf8.ValidString(out) {
				t.Errorf("not UTF-8: %q", out)
			}
			if i := strings.IndexFunc(out, func(r rune) bool { return r != '\n' && unsafeRune(r) }); i >= 0 {
				t.Errorf("a character that a terminal obeys: %q", out)
			}
			if !strings.Contains(out, "red") || !strings.Contains(out, "evil") {
				t.Errorf("text was lost: %q", out)
			}
		})
	}
}

func TestOneLineStaysOneLine(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	newTerminal(&b).printf("%s\n", "one\ntwo\tthree\r\nfour")
	if got := strings.Count(b.String(), "\n"); got != 1 {
		t.Errorf("%d lines: %q", got, b.String())
	}
}

func TestJSONMeansTheSame(t *testing.T) {
	t.Parallel()
	want := map[string]any{"k": "a\u009b\u202e\U000e0001 <&> é 漢 \u200d", "n": "\u2028"}
	var b bytes.Buffer
	if err := newTerminal(&b).json(want); err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(b.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	for k, v := range want {
		if got[k] != v {
			t.Errorf("%s is %q, want %q", k, got[k], v)
		}
	}
}

func TestColourIsForTerminalsOnly(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	plain := newTerminal(&b)
	plain.printf("%s", plain.red("x"))
	if b.String() != "x" {
		t.Errorf("colour on something that is no terminal: %q", b.String())
	}
	b.Reset()
	coloured := &terminal{w: &remembering{w: &b}, colour: true}
	coloured.printf("%s", coloured.red("x\x1b[2J"))
	if got := b.String(); got != "\x1b[31mx\\x1b[2J\x1b[0m" {
		t.Errorf("got %q", got)
	}
}

func FuzzClean(f *testing.F) {
	f.Add("plain")
	f.Add("\x1b]0;title\x07\u202e\xc3\x28")
	f.Fuzz(func(t *testing.T, s string) {
		out := clean(s)
		if !utf8.ValidString(out) || strings.IndexFunc(out, unsafeRune) >= 0 {
			t.Errorf("clean(%q) = %q", s, out)
		}
		if clean(out) != out {
			t.Errorf("clean is not stable for %q", s)
		}
		raw, err := json.Marshal(strings.ToValidUTF8(s, "?"))
		if err != nil {
			t.Fatal(err)
		}
		var before, after string
		if json.Unmarshal(raw, &before) != nil || json.Unmarshal([]byte(escapeJSON(string(raw))), &after) != nil || before != after {
			t.Errorf("escapeJSON changed %q to %q", before, after)
		}
	})
}
