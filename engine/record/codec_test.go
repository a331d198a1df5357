package record_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/validators/document"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// fixture is an event with every field of the format set, including those that later
// packages add to a verdict or a finding.
func fixture() record.Event {
	var e record.Event
	n := 0
	populate(reflect.ValueOf(&e).Elem(), &n)
	e.Schema, e.Kind, e.Time = record.SchemaVersion, record.Advanced, epoch
	e.PrevHash, e.Hash = "", ""
	return e
}

var (
	timeType = reflect.TypeFor[time.Time]()
	rawType  = reflect.TypeFor[json.RawMessage]()
)

func populate(v reflect.Value, n *int) {
	*n++
	switch {
	case v.Type() == timeType:
		v.Set(reflect.ValueOf(epoch))
		return
	case v.Type() == rawType:
		v.SetBytes(fmt.Appendf(nil, `{"b":%d.50,"a":"<é>"}`, *n))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(fmt.Sprintf("text %d", *n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(*n))
		if v.Type() == reflect.TypeFor[document.Milliseconds]() {
			v.SetInt(int64(*n) * int64(time.Millisecond))
		}
	case reflect.Float64:
		v.SetFloat(0.5)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		populate(v.Elem(), n)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		populate(v.Index(0), n)
	case reflect.Map: // as text
		key, value := fmt.Sprintf("key %d", *n), reflect.New(v.Type().Elem()).Elem()
		*n--
		populate(value, n)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf(key), value)
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				populate(v.Field(i), n)
			}
		}
	default:
		panic("populate cannot fill " + v.Type().String())
	}
}

