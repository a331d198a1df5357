package main

import (
	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/judge"
)

// The names of fields that many commands have as arguments, or not at all.
var (
	byID       = []string{"id"}
	byReviewID = []string{"reviewId"}
	ofInstance = map[string]string{"id": "instance"}
)

// closed are the codes that keep a review from being decided.
var closed = []engine.Code{engine.CodeReviewClosed, engine.CodeConflict}

// operationCommands are the commands that perform one operation, by their words.
var operationCommands = map[string]*operationCommand{
	"start": {
		op: operation.Start.Operation, positional: []string{"type"}, flags: map[string]string{"type": "workflow"}, text: printStart,
		about: `On the store's machine you are its operator (local:cli). The definitions are those of the
store, and of the configuration file where it names some.

Examples:

    gavel start document-review --config gavel.yaml
    gavel start document-review --context '{"documentId": "DOC-7"}'
    gavel start release --server https://gavel.example --token-file ~/.gavel-token

Exit codes: 0 started, 1 refused, 2 wrong usage, 3 could not find out.`,
	},
	"advance": {
		op: operation.Advance.Operation, positional: []string{"id", "action"}, text: printAdvance,
		bad: []engine.Code{engine.CodeConflict, engine.CodeInstanceEnded, engine.CodeValuesDestroyed},
		about: `The move is judged as a server would judge it: give the --config that the server has, and the
variables of its model. What only a person can decide waits: look at it, and decide it under
your own name, with gavel review. That is refused where notBy asks for another person.

Examples:

    gavel advance wf-019bdd0d-1a27-7a14-958a-eb0007d1dfe2 submit --data '{"documentId": "DOC-7", "reviewer": "ada"}'
    gavel advance wf-019bdd0d-1a27-7a14-958a-eb0007d1dfe2 approve --data @review.json --config gavel.yaml

Exit codes: 0 the move was made, 1 it was refused, or waits for a person, 2 wrong usage,
3 could not find out.`,
	},
	"status": {
		op: operation.Status.Operation, positional: byID, without: []string{"revision", "at"}, text: printStatus,
		about: `gavel instances show tells more, also of the past.

Examples:

    gavel status wf-019bdd0d-1a27-7a14-958a-eb0007d1dfe2
    gavel status wf-019bdd0d-1a27-7a14-958a-eb0007d1dfe2 --json | jq -r '.nextActions[]'`,
	},
	"instances list": {
		op: operation.Instances.Operation, rows: typed(instanceRows), none: say("no instances"),
		about: `Examples:

    gavel instances list
    gavel instances list --workflow document-review --status running
    gavel instances list --server https://gavel.example --token-file ~/.gavel-token
    gavel instances list --json | jq -r '.instances[].id'`,
	},
	"instances show": {
		op: operation.Status.Operation, positional: byID,
		about: `With --revision or --at it shows the past: state, context and what was known then, under the
version of the workflow that the instance had then.

Examples:

    gavel instances show wf-019bc6b0-f7db-79d3-922c-004710d1043a
    gavel instances show wf-019bc6b0-f7db-79d3-922c-004710d1043a --revision 3
    gavel instances show wf-019bc6b0-f7db-79d3-922c-004710d1043a --at 2026-01-15T09:30:00Z
    gavel instances show wf-019bc6b0-f7db-79d3-922c-004710d1043a --json | jq .context`,
	},
	"instances history": {
		op: operation.History.Operation, positional: byID, none: say("no decisions"), spare: []string{"ASSURANCE", "CONFIDENCE", "FROM"},
		rows: typed(func(r engine.HistoryResult) [][]string { return decisionRows(r.Decisions) }),
		about: `Examples:

    gavel instances history wf-019bcc48-006e-771f-94e2-7d7e1167078d
    gavel instances history wf-019bcc48-006e-771f-94e2-7d7e1167078d --json | jq '.decisions[].opinions'`,
	},
	"instances timeline": {
		op: operation.Timeline.Operation, positional: byID, flags: map[string]string{"after": "after-seq"}, rows: typed(timelineRows), none: say("no events"),
		about: `Every event in its order: judgements, and checkpoints, rollbacks, undone moves, reviews
and migrations too. A revision is a change of state or context; instances show --revision
tells what it was.

Examples:

    gavel instances timeline wf-019bd1df-0901-74e1-9a10-6d37d9570722
    gavel instances timeline wf-019bd1df-0901-74e1-9a10-6d37d9570722 --at 2026-02-03T17:45:00Z`,
	},
	"instances undo": {
		op: operation.Undo.Operation, positional: byID, writes: true, bad: unturnable,
		about: `State and context are again what they were before the move; called again, the move before
that is taken back. What a move did outside is not undone. The history is kept: undoing is
an event like any other. Reviews that wait become stale.

Examples:

    gavel instances undo wf-019bd776-1194-7ef4-9469-880929f82c0f

Exit codes: 0 undone, 1 there is nothing to undo, 2 wrong usage, 3 could not find out.`,
	},
	"instances redo": {
		op: operation.Redo.Operation, positional: byID, writes: true, bad: unturnable,
		about: `The move that was undone last is made again, exactly as it was; nothing is judged again.
After another move, a rollback or a migration there is nothing to redo.

Examples:

    gavel instances redo wf-019bdd0d-1a27-7a14-958a-eb0007d1dfe2

Exit codes: 0 made again, 1 there is nothing to redo, 2 wrong usage, 3 could not find out.`,
	},
	"instances release": {
		op: operation.Release.Operation, positional: byID, writes: true, bad: []engine.Code{engine.CodeCallOpen, engine.CodeConflict},
		about: `A gate with a subject calls its tool for one instance at a time: until that ends with
success, no other one can be started for the same, even after a cancel. Release it after
you have looked at what the instance did.

Examples:

    gavel instances release wf-019bd776-1194-7ef4-9469-880929f82c0f --reason "nothing was deployed"`,
	},
	"history search": {
		op: operation.Decisions.Operation, flags: ofInstance, none: say("no such decisions"),
		spare: []string{"ASSURANCE", "CONFIDENCE", "FROM", "DECIDED BY"},
		rows:  typed(func(r engine.DecisionsResult) [][]string { return foundRows(r.Decisions) }),
		about: `Words are found whatever their case, accents and order. The first search after much was
written takes longer: it brings the index up to date.

Examples:

    gavel history search --outcome reject --since 24h
    gavel history search --text 'missing comments' --workflow document-review
    gavel history search --decided-by model --max-confidence 0.7 --json | jq '.decisions[].reasoning'`,
	},
	"history export": {
		op: operation.Decisions.Operation, flags: ofInstance, without: []string{"cursor", "limit"},
		about: `One decision per line as JSON, newest first, with the same fields in the same order each
time. Sensitive values are masked; there is no way to have them plain. Of evidence
there is that it was fetched, when, and its digest.

Examples:

    gavel history export --out decisions.jsonl
    gavel history export --workflow document-review --since 2026-01-01 | jq -c '{time, outcome, code}'`,
	},
	"history stats": {
		op: operation.Statistics.Operation, none: say("no such decisions"), rows: typed(statsRows),
		spare: []string{"P95", "TOOK", "CONFIDENCE (QUARTILES)", "ASKED ONLY", "DEGRADED", "DECIDED BY"},
		about: `Questions (judge.validate) are counted apart, and in no other figure. TOOK is how
long half of the decisions took at most and P95 95 of 100, within 2 percent. --json says in
notShown how many decisions are about transitions beyond the first 1000.

Examples:

    gavel history stats
    gavel history stats --workflow document-review --since 7d
    gavel history stats --json | jq '.transitions[] | select(.rejections > .approvals)'`,
	},
	"judge clear": {
		op: operation.ClearRefusals.Operation, flags: ofInstance, writes: true,
		about: `After the model has refused the same thing three times, a person has to decide
(loop_guard). This forgets the refusals, so that the model is asked again, and closes
reviews that wait only because of them: the agent has to ask again. The decisions
themselves stay on record. Operators do the same with the tool
workflow.judge.clear or POST /v1/refusals/clear.

Examples:

    gavel judge clear --instance wf-0198...
    gavel judge clear --principal local:agent --workflow document-review
    gavel judge clear --workflow document-review --action approve --json

Exit codes: 0 done (also when there was nothing to forget), 2 wrong usage, 3 could not.`,
	},
	"review list": {
		op: operation.Reviews.Operation, flags: ofInstance, usual: map[string]string{"status": string(record.ReviewOpen)},
		rows: typed(func(r engine.ReviewsResult) [][]string { return reviewRows(r.Reviews) }),
		none: sayNoReviews, json: typed(newReviewList),
		about: `Examples:

    gavel review list
    gavel review list --status all --instance wf-019bedd2-33e0-735d-935b-1a4cd46500a0
    gavel review list --json | jq -r '.reviews[].id'`,
	},
	"review approve": decideReview(judge.Approve, `The rules of the workflow are asked again first: fields, schemas, scripts and evidence
have to let exactly that move pass as the instance is now. A model is not asked again.
Where the workflow asks for evidence, give the --config that the server has. Evidence
that has changed since the review was opened makes it void.

A review of kind step or input needs --output: the run goes on with it.

Examples:

    gavel review approve rev-019bf369-3c73-7383-95b4-99444377c42a --reason 'Checked with the customer.'
    gavel review approve rev-019bf369-3c73-7383-95b4-99444377c42a --reason 'CI is green.' --config gavel.yaml
    gavel review approve rev-019bf369-3c73-7383-95b4-99444377c42a --reason 'It is on the statement.' --output '{"receipt": 7}'

Exit codes: 0 the move was made, 1 it could not be made, or the review is closed,
2 wrong usage, 3 could not find out.`),
	"review reject": decideReview(judge.Reject, `The state does not change. The agent that asked for the move reads the reason.

Examples:

    gavel review reject rev-019bf900-4506-7b52-99fb-7e1e2e698315 --reason 'The invoice is missing.'

Exit codes: 0 rejected, 1 the review is closed, 2 wrong usage, 3 could not find out.`, "output"),
	"review reopen": decideReview(engine.Reopen, `Exactly the same request is not put to a person again after a rejection, until its data,
the context or the evidence has changed. Reopening lifts that: nothing moves, and the
agent may ask again.

Examples:

    gavel review reopen rev-019bf900-4506-7b52-99fb-7e1e2e698315 --reason 'The invoice came by mail.'

Exit codes: 0 reopened, 1 the review was not rejected, 2 wrong usage, 3 could not find out.`, "output"),
	"review give-up": decideReview(engine.GiveUp, `For a review of kind step, where nobody will find out whether the step happened, or of kind
input, where nobody has the answer. The step fails, and with it the run, unless the chain
handles that.

Examples:

    gavel review give-up rev-019bf900-4506-7b52-99fb-7e1e2e698315 --reason 'The bank does not answer.'

Exit codes: 0 given up, 1 the review is closed, 2 wrong usage, 3 could not find out.`, "output"),
}

