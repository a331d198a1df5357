package face_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/auth"
	"github.com/gavel-mcp/gavel/internal/mcp/face"
)

// For any posted bytes, the answer is one JSON-RPC message or none, and never a server error.
func FuzzHTTPPost(f *testing.F) {
	face, err := face.New(quietConfig(newEngine(f)))
	if err != nil {
		f.Fatal(err)
	}
	endpoint := face.Handler()
	f.Cleanup(endpoint.Close)
	post := func(body, session string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodPost, "/mcp", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		if session != "" {
			r.Header.Set("Mcp-Session-Id", session)
		}
		w := httptest.NewRecorder()
		who := auth.Identity{Principal: engine.Principal{ID: "ann", Role: engine.RoleAgent}, Kind: auth.KindToken}
		endpoint.ServeHTTP(w, r.WithContext(auth.NewContext(r.Context(), who)))
		return w
	}
	session := post(helloHTTP, "").Header().Get("Mcp-Session-Id")
	for _, body := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"ping"}`, `{"jsonrpc":"2.0","id":"gavel.id:7","method":"tools/list"}`,
		`{"jsonrpc":"2.0","id":123456789012345678901234567890,"method":"tools/call","params":{"name":"workflow.start","arguments":{"type":"x"}}}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1e9}}`, `{"jsonrpc":"2.0","id":1,"result":{}}`,
		`{"jsonrpc":"2.0","id":"a","error":{"code":1,"message":"no"}}`, `[1]`, `{}`, "\xff", `{"jsonrpc":"2.0","id":-0,"method":"ping"}`,
		`{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"workflow://instances/x"}}`, `{"id":1,"id":2}`,
		`{"jsonrpc":"2.0","id":1,"method":"completion/complete","params":{"ref":{"type":"ref/prompt","name":"follow-workflow"},"argument":{"name":"type","value":""}}}`,
		`{"jsonrpc":"2.0","id":"\u0061","method":"prompts/get","params":{"name":"follow-workflow"}}`,
	} {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body string) {
		w := post(body, session)
		if w.Code >= http.StatusInternalServerError {
			t.Errorf("%d for %q: %s", w.Code, body, w.Body)
		}
		if w.Code == http.StatusAccepted {
			if w.Body.Len() > 0 {
				t.Errorf("accepted with a body, for %q: %s", body, w.Body)
			}
			return
		}
		var m struct {
			JSONRPC       string
			ID            json.RawMessage
			Result, Error json.RawMessage
		}
		if err := json.Unmarshal(w.Body.Bytes(), &m); err != nil || m.JSONRPC != "2.0" || (m.Result == nil) == (m.Error == nil) {
			t.Errorf("%d for %q: %v %s", w.Code, body, err, w.Body)
		}
		var sent struct{ ID any }
		var got struct{ ID any }
		if w.Code == http.StatusOK && json.Unmarshal([]byte(body), &sent) == nil && json.Unmarshal(w.Body.Bytes(), &got) == nil && sent.ID != got.ID {
			t.Errorf("the id of %q came back as %s", body, m.ID)
		}
	})
}
