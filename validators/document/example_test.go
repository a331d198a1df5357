package document_test

import (
	"errors"
	"fmt"

	"github.com/gavel-mcp/gavel/validators/document"
)

func ExampleParse() {
	doc, err := document.Parse("review.yaml", []byte("name: review\nlimit: 2.50\nvalidator: |\n  (data) => data.ok\n"), document.Limits{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(string(doc.JSON()))

	_, err = document.Parse("review.json", []byte("{\n  \"states\": {\"draft\": {}, \"draft\": {}}\n}"), document.Limits{})
	fmt.Println(err)
	// Output:
	// {"name":"review","limit":2.50,"validator":"(data) => data.ok\n"}
	// review.json:2:27: /states/draft: duplicate key "draft"
}

func ExampleNewObject() {
	doc, err := document.Parse("server.yaml", []byte("listen: 127.0.0.1:4285\ntimeout: soon\nstroe: memory\n"), document.Limits{})
	if err != nil {
		fmt.Println(err)
		return
	}
	o := document.NewObject(doc)
	fmt.Println(o.String("listen"))
	o.FloatPtr("timeout")
	o.Enum("store", "memory", "sqlite")
	o.Unknown()
	fmt.Println(o.Err())
	// Output:
	// 127.0.0.1:4285
	// 2 issues:
	//   server.yaml:2:10: /timeout: expected a number, got a string
	//   server.yaml:3:1: /stroe: unknown key "stroe"; did you mean "store"?
}

func ExampleCheckJSON() {
	err := document.CheckJSON([]byte(`{"customer":{"id":90071992547409931}}`), document.Limits{Bytes: 64 << 10})
	fmt.Println(err)

	var issue *document.Issue
	if errors.As(err, &issue) {
		fmt.Println(issue.Rule, issue.Path)
	}
	// Output:
	// /customer/id: this number would change when read as a 64-bit float; use fewer digits or send it as a string (line 1, column 19)
	// number /customer/id
}

func ExampleCanonical() {
	canonical, err := document.Canonical([]byte(`{"b": 1.0, "a": [1e2]}`))
	fmt.Println(string(canonical), err)
	// Output: {"a":[100],"b":1} <nil>
}

func ExampleSuggest() {
	fmt.Println(document.Suggest("aprove", []string{"approve", "reject"}))
	// Output: approve
}
