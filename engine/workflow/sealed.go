package workflow

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"strings"

	"github.com/gavel-mcp/gavel/validators/document"
)

// SealedForm is the prefix of the string that replaces a sensitive value in stored documents. Package
// values writes and opens such strings. No caller can supply one.
const SealedForm = "gavel:sealed:"

var (
	sealedForm = []byte(SealedForm)
	quotedForm = []byte(`"` + SealedForm)
)

// IsSealed reports whether a value is sealed. Sealed values are written without escapes.
func IsSealed(v document.JSON) bool {
	if v.Kind() != document.String || !bytes.HasPrefix(v.Raw(), quotedForm) {
		return false
	}
	for _, c := range v.Raw()[len(quotedForm) : len(v.Raw())-1] {
		if (c < '0' || c > ':') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') && c != '-' && c != '_' {
			return false
		}
	}
	return true
}

// MayHoldSealed reports whether a document may contain sealed values.
func MayHoldSealed(doc json.RawMessage) bool { return bytes.Contains(doc, quotedForm) }

// EditSealed copies a document with each sealed value replaced by what edit returns. It stops at
// the first error of edit.
func EditSealed(doc document.JSON, edit func(pointer string, text document.JSON) (json.RawMessage, error)) (document.JSON, error) {
	w := textEditor{hasSealed: func(raw []byte) bool { return bytes.Contains(raw, quotedForm) }, out: document.NewBuilder(doc)}
	w.edit = func(v document.JSON) (json.RawMessage, error) {
		if !IsSealed(v) {
			return nil, nil
		}
		return edit(joinPointer("", w.path...), v)
	}
	if err := w.copyValue(doc); err != nil {
		return document.JSON{}, err
	}
	return w.out.JSON(), nil
}

var errFound = errors.New("found")

// FindSealedForm returns the pointer to a string that begins with SealedForm, even if it is escaped.
func FindSealedForm(doc document.JSON) (pointer string, ok bool) {
	w := textEditor{out: document.NewBuilder()}
	w.hasSealed = func(raw []byte) bool { return bytes.Contains(raw, sealedForm) || bytes.Contains(raw, []byte(`\u00`)) }
	w.edit = func(v document.JSON) (json.RawMessage, error) {
		if strings.HasPrefix(v.Text(), SealedForm) {
			return nil, errFound
		}
		return nil, nil
	}
	if !w.hasSealed(doc.Raw()) || w.copyValue(doc) == nil {
		return "", false
	}
	return joinPointer("", w.path...), true
}

// textEditor copies a document and replaces strings with what edit returns; nil keeps the string. It
// only descends into values for which worth returns true.
type textEditor struct {
	hasSealed func(raw []byte) bool
	edit      func(text document.JSON) (json.RawMessage, error)
	out       *document.Builder
	path      []string
}

func (t *textEditor) copyValue(v document.JSON) error {
	switch kind := v.Kind(); {
	case !t.hasSealed(v.Raw()):
		t.out.Copy(v)
	case kind == document.String:
		text, err := t.edit(v)
		if err != nil {
			return err
		}
		if text != nil {
			v = document.ReadTrusted(text)
		}
		t.out.Copy(v)
	case kind == document.Object:
		t.out.Begin(document.Object)
		for name, value := range v.Members() {
			t.out.Name(name)
			if err := t.copyAt(name.Text(), value); err != nil {
				return err
			}
		}
		t.out.End()
	case kind == document.Array:
		t.out.Begin(document.Array)
		for i, value := range v.Elements() {
			if err := t.copyAt(strconv.Itoa(i), value); err != nil {
				return err
			}
		}
		t.out.End()
	default:
		t.out.Copy(v)
	}
	return nil
}

func (t *textEditor) copyAt(token string, v document.JSON) error {
	t.path = append(t.path, token)
	err := t.copyValue(v)
	if err == nil {
		t.path = t.path[:len(t.path)-1]
	}
	return err
}
