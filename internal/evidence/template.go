package evidence

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// template is a text with placeholders for arguments. It always expands to a single text that is not split again.
type template []piece

// piece is a literal text, or the name of an argument.
type piece struct{ text, argument string }

// parseTemplate parses {{name}} as a placeholder, and {{{{ as two literal braces.
func parseTemplate(s string) (template, error) {
	var t template
	literal := ""
	for {
		at := strings.Index(s, "{{")
		if at < 0 {
			break
		}
		literal += s[:at]
		if strings.HasPrefix(s[at:], "{{{{") {
			literal += "{{"
			s = s[at+4:]
			continue
		}
		end := strings.Index(s[at:], "}}")
		if end < 0 {
			return nil, errors.New(`"{{" has no "}}"; write {{name}} for an argument, {{{{ for two braces`)
		}
		name := s[at+2 : at+end]
		if !isArgumentName(name) {
			return nil, errors.New("{{ }} must hold the name of an argument (letters, digits and _, no spaces); write {{{{ for two braces")
		}
		if literal != "" {
			t = append(t, piece{text: literal})
			literal = ""
		}
		t = append(t, piece{argument: name})
		s = s[at+end+2:]
	}
	if literal += s; literal != "" {
		t = append(t, piece{text: literal})
	}
	return t, nil
}

// expand inserts values into the template, passing each through escape if that is not nil. A missing value is empty.
func (t template) expand(values map[string]string, escape func(string) string) string {
	var b strings.Builder
	for _, p := range t {
		text := p.text
		if p.argument != "" {
			if text = values[p.argument]; escape != nil {
				text = escape(text)
			}
		}
		b.WriteString(text)
	}
	return b.String()
}

func (t template) isFixed() bool {
	return !slices.ContainsFunc(t, func(p piece) bool { return p.argument != "" })
}

func (t template) arguments() []string {
	var out []string
	for _, p := range t {
		if p.argument != "" {
			out = append(out, p.argument)
		}
	}
	return out
}

// expandArgv inserts values into the arguments of a command. It returns a problem if a value would become an option:
// a command that receives "--output=x" as a name would act on it.
func expandArgv(argv []template, values map[string]string) (out []string, problem string) {
	out = make([]string, len(argv))
	for i, t := range argv {
		out[i] = t.expand(values, nil)
		if t.isFixed() || !optionLike(out[i]) || optionLike(t[0].text) {
			continue
		}
		return nil, fmt.Sprintf("the argument %q would become an option of the command", t.arguments()[0])
	}
	return out, ""
}
