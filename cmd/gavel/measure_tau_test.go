package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/gavel-mcp/gavel/internal/modules/measure/eval"
	"github.com/gavel-mcp/gavel/judge"
)

// Strata of recorded writes: whether a label is reliable, and for what.
const (
	stratumExecuted    = "executed writes"
	stratumEnvironment = "environment errors"
	stratumDisputed    = "disputed"
	stratumTransfers   = "transfers"
)

// tauRecord is one recorded write of an agent, in the format of the airline trajectories of tau-bench (arXiv
// 2406.12045). Only Transition reaches a gate.
type tauRecord struct {
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
	// Validators are the results of simple rules, for comparison only.
	Validators struct {
		Deterministic []string `json:"deterministic"`
	} `json:"validators"`
}

// Stratum classifies the reliability of a record's label.
func (r tauRecord) Stratum() string {
	switch {
	case r.Transition.Action == "transfer_to_human_agents":
		return stratumTransfers
	case r.Gold.Verdict == stratumDisputed:
		return stratumDisputed
	case r.Gold.ToolError != nil:
		return stratumEnvironment
	}
	return stratumExecuted
}

// tauLines yields the non-empty lines, numbered from 1.
func tauLines(from io.Reader) iter.Seq2[int, []byte] {
	return func(yield func(int, []byte) bool) {
		in := bufio.NewScanner(from)
		in.Buffer(nil, 8<<20)
		for n := 1; in.Scan(); n++ {
			if line := bytes.TrimSpace(in.Bytes()); len(line) > 0 && !yield(n, line) {
				return
			}
		}
	}
}

// readTau reads such records, one per line. Errors name the line.
func readTau(file string, from io.Reader) ([]tauRecord, error) {
	var out []tauRecord
	for n, line := range tauLines(from) {
		var r tauRecord
		if err := json.Unmarshal(line, &r); err != nil {
			return nil, fmt.Errorf("%s:%d: this is not a recorded write: %w", file, n, err)
		}
		if r.ID == "" || r.Transition.State == "" || r.Transition.Action == "" {
			return nil, fmt.Errorf("%s:%d: a record needs an id and a transition with state and action", file, n)
		}
		out = append(out, r)
	}
	return out, nil
}

// tauOptions configure the conversion of records to cases.
type tauOptions struct {
	// Workflow is a reference to the gate's definition ("airline.yaml").
	Workflow string
	// Split is the split of the cases; "" means dev.
	Split eval.Split
	// Flights, if set, supply the evidence about the flights that a write names.
	Flights tauFlights
	// Dialogues, if set, supply what the user said before a write.
	Dialogues map[string]tauDialogue
	// All includes records without an expected outcome, labelled escalate. They show what a judge answers but do
	// not count in scores.
	All bool
}

// tauCases converts records to cases. A case's context is what was known before the write: the user, the profile,
// the reservation, the flight's status, the last words of the dialogue, and a timetable from all flights in the
// records' reservations. Its evidence is what the sources of payment methods and flights returned at that time.
//
// The label is only where a report reads it. Records without an expected outcome (disputed writes, transfers) are
// left out unless o.All is set.
func tauCases(records []tauRecord, o tauOptions) ([]eval.Case, error) {
	routes, err := buildTimetable(records)
	if err != nil {
		return nil, err
	}
	ref, err := json.Marshal(map[string]string{"ref": o.Workflow})
	if err != nil {
		return nil, err
	}
	o.Split = cmp.Or(o.Split, eval.Dev)
	out := make([]eval.Case, 0, len(records))
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
			return nil, fmt.Errorf("record %s: %w", r.ID, err)
		}
		evidence, err := r.evidence(o.Flights)
		if err == nil && o.Dialogues != nil {
			evidence["said"], err = r.said(o.Dialogues)
		}
		if err != nil {
			return nil, fmt.Errorf("record %s: %w", r.ID, err)
		}
		out = append(out, eval.Case{
			ID: r.ID, Group: r.Group, Tags: []string{strings.ReplaceAll(r.Stratum(), " ", "_")}, Workflow: ref,
			State: r.Transition.State, Action: r.Transition.Action, Context: context, Data: r.Transition.Data, Evidence: evidence,
			Expect: eval.Expect{Outcome: right}, Label: eval.Label{Source: "adjudicated"}, Split: o.Split,
		})
	}
	return out, nil
}

type route struct {
	Origin      string `json:"origin"`
	Destination string `json:"destination"`
}

// buildTimetable collects flight routes from the reservations, as a booking system knows every flight.
func buildTimetable(records []tauRecord) (map[string]route, error) {
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
			return nil, fmt.Errorf("record %s: the reservation: %w", r.ID, err)
		}
		for _, f := range reservation.Flights {
			routes[f.Number] = f.route
		}
	}
	return routes, nil
}

// tauFlights maps flight numbers to flights, in tau-bench's format.
type tauFlights map[string]tauFlight

// tauFlight is one flight on each of its dates.
type tauFlight struct {
	Origin      string              `json:"origin"`
	Destination string              `json:"destination"`
	Dates       map[string]tauOffer `json:"dates"`
}

// tauOffer is a flight's offer on one date, with seats and prices by cabin.
type tauOffer struct {
	Status string         `json:"status"`
	Seats  map[string]int `json:"available_seats"`
	Prices map[string]int `json:"prices"`
}

