package upstream

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gavel-mcp/gavel/validators/document"
)

// Pins are the definitions that an operator accepted, by upstream.
type Pins struct {
	path    string
	servers map[string][]Item
}

// Limits on pins.
const (
	maxPinsFile   = 64 << 20
	maxItems      = 5000    // for one upstream
	maxDefinition = 1 << 20 // bytes of one definition
	// maxDefinitionDepth limits the nesting of a definition: the Python SDK rejects a message nested 200 deep.
	maxDefinitionDepth = 150
)

// pinsVersion is the version of the file format.
const pinsVersion = 1

// PinsPath returns the pins file for a configuration file: gavel.pins.json for gavel.yaml.
func PinsPath(config string) string {
	return strings.TrimSuffix(config, filepath.Ext(config)) + ".pins.json"
}

type pinsFile struct {
	Version   int                    `json:"version"`
	Upstreams map[string][]pinnedRow `json:"upstreams"`
}

type pinnedRow struct {
	Kind       Kind            `json:"kind"`
	Name       string          `json:"name"`
	Hash       string          `json:"hash"`
	Definition json.RawMessage `json:"definition"`
}

// LoadPins reads a file that Save wrote. A file that does not exist yields no pins.
func LoadPins(path string) (*Pins, error) {
	p := &Pins{path: path, servers: map[string][]Item{}}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return p, nil
	case err != nil:
		return nil, fmt.Errorf("the pins cannot be read: %w", err)
	case !info.Mode().IsRegular() || info.Size() > maxPinsFile:
		return nil, fmt.Errorf("%s: pins are in a regular file of at most %d MiB", path, maxPinsFile>>20)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("the pins cannot be read: %w", err)
	}
	var file pinsFile
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&file); err != nil || file.Version != pinsVersion {
		return nil, fmt.Errorf("%s is not a file of pins of version %d: pin again with gavel upstream pin: %w", path, pinsVersion, cmp.Or(err, errors.New("another version")))
	}
	for server, rows := range file.Upstreams {
		var items []Item
		for _, row := range rows {
			if (Item{Raw: row.Definition}).Hash() != row.Hash || readChecked(row.Definition).Get(nameKey(row.Kind)).Text() != row.Name {
				return nil, fmt.Errorf("%s: the pin of the %s %q of %q was changed by hand; accept it with gavel upstream pin %s", path, row.Kind, row.Name, server, server)
			}
			if item, _, err := readItem(server, row.Kind, row.Definition); err == nil { // an older gavel may have pinned definitions that strict clients refuse
				items = append(items, item)
			}
		}
		if err := p.Set(server, items); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	return p, nil
}

// Of returns an upstream's pinned items, sorted; ok is false if it was never pinned.
func (p *Pins) Of(server string) (items []Item, ok bool) {
	if p == nil {
		return nil, false
	}
	items, ok = p.servers[server]
	return items, ok
}

// Set replaces the pins of an upstream. It rejects items that clients could not tell apart.
func (p *Pins) Set(server string, items []Item) error {
	items = slices.Clone(items)
	sortItems(items)
	if err := checkItems(server, items); err != nil {
		return err
	}
	p.servers[server] = items
	return nil
}

// Save writes the file, replacing the old one atomically.
func (p *Pins) Save() error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "{\n  \"version\": %d,\n  \"upstreams\": {", pinsVersion)
	for i, server := range sortedKeys(p.servers) {
		fmt.Fprintf(&b, "%s\n    %s: [", separateAt(i), quoteJSON(server))
		for j, item := range p.servers[server] {
			// The definition is written unchanged, because encoding it again would change it.
			fmt.Fprintf(&b, "%s\n      {\"kind\": %s, \"name\": %s, \"hash\": %s,\n       \"definition\": %s}",
				separateAt(j), quoteJSON(string(item.Kind)), quoteJSON(item.Name), quoteJSON(item.Hash()), item.Raw)
		}
		b.WriteString("\n    ]")
	}
	b.WriteString("\n  }\n}\n")
	return replaceFile(p.path, b.Bytes())
}

