package values_test

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/memory"
	"github.com/gavel-mcp/gavel/engine/values"
	"github.com/gavel-mcp/gavel/engine/workflow"
)

var (
	definition = &workflow.Definition{Name: "kept", Sensitive: []string{"/token", "/customer/ssn", "/list/*/secret", "/whole"}}
	secret     = []byte("the key that wraps all data keys")
)

func newKeyring(t testing.TB) (*values.Keyring, *memory.Store) {
	t.Helper()
	db := memory.New()
	t.Cleanup(func() { _ = db.Close() })
	return values.NewKeyring(db, secret), db
}

func sealPatch(t testing.TB, k *values.Keyring, id string, seq int64, patch string) record.Event {
	t.Helper()
	ev, err := k.SealEvent(t.Context(), definition, record.Instance{ID: id, Seq: seq - 1}, record.Event{Instance: id, Seq: seq, Patch: json.RawMessage(patch)})
	if err != nil {
		t.Fatal(err)
	}
	return ev
}

// Sealed values open byte for byte as they were, and their content is not visible before.
func TestSealedValuesOpen(t *testing.T) {
	k, _ := newKeyring(t)
	rapid.Check(t, func(rt *rapid.T) {
		value := func(label string) string {
			return rapid.OneOf(
				rapid.Map(rapid.StringMatching(`[a-z"\\<é ]{0,20}`), strconv.Quote), rapid.Just(`"\u00e9\/"`), rapid.Just("1.50"), rapid.Just("null"),
				rapid.Just("true"), rapid.Just(`{"a":["canary",{}]}`), rapid.Just("[]"),
			).Draw(rt, label)
		}
		plain := `{"open":` + value("open") + `,"token":` + value("token") + `,"customer":{"ssn":` + value("ssn") + `,"name":"n"},"list":[{"secret":` + value("first") + `},{"secret":` + value("second") + `,"x":1}],"whole":` + value("whole") + `}`
		if !json.Valid([]byte(plain)) {
			rt.Skip()
		}
		seq := rapid.Int64Range(1, 1<<40).Draw(rt, "seq")
		sealed := sealPatch(t, k, "wf-1", seq, plain)
		count := 0
		_, err := definition.Mask(sealed.Patch, func(p string, v json.RawMessage) string { count++; return "" })
		if err != nil || count > 0 {
			rt.Fatalf("%d values in plain in %s, %v", count, sealed.Patch, err)
		}
		if again := sealPatch(t, k, "wf-1", seq, string(sealed.Patch)); string(again.Patch) != string(sealed.Patch) {
			rt.Fatalf("sealed twice: %s", again.Patch)
		}
		opened, destroyed, err := k.OpenEvent(t.Context(), sealed)
		if err != nil || destroyed || string(opened.Patch) != plain {
			rt.Fatalf("%s came back as %s, %v", plain, opened.Patch, err)
		}
	})
}

