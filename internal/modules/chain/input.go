package chain

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/gavel-mcp/gavel/validators/document"
)

// CheckInput validates the input of a run, and returns it merged over the definition's defaults.
func (d *Definition) CheckInput(raw json.RawMessage) (map[string]any, error) {
	out := cloneValues(d.Input)
	if len(raw) > 0 {
		v, err := document.ReadJSON(raw, document.Limits{Bytes: MaxOutput})
		if err != nil {
			return nil, fmt.Errorf("the input cannot be read: %w", err)
		}
		given, ok := decodeJSON(v.Raw()).(map[string]any)
		if !ok {
			return nil, fmt.Errorf("the input must be an object, not %s", describeKind(decodeJSON(v.Raw())))
		}
		for _, key := range slices.Sorted(maps.Keys(given)) {
			if _, known := out[key]; !known && d.inputSchema == nil {
				hint := suggestName(key, slices.Sorted(maps.Keys(d.Input)))
				if len(d.Input) == 0 {
					hint = "; it takes none"
				}
				return nil, fmt.Errorf("the chain %q has no input %s%s", d.Name, quoteName(key), hint)
			}
		}
		maps.Copy(out, given)
	}
	if d.inputSchema == nil {
		return out, nil
	}
	whole, err := document.Marshal(out)
	if err != nil {
		return nil, fmt.Errorf("the input is not JSON: %w", err)
	}
	wrong, err := d.inputSchema.Validate(document.ReadTrusted(whole))
	switch {
	case err != nil:
		return nil, fmt.Errorf("the input could not be checked: %w", err)
	case len(wrong) > 0:
		return nil, fmt.Errorf("the input does not match its schema: %s", wrong[0].Message)
	}
	return out, nil
}

// DescribeInput returns the JSON Schema of the input: the definition's own, or one derived from the
// defaults. The defaults belong to the operator and are not shown. The schema accepts exactly what
// CheckInput accepts, so it only describes the type of a default, and requires no key.
func (d *Definition) DescribeInput() json.RawMessage {
	if len(d.InputSchema) > 0 {
		return d.InputSchema
	}
	properties := map[string]any{}
	for name, value := range d.Input {
		properties[name] = map[string]any{"description": "Optional: the chain has a default, " + describeKind(value) + "."}
	}
	raw, _ := json.Marshal(map[string]any{"type": "object", "properties": properties, "additionalProperties": false}) // strings always encode
	return raw
}
