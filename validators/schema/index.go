package schema

import (
	"io"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v5"
)

// index maps the absolute locations in the library's errors to the parts of a compiled schema. Messages are
// built from these parts, and from types and lengths. The library's own messages quote the document and are
// never shown.
type index map[string]*jsonschema.Schema

// add adds s and every schema reachable from it.
func (ix index) add(s *jsonschema.Schema) {
	if s == nil || ix[s.Location] != nil {
		return
	}
	ix[s.Location] = s
	eachChild(s, ix.add)
}

// eachChild calls f for every schema directly within s; some may be nil.
func eachChild(s *jsonschema.Schema, f func(*jsonschema.Schema)) {
	for _, one := range []*jsonschema.Schema{
		s.Ref, s.RecursiveRef, s.DynamicRef, s.Not, s.If, s.Then, s.Else, s.PropertyNames,
		s.UnevaluatedProperties, s.Items2020, s.Contains, s.UnevaluatedItems, s.ContentSchema,
	} {
		f(one)
	}
	for _, list := range [][]*jsonschema.Schema{s.AllOf, s.AnyOf, s.OneOf, s.PrefixItems} {
		for _, one := range list {
			f(one)
		}
	}
	for _, named := range []map[string]*jsonschema.Schema{s.Properties, s.DependentSchemas} {
		for _, one := range named {
			f(one)
		}
	}
	for _, one := range s.PatternProperties {
		f(one)
	}
	loose := []any{s.AdditionalProperties, s.AdditionalItems, s.Items}
	for _, one := range s.Dependencies {
		loose = append(loose, one)
	}
	for _, one := range loose {
		switch one := one.(type) {
		case *jsonschema.Schema:
			f(one)
		case []*jsonschema.Schema:
			for _, s := range one {
				f(s)
			}
		}
	}
}

// find returns the schema and the keyword at the absolute keyword location of an error. The keyword is "" if
// the whole schema is false. The schema is nil if only a dynamic reference reaches it.
func (ix index) find(location string) (s *jsonschema.Schema, keyword string) {
	if s := ix[location]; s != nil && s.Always != nil && !*s.Always {
		return s, ""
	}
	before, last, _ := cutLast(location)
	if s := ix[before]; s != nil {
		return s, last
	}
	// After some keywords, a name or an index follows.
	for at := before; ; {
		before, keyword, ok := cutLast(at)
		if !ok {
			return nil, last
		}
		if s := ix[before]; s != nil && (keyword == "dependentRequired" || keyword == "dependencies") {
			return s, keyword
		}
		at = before
	}
}

var metaIndexes sync.Map // index by URL of the meta-schema

// loadMetaIndex returns the index of the meta-schema that ve comes from.
func loadMetaIndex(ve *jsonschema.ValidationError) index {
	url, _, _ := strings.Cut(ve.AbsoluteKeywordLocation, "#")
	if known, ok := metaIndexes.Load(url); ok {
		return known.(index)
	}
	ix := index{}
	c := jsonschema.NewCompiler()
	c.LoadURL = func(url string) (io.ReadCloser, error) { return nil, &outsideError{url} }
	if s, err := c.Compile(url); err == nil { // all possible meta-schemas are built in
		ix.add(s)
	}
	metaIndexes.Store(url, ix)
	return ix
}
