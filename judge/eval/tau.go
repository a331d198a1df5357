package eval

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/gavel-mcp/gavel/judge"
)

// The strata of recorded writes: whether a label is worth something, and what for.
const (
	StratumExecuted    = "executed writes"
	StratumEnvironment = "environment errors"
	StratumDisputed    = "disputed"
	StratumTransfers   = "transfers"
)

// TauRecord is one recorded write of an agent, in the form in which the airline trajectories
// of tau-bench (arXiv 2406.12045) are recorded. Only Transition reaches a gate.
type TauRecord struct {
	ID         string `json:"id"`
	Group      string `json:"group"`
	Transition struct {
		State   string                     `json:"state"`
		Action  string                     `json:"action"`
		Data    json.RawMessage            `json:"data"`
		Context map[string]json.RawMessage `json:"context"`
	} `json:"transition"`
	Gold struct {
		Verdict   string  `json:"verdict"` // approve, reject, or disputed
		Why       string  `json:"why"`
		ToolError *string `json:"tool_error"`
	} `json:"gold"`
	// Validators are what simple rules said, for comparisons only.
	Validators struct {
		Deterministic []string `json:"deterministic"`
	} `json:"validators"`
}

// Stratum says what the label of a record is worth.
func (r TauRecord) Stratum() string {
	switch {
	case r.Transition.Action == "transfer_to_human_agents":
		return StratumTransfers
	case r.Gold.Verdict == StratumDisputed:
		return StratumDisputed
	case r.Gold.ToolError != nil:
		return StratumEnvironment
	}
	return StratumExecuted
}

// ReadTau reads such records, one a line. The error names the line.
func ReadTau(file string, from io.Reader) ([]TauRecord, error) {
	var out []TauRecord
	for l, err := range readLines(from, MaxLine) {
		switch {
		case err != nil:
			return nil, fmt.Errorf("eval: read %s, line %d: %w", file, l.number, err)
		case l.isLong:
			return nil, fmt.Errorf("%s:%d: the line has more than %d bytes", file, l.number, MaxLine)
		}
		var r TauRecord
		if err := json.Unmarshal(l.text, &r); err != nil {
			return nil, fmt.Errorf("%s:%d: this is not a recorded write: %w", file, l.number, err)
		}
		if r.ID == "" || r.Transition.State == "" || r.Transition.Action == "" {
			return nil, fmt.Errorf("%s:%d: a record needs an id and a transition with state and action", file, l.number)
		}
		out = append(out, r)
	}
	return out, nil
}

// TauOptions say how records become cases.
type TauOptions struct {
	// Workflow is the reference of the definition that is the gate ("airline.yaml").
	Workflow string
	// Split of the cases; "" is dev.
	Split Split
	// Flights, where given, are what a source of evidence would say of the flights that a write
	// names.
	Flights TauFlights
	// All takes records in as well that have no right answer, labelled escalate: to see
	// what a judge says of them, not to score it.
	All bool
}

// TauCases turns records into cases. A case's context is what was known before the write:
// who the user is, the profile, the reservation, the flight's status, the last words of the
// dialogue, and a timetable made of all flights that the records' reservations name; its evidence
// is what the sources of payment methods and flights said at that time. The label goes where
// a report looks for it, and nowhere else. Records without a right answer (disputed
// writes, transfers) are left out, unless all are asked for.
func TauCases(records []TauRecord, o TauOptions) ([]Case, error) {
	routes, err := buildTimetable(records)
	if err != nil {
		return nil, err
	}
	ref, err := json.Marshal(map[string]string{"ref": o.Workflow})
	if err != nil {
		return nil, err
	}
	o.Split = cmp.Or(o.Split, Dev)
	out := make([]Case, 0, len(records))
	for _, r := range records {
		right := judge.Outcome(r.Gold.Verdict)
		if right != judge.Approve && right != judge.Reject {
			if !o.All {
				continue
			}
			right = judge.Escalate
		}
		snapshot := map[string]any{"timetable": routes, "userId": r.Group}
		for _, key := range []string{"user", "reservation", "flight_status", "last_user_message", "dialog_tail"} {
			snapshot[key] = r.Transition.Context[key]
		}
		context, err := json.Marshal(snapshot)
		if err != nil {
			return nil, fmt.Errorf("eval: record %s: %w", r.ID, err)
		}
		evidence, err := r.evidence(o.Flights)
		if err != nil {
			return nil, fmt.Errorf("eval: record %s: %w", r.ID, err)
		}
		out = append(out, Case{
			ID: r.ID, Group: r.Group, Tags: []string{strings.ReplaceAll(r.Stratum(), " ", "_")}, Workflow: ref,
			State: r.Transition.State, Action: r.Transition.Action, Context: context, Data: r.Transition.Data, Evidence: evidence,
			Expect: Expect{Outcome: right}, Label: Label{Source: "adjudicated"}, Split: o.Split,
		})
	}
	return out, nil
}

type route struct {
	Origin      string `json:"origin"`
	Destination string `json:"destination"`
}

// buildTimetable collects the routes of flights from the reservations: the booking
// system knows every flight.
func buildTimetable(records []TauRecord) (map[string]route, error) {
	routes := map[string]route{}
	for _, r := range records {
		var reservation struct {
			Flights []struct {
				route
				Number string `json:"flight_number"`
			} `json:"flights"`
		}
		raw := r.Transition.Context["reservation"]
		if raw == nil {
			continue
		}
		if err := json.Unmarshal(raw, &reservation); err != nil {
			return nil, fmt.Errorf("eval: record %s: the reservation: %w", r.ID, err)
		}
		for _, f := range reservation.Flights {
			routes[f.Number] = f.route
		}
	}
	return routes, nil
}
