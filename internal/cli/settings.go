package cli

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/internal/config"
	"github.com/gavel-mcp/gavel/internal/telemetry"
)

// EffectiveSetting is a setting in force and its origin.
type EffectiveSetting struct {
	Key    string `json:"key"`
	Value  any    `json:"value"`
	Origin string `json:"origin"` // default, file, environment, flag
	// Where is the flag, the variable, or the file with the line.
	Where    string `json:"where,omitempty"`
	Flag     string `json:"flag,omitempty"`
	Variable string `json:"variable,omitempty"`
}

// The origins of settings, lowest precedence first.
const (
	FromDefault     = "default"
	FromFile        = "file"
	FromEnvironment = "environment"
	FromFlag        = "flag"
)

func sectionRank(key string) int {
	section, _, inside := strings.Cut(key, ".")
	if !inside {
		return -1
	}
	return slices.Index([]string{config.SectionServe, config.SectionMCP, config.SectionQuotas, config.SectionModel, config.SectionAnchors}, section)
}

// maskSetting is like maskValue, and also removes the password of a store.
func maskSetting(flag string, v any) any {
	if text, ok := v.(string); ok && flag == "store" {
		return RedactStore(text)
	}
	return maskValue(v)
}

// maskValue returns a flag's value without secrets, as the file would contain it.
func maskValue(v any) any {
	switch v := v.(type) {
	case string:
		if IsKeyText(v) {
			return telemetry.Redacted
		}
		return telemetry.Scrub(v)
	case time.Duration:
		return formatShortDuration(v)
	case []string:
		list := make([]string, len(v))
		for i, item := range v {
			list[i] = telemetry.Scrub(item)
		}
		return list
	case *float64:
		if v == nil {
			return nil
		}
		return *v
	default:
		return v
	}
}

// formatShortDuration formats a duration as 2m instead of 2m0s.
func formatShortDuration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// FormatValue formats a setting's value on one line.
func FormatValue(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case []string:
		return strings.Join(v, ", ")
	default:
		return fmt.Sprint(v)
	}
}

// readFiles lists the flags whose files a server reads when it starts. Missing files of stores, tokens, anchors and
// cassettes are created.
var readFiles = []string{"definitions", "tls-cert", "tls-key", "tls-client-ca", "llm-key-file", "llm-calibration", "anchor-key", "store-key"}
