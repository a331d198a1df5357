package llm

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pass lets the time of a synctest bubble go by.
func pass(d time.Duration) { <-time.After(d) }
