// Package testdata holds the fixtures that tests of more than one package share,
// so that none of them needs a path into another's folder. It must know nothing of
// this module and hold nothing that is computed: what is here is read as it stands.
package testdata

import "embed"

// Workflows holds the example definitions, as "workflows/NAME.json" or
// "workflows/NAME.yaml", each named after the definition in it.
//
//go:embed workflows
var Workflows embed.FS

// Evidence holds the examples with evidence, one folder each: the definition, named
// after itself, gavel.yaml with its sources, and what these need.
//
//go:embed evidence
var Evidence embed.FS

// DFA holds folders as the Generic DFA server keeps them: as its documentation says, in
// their older shape, torn by a crash, and made by somebody who means harm.
//
//go:embed dfa
var DFA embed.FS
