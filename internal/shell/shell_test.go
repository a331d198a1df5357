package shell_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/internal/shell"
)

// say shows a script as a row: its commands, U for a part in which any program may run, and u[...] for
// one that may mention a program.
func say(s shell.Script) string {
	var rows []string
	for i, c := range s.Commands {
		row := sayCommand(c)
		if i == s.Whole {
			row = "W:" + row
		}
		rows = append(rows, row)
	}
	for _, u := range s.Unknown {
		if u.Program {
			rows = append(rows, "U")
		} else {
			rows = append(rows, "u["+strings.Join(strings.Fields(u.Text), " ")+"]")
		}
	}
	return strings.Join(rows, "; ")
}

func sayCommand(c shell.Command) string {
	words := make([]string, len(c.Words))
	for i, w := range c.Words {
		words[i] = sayWord(w)
	}
	row := strings.Join(words, " ")
	for _, w := range c.Writes {
		row += " >" + sayWord(w)
	}
	for _, w := range c.Reads {
		row += " <" + sayWord(w)
	}
	if !c.Folder.Known {
		row += " @?"
	} else if c.Folder.Text != "" {
		row += " @" + c.Folder.Text
	}
	return row
}

func sayWord(w shell.Word) string {
	if strings.ContainsAny(w.Text, " \n") || w.Text == "" && w.Known {
		w.Text = fmt.Sprintf("%q", w.Text)
	}
	switch {
	case w.Pattern:
		w.Text += "~"
	case !w.Known:
		w.Text += "?"
	}
	return w.Text
}

func TestRead(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		// words
		{`g\it 'pu'"sh" $'\x6f'`, "W:git push o"},
		{`echo "a\$b \c" 'x\y' \*`, `W:echo "a$b \\c" x\y *`},
		{`git {push,-q}{,x}`, "W:git push pushx -q -qx"},
		{`ls *.go "*.go" a[bc] ?`, "ls *.go~ *.go a[bc]~ ?~"},
		{`echo ~/a ~ann/b $HOME/c "$HOME" a$HOME`, "echo ~/a ~ann/b? ~/c ~ a?"},
		{"git pu\\\nsh", "W:git push"},
		{`a$x; "a$x"b c$y`, "a?; ab? c?; U; U"},
		{"sudo -u ann -E A=b git push", "W:sudo -u ann -E A=b git push; git push"},
	} {
		if got := say(shell.Read(c.line)); got != c.want {
			t.Errorf("%s\n got %s\nwant %s", c.line, got, c.want)
		}
	}
}
