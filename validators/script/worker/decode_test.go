package worker_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/validators/script/worker"
)

var documents = []string{
	`{}`, ` { } `, `{"a":1}`, `{"a":[1,-2,3.5,1e3,1E-3,-0.25,0]}`, `{"a":[],"b":{}}`, `{"a":{"b":{"c":[{"d":null}]}}}`,
	`{"t":true,"f":false,"n":null}`, `{"s":"plain","e":"\"\\\/\b\f\n\r\t","u":"\u0041\u00e9\u4e2d\ud83d\ude00"}`, `{"ü":"größe 中 😀"}`,
	`{"a":1,"a":2}`, `{"":""}`, `{"0":1,"2":3,"1":2}`, `{"long":"` + strings.Repeat("x", 300) + `"}`, `{"n":123456789012345,"m":1234567890123456,"big":12345678901234567890}`,
	`{"lone":"\ud800","pair":"\ud800\ud800x","low":"\udc00","cut":"\ud83dx"}`,
	// not JSON, or not an object
	``, `{`, `}`, `[]`, `"x"`, `1`, `null`, `{"a"}`, `{"a":}`, `{"a":1,}`, `{,}`, `{"a":1 "b":2}`, `{'a':1}`, `{a:1}`, `{"a":01}`, `{"a":1.}`, `{"a":.5}`,
	`{"a":+1}`, `{"a":-}`, `{"a":1e}`, `{"a":tru}`, `{"a":nul}`, `{"a":"x}`, `{"a":"\x"}`, `{"a":"\u12"}`, `{"a":"\u12g4"}`, "{\"a\":\"\n\"}", "{\"a\":\"\xff\"}", "{\"\xff\\n\":1}",
	`{}x`, `{} {}`, `{"a":[1,]}`, `{"a":[}`, `{"a":NaN}`, `{"a":Infinity}`, "\ufeff{}", `{"a":1}/*x*/`,
}

// FuzzDecodeJSON: the decoder accepts what encoding/json accepts, with the same values.
func FuzzDecodeJSON(f *testing.F) {
	for _, d := range documents {
		f.Add([]byte(d))
	}
	f.Add([]byte(`{"":1E700}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if strings.Contains(string(raw), "__proto__") || strings.Contains(string(raw), "toJSON") {
			return // has its own test
		}
		var want map[string]any
		err := json.Unmarshal(raw, &want)
		// encoding/json repairs invalid UTF-8 and accepts null as an object.
		var tooLarge *json.UnmarshalTypeError
		if errors.As(err, &tooLarge) && strings.HasPrefix(tooLarge.Value, "number") {
			return // an out-of-range number is Infinity here, as in JSON.parse
		}
		valid := len(raw) == 0 || err == nil && want != nil && bytes.Equal(raw, bytes.ToValidUTF8(raw, nil))
		text, err := worker.DecodeJSON(raw)
		if (err == nil) != valid {
			if err != nil && strings.Contains(err.Error(), "more than 64 deep") {
				return // nested too deep
			}
			t.Fatalf("%q: %v, valid %t", raw, err, valid)
		}
		if !valid || len(raw) == 0 {
			return
		}
		var got map[string]any
		if err := json.Unmarshal([]byte(text), &got); err != nil {
			t.Fatalf("%q became %q: %v", raw, text, err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%q became %s, want %v", raw, text, want)
		}
	})
}

func TestDecodeSpecialKeys(t *testing.T) {
	got, err := worker.DecodeJSON([]byte(`{"__proto__":{"a":1},"constructor":2,"toString":3,"__proto__":{"b":4}}`))
	if err != nil || got != `{"__proto__":{"b":4},"constructor":2,"toString":3}` {
		t.Errorf("%s, %v", got, err)
	}
}

func TestDecodeBounds(t *testing.T) {
	deep := func(n int) []byte {
		return []byte(strings.Repeat(`{"a":`, n) + "1" + strings.Repeat("}", n))
	}
	if _, err := worker.DecodeJSON(deep(64)); err != nil {
		t.Error(err)
	}
	if _, err := worker.DecodeJSON(deep(65)); err == nil || !strings.Contains(err.Error(), "more than 64 deep") {
		t.Error(err)
	}
	if _, err := worker.DecodeJSON([]byte(`{"a":[` + strings.Repeat("0,", 150_000) + "0]}")); err == nil || !strings.Contains(err.Error(), "more than 150000 values") {
		t.Error(err)
	}
}
