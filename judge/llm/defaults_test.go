package llm

import (
	"strings"
	"testing"
	"time"
)

func TestNewReportsEveryMistake(t *testing.T) {
	t.Parallel()
	_, err := New(Config{
		Models:    []Model{{ID: "a", BaseURL: "https://x.example"}, {ID: "a", BaseURL: "ftp://x"}, {Name: "t", ID: "t", BaseURL: "https://x.example", Thinking: "enormous"}},
		Fallbacks: []string{"nobody"}, Deadline: -1, BreakerMin: -2, Parallel: -3,
	})
	for _, want := range []string{"two models", "nobody", "Deadline", "BreakerMin", "Parallel", "ftp", "enormous"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in: %v", want, err)
		}
	}
	if _, err := New(Config{}); err == nil || !strings.Contains(err.Error(), "no model") {
		t.Errorf("%v", err)
	}
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	plain := Config{Models: []Model{{ID: "a"}}}.withDefaults()
	thinks := Config{Models: []Model{{ID: "a"}, {ID: "b", Thinking: "high"}}}.withDefaults()
	if plain.Deadline != 20*time.Second || thinks.Deadline != time.Minute {
		t.Errorf("%v, thinking %v", plain.Deadline, thinks.Deadline)
	}
	if plain.Models[0].Name != "a" || plain.Doer == nil || plain.Jitter == nil {
		t.Errorf("%+v", plain)
	}
	if err := plain.validate(); err != nil {
		t.Errorf("the defaults do not work: %v", err)
	}
}
