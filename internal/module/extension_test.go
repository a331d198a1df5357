package module

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/gavel-mcp/gavel/engine"
)

type greeter interface{ greet() string }

type hello struct{}

func (hello) greet() string { return "hello" }

func TestExtend(t *testing.T) {
	defer func(have []Module) { modules = have }(modules)
	modules = nil
	var did []string
	note := func(what string) func() { return func() { did = append(did, what) } }
	var mistake error
	for _, name := range []string{"b", "a"} {
		Register(Module{Name: name, Extend: func(s Setup) *Extension {
			note(name + " extends " + s.Version)()
			return &Extension{
				Parts: []*Part{{Sections: []string{name}, Prepare: func(context.Context, *Change) (func(), error) {
					if name == "b" && mistake != nil {
						return nil, mistake
					}
					return note(name + " takes"), nil
				}}},
				Configure: func(c *engine.Config) { c.Models = append(c.Models, name) },
				Provides:  map[string]any{"a": 1, "b": hello{}}[name],
				Run:       func(context.Context) func() { return note(name + " stops") },
				Close:     note(name + " closes"),
			}
		}})
	}
	Register(Module{Name: "c"})
	all, err := Extend(t.Context(), Setup{Version: "1"})
	if err != nil {
		t.Fatal(err)
	}
	all.Run(t.Context())()
	var cfg engine.Config
	all.Configure(&cfg)
	if got, ok := Find[greeter](all); !ok || got.greet() != "hello" {
		t.Error("what b provides is not found")
	}
	if _, ok := Find[error](all); ok {
		t.Error("something is found that nobody provides")
	}
	if err := errors.Join(all.Connect(System{}), all.Check(t.Context())); err != nil || all.Foreign() != nil || len(all.Parts()) != 2 {
		t.Errorf("extensions without functions: %v, %v", err, all.Foreign())
	}
	all.Close()
	want := []string{"a extends 1", "a takes", "b extends 1", "b takes", "a stops", "b stops", "a closes", "b closes"}
	if !slices.Equal(did, want) || !slices.Equal(cfg.Models, []string{"a", "b"}) {
		t.Errorf("did %q, want %q", did, want)
	}
	did, mistake = nil, errors.New("a mistake")
	if _, err := Extend(t.Context(), Setup{}); !errors.Is(err, mistake) || !slices.Contains(did, "a closes") || slices.Contains(did, "b takes") {
		t.Errorf("after a mistake: %v, did %q", err, did)
	}
}
