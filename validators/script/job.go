package script

import (
	"fmt"
	"slices"
	"time"
)

// job is the progress of one Batch: the scripts that still need an outcome, and the outcomes of the others. No
// outcome is lost if a worker dies: the script that was running is charged, and the remaining scripts go to
// another worker.
type job struct {
	pool     *Pool
	caller   string
	offender offender // is charged for lost workers
	op       Op
	scripts  []Script      // the schema, routes, then validators
	schema   int           // index of the first route: 1 if there is a schema, else 0
	routes   int           // index after the last route
	states   []scriptState // by script

	route     int // index of the route that was true, or -1
	fault     int // index of the route that failed, or -1
	began     time.Time
	since     time.Time     // start of the time that counts as spent
	spent     time.Duration // time in workers, without the wait for them
	request   Request
	asked     []int // indices of the scripts in request, in its order
	reached   int   // how many of asked have an outcome or were skipped
	lost      int   // workers that died without a script to charge
	crashedAt int   // index+1 of the script that was running at the last crash
	badInput  string
}

// scriptState is the outcome of a script. Code is "" if there is none yet.
type scriptState struct {
	Result
	line, column int         // of a fault found by Check
	objections   []Violation // violations of a schema
	retried      bool        // it has been retried after a timeout
}

// newJob returns the job of a batch. It records the outcomes of scripts that need no worker: rejected and
// quarantined ones. The error is a *QuarantineError if the caller is quarantined.
func (p *Pool) newJob(op Op, b Batch) (*job, error) {
	j := &job{pool: p, caller: b.Caller, offender: findOffender(b.Caller, b.Owner), op: op, route: -1, fault: -1, began: time.Now()}
	if b.Schema != nil {
		j.scripts, j.schema = []Script{*b.Schema}, 1
	}
	j.scripts = slices.Concat(j.scripts, b.Routes, b.Validators)
	j.routes = j.schema + len(b.Routes)
	j.states = make([]scriptState, len(j.scripts))
	for i, s := range j.scripts {
		if wrong := checkSource(s, p.cfg.MaxSource, p.cfg.MaxSchema); wrong != "" {
			j.recordResult(i, Result{Code: BadSource, Detail: wrong})
		} else if until, all := p.quarantine.quarantinedUntil(j.offender, s); !until.IsZero() {
			p.stats.add(&p.stats.Quarantined, 1)
			if j.offender.appliesToCaller() {
				return nil, &QuarantineError{RetryAfter: until.Sub(p.cfg.Now())}
			}
			j.recordResult(i, Result{Code: Quarantined, Detail: describeQuarantine(until, all)})
		}
	}
	return j, nil
}

func (j *job) recordResult(i int, r Result) {
	r.Name = j.scripts[i].Name
	j.states[i].Result = r
}

// prepareRequest prepares the request for all scripts that one trip can cover. It returns false if none are
// left.
func (j *job) prepareRequest() bool {
	j.asked, j.reached = j.asked[:0], 0
	j.request = Request{
		Op: j.op, Sources: j.request.Sources[:0],
		Now: j.request.Now, Seed: j.request.Seed, Console: j.request.Console,
		Data: j.request.Data, Context: j.request.Context, Evidence: j.request.Evidence, Call: j.request.Call, Document: j.request.Document,
	}
	if j.schema > 0 {
		if j.addScript(0); j.states[0].Code != "" && !j.readSchema().Passes() {
			return false
		}
	}
	if j.routes > j.schema && j.route < 0 && !j.addRoutes() {
		return len(j.asked) > 0 // the schema may still be undecided
	}
	for i := j.routes; i < len(j.scripts); i++ {
		j.addScript(i)
	}
	return len(j.asked) > 0
}

// addRoutes adds the routes that may be true, up to the first one that is known to be faulty. It returns false
// if there is no route to ask about.
func (j *job) addRoutes() bool {
	before := len(j.asked)
	for i := j.schema; i < j.routes && j.fault < 0; i++ {
		switch {
		case j.states[i].Code == "":
			j.addScript(i)
		case j.states[i].Code != OK && len(j.asked) == before:
			j.fault = i
		case j.states[i].Code != OK:
			j.request.Routes = len(j.asked)
			return true
		}
	}
	j.request.Routes = len(j.asked)
	return j.request.Routes > before
}

// maxPerTrip is how many scripts, apart from the schema, one trip to a worker may cover: as many as fit
// into Total if each uses up its time. So no caller keeps a worker for long.
func (p *Pool) maxPerTrip() int { return max(1, int(p.cfg.Total/p.cfg.Soft)) }

func (j *job) addScript(i int) {
	if j.states[i].Code != "" || len(j.asked) >= j.schema+j.pool.maxPerTrip() {
		return
	}
	j.asked = append(j.asked, i)
	j.request.Sources = append(j.request.Sources, Source{Kind: j.scripts[i].Kind, Text: j.scripts[i].Source})
}