// replaceFile writes a temporary file in the same folder and renames it to path.
func replaceFile(path string, content []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("the pins cannot be written: %w", err)
	}
	_, err = f.Write(content)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return fmt.Errorf("the pins cannot be written: %w", err)
	}
	return nil
}

func separateAt(i int) string { return [2]string{"", ","}[min(i, 1)] }

func quoteJSON(s string) string { return string(document.AppendQuote(nil, s)) }

// readItem parses a definition from an upstream's list and repairs it; repaired describes the changes. It rejects
// ambiguous definitions, and those that strict clients would refuse.
func readItem(server string, kind Kind, raw json.RawMessage) (item Item, repaired []string, err error) {
	whole := replaceSurrogates(raw)
	v, err := document.ReadJSON(whole, document.Limits{Bytes: maxDefinition, Depth: maxDefinitionDepth, Lax: true, Spaced: true})
	if err != nil {
		return Item{}, nil, err
	}
	if err := checkKeys(v, false); err != nil {
		return Item{}, nil, err
	}
	name := v.Get(nameKey(kind)).Text()
	if name == "" || len(name) > maxName || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7F }) {
		return Item{}, nil, fmt.Errorf("it has no %s of 1 to %d printable characters", nameKey(kind), maxName)
	}
	fixed, repaired, err := repairDefinition(kind, v)
	if !bytes.Equal(whole, raw) {
		repaired = append(repaired, "it has escapes of unpaired surrogates")
	}
	return Item{Upstream: server, Kind: kind, Name: name, Public: publicName(server, kind, name), Raw: bytes.Clone(fixed)}, repaired, err
}

// maxName limits a name or URI, in bytes.
const maxName = 2048

// nameKey returns the member that holds the name in a definition of a kind.
func nameKey(kind Kind) string {
	switch kind {
	case KindResource:
		return "uri"
	case KindTemplate:
		return "uriTemplate"
	default:
		return "name"
	}
}

// pinnedKeys are the members of a definition that a pin covers: those that a model or client bases decisions on.
var pinnedKeys = []string{
	"name", "title", "description", "inputSchema", "outputSchema", "annotations", "_meta",
	"uri", "uriTemplate", "mimeType", "arguments",
}

// Hash returns a digest of the members that a pin covers, in canonical form.
func (i Item) Hash() string {
	v := readChecked(i.Raw)
	b := []byte{'{'}
	for _, key := range pinnedKeys {
		if member := v.Get(key); member.Kind() != 0 {
			b = append(document.AppendQuote(b, key), ':')
			b = append(appendCanonical(b, member), ',')
		}
	}
	sum := sha256.Sum256(append(b, '}'))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// appendCanonical appends a value with sorted keys and without white space. Numbers keep their digits, because those
// of a schema may exceed what RFC 8785 can express.
func appendCanonical(b []byte, v document.JSON) []byte {
	return v.AppendSorted(b, func(b []byte, leaf document.JSON) []byte {
		if leaf.Kind() == document.String {
			return document.AppendQuote(b, leaf.Text())
		}
		return append(b, leaf.Raw()...)
	})
}

// checkItems rejects sorted items of one upstream that share a name or a public name.
func checkItems(server string, items []Item) error {
	if len(items) > maxItems {
		return fmt.Errorf("the upstream %q has more than %d tools, resources and prompts", server, maxItems)
	}
	type place struct {
		kind   Kind
		public string
	}
	seen := map[place]string{}
	for _, item := range items {
		at := place{item.Kind, item.Public}
		if other, twice := seen[at]; twice && other == item.Name {
			return fmt.Errorf("the upstream %q lists the %s %q twice", server, item.Kind, item.Name)
		} else if twice {
			return fmt.Errorf("the %ss %q and %q of the upstream %q would both be called %q", item.Kind, other, item.Name, server, item.Public)
		}
		seen[at] = item.Name
	}
	return nil
}

func sortItems(items []Item) {
	slices.SortFunc(items, func(a, b Item) int {
		return cmp.Or(cmp.Compare(slices.Index(Kinds, a.Kind), slices.Index(Kinds, b.Kind)), cmp.Compare(a.Upstream, b.Upstream), cmp.Compare(a.Name, b.Name))
	})
}
