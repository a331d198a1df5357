package eval

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
)

// TauFlights are flights by their number, in the form in which tau-bench keeps them.
type TauFlights map[string]TauFlight

// TauFlight is one flight on each of its dates.
type TauFlight struct {
	Origin      string              `json:"origin"`
	Destination string              `json:"destination"`
	Dates       map[string]TauOffer `json:"dates"`
}

// TauOffer is what is offered of a flight on one date; seats and prices are by cabin.
type TauOffer struct {
	Status string         `json:"status"`
	Seats  map[string]int `json:"available_seats"`
	Prices map[string]int `json:"prices"`
}

// ReadTauFlights reads the flights of tau-bench (flights.json), or what its search tools answered in
// recorded dialogues, one a line.
func ReadTauFlights(file string, from io.Reader) (TauFlights, error) {
	text, err := io.ReadAll(from)
	if err != nil {
		return nil, fmt.Errorf("eval: read %s: %w", file, err)
	}
	var all TauFlights
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
	TauOffer
}

func readTauAnswers(file string, from io.Reader) (TauFlights, error) {
	out := TauFlights{}
	for l, err := range readLines(from, maxForeignLine) {
		if err == nil && l.isLong {
			err = fmt.Errorf("the line has more than %d bytes", maxForeignLine)
		}
		var dialogue TauDialogue
		if err == nil {
			err = json.Unmarshal(l.text, &dialogue)
		}
		if err != nil {
			return nil, fmt.Errorf("%s:%d: these are neither flights nor recorded dialogues: %w", file, l.number, err)
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

// addAnswers takes in the flights of an answer, which may have been cut. The tool prices the second
// leg of a connection over midnight with the prices of the day before; such legs are left out.
func (t TauFlights) addAnswers(content, date string) {
	const begin = `{"flight_number": "`
	for _, part := range strings.Split(content, begin)[1:] {
		var a tauAnswer
		if json.NewDecoder(strings.NewReader(begin+part)).Decode(&a) != nil || a.Date != "" && a.Date != date {
			continue
		}
		f, known := t[a.Number]
		if !known {
			f = TauFlight{a.Origin, a.Destination, map[string]TauOffer{}}
			t[a.Number] = f
		}
		f.Dates[date] = a.TauOffer
	}
}

// TauDialogue is one recorded conversation of an agent.
type TauDialogue struct {
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

// evidence is what the sources would have said just before a write that pays.
func (r TauRecord) evidence(flights TauFlights) (map[string]json.RawMessage, error) {
	if !slices.Contains([]string{"book_reservation", "update_reservation_flights", "update_reservation_baggages"}, r.Transition.Action) {
		return nil, nil
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
		return out, nil // data that the schema refuses names no flights
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
