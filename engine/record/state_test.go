package record_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine/record"
)

// Every field counts, even one that is added later: a digest that omits a field
// would let it be changed undetected.
func TestStateDigestCoversEveryField(t *testing.T) {
	h := sample(t)
	whole := h.last()
	whole.Facts.Frozen = []string{"/a"}
	want := record.DigestState(whole)
	text, err := json.Marshal(whole)
	if err != nil {
		t.Fatal(err)
	}
	var again record.Instance
	if err := json.Unmarshal(text, &again); err != nil {
		t.Fatal(err)
	}
	again.Context = whole.Context // stores keep it separately, byte for byte
	if record.DigestState(again) != want || record.DigestState(whole.Clone()) != want {
		t.Error("the same instance has another digest")
	}
	seen := map[string]string{want: "nothing"}
	for field := range reflect.TypeFor[record.Instance]().Fields() {
		if !field.IsExported() { // whether it is opened does not count
			continue
		}
		changed := whole.Clone()
		switch at := reflect.ValueOf(&changed).Elem().FieldByIndex(field.Index); v := at.Interface().(type) {
		case string, record.Status:
			at.SetString(at.String() + "x")
		case int, int64:
			at.SetInt(at.Int() + 1)
		case json.RawMessage:
			at.SetBytes([]byte(`{"other":1}`))
		case time.Time:
			at.Set(reflect.ValueOf(v.Add(time.Nanosecond)))
		default:
			changed.Facts.Visited = append(changed.Facts.Visited, "x")
		}
		digest := record.DigestState(changed)
		if other, taken := seen[digest]; taken {
			t.Errorf("%s changes as little as %s", field.Name, other)
		}
		seen[digest] = field.Name
	}
}

func TestTruncationNamesItsFloor(t *testing.T) {
	h := sample(t)
	floor := h.after[2]
	said := record.Truncation{UpTo: floor.Seq, Hash: floor.Head, Count: floor.Seq, Revision: floor.Revision, Floor: record.DigestState(floor)}
	sealed, _, err := record.Seal(h.last(), record.Event{Kind: record.Truncated, Time: epoch, Principal: "p", Role: "operator", Truncation: &said}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := record.CheckTruncation([]record.Event{sealed}, floor); err != nil {
		t.Error(err)
	}
	other := floor
	other.State = "elsewhere"
	if err := record.CheckTruncation([]record.Event{sealed}, other); !errors.Is(err, record.ErrIllegalStep) {
		t.Errorf("another floor: %v", err)
	}
}
