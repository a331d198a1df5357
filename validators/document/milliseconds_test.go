package document_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/validators/document"
)

func TestMilliseconds(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0", time.Microsecond: "0.001", 42*time.Microsecond + 400: "0.042", 1500 * time.Millisecond: "1500", time.Hour: "3600000", -time.Millisecond: "-1",
	} {
		got, err := json.Marshal(document.Milliseconds(d))
		if err != nil || string(got) != want {
			t.Errorf("%v is %s, want %s (%v)", d, got, want, err)
		}
		var back document.Milliseconds
		if err := json.Unmarshal(got, &back); err != nil || back.Duration() != d.Round(time.Microsecond) {
			t.Errorf("%s is read as %v (%v)", got, back, err)
		}
	}
	var m document.Milliseconds
	if err := json.Unmarshal([]byte(`"1s"`), &m); err == nil {
		t.Errorf("a text is read as %v", m)
	}
}