func say(none string) func(any) string { return func(any) string { return none } }

func sayNoReviews(req any) string {
	if r, _ := req.(*engine.ReviewsRequest); r.Status == string(record.ReviewOpen) {
		return "nothing waits for a person"
	}
	return "no such reviews"
}

// unturnable are the codes that keep undo and redo from doing something.
var unturnable = []engine.Code{engine.CodeNothingToUndo, engine.CodeInstanceEnded, engine.CodeConflict, engine.CodeValuesDestroyed}

// decideReview is a command that decides a review.
func decideReview(decision judge.Outcome, about string, without ...string) *operationCommand {
	return &operationCommand{
		op: operation.Resolve.Operation, about: about, positional: byReviewID, flags: map[string]string{"reviewId": "id"}, without: without,
		fixed: map[string]string{"decision": string(decision)}, bad: closed,
		text: func(con *console, _ placeFlags, res any) {
			r, _ := res.(engine.ResolveResult)
			con.out.Printf("%s is in state %s\n%s\n", r.ID, r.State, r.Message)
		},
		refused: typed(func(r engine.ResolveResult) bool {
			carriedOut := r.Review.Status == record.ReviewResolved && r.Review.Decision == decision
			return !carriedOut && (decision != engine.Reopen || r.Review.Status != record.ReviewReopened)
		}),
	}
}
