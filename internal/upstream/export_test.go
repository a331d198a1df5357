package upstream

import (
	"bufio"
	"errors"
	"io"
)

var (
	NewItem    = newItem
	PublicName = publicName
	IsPlainURI = isPlainURI
)

// ParseFrame reads a message; ok is false of one that is refused.
func ParseFrame(raw []byte) (id string, result, failure []byte, ok bool) {
	f, err := parseFrame(raw)
	return f.id, f.result, f.failure, err == nil
}

// ReadLines reads lines, and the edges of those that are too long.
func ReadLines(r io.Reader) (lines, tooLong []string) {
	l := lineReader{bufio.NewReaderSize(r, 16)}
	for {
		line, err := l.next(nil)
		switch {
		case errors.Is(err, errTooLong):
			tooLong = append(tooLong, guessID(line))
		case err != nil:
			return lines, tooLong
		default:
			lines = append(lines, string(line))
		}
	}
}

// RewriteMembers replaces members of an object.
var RewriteMembers = rewriteMembers

// MaxFrame is how long a message may be.
const MaxFrame = maxFrame