func (j *job) acceptOutcome(o *Outcome) {
	if o.Code == BadInput {
		j.badInput = o.Detail
		return
	}
	i := j.asked[o.Index]
	j.reached = o.Index + 1
	kind := j.scripts[i].Kind
	switch o.Code {
	case Timeout:
		j.pool.stats.add(&j.pool.stats.Timeouts, 1)
		if j.allowRetry(i, o.Late) {
			return
		}
		o.Detail = j.pool.describeLimit(Timeout, kind, false)
	case Memory:
		j.pool.stats.add(&j.pool.stats.Memory, 1)
		o.Detail = j.pool.describeLimit(Memory, kind, false)
	case Internal:
		j.pool.recordStrike(j.offender, j.scripts[i], "interpreter failed")
		o.Detail = j.pool.describeLimit(Internal, kind, false)
	case OK:
		j.pool.proven.Add(j.pool.quarantine.hashScript(j.scripts[i]), struct{}{})
	}
	j.recordResult(i, o.Result)
	j.states[i].objections, j.states[i].line, j.states[i].column = o.Objections, o.Line, o.Column
	switch {
	case i < j.schema: // the schema's time, and workers lost so far, do not count against the scripts
		j.since, j.spent, j.lost = time.Now(), 0, 0
	case i >= j.routes:
	case o.Code != OK:
		j.fault = i
	case o.Valid:
		j.route = i
	}
}

// allowRetry reports whether a script that ran out of time may run once more. It may if the worker reports
// that the machine was slow, or if the script ended in time before, so that the machine is the likely
// cause.
func (j *job) allowRetry(i int, late bool) bool {
	if !late && (j.op != OpRun || !j.pool.proven.Contains(j.pool.quarantine.hashScript(j.scripts[i]))) {
		return false
	}
	if j.states[i].retried {
		return false
	}
	j.states[i].retried = true
	j.pool.stats.add(&j.pool.stats.Retries, 1)
	return true
}

// findRunningScript returns the script that a dead worker was running: the one after the last outcome, or -1
// if there is none.
func (j *job) findRunningScript() int {
	at := j.reached
	if j.route >= 0 {
		at = max(at, j.request.Routes) // routes after the one that was true do not run
	}
	if at >= len(j.asked) {
		return -1
	}
	return j.asked[at]
}

// recordWorkerDeath charges a worker's death to the script that was running, or retries. The error is a
// failure of the sandbox itself.
func (j *job) recordWorkerDeath(why exitReason, cause error) error {
	i := j.findRunningScript()
	code := Code("")
	switch why {
	case outOfTime:
		code = Timeout
	case outOfMemory:
		code = Memory
	case garbled:
		code = Internal
	case crashed: // one crash may be chance; a second crash in the same script is its fault
		if i >= 0 && j.crashedAt == i+1 {
			code = Internal
		}
		j.crashedAt = i + 1
	}
	if i < 0 || code == "" {
		if j.lost++; j.lost > 2 || j.lost > 1 && why == vanished {
			return fmt.Errorf("%w: workers keep dying: %w", ErrUnavailable, cause)
		}
		j.pool.stats.add(&j.pool.stats.Retries, 1)
		return nil
	}
	// Checks are rare, and the rejection of a definition is remembered for long. A single kill may be the
	// machine's fault, so the first one is forgiven.
	if code == Timeout && j.allowRetry(i, j.op == OpCheck) {
		return nil
	}
	j.pool.recordStrike(j.offender, j.scripts[i], why.String())
	j.recordResult(i, Result{Code: code, Detail: j.pool.describeLimit(code, j.scripts[i].Kind, true)})
	if i < j.routes {
		j.fault = i
	}
	return nil
}

// expireOverdue reports whether the batch has used up its time. If so, it ends the remaining scripts with
// Timeout.
func (j *job) expireOverdue() bool {
	if j.spent < j.pool.cfg.Total {
		return false
	}
	for _, i := range j.asked {
		if j.states[i].Code == "" {
			j.recordResult(i, Result{Code: Timeout, Detail: j.pool.describeTotal()})
			if i < j.routes {
				j.fault = i
				return true
			}
		}
	}
	return true
}

// readSchema returns the schema's result so far.
func (j *job) readSchema() SchemaReply {
	s := j.states[0]
	return SchemaReply{Code: s.Code, Violations: s.objections, Detail: s.Detail}
}

// buildReply builds the reply to the caller.
func (j *job) buildReply() Reply {
	r := Reply{Route: -1}
	if j.schema > 0 {
		if r.Schema = j.readSchema(); !r.Schema.Passes() {
			return r
		}
	}
	if j.route >= 0 {
		r.Route = j.route - j.schema
	} else if j.routes > j.schema {
		if j.fault >= 0 {
			r.RouteFault = &j.states[j.fault].Result
		}
		return r
	}
	r.Results = make([]Result, 0, len(j.states)-j.routes)
	for _, s := range j.states[j.routes:] {
		r.Results = append(r.Results, s.Result)
	}
	return r
}

// describeLimit describes the limit that a script hit and how to avoid it.
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
		return fmt.Sprintf("it ran longer than %v %s; avoid unbounded loops, backtracking patterns and built-ins on huge arrays or strings, and read only the fields you need", limit, how)
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
	return fmt.Sprintf("it was not run: earlier scripts used up the transition's limit of %v for all scripts", p.cfg.Total)
}

func describeQuarantine(until time.Time, wholeOwner bool) string {
	what := "this script"
	if wholeOwner {
		what = "this author's scripts"
	}
	return fmt.Sprintf("%s killed workers repeatedly and will not run before %s; rewrite it, or ask an operator to lift the quarantine", what, until.UTC().Format(time.RFC3339))
}
