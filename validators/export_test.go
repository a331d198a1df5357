package validators

// HasSchema reports whether there is a schema, here or in the sandbox.
func (s *Set) HasSchema() bool { return s.schema != nil || s.remote != nil }

// HasScripts reports whether there are validators and routes, and nothing else.
func (s *Set) HasScripts() bool {
	return len(s.validators) > 0 && len(s.routes) > 0 && len(s.fields) == 0 && !s.HasSchema()
}