// A value that differs from the sealed one in content or position is rejected and counted.
func TestAlteredValuesAreRejected(t *testing.T) {
	k, db := newKeyring(t)
	const plain = `{"token":"canary-one","customer":{"ssn":"canary-two"}}`
	ev := sealPatch(t, k, "wf-1", 3, plain)
	sealPatch(t, k, "wf-2", 3, plain)
	tokens := strings.Split(string(ev.Patch), `"`) // {,token,:,VALUE,...
	token := tokens[3]
	parts := strings.Split(token, ":")
	edit := func(change func(ev *record.Event)) record.Event { other := ev; change(&other); return other }
	patch := func(text string) record.Event {
		return edit(func(ev *record.Event) { ev.Patch = json.RawMessage(text) })
	}
	flip := func(b byte) byte {
		if b == 'A' {
			return 'B'
		}
		return 'A'
	}
	for name, other := range map[string]record.Event{
		"of another instance": edit(func(ev *record.Event) { ev.Instance = "wf-2" }),
		"of one without keys": edit(func(ev *record.Event) { ev.Instance = "wf-3" }),
		"of another event":    edit(func(ev *record.Event) { ev.Seq = 4 }),
		"of another place":    patch(`{"customer":{"ssn":"` + token + `"}}`),
		"as a whole document": patch(`"` + token + `"`),
		"cut short":           patch(`{"token":"` + token[:len(token)-4] + `"}`),
		"cut to nothing":      patch(`{"token":"` + strings.Join(parts[:5], ":") + `:"}`),
		"cut in its head":     patch(`{"token":"` + strings.Join(parts[:4], ":") + `"}`),
		"changed":             patch(`{"token":"` + token[:len(token)-10] + string(flip(token[len(token)-10])) + token[len(token)-9:] + `"}`),
		"of another form":     patch(`{"token":"` + strings.Replace(token, ":1:", ":2:", 1) + `"}`),
		"of another key":      patch(`{"token":"` + strings.Replace(token, ":1:1:", ":1:2:", 1) + `"}`),
		"of no key":           patch(`{"token":"` + strings.Replace(token, ":1:1:", ":1:x:", 1) + `"}`),
	} {
		before := k.Refused()
		opened, _, err := k.OpenEvent(t.Context(), other)
		if !errors.Is(err, values.ErrUnreadable) || k.Refused() != before+1 || strings.Contains(string(opened.Patch), "canary") {
			t.Errorf("%s: %s, %v, %d refused", name, opened.Patch, err, k.Refused()-before)
		}
		if err != nil && strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: %v", name, err)
		}
	}
	// The data of a review are not a context, even of the same event.
	if row, _, err := k.OpenReview(t.Context(), store.Review{Instance: "wf-1", Seq: 3, Data: ev.Patch}); !errors.Is(err, values.ErrUnreadable) {
		t.Errorf("a context as a review: %s, %v", row.Data, err)
	}
	// The keyring of another secret, and no keyring at all.
	for name, other := range map[string]*values.Keyring{"another secret": values.NewKeyring(db, []byte("another secret")), "none": nil} {
		if _, _, err := other.OpenEvent(t.Context(), ev); !errors.Is(err, values.ErrUnreadable) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A key that was moved to another instance.
	row, err := db.DataKey(t.Context(), "wf-1", 1)
	if err != nil {
		t.Fatal(err)
	}
	row.Instance = "wf-4"
	if err := db.PutDataKey(t.Context(), row, nil); err != nil {
		t.Fatal(err)
	}
	if _, _, err := k.OpenEvent(t.Context(), edit(func(ev *record.Event) { ev.Instance = "wf-4" })); !errors.Is(err, values.ErrUnreadable) {
		t.Errorf("a key of another instance: %v", err)
	}
	// None of these prevents the right value from opening.
	if opened, _, err := k.OpenEvent(t.Context(), ev); err != nil || string(opened.Patch) != plain {
		t.Errorf("%s, %v", opened.Patch, err)
	}
}

