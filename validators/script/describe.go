package script

import (
	"fmt"
	"time"
)

// describeLimit says which limit a script hit and how to write it instead.
func (p *Pool) describeLimit(code Code, kind Kind, killed bool) string {
	if kind == Schema {
		return p.describeSchemaLimit(code)
	}
	switch code {
	case Timeout:
		limit, how := p.cfg.Soft, "and was interrupted"
		if killed {
			limit, how = p.cfg.Hard, "inside one built-in call and its process was killed"
		}
		return fmt.Sprintf("it ran longer than %v %s; avoid unbounded loops, backtracking patterns and built-ins on huge arrays or strings, and look only at the fields you need", limit, how)
	case Memory:
		return fmt.Sprintf("it used more memory than the %d MiB allowed; do not build large strings or arrays, and do not recurse without bound", p.cfg.ScriptMemory>>20)
	case Internal:
		return "it made the interpreter itself fail; use plain loops and comparisons, and do not change built-ins or arrays while they are being iterated or sorted"
	}
	return ""
}

func (p *Pool) describeSchemaLimit(code Code) string {
	limit := "made the validator itself fail"
	switch code {
	case Timeout:
		limit = fmt.Sprintf("took longer than the %v allowed", p.cfg.Hard)
	case Memory:
		limit = fmt.Sprintf("took more memory than the %d MiB allowed", p.cfg.WorkerMemory>>20)
	}
	return "applying it " + limit + "; do not nest anyOf, oneOf, allOf, not or if within one another, and avoid recursive $ref and uniqueItems on long lists"
}

func (p *Pool) describeTotal() string {
	return fmt.Sprintf("it was not run: earlier scripts used up the %v that the scripts of one transition share", p.cfg.Total)
}

func describeQuarantine(until time.Time, wholeOwner bool) string {
	what := "this script"
	if wholeOwner {
		what = "this author's scripts"
	}
	return fmt.Sprintf("%s killed workers repeatedly and will not run before %s; rewrite it, or ask an operator to lift the quarantine", what, until.UTC().Format(time.RFC3339))
}
