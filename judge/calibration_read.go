package judge

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// calibrationsVersion is the format of the file that ParseCalibrations reads.
const calibrationsVersion = 1

// What can stand in the file.
const (
	anObject = "an object"
	aList    = "a list"
	aText    = "a text"
	aNumber  = "a number"
)

// calibrationShape says what stands where in the file; an entry of a list ends in [].
var calibrationShape = map[string]string{
	"":                              anObject,
	"v":                             aNumber,
	"calibrations":                  aList,
	"calibrations[]":                anObject,
	"calibrations[].model":          aText,
	"calibrations[].promptDigest":   aText,
	"calibrations[].criteriaDigest": aText,
	"calibrations[].method":         aText,
	"calibrations[].platt":          anObject,
	"calibrations[].platt.a":        aNumber,
	"calibrations[].platt.b":        aNumber,
	"calibrations[].isotonic":       anObject,
	"calibrations[].isotonic.x":     aList,
	"calibrations[].isotonic.x[]":   aNumber,
	"calibrations[].isotonic.y":     aList,
	"calibrations[].isotonic.y[]":   aNumber,
	"calibrations[].n":              aNumber,
	"calibrations[].dataset":        aText,
	"calibrations[].fitted":         aText,
}

// calibrationKeys are the keys that the file's objects must have.
var calibrationKeys = map[string][]string{
	"":                        {"v", "calibrations"},
	"calibrations[]":          {"model", "promptDigest", "criteriaDigest", "method", "n"},
	"calibrations[].platt":    {"a", "b"},
	"calibrations[].isotonic": {"x", "y"},
}

// ParseCalibrations reads a file of calibrations:
//
//	{"v": 1, "calibrations": [{"model": "gpt-5-mini", "promptDigest": "sha256:…",
//	  "criteriaDigest": "sha256:…", "method": "platt", "platt": {"a": -0.7, "b": 0.2},
//	  "n": 240, "dataset": "reviews", "fitted": "2026-11-20"}]}
//
// It is strict: unknown, missing and repeated keys, null, and values that mean
// nothing are errors that say where. A file that is not understood must not count as
// one that calibrates nothing.
func ParseCalibrations(data []byte) (*Calibrations, error) {
	if err := checkShape(data); err != nil {
		return nil, fmt.Errorf("judge: calibrations: %w", err)
	}
	var file struct {
		V            int           `json:"v"`
		Calibrations []Calibration `json:"calibrations"`
	}
	if err := json.Unmarshal(data, &file); err != nil {
		var mistyped *json.UnmarshalTypeError
		if errors.As(err, &mistyped) {
			err = fmt.Errorf("%s: a %s, which cannot stand there", mistyped.Field, mistyped.Value)
		}
		return nil, fmt.Errorf("judge: calibrations: %w", err)
	}
	if file.V != calibrationsVersion {
		return nil, fmt.Errorf("judge: calibrations: v: is %d; this program reads %d", file.V, calibrationsVersion)
	}
	return NewCalibrations(file.Calibrations)
}

// checkShape holds a file against calibrationShape. encoding/json alone takes the
// last of two equal keys, Model for model, and null for anything.
func checkShape(data []byte) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	if err := checkValue(dec, "", ""); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is something after the document")
	}
	return nil
}

// checkValue reads one value. The path says where it stands, the kind is the path
// without indices.
func checkValue(dec *json.Decoder, path, kind string) error {
	token, err := dec.Token()
	if err != nil {
		return notJSON(path, err)
	}
	is := "null or a truth value"
	switch t := token.(type) {
	case json.Delim:
		is = anObject
		if t == '[' {
			is = aList
		}
	case string:
		is = aText
	case json.Number:
		is = aNumber
	}
	switch want := calibrationShape[kind]; {
	case is != want:
		return fmt.Errorf("%sis %s, must be %s", insidePath(path), is, want)
	case is == anObject:
		return checkObject(dec, path, kind)
	case is == aList:
		for i := 0; dec.More(); i++ {
			if err := checkValue(dec, fmt.Sprintf("%s[%d]", path, i), kind+"[]"); err != nil {
				return err
			}
		}
		return expectEnd(dec, path)
	}
	return nil
}

func checkObject(dec *json.Decoder, path, kind string) error {
	var seen []string
	for dec.More() {
		token, err := dec.Token()
		if err != nil {
			return notJSON(path, err)
		}
		key, _ := token.(string)
		if known := keysOf(kind); !slices.Contains(known, key) {
			return fmt.Errorf("%sunknown key %.40q; there are %s", insidePath(path), key, strings.Join(known, ", "))
		}
		if slices.Contains(seen, key) {
			return fmt.Errorf("%sthe key %q is there twice", insidePath(path), key)
		}
		seen = append(seen, key)
		if err := checkValue(dec, joinPath(path, key), joinPath(kind, key)); err != nil {
			return err
		}
	}
	if err := expectEnd(dec, path); err != nil {
		return err
	}
	for _, key := range calibrationKeys[kind] {
		if !slices.Contains(seen, key) {
			return fmt.Errorf("%sthe key %q is missing", insidePath(path), key)
		}
	}
	return nil
}

// keysOf lists the keys that an object may have, sorted.
func keysOf(kind string) []string {
	var keys []string
	for at := range calibrationShape {
		key := at[strings.LastIndexByte(at, '.')+1:]
		if at != "" && !strings.HasSuffix(key, "]") && joinPath(kind, key) == at {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// expectEnd reads the closing bracket.
func expectEnd(dec *json.Decoder, path string) error {
	if _, err := dec.Token(); err != nil {
		return notJSON(path, err)
	}
	return nil
}

func notJSON(path string, err error) error {
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("%snot JSON: %w", insidePath(path), err)
}

func joinPath(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

func insidePath(path string) string {
	if path == "" {
		return ""
	}
	return path + ": "
}
