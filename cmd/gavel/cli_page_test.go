package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// flagGroup has flags that many commands share. The page of all commands describes them, and the page of a command links
// there.
type flagGroup struct {
	title, anchor, about string
	has                  func(name string) bool
	rows                 []string
}

// sharedBy is the least number of commands that share a flag of a group.
const sharedBy = 10

func flagGroups() []*flagGroup {
	names := func(names ...string) func(string) bool {
		return func(name string) bool { return slices.Contains(names, name) }
	}
	return []*flagGroup{
		{title: "Flags for the configuration file", anchor: "the configuration file", about: "See also [the configuration file](config.md).", has: names("config")},
		{title: "Flags for the store", anchor: "the store", has: names("store", "store-key")},
		{title: "Flags for a server", anchor: "a server", about: "With these the command asks a server ([gavel serve](cli/serve.md)).", has: names("server", "token-file", "ca-file", "insecure-plain-http")},
		{title: "Flags for the model", anchor: "the model", about: "See also [the model](../judge.md).", has: func(name string) bool { return strings.HasPrefix(name, "llm-") }},
	}
}

// commandPages returns the writers of the page of all commands and of one page for each.
func commandPages(t *testing.T) map[string]func(*bytes.Buffer) {
	t.Helper()
	parser, err := newParser(&commands{}, io.Discard, io.Discard, func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	groups := flagGroups()
	uses := map[string]int{}
	eachCommand(parser.Model.Node, func(n *kong.Node) {
		for _, f := range n.Flags {
			uses[flagRow(f)]++
		}
	})
	eachCommand(parser.Model.Node, func(n *kong.Node) {
		for _, f := range n.Flags {
			for _, g := range groups {
				if row := flagRow(f); g.has(f.Name) && uses[row] >= sharedBy && !slices.Contains(g.rows, row) {
					g.rows = append(g.rows, row)
				}
			}
		}
	})
	pages := map[string]func(*bytes.Buffer){
		"cli.md": func(b *bytes.Buffer) { writeCommands(b, parser.Model, groups) },
	}
	for _, cmd := range parser.Model.Children {
		if !cmd.Hidden {
			pages["cli/"+cmd.Name+".md"] = func(b *bytes.Buffer) { writeCommand(b, cmd, "#", groups) }
		}
	}
	return pages
}

// eachCommand visits a command and those below it.
func eachCommand(n *kong.Node, visit func(*kong.Node)) {
	visit(n)
	for _, child := range n.Children {
		eachCommand(child, visit)
	}
}

func writeCommands(b *bytes.Buffer, model *kong.Application, groups []*flagGroup) {
	fmt.Fprintf(b, "# Commands\n\n%s Each command has a page with its arguments, flags and examples; `gavel help COMMAND` prints the same.\n\n", model.Help)
	for _, group := range commandGroups {
		fmt.Fprintf(b, "## %s\n\n| command | what it does |\n|---|---|\n", strings.TrimSuffix(group.Title, ":"))
		for _, cmd := range model.Children {
			if cmd.Group != nil && cmd.Group.Key == group.Key && !cmd.Hidden {
				fmt.Fprintf(b, "| [%s](cli/%s.md) | %s |\n", cmd.FullPath(), cmd.Name, cell(cmd.Help))
			}
		}
		fmt.Fprintln(b)
	}
	fmt.Fprint(b, "## Output\n\n- Results go to stdout, everything else to stderr. A command that has nothing to say is silent.\n"+
		"- There is no colour if NO_COLOR is set or the output is no terminal.\n"+
		"- Under `--json` an error is the last line of stderr, as JSON: `{\"error\": {\"message\": ..., \"exit\": ...}}`, with `code`, `hint` and `mistakes` if there are any.\n\n")
	fmt.Fprint(b, "| exit code | meaning |\n|---|---|\n| 0 | fine |\n| 1 | the thing checked is bad |\n| 2 | wrong usage or configuration |\n| 3 | could not find out |\n| 4 | a regression against a baseline |\n| 5 | fine, but incomplete (`gavel eval run`) |\n\n")
	fmt.Fprint(b, "## Flags of every command\n\n")
	writeFlags(b, model.Flags, nil)
	for _, g := range groups {
		fmt.Fprintf(b, "## %s\n\n", g.title)
		if g.about != "" {
			fmt.Fprintf(b, "%s\n\n", g.about)
		}
		writeRows(b, g.rows)
	}
}

func writeCommand(b *bytes.Buffer, cmd *kong.Node, level string, groups []*flagGroup) {
	fmt.Fprintf(b, "%s %s\n\n%s\n\n    %s\n\n", level, cmd.FullPath(), cmd.Help, "gavel "+cmd.Summary())
	if cmd.Detail != "" {
		fmt.Fprintf(b, "%s\n\n", cmd.Detail)
	}
	if len(cmd.Positional) > 0 {
		fmt.Fprint(b, "| argument | meaning |\n|---|---|\n")
		for _, p := range cmd.Positional {
			fmt.Fprintf(b, "| `%s` | %s |\n", cell(p.Summary()), cell(p.Help))
		}
		fmt.Fprintln(b)
	}
	writeFlags(b, cmd.Flags, groups)
	for _, child := range cmd.Children {
		if !child.Hidden {
			writeCommand(b, child, "##", groups)
		}
	}
}

// writeFlags writes a table of a command's own flags, and links to the groups of which it has every flag.
func writeFlags(b *bytes.Buffer, flags []*kong.Flag, groups []*flagGroup) {
	var rows, also []string
	for _, f := range flags {
		if f.Name != "help" && !f.Hidden {
			rows = append(rows, flagRow(f))
		}
	}
	for _, g := range groups {
		if slices.ContainsFunc(g.rows, func(row string) bool { return !slices.Contains(rows, row) }) {
			continue
		}
		rows = slices.DeleteFunc(rows, func(row string) bool { return slices.Contains(g.rows, row) })
		also = append(also, fmt.Sprintf("[%s](../cli.md#%s)", g.anchor, strings.ReplaceAll(strings.ToLower(g.title), " ", "-")))
	}
	writeRows(b, rows)
	if len(also) == 0 {
		return
	}
	last, word := len(also)-1, "The"
	if len(rows) > 0 {
		word = "Also the"
	}
	list := also[last]
	if last > 0 {
		list = strings.Join(also[:last], ", ") + " and " + list
	}
	fmt.Fprintf(b, "%s flags for %s.\n\n", word, list)
}

func writeRows(b *bytes.Buffer, rows []string) {
	if len(rows) > 0 {
		fmt.Fprintf(b, "| flag | environment | meaning |\n|---|---|---|\n%s\n", strings.Join(rows, ""))
	}
}

// flagRow describes a flag in a row of a table.
func flagRow(f *kong.Flag) string {
	name := "--" + f.Name
	if !f.IsBool() {
		name += "=" + f.FormatPlaceHolder()
	}
	env := ""
	if len(f.Envs) > 0 {
		env = "`" + f.Envs[0] + "`"
	}
	return fmt.Sprintf("| `%s` | %s | %s |\n", cell(name), env, cell(f.Help))
}

// checkCommandPages fails unless every page below docs/reference/cli is the page of a command, the page of all commands
// links to it, and every group describes flags.
func checkCommandPages(t *testing.T, pages map[string]func(*bytes.Buffer)) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "..", "docs", "reference", "cli", "*"))
	if err != nil || len(files) < 20 {
		t.Fatalf("%d pages, %v", len(files), err)
	}
	for _, file := range files {
		if pages["cli/"+filepath.Base(file)] != nil {
			continue
		}
		if *update {
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
			continue
		}
		t.Errorf("%s is the page of no command", file)
	}
	var index bytes.Buffer
	pages["cli.md"](&index)
	for name := range pages {
		if strings.HasPrefix(name, "cli/") && !strings.Contains(index.String(), "]("+name+")") {
			t.Errorf("cli.md has no link to %s", name)
		}
	}
	for _, g := range flagGroups() {
		_, text, found := strings.Cut(index.String(), "## "+g.title+"\n\n")
		if text, _, _ = strings.Cut(text, "\n## "); !found || !strings.Contains(text, "| `--") {
			t.Errorf("cli.md has no flags under %q", g.title)
		}
	}
}
