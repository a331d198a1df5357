package module

import (
	"context"
	"io"
	"testing"
)

func TestRegister(t *testing.T) {
	defer func(have []Module) { modules = have }(modules)
	modules = nil
	if FindProcess("__a") != nil || Commands("") != nil {
		t.Error("something is provided without a module")
	}
	Register(Module{Name: "b", Commands: []Command{{Name: "later"}}})
	Register(Module{
		Name: "a", Commands: []Command{{Name: "first"}, {Name: "second"}, {Name: "below", Parent: "eval"}},
		Processes: map[string]Process{"__a": func(context.Context, []string, io.Reader, io.Writer) int { return 7 }},
	})
	all := Commands("")
	if len(all) != 3 || all[0].Name != "first" || all[1].Name != "second" || all[2].Name != "later" {
		t.Errorf("%+v", all)
	}
	if below := Commands("eval"); len(below) != 1 || below[0].Name != "below" {
		t.Errorf("%+v", below)
	}
	if p := FindProcess("__a"); p == nil || p(t.Context(), nil, nil, nil) != 7 {
		t.Error("the process is not found")
	}
	if FindProcess("__b") != nil {
		t.Error("a process that no module has")
	}
	defer func() {
		if recover() == nil {
			t.Error("a module may be registered twice")
		}
	}()
	Register(Module{Name: "a"})
}
