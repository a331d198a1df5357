package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
)

// demoTestsCommand makes this program the one that runs the tests of the demo's
// project. It has no page in the reference: nobody else has a use for it.
const demoTestsCommand = "__demo-tests"

// demoTestsLimit ends tests that hang where nobody stops them.
const demoTestsLimit = time.Minute

// demoTests tests the project in a file. It writes what test runners write, and its
// exit code says what came of it.
func demoTests(ctx context.Context, file string, out io.Writer) (code int) {
	ctx, cancel := context.WithTimeout(ctx, demoTestsLimit)
	defer cancel()
	text, err := os.ReadFile(file)
	if err != nil {
		fmt.Fprintln(out, "no project:", err)
		return 2
	}
	shop := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(line, "="); ok {
			shop[strings.TrimSpace(key)] = strings.TrimSpace(value)
		}
	}
	number := func(key string) int { n, _ := strconv.Atoi(shop[key]); return n } //nolint:errcheck // then it is 0
	for _, test := range []struct {
		name, problem string
	}{
		{"TestPrice", unless(number("price") > 0, "the price is %d, want more than 0", number("price"))},
		{"TestTotal", unless(number("total") == number("price")-number("discount"), "total is %d, want %d", number("total"), number("price")-number("discount"))},
	} {
		fmt.Fprintf(out, "=== RUN   %s\n", test.name)
		if test.name == "TestTotal" && shop["total"] == "for ever" {
			<-ctx.Done()
		}
		if test.problem == "" {
			fmt.Fprintf(out, "--- PASS: %s\n", test.name)
			continue
		}
		fmt.Fprintf(out, "--- FAIL: %s: %s\n", test.name, test.problem)
		code = 1
	}
	fmt.Fprintln(out, map[int]string{0: "PASS", 1: "FAIL"}[code])
	return code
}

func unless(ok bool, format string, args ...any) string {
	if ok {
		return ""
	}
	return fmt.Sprintf(format, args...)
}
