package main

type evalCmd struct {
	Lint evalLintCmd `cmd:"" help:"Check golden cases before anything is measured on them."`
}

// Help says what an evaluation is.
func (evalCmd) Help() string {
	return `A judge is measured on golden cases: moves of which it is known whether they are right.
They stand in JSON Lines files, one case a line; docs/evaluation.md has every key.`
}
