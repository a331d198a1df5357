package setup

import (
	"encoding/json"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/internal/module"
	"github.com/gavel-mcp/gavel/internal/term"
)

// TimeFilter selects a period.
type TimeFilter struct {
	Since string `name:"since" placeholder:"WHEN" help:"Only from this time on: an age (24h, 7d), a date (2026-03-01) or a time (RFC 3339)."`
	Until string `name:"until" placeholder:"WHEN" help:"Only before this time, in the same form as --since."`
}

// Times parses the period relative to now.
func (f TimeFilter) Times(now time.Time) (since, until time.Time, err error) {
	if since, err = parseMoment("--since", f.Since, now); err != nil {
		return since, until, err
	}
	until, err = parseMoment("--until", f.Until, now)
	return since, until, err
}

// parseMoment parses a time: a duration or days before now, a date (midnight UTC), or RFC 3339.
func parseMoment(flag, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if n, err := strconv.ParseUint(days, 10, 16); err == nil {
			return now.AddDate(0, 0, -int(n)), nil
		}
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if t, err := time.Parse(layout, text); err == nil {
			return t, nil
		}
	}
	return time.Time{}, term.UsageErrorf("write it as 24h, 7d, 2026-03-01 or 2026-03-01T09:30:00Z", "%s %q is not a time", flag, text)
}

// ReadSource reads a source file, or stdin for "-". It reads at most 1 MiB, the limit of the sandbox.
func ReadSource(con *Console, name string) ([]byte, error) {
	source, err := readInput(con.In, name, 1<<20)
	if err != nil {
		return nil, term.UsageErrorf("", "cannot read %s: %w", name, err)
	}
	return source, nil
}

// readInput reads at most limit bytes of a file, or of stdin for "-".
func readInput(stdin io.Reader, name string, limit int64) ([]byte, error) {
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer func() { _ = f.Close() }() // read only
		stdin = f
	}
	return io.ReadAll(io.LimitReader(stdin, limit))
}

// ReadJSONArgument reads the JSON object of a flag, from a file after "@".
func ReadJSONArgument(flag, value string) (json.RawMessage, error) {
	raw := []byte(value)
	if len(value) > 0 && value[0] == '@' {
		var err error
		if raw, err = os.ReadFile(value[1:]); err != nil {
			return nil, term.UsageErrorf("", "%s: %w", flag, err)
		}
	}
	doc, err := workflow.CheckDocument(raw)
	if err != nil {
		return nil, term.UsageErrorf("give a JSON object, or @FILE with one in it", "%s: %w", flag, err)
	}
	return doc, nil
}

// FindFiles returns the files that paths name. Folders are searched recursively for files with these endings. noun
// describes the files in errors.
func FindFiles(paths []string, noun string, endings ...string) ([]string, error) {
	return module.CollectFiles(paths, func(dir string) (files []string, err error) {
		err = filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
			if err == nil && entry.Type().IsRegular() && slices.ContainsFunc(endings, func(end string) bool { return strings.HasSuffix(name, end) }) {
				files = append(files, filepath.Clean(name))
			}
			return err
		})
		if err != nil {
			return nil, term.UnknownErrorf("", "cannot look through %s: %w", dir, err)
		}
		if len(files) == 0 {
			return nil, term.UsageErrorf("their names end in "+OrList(endings), "%s holds no %s", dir, noun)
		}
		return files, nil
	})
}

// OrList formats words as "a, b or c".
func OrList(words []string) string {
	last := len(words) - 1
	if last == 0 {
		return words[0]
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}
