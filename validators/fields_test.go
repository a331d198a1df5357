package validators

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/gavel-mcp/gavel/validators/document"
)

func TestFields(t *testing.T) {
	t.Parallel()
	const doc = ` {"comments":"ok","empty":"","zero":0,"no":false,"none":null,"list":[],
		"customer":{"id":7,"address":{"city":null,"lines":["a",{"x":1}]}},"a.b":1,"a":{"b":null,"c.d":{"e":1},"c":{"d":2}},
		"slash/ed":1,"til~de":1,"é":1,"\u0065sc\"aped":1,"":{"":1},"Reviewer_Name":"x","x":{"Y":1}} `
	for name, want := range map[string]string{
		// present: no finding
		"comments": "", "zero": "", "no": "", "list": "", "customer": "", "customer.id": "", "/customer/id": "", "customer.address.lines": "",
		"customer.address.lines.1.x": "", "/customer/address/lines/0": "", "a.b": "", "a.c.d.e": "", "/slash~1ed": "", "slash/ed": "", "/til~0de": "", "til~de": "", "é": "", `esc"aped`: "", "//": "",
		// absent or null
		"reviewer":                   `/reviewer "reviewer" is required`,
		"none":                       `/none "none" is required and is null`,
		"/none":                      `/none "/none" is required and is null`,
		"customer.name":              `/customer/name "customer.name" is required`,
		"customer.address.city":      `/customer/address/city "customer.address.city" is required and is null`,
		"/customer/address/city":     `/customer/address/city "/customer/address/city" is required and is null`,
		"comments.text":              `/comments/text "comments.text" is required`,
		"list.0":                     `/list/0 "list.0" is required`,
		"customer.address.lines.2":   `/customer/address/lines/2 "customer.address.lines.2" is required`,
		"/customer/address/lines/00": `/customer/address/lines/00 "/customer/address/lines/00" is required`,
		"/customer/address/lines/-1": `/customer/address/lines/-1 "/customer/address/lines/-1" is required`,
		"/a.b/x":                     `/a.b/x "/a.b/x" is required`,
		"a.c.d.f":                    `/a/c.d/f "a.c.d.f" is required`,
		"/a/b":                       `/a/b "/a/b" is required and is null`,
		"/sl/ash~1x":                 `/sl/ash~1x "/sl/ash~1x" is required`,
		"empty":                      `/empty "empty" is required and is blank (Give it visible text.)`,
		// a similar key is present
		"Comments":     `/Comments "Comments" is required (Rename "comments" to "Comments".)`,
		"reviewerName": `/reviewerName "reviewerName" is required (Rename "Reviewer_Name" to "reviewerName".)`,
		"x.y":          `/x/y "x.y" is required (Rename "Y" to "y".)`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			set, problems, err := NewCompiler(nil, Options{}).Compile(context.Background(), "caller", Owner{ID: "o"}, Checks{RequiredFields: []string{name}})
			if err != nil || len(problems) > 0 {
				t.Fatal(problems, err)
			}
			got := ""
			for _, f := range set.CheckFields(document.ReadTrusted([]byte(doc))) {
				if f.Code != CodeRequiredField {
					t.Errorf("code %q", f.Code)
				}
				got += f.Path + " " + f.Message
				if f.Hint != "" {
					got += " (" + f.Hint + ")"
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestFieldsKeepTheOrderOfTheDefinition(t *testing.T) {
	t.Parallel()
	set, _, err := NewCompiler(nil, Options{}).Compile(context.Background(), "caller", Owner{}, Checks{RequiredFields: []string{"z", "a", "m"}})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range set.CheckFields(document.ReadTrusted([]byte(`{"a":1}`))) {
		got = append(got, f.Path)
	}
	if diff := cmp.Diff([]string{"/z", "/m"}, got); diff != "" {
		t.Error(diff)
	}
	for _, doc := range []string{`[]`, `null`, `"x"`, ``, `{"a"`, `{"a":`, `{"a":1`, `{1}`} {
		if got := set.CheckFields(document.ReadTrusted([]byte(doc))); len(got) == 0 {
			t.Errorf("%s has all fields", doc)
		}
	}
}

func TestFieldNamesThatDoNotCompile(t *testing.T) {
	t.Parallel()
	set, problems, err := NewCompiler(nil, Options{}).Compile(context.Background(), "caller", Owner{}, Checks{RequiredFields: []string{"ok", "", "/a~", "/a~2"}})
	if err != nil || set != nil {
		t.Fatalf("got a set %v, %v", set, err)
	}
	var got []string
	for _, p := range problems {
		got = append(got, p.Part+p.Path)
	}
	if diff := cmp.Diff([]string{"requiredFields/1", "requiredFields/2", "requiredFields/3"}, got); diff != "" {
		t.Error(diff)
	}
}

// TestFieldsAgreeWithDecoding compares pointers with a lookup in the decoded document.
func TestFieldsAgreeWithDecoding(t *testing.T) {
	t.Parallel()
	keys := rapid.SampledFrom([]string{"a", "b", "a/b", "~", "é", "\"", "\\", "", "0", "\n"})
	rapid.Check(t, func(t *rapid.T) {
		var draw func(depth int) any
		draw = func(depth int) any {
			switch k := rapid.IntRange(0, 6).Draw(t, "kind"); {
			case k < 3 && depth > 0:
				m := map[string]any{}
				for range rapid.IntRange(0, 3).Draw(t, "keys") {
					m[keys.Draw(t, "key")] = draw(depth - 1)
				}
				return m
			case k == 3 && depth > 0:
				list := []any{}
				for range rapid.IntRange(0, 3).Draw(t, "items") {
					list = append(list, draw(depth-1))
				}
				return list
			case k == 4:
				return nil
			}
			return rapid.SampledFrom([]any{1.5, "x,}]\"", true, ""}).Draw(t, "scalar")
		}
		top := map[string]any{"a": draw(3), "b": draw(2)}
		raw, err := json.Marshal(top)
		if err != nil {
			t.Fatal(err)
		}
		if rapid.Bool().Draw(t, "spaced") {
			raw, err = json.MarshalIndent(top, " ", "\t")
			if err != nil {
				t.Fatal(err)
			}
		}
		tokens := rapid.SliceOfN(keys, 1, 4).Draw(t, "tokens")
		want, there := any(top), true
		for _, token := range tokens {
			switch v := want.(type) {
			case map[string]any:
				want, there = v[token]
			case []any:
				if there = token == "0" && len(v) > 0; there {
					want = v[0]
				}
			default:
				there = false
			}
			if !there {
				break
			}
		}
		f, err := parseField(joinPointer(tokens))
		if err != nil {
			t.Fatal(err)
		}
		got := (&Set{fields: []field{f}}).CheckFields(document.ReadTrusted(raw))
		if missing := !there || want == nil || want == ""; missing != (len(got) == 1) {
			t.Fatalf("%s in %s: got %v, want missing %v", joinPointer(tokens), raw, got, missing)
		}
		if len(got) == 1 && got[0].Path != joinPointer(tokens) {
			t.Fatalf("path %q", got[0].Path)
		}
	})
}

func FuzzFields(f *testing.F) {
	f.Add("a.b.0", `{"a":{"b":[1,{"c":"\"}"}]}}`)
	f.Add("/a/0", `{"a":[`)
	f.Fuzz(func(t *testing.T, name, doc string) {
		parsed, err := parseField(name)
		if err != nil {
			return
		}
		got := (&Set{fields: []field{parsed}}).CheckFields(document.ReadTrusted([]byte(doc)))
		var top map[string]json.RawMessage
		if json.Unmarshal([]byte(doc), &top) != nil || top == nil || strings.ContainsAny(name, "./") {
			return
		}
		v, there := top[name]
		if want := there && string(v) != "null" && !isBlank(document.ReadTrusted(v)); want != (len(got) == 0) && strings.Count(doc, `"`+name+`"`) < 2 && json.Valid([]byte(doc)) && !strings.ContainsRune(doc+name, '\uFFFD') {
			t.Fatalf("%q in %q: got %v", name, doc, got)
		}
	})
}