// TestGoldenFormat detects every change of the written form: a field added, renamed, moved or
// removed, here or in the verdict that a decision embeds.
func TestGoldenFormat(t *testing.T) {
	path := filepath.Join("testdata", fmt.Sprintf("event-v%d.json", record.SchemaVersion))
	body, err := record.Encode(fixture())
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(path, body, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(body, want) {
		t.Errorf("the format of events has changed.\nOnce a release has written schema %d: raise SchemaVersion, have Decode bring the old one up, and keep %s as it is.\nBefore: rewrite it with -update.\n got %s\nwant %s",
			record.SchemaVersion, path, body, want)
	}
}

// TestGoldenVersionsAreRead reads a fixture of every version ever written.
func TestGoldenVersionsAreRead(t *testing.T) {
	for v := 1; v <= record.SchemaVersion; v++ {
		body, err := os.ReadFile(filepath.Join("testdata", fmt.Sprintf("event-v%d.json", v)))
		if err != nil {
			t.Fatal(err)
		}
		e, err := record.Decode(body)
		if err != nil {
			t.Fatalf("version %d: %v", v, err)
		}
		if !bytes.Equal(e.Body(), body) {
			t.Errorf("version %d: the body is not the bytes that were read", v)
		}
		if e.Decision == nil || e.Decision.Opinions[0].Route == nil || e.Checkpoint == nil || e.Key == nil || e.Time != epoch {
			t.Errorf("version %d: fields are missing: %+v", v, e)
		}
	}
}

// TestGoldenHistory pins the hashes: a history written today verifies forever.
func TestGoldenHistory(t *testing.T) {
	history := func(version int) string {
		return filepath.Join("testdata", fmt.Sprintf("history-v%d.jsonl", version))
	}
	if *update {
		var out bytes.Buffer
		for _, e := range sample(t).events {
			line, err := json.Marshal(goldenLine{Body: string(e.Body()), PrevHash: e.PrevHash, Hash: e.Hash})
			if err != nil {
				t.Fatal(err)
			}
			out.Write(append(line, '\n'))
		}
		if err := os.WriteFile(history(record.SchemaVersion), out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for v := 1; v <= record.SchemaVersion; v++ {
		events := readHistory(t, history(v))
		if err := record.Verify(each(events)); err != nil || len(events) < 6 {
			t.Errorf("version %d: %d events: %v", v, len(events), err)
		}
		if inst, err := record.FoldAt(each(events), 0); err != nil || inst.Seq != events[len(events)-1].Seq {
			t.Errorf("version %d: folded to %d: %v", v, inst.Seq, err)
		}
	}
}

func readHistory(t *testing.T, path string) []record.Event {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var events []record.Event
	for line := range bytes.Lines(data) {
		var g goldenLine
		if err := json.Unmarshal(line, &g); err != nil {
			t.Fatal(err)
		}
		e, err := record.Decode([]byte(g.Body))
		if err != nil {
			t.Fatal(err)
		}
		e.PrevHash, e.Hash = g.PrevHash, g.Hash
		events = append(events, e)
	}
	return events
}

type goldenLine struct {
	Body     string `json:"body"`
	PrevHash string `json:"prevHash"`
	Hash     string `json:"hash"`
}

func TestEncodeIsCanonical(t *testing.T) {
	e := fixture()
	want, err := record.Encode(e)
	if err != nil {
		t.Fatal(err)
	}
	same := e
	same.Time = e.Time.In(time.FixedZone("elsewhere", 3600))
	same.Patch = json.RawMessage(" { \"b\" : " + string(e.Patch[len(`{"b":`):]) + "\n")
	same.Hash, same.PrevHash = "00", "11" // stored next to the body
	for range 3 {
		got, err := record.Encode(same)
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("got %s, %v\nwant %s", got, err, want)
		}
	}
	if bytes.Contains(want, []byte(`\u003c`)) || bytes.Contains(want, []byte(`"hash"`)) || bytes.Contains(want, []byte(`"prevHash"`)) {
		t.Errorf("HTML escapes or hashes in the body: %s", want)
	}
	back, err := record.Decode(want)
	if err != nil {
		t.Fatal(err)
	}
	again, err := record.Encode(back)
	if err != nil || !bytes.Equal(again, want) {
		t.Errorf("decoded and encoded again: %s, %v", again, err)
	}
}

func TestDecodeRefuses(t *testing.T) {
	good := string(sample(t).events[0].Body())
	replace := func(old, new string) string {
		out := string(bytes.Replace([]byte(good), []byte(old), []byte(new), 1))
		if out == good {
			t.Fatalf("%q is not in %s", old, good)
		}
		return out
	}
	schema := func(beyond int) string { return fmt.Sprintf(`"schema":%d`, record.SchemaVersion+beyond) }
	tests := map[string]struct {
		body string
		want error
	}{
		"nothing":             {"", record.ErrMalformed},
		"no JSON":             {"hello", record.ErrMalformed},
		"no schema first":     {`{"kind":"started"}`, record.ErrMalformed},
		"a schema of 0":       {replace(schema(0), schema(-record.SchemaVersion)), record.ErrMalformed},
		"a newer schema":      {replace(schema(0), schema(1)), record.ErrOtherSchema},
		"newer and different": {`{"schema":7,"what":"ever"}`, record.ErrOtherSchema},
		"an unknown kind":     {replace(`"started"`, `"exploded"`), record.ErrUnknownKind},
		"an unknown field":    {replace(`"kind"`, `"colour":1,"kind"`), record.ErrMalformed},
		"a hash inside":       {replace(`"kind"`, `"hash":"00","kind"`), record.ErrMalformed},
		"no instance":         {replace(`"wf-1"`, `""`), record.ErrMalformed},
		"a wrong type":        {replace(`"seq":1`, `"seq":"1"`), record.ErrMalformed},
		"cut off":             {good[:len(good)-1], record.ErrMalformed},
		"two of them":         {good + good, record.ErrMalformed},
		"not UTF-8":           {replace(`draft`, "dr\xffft"), record.ErrMalformed},
	}
	for name, tt := range tests {
		if _, err := record.Decode([]byte(tt.body)); !errors.Is(err, tt.want) {
			t.Errorf("%s: got %v, want %v", name, err, tt.want)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, e := range sample(f).events {
		f.Add(e.Body())
	}
	if body, err := record.Encode(fixture()); err == nil {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		e, err := record.Decode(body)
		if err != nil {
			return
		}
		if !bytes.Equal(e.Body(), body) {
			t.Fatal("the body is not what was read")
		}
		canonical, err := record.Encode(e)
		if err != nil {
			return // a time that cannot be stored
		}
		again, err := record.Decode(canonical)
		if err != nil {
			t.Fatalf("what was encoded cannot be read: %v\n%s", err, canonical)
		}
		if twice, err := record.Encode(again); err != nil || !bytes.Equal(twice, canonical) {
			t.Fatalf("not canonical: %v\n%s\n%s", err, canonical, twice)
		}
	})
}

func BenchmarkSeal(b *testing.B) {
	h := &history{tb: b}
	h.seal(started(`{"text":"`+string(bytes.Repeat([]byte("x"), 1000))+`"}`), nil)
	e := advanced("go", "draft", `{"n":1}`)
	e.Time, e.Principal = epoch, "local:agent"
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := record.Seal(h.last(), e, nil); err != nil {
			b.Fatal(err)
		}
	}
}
