package document

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"
)

func TestCanonical(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"white space and order", ` { "b" : [ 1 , 2 ] , "a" : { } } `, `{"a":{},"b":[1,2]}`},
		// The sorting and number examples of RFC 8785, sections 3.2.2 and 3.2.3.
		{
			"order of UTF-16", `{"\u20ac":"Euro Sign","\r":"Carriage Return","\ufb33":"Hebrew Letter Dalet With Dagesh","1":"One","\ud83d\ude00":"Emoji: Grinning Face","\u0080":"Control","\u00f6":"Latin Small Letter O With Diaeresis"}`,
			`{"\r":"Carriage Return","1":"One","` + "\u0080" + `":"Control","ö":"Latin Small Letter O With Diaeresis","€":"Euro Sign","😀":"Emoji: Grinning Face","` + "\ufb33" + `":"Hebrew Letter Dalet With Dagesh"}`,
		},
		{
			"numbers", `[1E30,4.50,2e-3,0.000000000000000000000000001,1.0,-0,0.0,1e21,1e20,1e-6,1e-7,9007199254740992,-1.5e-10]`,
			`[1e+30,4.5,0.002,1e-27,1,0,0,1e+21,100000000000000000000,0.000001,1e-7,9007199254740992,-1.5e-10]`,
		},
		{"strings", `"\u20ac$\u000f\u000aA'\u0042\u0022\u005c\\\"\/<>&\u2028\u007f\b\f\t"`, `"€$\u000f\nA'B\"\\\\\"/<>&` + "\u2028\u007f" + `\b\f\t"`},
		{"pairs before their kin", `{"\ud83d\ude01":1,"\ud83d\ude00":2,"\uffff":3}`, `{"😀":2,"😁":1,"` + "\uffff" + `":3}`},
		{"prefixes", `{"ab":1,"a":2,"":3}`, `{"":3,"a":2,"ab":1}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := Canonical([]byte(c.in))
			if err != nil || string(got) != c.want {
				t.Errorf("got  %s, %v\nwant %s", got, err, c.want)
			}
		})
	}
	for _, bad := range []string{``, `{"a":1,"a":1}`, `[1e999]`, `{`, `"\ud800"`} {
		if _, err := Canonical([]byte(bad)); err == nil {
			t.Errorf("%s is accepted", bad)
		}
	}
}

func TestCanonicalIsTheSameForJSONAndYAML(t *testing.T) {
	j, err := Parse("", []byte(`{"b":[1.0,"x"],"a":null}`), Limits{})
	if err != nil {
		t.Fatal(err)
	}
	y, err := Parse("", []byte("a:\nb:\n- 1\n- x\n"), Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(y.Canonical()), string(j.Canonical()); got != want {
		t.Errorf("%s differs from %s", got, want)
	}
}

// FuzzCanonical: canonicalizing twice changes nothing, and the value stays the same.
func FuzzCanonical(f *testing.F) {
	for _, s := range []string{`{"b":1,"a":[1.0,1e21,"\u00e9"]}`, `{"\ud83d\ude00":1,"\ufb33":2}`, `-0`, `1e-7`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		once, err := Canonical(raw)
		if err != nil {
			return
		}
		twice, err := Canonical(once)
		if err != nil || !bytes.Equal(once, twice) {
			t.Fatalf("%q gives %s, then %s (%v)", raw, once, twice, err)
		}
		var before, after any
		if json.Unmarshal(raw, &before) != nil || json.Unmarshal(once, &after) != nil || !reflect.DeepEqual(before, after) {
			t.Fatalf("%q and %s differ", raw, once)
		}
	})
}
