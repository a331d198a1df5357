package script_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/validators/script"
)

func newPool(t testing.TB, cfg script.Config) *script.Pool {
	t.Helper()
	p, err := script.NewPool(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func one(t testing.TB, p *script.Pool, source, data string) script.Result {
	t.Helper()
	r, err := p.Run(context.Background(), script.Batch{
		Owner: t.Name(), Now: time.Unix(1_700_000_000, 0),
		Validators: []script.Script{{Name: "v", Kind: script.Validator, Source: source}},
		Data:       json.RawMessage(data), Context: json.RawMessage(`{"state":"draft"}`),
	})
	if err != nil {
		t.Fatal(err)
	}
	return r.Results[0]
}

func TestSmoke(t *testing.T) {
	p := newPool(t, script.Config{})
	for _, src := range []string{
		"(data, context) => ({ valid: data.n > 2, confidence: 0.5, reason: 'no' })",
		"(d) => d.x.y", "(d)=>1", "async (d)=>true", "(d)=>{for(;;);}", "(d)=>'x'.repeat(1e9)", "()=>1n<<(10n**11n)",
		"(d) => true", "(d)=>{throw new TypeError('no')}", "(d) =>\n {{{", "()=>{const o={length:2**53-1}; Array.prototype.indexOf.call(o,1)}",
		"()=>{let s='x'; for(;;) s+=s}", "(d)=>({valid:true,violations:['a','b'],reason:'x'})", "()=>{const x=[5,4,3,2,1]; x.sort(()=>{ x.length=0; return 1 });return true}",
	} {
		began := time.Now()
		r := one(t, p, src, `{"n":3}`)
		t.Logf("%-60.60s %v %+v", src, time.Since(began), r)
	}
	t.Logf("%+v", p.Stats())
}
