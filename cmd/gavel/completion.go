package main

import (
	"embed"
	"fmt"
	"io"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/gavel-mcp/gavel/cmd/gavel/internal/term"
)

// completeCommand is what the completion scripts call: its arguments are the
// words of the line behind "gavel" up to the cursor, the last one unfinished.
const completeCommand = "__complete"

// completeFiles is the line that asks the shell to complete file names as well.
const completeFiles = ":files"

//go:embed completion/gavel.bash completion/gavel.zsh completion/gavel.fish
var completionScripts embed.FS

type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"Your shell: bash, zsh or fish."`
}

func (completionCmd) Help() string {
	return `Examples:

    source <(gavel completion bash)                                   # in ~/.bashrc
    gavel completion zsh > "${fpath[1]}/_gavel"                       # then start a new shell
    gavel completion fish > ~/.config/fish/completions/gavel.fish`
}

func (c *completionCmd) Run(con *console) error {
	script, err := completionScripts.ReadFile("completion/gavel." + c.Shell)
	if err != nil {
		return fmt.Errorf("read the embedded script: %w", err)
	}
	con.out.Text(string(script))
	return nil
}

// printCandidates answers a completion script. It never fails: a shell that asks
// has no use for an error.
func printCandidates(con *console, words []string) int {
	var cmds commands
	parser, err := newParser(&cmds, io.Discard, io.Discard, func(int) {})
	if err != nil {
		return term.ExitUnknown
	}
	candidates, files := completeWords(parser.Model, words)
	for _, c := range candidates {
		con.out.Printf("%s\t%s\n", c.word, c.help)
	}
	if files {
		con.out.Printf("%s\n", completeFiles)
	}
	return term.ExitOK
}

// candidate replaces the last word.
type candidate struct{ word, help string }

// completeWords lists what the last of words can become, and whether a file name can
// stand there.
func completeWords(model *kong.Application, words []string) (out []candidate, files bool) {
	if len(words) == 0 {
		words = []string{""}
	}
	before, current := words[:len(words)-1], words[len(words)-1]
	node, flag, args := walkCommand(model.Node, before)
	switch name, value, joined := strings.Cut(current, "="); {
	case flag != nil: // "--format" "mer", and what bash makes of "--format=mer": "--format" "=" "mer"
		return valuesOf(flag.Value, "", strings.TrimPrefix(current, "="))
	case joined && strings.HasPrefix(name, "--"):
		if f := flagNamed(node, name); f != nil {
			return valuesOf(f.Value, name+"=", value)
		}
		return nil, false
	case strings.HasPrefix(current, "-"):
		return flagsOf(node, current), false
	case len(node.Children) > 0:
		return childrenOf(node, current), false
	case args < len(node.Positional):
		return valuesOf(node.Positional[args], "", current)
	case len(node.Positional) > 0 && node.Positional[len(node.Positional)-1].IsCumulative():
		return valuesOf(node.Positional[len(node.Positional)-1], "", current)
	}
	return nil, false
}

// walkCommand follows finished words: to the command, the flag that still waits for a
// value (nil if none), and how many arguments the command has got.
func walkCommand(node *kong.Node, words []string) (_ *kong.Node, waiting *kong.Flag, args int) {
	for _, word := range words {
		switch {
		case waiting != nil && word == "=":
		case waiting != nil:
			waiting = nil
		case strings.HasPrefix(word, "--"):
			if f := flagNamed(node, word); f != nil && !f.IsBool() {
				waiting = f
			}
		default:
			if child := childNamed(node, word); child != nil {
				node = child
			} else if !strings.HasPrefix(word, "-") {
				args++
			}
		}
	}
	return node, waiting, args
}

func childNamed(node *kong.Node, name string) *kong.Node {
	for _, child := range node.Children {
		if child.Name == name {
			return child
		}
	}
	return nil
}

func flagNamed(node *kong.Node, name string) *kong.Flag {
	for _, group := range node.AllFlags(false) {
		for _, f := range group {
			if "--"+f.Name == name {
				return f
			}
		}
	}
	return nil
}

func childrenOf(node *kong.Node, prefix string) (out []candidate) {
	for _, child := range node.Children {
		if !child.Hidden && strings.HasPrefix(child.Name, prefix) {
			out = append(out, candidate{child.Name, child.Help})
		}
	}
	return out
}

func flagsOf(node *kong.Node, prefix string) (out []candidate) {
	for _, group := range node.AllFlags(true) {
		for _, f := range group {
			if word := "--" + f.Name; strings.HasPrefix(word, prefix) {
				out = append(out, candidate{word, f.Help})
			}
		}
	}
	return out
}

// valuesOf lists the values that v can take; without a list of them it is a
// file, if its placeholder says so.
func valuesOf(v *kong.Value, joint, prefix string) (out []candidate, files bool) {
	if v.Enum == "" {
		return nil, takesFile(v)
	}
	for _, value := range v.EnumSlice() {
		if value != "" && strings.HasPrefix(value, prefix) {
			out = append(out, candidate{joint + value, ""})
		}
	}
	return out, false
}

func takesFile(v *kong.Value) bool {
	placeholder := v.Tag.PlaceHolder
	if v.Flag == nil {
		placeholder = strings.ToUpper(v.Name)
	}
	for _, word := range []string{"PATH", "FILE", "GLOB"} {
		if strings.Contains(placeholder, word) {
			return true
		}
	}
	return false
}
