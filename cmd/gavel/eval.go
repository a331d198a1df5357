package main

type evalCmd struct {
	Lint      evalLintCmd      `cmd:"" help:"Check golden cases before anything is measured on them."`
	Run       evalRunCmd       `cmd:"" help:"Measure a judge."`
	Compare   evalCompareCmd   `cmd:"" help:"Compare two runs."`
	Tune      evalTuneCmd      `cmd:"" help:"Find the minConfidence that keeps a risk."`
	Calibrate evalCalibrateCmd `cmd:"" help:"Fit what the stated confidence of a model is worth."`
	Report    evalReportCmd    `cmd:"" help:"Render the results of a run again."`
	Import    evalImportCmd    `cmd:"" help:"Turn recorded writes of an agent into golden cases."`
}

// Help says what an evaluation is.
func (evalCmd) Help() string {
	return `A judge is measured on golden cases: moves of which it is known whether they are right.
They stand in JSON Lines files, one case a line; docs/evaluation.md has every key.`
}
