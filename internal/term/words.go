package term

import (
	"errors"
	"strings"
)

// ShellWord quotes a word for a shell if necessary.
func ShellWord(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("/._-+:@%,=", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// ListLines returns the lines of an error for a person, without its hint.
func ListLines(err error) []string {
	f, ok := errors.AsType[*ExitError](err)
	switch {
	case err == nil:
		return []string{}
	case ok && len(f.Lines) > 0:
		return f.Lines
	default:
		return strings.Split(err.Error(), "\n")
	}
}