func TestRotateRewrapShred(t *testing.T) {
	k, db := newKeyring(t)
	const plain = `{"token":"canary"}`
	first := sealPatch(t, k, "wf-1", 1, plain)
	if n, err := k.Rotate(t.Context(), "wf-1"); err != nil || n != 2 {
		t.Fatalf("%d, %v", n, err)
	}
	second := sealPatch(t, k, "wf-1", 2, plain)
	if !strings.Contains(string(first.Patch), ":1:1:1:") || !strings.Contains(string(second.Patch), ":1:2:2:") {
		t.Errorf("%s %s: not of keys 1 and 2", first.Patch, second.Patch)
	}
	both := func(k *values.Keyring) (texts string, destroyed bool, err error) {
		for _, ev := range []record.Event{first, second} {
			opened, gone, failed := k.OpenEvent(t.Context(), ev)
			texts, destroyed, err = texts+string(opened.Patch), destroyed || gone, errors.Join(err, failed)
		}
		return texts, destroyed, err
	}
	if texts, _, err := both(k); err != nil || texts != plain+plain {
		t.Errorf("%s, %v", texts, err)
	}
	// Another secret opens nothing until the keys are wrapped with it.
	next := values.NewKeyring(db, []byte("the next secret"))
	if _, _, err := both(next); !errors.Is(err, values.ErrUnreadable) {
		t.Errorf("%v", err)
	}
	for row, err := range db.DataKeys(t.Context(), "", 0) {
		if err != nil {
			t.Fatal(err)
		}
		if _, err := next.Rewrap(t.Context(), row, []byte("a wrong one")); !errors.Is(err, values.ErrUnreadable) {
			t.Errorf("with a wrong secret: %v", err)
		}
		if done, err := next.Rewrap(t.Context(), row, secret); err != nil || !done {
			t.Errorf("%v, %v", done, err)
		}
	}
	if texts, _, err := both(next); err != nil || texts != plain+plain {
		t.Errorf("%s, %v", texts, err)
	}
	if _, _, err := both(values.NewKeyring(db, secret)); !errors.Is(err, values.ErrUnreadable) {
		t.Errorf("the old secret still opens: %v", err)
	}
	// A damaged key is not mistaken for a key of another secret.
	for row, err := range db.DataKeys(t.Context(), "", 0) {
		if err != nil {
			t.Fatal(err)
		}
		row.Wrapped = row.Wrapped[:len(row.Wrapped)-1]
		if _, err := next.Rewrap(t.Context(), row, secret); !errors.Is(err, values.ErrDamagedKey) {
			t.Errorf("damaged: %v", err)
		}
	}
	other := values.NewKeyring(db, []byte("the next secret")) // another process with fresh keys in its cache
	if _, _, err := both(other); err != nil {
		t.Fatal(err)
	}
	for range 2 { // again, in case a copy was left
		if n, err := next.Shred(t.Context(), "wf-1"); err != nil || n != 2 {
			t.Errorf("%d, %v", n, err)
		}
	}
	if texts, destroyed, err := both(next); err != nil || !destroyed || texts != `{"token":"[destroyed]"}{"token":"[destroyed]"}` {
		t.Errorf("%s, %v", texts, err)
	}
	if _, err := next.SealEvent(t.Context(), definition, record.Instance{ID: "wf-1", Seq: 2}, record.Event{Instance: "wf-1", Patch: json.RawMessage(plain)}); !errors.Is(err, values.ErrDestroyed) {
		t.Errorf("sealed with a destroyed key: %v", err)
	}
	if _, err := next.Rotate(t.Context(), "wf-1"); !errors.Is(err, values.ErrDestroyed) {
		t.Errorf("rotated: %v", err)
	}
	for _, err := range []error{second1(next.Shred(t.Context(), "wf-9")), second1(next.Rotate(t.Context(), "wf-9"))} {
		if !errors.Is(err, values.ErrNoKey) {
			t.Errorf("without a key: %v", err)
		}
	}
	deadline := time.Now().Add(5 * time.Second)
	for destroyed := false; !destroyed; {
		if _, destroyed, _ = both(other); time.Now().After(deadline) {
			t.Fatal("another process never learns that the key was destroyed")
		}
	}
}

func second1(_ int, err error) error { return err }

// If many processes seal the first value of an instance, all use the same key.
func TestOneFirstKey(t *testing.T) {
	_, db := newKeyring(t)
	done := make(chan record.Event)
	for range 8 {
		go func() { done <- sealPatch(t, values.NewKeyring(db, secret), "wf-1", 1, `{"token":"canary"}`) }()
	}
	k := values.NewKeyring(db, secret)
	for range 8 {
		if opened, _, err := k.OpenEvent(t.Context(), <-done); err != nil || string(opened.Patch) != `{"token":"canary"}` {
			t.Errorf("%s, %v", opened.Patch, err)
		}
	}
}

// A cached opened context opens no longer than its key, and is not used for another context.
func TestRememberedContext(t *testing.T) {
	k, db := newKeyring(t)
	context := sealPatch(t, k, "wf-1", 1, `{"token":"canary"}`).Patch
	open := func(k *values.Keyring, context json.RawMessage) (string, bool) {
		inst, err := k.OpenInstance(t.Context(), record.Instance{ID: "wf-1", Context: context})
		if err != nil {
			return err.Error(), false
		}
		return string(inst.Context), inst.IsDestroyed()
	}
	other := values.NewKeyring(db, secret)
	sealPatch(t, other, "wf-1", 2, `{"token":"another"}`)
	for range 2 {
		for _, k := range []*values.Keyring{k, other} {
			if text, _ := open(k, context); text != `{"token":"canary"}` {
				t.Fatal(text)
			}
		}
	}
	changed := json.RawMessage(strings.Replace(string(context), "1:1:1:", "1:1:2:", 1))
	if text, _ := open(k, changed); !strings.Contains(text, values.ErrUnreadable.Error()) {
		t.Errorf("another context: %s", text)
	}
	if _, err := k.Shred(t.Context(), "wf-1"); err != nil {
		t.Fatal(err)
	}
	if text, destroyed := open(k, context); !destroyed {
		t.Errorf("after its key was destroyed: %s", text)
	}
	began := time.Now()
	for destroyed := false; !destroyed; {
		if _, destroyed = open(other, context); time.Since(began) > 5*time.Second {
			t.Fatal("another process goes on with what it remembers")
		}
	}
	if took := time.Since(began); took > 1500*time.Millisecond {
		t.Errorf("another process went on for %v", took)
	}
}
