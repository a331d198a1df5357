package eval

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// MeasurementFormat is the format name at the beginning of a file of results.
const MeasurementFormat = "gavel-eval-1"

// Measurement is one run with all its inputs: the content of a file of results, and of every rendering.
type Measurement struct {
	Format string `json:"format"` // MeasurementFormat
	About  About  `json:"about"`
	Report Report `json:"report"`
	// Gates are the results of the limits that were checked; nil if there were none.
	Gates []GateResult `json:"gates,omitempty"`
	// Baseline is the comparison with an earlier run; nil if there is none.
	Baseline *BaselineResult `json:"baseline,omitempty"`
	Cases    []Case          `json:"cases"`
	Results  []Result        `json:"results"`
	// Views and SystemPrompts are for readers only; no figure depends on them. If there were too many views, those of
	// the worst outcomes were kept.
	Views         []View   `json:"views,omitempty"`
	SystemPrompts []string `json:"systemPrompts,omitempty"`
}

// BaselineResult is the result of a comparison with an earlier run. In JSON it is the whole comparison.
type BaselineResult struct {
	// Compared is false if too many cases have no outcome in one of the runs, Regression true if this run is
	// significantly worse. Says states the result in a sentence.
	Compared   bool   `json:"compared"`
	Regression bool   `json:"regression"`
	Says       string `json:"says"`
	// Detail is the whole comparison.
	Detail json.RawMessage `json:"-"`
}

// MarshalJSON implements json.Marshaler.
func (b *BaselineResult) MarshalJSON() ([]byte, error) { return b.Detail, nil }

// UnmarshalJSON implements json.Unmarshaler.
func (b *BaselineResult) UnmarshalJSON(raw []byte) error {
	type plain BaselineResult
	b.Detail = bytes.Clone(raw)
	return json.Unmarshal(raw, (*plain)(b))
}

// Cell is a run with the name of its judge, "" if there is only one.
type Cell struct {
	Name string
	Run  Measurement
}

// About describes the run. Nothing in it depends on the machine or the time.
type About struct {
	// Sets are the files or folders of the cases, as the caller named them.
	Sets []string `json:"sets"`
	// Judge describes the judge: "structural", or the model. Mode is that of its cassette.
	Judge   string `json:"judge"`
	Mode    string `json:"mode,omitempty"`
	Repeats int    `json:"repeats"`
	// Tags selected the cases: each has at least one of them.
	Tags []string `json:"tags,omitempty"`
	// Prompts are the digests of the prompts that a model got.
	Prompts []string `json:"prompts,omitempty"`
	// Remarks come from the person who ran it, such as the origin of recorded answers.
	Remarks []string `json:"remarks,omitempty"`
}

type caseOnFile struct {
	Case
	Digest string `json:"digest,omitempty"`
}

// WriteJSON writes the file of results, with one line for each case and each result.
func WriteJSON(w io.Writer, m Measurement) error {
	m.Format = MeasurementFormat
	head, err := json.MarshalIndent(struct {
		Measurement
		Conclusion Conclusion `json:"conclusion"`
		Cases      *int       `json:"cases,omitempty"` // hides the field of the Measurement
		Results    *int       `json:"results,omitempty"`
		Views      *int       `json:"views,omitempty"`
	}{Measurement: m, Conclusion: m.Conclude()}, "", " ")
	if err != nil {
		return fmt.Errorf("eval: write the results: %w", err)
	}
	b := bufio.NewWriterSize(w, 64<<10)
	_, _ = b.Write(bytes.TrimSuffix(head, []byte("\n}"))) // Flush returns the error
	err = errors.Join(
		writeList(b, "cases", m.Cases, func(c Case) any { return caseOnFile{c, c.Digest} }),
		writeList(b, "results", m.Results, func(r Result) any { return r }),
		writeList(b, "views", m.Views, func(v View) any { return v }),
	)
	_, _ = b.WriteString("\n}\n")
	if err := errors.Join(err, b.Flush()); err != nil {
		return fmt.Errorf("eval: write the results: %w", err)
	}
	return nil
}

func writeList[V any](b *bufio.Writer, key string, all []V, as func(V) any) error {
	_, _ = fmt.Fprintf(b, ",\n %q: [", key) // Flush returns the error
	for i, v := range all {
		line, err := json.Marshal(as(v))
		if err != nil {
			return err
		}
		if i > 0 {
			_ = b.WriteByte(',')
		}
		_, _ = b.WriteString("\n  ")
		_, _ = b.Write(line)
	}
	_, err := b.WriteString("\n ]")
	return err
}

// ReadMeasurement reads a file of results.
func ReadMeasurement(r io.Reader) (Measurement, error) {
	var m struct {
		Measurement
		Cases []caseOnFile `json:"cases"`
	}
	if err := json.NewDecoder(r).Decode(&m); err != nil {
		return Measurement{}, fmt.Errorf("eval: this is not a file of results: %w", err)
	}
	if m.Format != MeasurementFormat {
		return Measurement{}, fmt.Errorf("eval: this is not a file of results: its format is %.40q, must be %q; `gavel eval run --out FILE.json` writes one", m.Format, MeasurementFormat)
	}
	for _, c := range m.Cases {
		c.Case.Digest = c.Digest
		m.Measurement.Cases = append(m.Measurement.Cases, c.Case)
	}
	return m.Measurement, nil
}
