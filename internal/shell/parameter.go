package shell

import (
	"regexp"
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/syntax"
)

// parameters are $1 and those after it; one that stands for any number where they are not known.
func (r *reader) parameters() []Word {
	v := r.names[key{kindParameters, ""}]
	if v == nil {
		return []Word{{split: true}}
	}
	if len(v.list) == 0 {
		return nil
	}
	return v.list[1:]
}

// readParameter is what a parameter expansion becomes; each reports that it stands for several words
// even in quotes.
func (r *reader) readParameter(e *syntax.ParamExp) (list []Word, known, each bool) {
	name := ""
	if e.Param != nil {
		name = e.Param.Value
	}
	simple := e.Flags == nil && !e.Excl && !e.Length && !e.Width && !e.IsSet && e.NestedParam == nil &&
		e.Slice == nil && e.Repl == nil && e.Names == 0 && e.Exp == nil && len(e.Modifiers) == 0
	list, known, each = r.lookUp(e, name)
	if simple {
		return list, known, each
	}
	unread := []Word{{}}
	switch {
	case e.Exp != nil && e.Exp.Op == syntax.OtherParamOps:
		r.unknown("${%s@%s} may run what the variable holds", name, e.Exp.Word.Lit())
		return unread, false, each
	case e.Excl && e.Names == 0 && e.Exp == nil && e.Slice == nil && e.Repl == nil && known && len(list) == 1:
		v := r.names[key{kindVariable, list[0].Text}]
		if v != nil && !v.array {
			return []Word{{Text: v.text, Known: true}}, true, false
		}
		r.checkSubscript(list[0].Text)
		return unread, false, false
	}
	before := r.mark()
	r.readOperands(e)
	if e.Exp != nil && (e.Exp.Op == syntax.AssignUnset || e.Exp.Op == syntax.AssignUnsetOrNull) {
		r.set(key{kindVariable, name}, nil)
		return unread, false, each
	}
	if e.Exp != nil && list[0].Text == "" && e.Exp.Op <= syntax.AssignUnsetOrNull { // empty is not unset
		return unread, false, each
	}
	if !known || len(list) != 1 || each || e.Length || e.Excl || len(r.journal) != before || !isPlain(e) {
		return unread, false, each
	}
	// What is left is pure: a known value, and operators whose operands are literal.
	env := expand.FuncEnviron(func(n string) string {
		if n == name {
			return list[0].Text
		}
		return ""
	})
	if len(list[0].Text) > 1024 || !r.step(64) {
		return unread, false, each
	}
	text, err := expand.Literal(&expand.Config{Env: env}, &syntax.Word{Parts: []syntax.WordPart{e}})
	if err != nil || len(text) > maxValue {
		return unread, false, each
	}
	return []Word{{Text: text, Known: true}}, true, false
}

// isPlain reports whether the operands of an expansion are literal.
func isPlain(e *syntax.ParamExp) bool {
	plain := e.Index == nil && e.Slice == nil && e.NestedParam == nil && e.Flags == nil && len(e.Modifiers) == 0 && e.Names == 0
	for _, w := range listOperands(e) {
		size := 0
		for _, p := range w.Parts {
			lit, ok := p.(*syntax.Lit)
			plain = plain && ok && plainOperand.MatchString(lit.Value)
			if plain {
				size += len(lit.Value)
			}
		}
		plain = plain && size <= 64
	}
	return plain
}

// plainOperand matches operands that no shell takes otherwise than as they stand.
var plainOperand = regexp.MustCompile(`^[A-Za-z0-9_./,: -]*$`)

func listOperands(e *syntax.ParamExp) []*syntax.Word {
	var words []*syntax.Word
	if e.Exp != nil {
		words = append(words, e.Exp.Word)
	}
	if e.Repl != nil {
		words = append(words, e.Repl.Orig, e.Repl.With)
	}
	var given []*syntax.Word
	for _, w := range words {
		if w != nil {
			given = append(given, w)
		}
	}
	return given
}

// readOperands reads the substitutions in an expansion.
func (r *reader) readOperands(e *syntax.ParamExp) {
	for _, w := range listOperands(e) {
		r.readSubscripts(w)
	}
	if e.Slice != nil {
		if e.Slice.Offset != nil {
			r.readSubscripts(e.Slice.Offset)
		}
		if e.Slice.Length != nil {
			r.readSubscripts(e.Slice.Length)
		}
	}
	if e.NestedParam != nil {
		r.readSubscripts(e.NestedParam)
	}
}

// lookUp is what a parameter holds, without operators.
func (r *reader) lookUp(e *syntax.ParamExp, name string) (list []Word, known, each bool) {
	index := ""
	if e.Index != nil {
		if w, ok := e.Index.(*syntax.Word); ok {
			index = w.Lit()
		}
		r.readSubscripts(e.Index)
	}
	switch {
	case name == "@" || name == "*":
		list = r.parameters()
		return list, allKnown(list) && (name == "@" || !r.assigned["IFS"]), name == "@"
	case name != "" && strings.Trim(name, "0123456789") == "":
		v := r.names[key{kindParameters, ""}]
		n, err := strconv.Atoi(name)
		if v == nil || err != nil {
			return []Word{{}}, false, false
		}
		if n >= len(v.list) {
			return []Word{{Known: true}}, true, false
		}
		return v.list[n : n+1], v.list[n].Known, false
	}
	v := r.names[key{kindVariable, name}]
	switch {
	case v == nil:
		if text, ok := r.ambient(name); ok && e.Index == nil {
			return []Word{{Text: text, Known: true}}, true, false
		}
		return []Word{{}}, false, index == "@"
	case v.array && (index == "@" || index == "*"):
		return v.list, allKnown(v.list) && (index == "@" || !r.assigned["IFS"]), index == "@"
	case v.array:
		n, err := strconv.Atoi(index)
		if index == "" && e.Index == nil {
			n, err = 0, nil
		}
		if err != nil || n < 0 || n >= len(v.list) {
			return []Word{{}}, false, false
		}
		return v.list[n : n+1], v.list[n].Known, false
	case e.Index != nil && index != "0" && index != "@" && index != "*":
		return []Word{{}}, false, false
	}
	return []Word{{Text: v.text, Known: true}}, true, false
}

// ambient is what a variable holds that the text did not set.
func (r *reader) ambient(name string) (string, bool) {
	if r.assigned[name] {
		return "", false
	}
	switch name {
	case "HOME":
		return r.options.Home, r.options.Home != ""
	case "PWD":
		at := r.folders()
		return at[0].Text, len(at) == 1 && at[0].Known && at[0].Text != ""
	case "BASH", "SHELL":
		return "sh", true
	}
	return "", false
}

func allKnown(words []Word) bool {
	for _, w := range words {
		if !w.Known {
			return false
		}
	}
	return true
}

// subscript is what arithmetic and some builtins evaluate: an index in which a command stands.
var subscript = regexp.MustCompile("[A-Za-z0-9_]\\[[^]]*(\\$\\(|`)")

func (r *reader) checkSubscript(text string) {
	if strings.Contains(text, "[") && subscript.MatchString(text) {
		r.unknown("an index of an array that runs a command: %q", text)
	}
}
