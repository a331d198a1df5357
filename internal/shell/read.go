package shell

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// Read says what a text would run.
func Read(text string, _ Options) Script {
	var s Script
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(text), "")
	if err != nil {
		s.Unknown = append(s.Unknown, "the text is no shell that can be read: "+err.Error())
		return s
	}
	syntax.Walk(file, func(n syntax.Node) bool {
		stmt, ok := n.(*syntax.Stmt)
		if !ok {
			return true
		}
		call, ok := stmt.Cmd.(*syntax.CallExpr)
		if !ok || len(call.Args) == 0 {
			return true
		}
		c := Command{Folder: Word{Known: true}}
		for _, arg := range call.Args {
			c.Words = append(c.Words, readWord(arg))
		}
		for _, r := range stmt.Redirs {
			switch r.Op {
			case syntax.RdrOut, syntax.AppOut, syntax.RdrClob, syntax.RdrAll, syntax.AppAll, syntax.RdrInOut:
				c.Writes = append(c.Writes, readWord(r.Word))
			}
		}
		if !c.Words[0].Known {
			s.Unknown = append(s.Unknown, "a program is not known before it runs")
		}
		s.Commands = append(s.Commands, c)
		return true
	})
	return s
}

func readWord(w *syntax.Word) Word {
	out := Word{Known: true}
	for _, part := range w.Parts {
		switch p := part.(type) {
		case *syntax.Lit:
			out.Text += strings.ReplaceAll(p.Value, `\`, "")
		case *syntax.SglQuoted:
			out.Text += p.Value
		case *syntax.DblQuoted:
			inner := readWord(&syntax.Word{Parts: p.Parts})
			out.Text += inner.Text
			out.Known = out.Known && inner.Known
		default:
			out.Known = false
		}
	}
	return out
}
