package evidence

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// template is a text with places for arguments. It is one text in the end, whatever
// is put into it: nothing splits it again.
type template []piece

// piece is a text, or the name of an argument.
type piece struct{ text, argument string }

// parseTemplate reads {{name}} as a place for an argument and {{{{ as the two braces
// themselves.
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

// expand puts values into the template, each passed through escape first, where
// there is one. An argument without a value is an empty text.
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

// expandArgv puts values into the arguments of a command. It says what is wrong when
// a value would become an option: a command that was given "--output=x" for a name
// does what it says.
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