// readTauFlights reads tau-bench's flights (flights.json), or the results of its search tools in recorded
// dialogues, one per line.
func readTauFlights(file string, from io.Reader) (tauFlights, error) {
	text, err := io.ReadAll(from)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	var all tauFlights
	if json.Unmarshal(text, &all) == nil {
		for _, f := range all {
			if len(f.Dates) > 0 {
				return all, nil
			}
		}
	}
	return readTauAnswers(file, bytes.NewReader(text))
}

type tauAnswer struct {
	Number string `json:"flight_number"`
	Date   string `json:"date"`
	route
	tauOffer
}

func readTauAnswers(file string, from io.Reader) (tauFlights, error) {
	out := tauFlights{}
	for n, line := range tauLines(from) {
		var dialogue tauDialogue
		if err := json.Unmarshal(line, &dialogue); err != nil {
			return nil, fmt.Errorf("%s:%d: these are neither flights nor recorded dialogues: %w", file, n, err)
		}
		date := ""
		for _, m := range dialogue.Messages {
			switch {
			case m.Call != nil:
				date = m.Call.Arguments.Date
			case m.Role == "tool" && strings.HasPrefix(m.Name, "search_"):
				out.addAnswers(m.Content, date)
			}
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s: no search was answered", file)
	}
	return out, nil
}

// addAnswers adds the flights of a search result, which may be truncated. It skips the second leg of a connection
// over midnight, because the tool prices it with the previous day's prices.
func (t tauFlights) addAnswers(content, date string) {
	const begin = `{"flight_number": "`
	for _, part := range strings.Split(content, begin)[1:] {
		var a tauAnswer
		if json.NewDecoder(strings.NewReader(begin+part)).Decode(&a) != nil || a.Date != "" && a.Date != date {
			continue
		}
		f, known := t[a.Number]
		if !known {
			f = tauFlight{a.Origin, a.Destination, map[string]tauOffer{}}
			t[a.Number] = f
		}
		f.Dates[date] = a.tauOffer
	}
}

// tauDialogue is a recorded conversation of an agent.
type tauDialogue struct {
	ID       string `json:"id"`
	Messages []struct {
		Role    string `json:"role"`
		Content string `json:"content"`
		Name    string `json:"name"`
		Call    *struct {
			Name      string `json:"name"`
			Arguments struct {
				Date string `json:"date"`
			} `json:"arguments"`
		} `json:"call"`
	} `json:"messages"`
}

// readTauDialogues reads recorded dialogues, one per line, by their ids.
func readTauDialogues(file string, from io.Reader) (map[string]tauDialogue, error) {
	out := map[string]tauDialogue{}
	for n, line := range tauLines(from) {
		var d tauDialogue
		if err := json.Unmarshal(line, &d); err != nil || d.ID == "" {
			return nil, fmt.Errorf("%s:%d: this is not a recorded dialogue: %w", file, n, err)
		}
		out[d.ID] = d
	}
	return out, nil
}

// said returns the evidence of a transcript source just before a write: what the user had said. A record's id is that
// of its dialogue, "-m" and the position of the call, which counts the system prompt that the recording leaves out.
func (r tauRecord) said(all map[string]tauDialogue) (json.RawMessage, error) {
	at := strings.LastIndex(r.ID, "-m")
	if at < 0 {
		return nil, errors.New("its id names no call")
	}
	d := all[r.ID[:at]]
	n, err := strconv.Atoi(r.ID[at+2:])
	if n--; err != nil || n < 0 || n >= len(d.Messages) || d.Messages[n].Call == nil || d.Messages[n].Call.Name != r.Transition.Action {
		return nil, errors.New("its dialogue has no such call")
	}
	messages := []string{}
	for _, m := range d.Messages[:n] {
		if m.Role == "user" {
			messages = append(messages, m.Content)
		}
	}
	return json.Marshal(map[string]any{"messages": messages, "omitted": 0})
}

// evidence returns what the sources would have returned just before a write that pays.
func (r tauRecord) evidence(flights tauFlights) (map[string]json.RawMessage, error) {
	if !slices.Contains([]string{"book_reservation", "update_reservation_flights", "update_reservation_baggages"}, r.Transition.Action) {
		return map[string]json.RawMessage{}, nil
	}
	type found struct {
		Status int `json:"status"`
		Body   any `json:"body"`
	}
	var user struct {
		Methods json.RawMessage `json:"payment_methods"`
	}
	out := map[string]json.RawMessage{}
	if raw := r.Transition.Context["user"]; raw != nil {
		if err := json.Unmarshal(raw, &user); err != nil {
			return nil, fmt.Errorf("the profile: %w", err)
		}
	}
	if user.Methods != nil {
		doc, err := json.Marshal(found{200, map[string]any{"payment_methods": user.Methods}})
		if err != nil {
			return nil, err
		}
		out["account"] = doc
	}
	var data struct {
		Flights []struct {
			Number string `json:"flight_number"`
			Date   string `json:"date"`
		} `json:"flights"`
	}
	if json.Unmarshal(r.Transition.Data, &data) != nil || len(data.Flights) == 0 || flights == nil {
		return out, nil // data that violates the schema names no flights
	}
	offers := []tauAnswer{}
	for _, asked := range data.Flights {
		f := flights[asked.Number]
		if offer, known := f.Dates[asked.Date]; known {
			offers = append(offers, tauAnswer{asked.Number, asked.Date, route{f.Origin, f.Destination}, offer})
		}
	}
	doc, err := json.Marshal(found{200, map[string]any{"flights": offers}})
	if err != nil {
		return nil, err
	}
	out["flights"] = doc
	return out, nil
}
