package httpapi

import (
	"fmt"
	"reflect"
	"sync"
)

// place is where in a request a field stands. Its text is the tag's key.
type place string

const (
	inPath   place = "path"
	inQuery  place = "query"
	inHeader place = "header"
	inJSON   place = "json"
	inBody   place = "body"
)

// field is one field of a request type.
type field struct {
	index    []int
	name     string
	required bool
	of       reflect.Type
}

// plan says where the fields of a request type stand.
type plan map[place][]field

var plans sync.Map // reflect.Type -> plan

// planOf reads the tags of a request type. A mistake in them is one of this program, met
// by its first test.
func planOf(t reflect.Type) plan {
	if p, ok := plans.Load(t); ok {
		return p.(plan) //nolint:forcetypeassert // nothing else is stored
	}
	p := plan{}
	p.add(t, nil)
	plans.Store(t, p)
	return p
}

func (p plan) add(t reflect.Type, above []int) {
	for f := range t.Fields() {
		index := append(append([]int{}, above...), f.Index...)
		if f.Anonymous {
			p.add(f.Type, index)
			continue
		}
		found := false
		for _, at := range []place{inPath, inQuery, inHeader, inJSON, inBody} {
			if name := f.Tag.Get(string(at)); name != "" {
				p[at] = append(p[at], field{index: index, name: name, required: at == inPath || f.Tag.Get("required") == "true", of: f.Type})
				found = true
			}
		}
		if !found {
			panic(fmt.Sprintf("httpapi: the field %s of %s has no place in a request", f.Name, t))
		}
	}
}

// names are what the fields at a place are called.
func (p plan) names(at place) []string {
	out := make([]string, len(p[at]))
	for i, f := range p[at] {
		out[i] = f.name
	}
	return out
}
