package strictdoc

import (
	"fmt"
	"strings"

	"github.com/goccy/go-yaml/token"
)

// tokenGuard looks at YAML tokens before the parser sees them. It refuses what
// JSON cannot express, and what would make the parser recurse deeply or build
// very long paths: it keeps the whole path of keys as text in every node, so long
// keys above many values would cost gigabytes.
type tokenGuard struct {
	maxDepth int
	frames   []frame
	length   int // of all keys in frames
	cost     int // sum of length over all values so far
	omitted  int // values left out
}

// frame is one open collection.
type frame struct {
	flow   bool
	braces bool // of a flow mapping
	colon  bool // a flow mapping's key has been followed by one
	entry  bool // of a block sequence, not of a block mapping
	column int  // of a block collection
	key    int  // length of the key it is at
	keys   int  // of a block mapping so far
}

const (
	// maxPathCost bounds the memory that paths may take, in bytes.
	maxPathCost = 32 << 20
	// maxBlockKeys bounds the keys of one block mapping: the library calls itself
	// once for each and copies all that follow.
	maxBlockKeys = 2000
	// maxOmitted bounds the values left out ("a:" and nothing): for each one the
	// library moves all the tokens that follow.
	maxOmitted = 2000
	// maxTabCost bounds the work that tabs cause: for each one in a double-quoted
	// scalar the library reads to the end of the line.
	maxTabCost = 16 << 20
	// maxAngles bounds a run of "<", of which the library reads the rest at each.
	maxAngles = 256
)

// checkCost refuses text that the library's scanner would read over and over.
func checkCost(lines []string) *Issue {
	cost := 0
	for i, line := range lines {
		if cost += strings.Count(line, "\t") * len(line); cost > maxTabCost {
			return &Issue{Rule: RuleSize, Line: i + 1, Column: 1, Message: "too many tabs in long lines; use spaces"}
		}
		if strings.Contains(line, strings.Repeat("<", maxAngles)) {
			return &Issue{Rule: RuleSize, Line: i + 1, Column: 1, Message: `a long run of "<" is not supported`}
		}
	}
	return nil
}

// unsupported says what may not occur.
var unsupported = map[token.Type]string{
	token.AnchorType:     "anchors (&name) are not supported; write the value where it is needed",
	token.AliasType:      "aliases (*name) are not supported; write the value where it is needed, or put the text in quotes",
	token.MergeKeyType:   "merge keys (<<) are not supported; write the keys where they are needed",
	token.TagType:        "tags (!name) are not supported; put the text in quotes if it is one",
	token.DirectiveType:  "directives (%NAME) are not supported",
	token.MappingKeyType: `explicit keys ("? ") are not supported; write "key: value"`,
}

func (g *tokenGuard) check(tokens token.Tokens) *Issue {
	var previous *token.Token
	for _, tk := range tokens {
		if message, ok := unsupported[tk.Type]; ok {
			return at(tk, RuleUnsupported, message)
		}
		switch tk.Type {
		case token.InvalidType:
			return at(tk, RuleSyntax, "not well-formed YAML: "+tk.Error)
		case token.CommentType:
			continue
		}
		if previous != nil && g.omits(tk, previous) {
			if g.omitted++; g.omitted > maxOmitted {
				return at(tk, RuleSize, fmt.Sprintf("more than %d values are left out; write null", maxOmitted))
			}
		}
		if !g.step(tk, previous) {
			return at(tk, RuleSize, fmt.Sprintf("a mapping has more than %d keys; write this document as JSON", maxBlockKeys))
		}
		if len(g.frames) > 2*g.maxDepth+16 {
			return at(tk, RuleDepth, depthMessage(g.maxDepth))
		}
		if g.cost += g.length; g.cost > maxPathCost {
			return at(tk, RuleSize, "long keys above many values; use shorter keys or less nesting")
		}
		previous = tk
	}
	return nil
}

// omits says whether a value was left out between two tokens.
func (g *tokenGuard) omits(tk, previous *token.Token) bool {
	if len(g.frames) == 0 {
		return false
	}
	top := g.frames[len(g.frames)-1]
	dangling := previous.Type == token.MappingValueType || previous.Type == token.SequenceEntryType
	if !top.flow {
		same := tk.Position.Column == top.column && (top.entry || tk.Type != token.SequenceEntryType)
		return dangling && (tk.Position.Column < top.column || same)
	}
	switch tk.Type {
	case token.CollectEntryType, token.MappingEndType, token.SequenceEndType:
		return dangling || top.braces && !top.colon
	}
	return false
}

// step follows one token. It estimates: every collection of the document has a
// frame while the parser is inside it. It returns false for one key too many.
func (g *tokenGuard) step(tk, previous *token.Token) bool {
	switch tk.Type {
	case token.MappingStartType, token.SequenceStartType:
		g.push(frame{flow: true, braces: tk.Type == token.MappingStartType})
	case token.CollectEntryType:
		if n := len(g.frames); n > 0 {
			g.frames[n-1].colon = false
		}
	case token.MappingEndType, token.SequenceEndType:
		for len(g.frames) > 0 && !g.pop().flow {
			continue
		}
	case token.SequenceEntryType:
		g.close(tk.Position.Column, true)
		g.push(frame{entry: true, column: tk.Position.Column, key: 8})
	case token.MappingValueType:
		if previous == nil {
			break
		}
		if n := len(g.frames); n > 0 && g.frames[n-1].flow {
			g.length += len(previous.Value) - g.frames[n-1].key
			g.frames[n-1].key, g.frames[n-1].colon = len(previous.Value), true
			break
		}
		column := previous.Position.Column
		last := g.close(column, false)
		f := frame{column: column, key: len(previous.Value), keys: 1}
		if last.column == column && !last.entry {
			f.keys += last.keys
		}
		g.push(f)
		return f.keys <= maxBlockKeys
	}
	return true
}

// close ends the block collections that do not go on when a sequence entry or a
// key stands at column, and returns the last that it ended. A sequence may stand
// at the column of the key above it.
func (g *tokenGuard) close(column int, entry bool) (last frame) {
	for n := len(g.frames); n > 0; n = len(g.frames) {
		top := g.frames[n-1]
		if top.flow || top.column < column || entry && !top.entry && top.column == column {
			break
		}
		last = g.pop()
	}
	return last
}

func (g *tokenGuard) push(f frame) {
	g.frames = append(g.frames, f)
	g.length += f.key
}

func (g *tokenGuard) pop() frame {
	n := len(g.frames) - 1
	f := g.frames[n]
	g.frames = g.frames[:n]
	g.length -= f.key
	return f
}
