package engine

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/judge"
)

// TestViewsShowAll holds that answers have every field of a record, in its order and with its
// JSON name, times apart: those are in milliseconds.
func TestViewsShowAll(t *testing.T) {
	for _, c := range []struct{ recorded, shown reflect.Type }{
		{reflect.TypeFor[judge.Opinion](), reflect.TypeFor[Opinion]()},
		{reflect.TypeFor[judge.Evidence](), reflect.TypeFor[Evidence]()},
	} {
		var want, got []string
		for f := range c.recorded.Fields() {
			if tag := f.Tag.Get("json"); tag != "-" && f.IsExported() {
				want = append(want, f.Name+" "+strings.Replace(tag, "Ns", "Ms", 1))
			}
		}
		for f := range c.shown.Fields() {
			got = append(got, f.Name+" "+f.Tag.Get("json"))
		}
		if !reflect.DeepEqual(want, got) {
			t.Errorf("%s shows\n%q, recorded is\n%q", c.shown, got, want)
		}
	}
	shows(t, ViewEvidence([]judge.Evidence{fill[judge.Evidence](t)})[0])
	shows(t, viewOpinion(fill[judge.Opinion](t)))
}

// Whose model it is sees what it cost; who was judged does not.
func TestWhoSeesTheCost(t *testing.T) {
	usd := 0.25
	said := []judge.Opinion{{Layer: judge.LayerTransition}, {Layer: judge.LayerModel, Model: &judge.ModelRecord{CostUSD: &usd}}}
	for role, sees := range map[Role]bool{RoleOperator: true, RoleAuditor: true, RoleReviewer: true, RoleAgent: false} {
		cost := costOf(opinionsFor(Principal{ID: "p", Role: role}, store.Definition{}, said))
		if (cost != nil) != sees || sees && *cost != usd {
			t.Errorf("%s: %v", role, cost)
		}
	}
}

func shows(t *testing.T, shown any) {
	v := reflect.ValueOf(shown)
	for i := range v.NumField() {
		if v.Field(i).IsZero() {
			t.Errorf("%s.%s is forgotten", v.Type(), v.Type().Field(i).Name)
		}
	}
}

// fill is a value without zero fields.
func fill[T any](t *testing.T) (full T) {
	for _, f := range reflect.ValueOf(&full).Elem().Fields() {
		if !f.CanSet() {
			continue
		}
		switch f.Kind() {
		case reflect.String:
			f.SetString("x")
		case reflect.Bool:
			f.SetBool(true)
		case reflect.Int, reflect.Int64:
			f.SetInt(int64(time.Second))
		case reflect.Float64:
			f.SetFloat(1)
		case reflect.Slice:
			f.Set(reflect.MakeSlice(f.Type(), 1, 1))
		case reflect.Pointer:
			f.Set(reflect.New(f.Type().Elem()))
		case reflect.Struct:
			f.Set(reflect.ValueOf(time.Unix(1, 0)))
		default:
			t.Fatalf("no value of %s", f.Type())
		}
	}
	return full
}
